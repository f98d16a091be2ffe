"""The operations as methods.

Written by `make generate` from what kanon_db/operations.py declares.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from kanon_db.counting.answers import Counted
    from kanon_db.publications.results import Published


class Methods:
    """A method for each operation; `perform` does the work of all."""

    def perform(self, name: str, given: Mapping[str, Any]) -> Any:
        """Perform an operation by its name."""
        raise NotImplementedError

    def version(self) -> str:
        """Version of kanon_db."""
        return self.perform("version", {})

    def register_source(
        self,
        source: str,
        *,
        quasi_identifiers: Sequence[str],
        sensitive: str | None = None,
        identifiers: Sequence[str] = (),
        attributes: str | Mapping[str, Any] | None = None,
    ) -> int:
        """Describe microdata: quasi-identifiers, sensitive attribute, identifiers; returns its id.

        A source that is registered again gets the new description, unless it has publications.

        Parameters
        ----------
        source : str
            A table, partitioned table, foreign table, view or materialized view, such as
            'public.census'.
        quasi_identifiers : Sequence[str]
            Columns that others may know of a person.
        sensitive : str
            Column to protect.
        identifiers : Sequence[str]
            Columns never to publish.
        attributes : str | Mapping[str, Any]
            Kinds, bounds and weights of quasi-identifiers, such as '{"age": {"kind": "numeric",
            "lower": 0, "upper": 120, "weight": 0.4}}'.
        """
        return self.perform(
            "register_source",
            {
                "source": source,
                "quasi_identifiers": quasi_identifiers,
                "sensitive": sensitive,
                "identifiers": identifiers,
                "attributes": attributes,
            },
        )

    def suppression_patterns(
        self,
        source: str,
        *,
        patterns: Sequence[str] | None = None,
        rules: str | Sequence[Any] | None = None,
        weights: str | Mapping[str, Any] | None = None,
    ) -> pd.DataFrame:
        """The pattern vectors that a list or rules allow, in the order in which they are tried.

        Parameters
        ----------
        source : str
            A registered relation.
        patterns : Sequence[str]
            Pattern vectors: * suppresses, . keeps, in the order of the quasi-identifiers.
        rules : str | Sequence[Any]
            Rules that make the patterns, such as '[{"at_most": 2}, {"never": ["age"]}, {"outliers":
            "suppress"}]'.
        weights : str | Mapping[str, Any]
            Cost of a suppressed cell, by quasi-identifier.

        Returns
        -------
        DataFrame
            Columns ``position``, ``pattern``, ``suppressed``, ``cost``.
        """
        return self.perform(
            "suppression_patterns",
            {"source": source, "patterns": patterns, "rules": rules, "weights": weights},
        )

    def verify(self, name: str) -> pd.DataFrame:
        """Check a publication from its published relations alone.

        Parameters
        ----------
        name : str
            The publication.

        Returns
        -------
        DataFrame
            Columns ``check``, ``bound``, ``measured``, ``holds``.
        """
        return self.perform("verify", {"name": name})

    def metrics(self, name: str) -> pd.DataFrame:
        """Measure a publication from its published relations.

        Parameters
        ----------
        name : str
            The publication.

        Returns
        -------
        DataFrame
            Columns ``metric``, ``value``.
        """
        return self.perform("metrics", {"name": name})

    def evaluate_counts(
        self,
        name: str,
        *,
        queries: int = 1000,
        dimensionality: Sequence[int] | None = None,
        selectivity: Sequence[float] | None = None,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """Relative errors of a bucketization's answers to random count queries, beside its source.

        Parameters
        ----------
        name : str
            The publication: buckets.
        queries : int
            How many queries.
        dimensionality : Sequence[int]
            Numbers of quasi-identifiers with a condition, of which each query draws one; any number
            by default.
        selectivity : Sequence[float]
            Expected shares of matching records, of which each query draws one; 0.01, 0.05 and 0.1
            by default.
        seed : int
            The same seed draws the same queries.

        Returns
        -------
        DataFrame
            Columns ``expected_selectivity``, ``n_queries``, ``undefined``, ``mean_relative_error``,
            ``median_relative_error``.
        """
        return self.perform(
            "evaluate_counts",
            {
                "name": name,
                "queries": queries,
                "dimensionality": dimensionality,
                "selectivity": selectivity,
                "seed": seed,
            },
        )

    def drop_publication(self, name: str) -> None:
        """Drop a publication: its relations and its entry in the catalog.

        Parameters
        ----------
        name : str
            The publication.
        """
        return self.perform("drop_publication", {"name": name})

    def estimate_count(self, query: str) -> Counted:
        """Estimate a COUNT query from a publication, with certain bounds.

        Parameters
        ----------
        query : str
            Such as SELECT COUNT(*) FROM name WHERE age > 30.
        """
        return self.perform("estimate_count", {"query": query})

    def estimate_counts(self, query: str) -> pd.DataFrame:
        """Estimate a COUNT query with GROUP BY, a row for each group.

        Parameters
        ----------
        query : str
            Such as SELECT COUNT(*) FROM name WHERE age > 30.

        Returns
        -------
        DataFrame
            Columns ``group_key``, ``estimate``, ``std_error``, ``lower_bound``, ``upper_bound``.
        """
        return self.perform("estimate_counts", {"query": query})

    def estimate(self, query: str) -> pd.DataFrame:
        """Estimate the counts, sums and averages of a query, a row for each group and aggregate.

        Parameters
        ----------
        query : str
            Such as SELECT COUNT(*) FROM name WHERE age > 30.

        Returns
        -------
        DataFrame
            Columns ``group_key``, ``aggregate``, ``estimate``, ``std_error``, ``lower_bound``,
            ``upper_bound``.
        """
        return self.perform("estimate", {"query": query})

    def explain_count(self, query: str) -> pd.DataFrame:
        """Say what of a query's answer is exact, what is estimated, and how.

        Parameters
        ----------
        query : str
            Such as SELECT COUNT(*) FROM name WHERE age > 30.

        Returns
        -------
        DataFrame
            Columns ``part``, ``description``, ``accuracy``, ``std_error``.
        """
        return self.perform("explain_count", {"query": query})

    def rewrite_count(self, query: str) -> str:
        """The SQL that answers a COUNT query, as text.

        Parameters
        ----------
        query : str
            Such as SELECT COUNT(*) FROM name WHERE age > 30.
        """
        return self.perform("rewrite_count", {"query": query})

    def publish_buckets(
        self,
        source: str,
        publication: str,
        *,
        privacy: str | Mapping[str, Any],
        method: str = "two_size",
        max_bucket_size: int = 50,
        assignment: str = "random",
        readers: Sequence[str] | None = None,
        replace: bool = False,
        options: str | Mapping[str, Any] | None = None,
    ) -> Published:
        """Publish a registered source as buckets under F'-privacy.

        Makes tables NAME_qit and NAME_sat, and the view NAME, which joins them.

        Parameters
        ----------
        source : str
            A registered relation, such as 'public.census'.
        publication : str
            Name of the publication.
        method : str
            How the bucket setting is found.
        privacy : str | Mapping[str, Any]
            Privacy specification, such as '{"theta": 8, "base": 0.02}' or '{"l": 4}'.
        max_bucket_size : int
            Largest size of a bucket; Anatomy has its own.
        assignment : str
            How records are assigned to buckets.
        readers : Sequence[str]
            Roles that may read it; kanon_analyst by default.
        replace : bool
            Replace the publication if it exists, in the same transaction.
        options : str | Mapping[str, Any]
            Options of the method, such as '{"time_limit": 60}'.
        """
        return self.perform(
            "publish_buckets",
            {
                "source": source,
                "publication": publication,
                "method": method,
                "privacy": privacy,
                "max_bucket_size": max_bucket_size,
                "assignment": assignment,
                "readers": readers,
                "replace": replace,
                "options": options,
            },
        )

    def publish_generalized(
        self,
        source: str,
        publication: str,
        *,
        k: int,
        method: str = "auto",
        weights: str | Mapping[str, Any] | None = None,
        options: str | Mapping[str, Any] | None = None,
        constraints: str | Mapping[str, Any] | None = None,
        max_suppressed: float | Decimal | str = "0",
        refine: bool = True,
        readers: Sequence[str] | None = None,
        replace: bool = False,
    ) -> Published:
        """Publish a registered source k-anonymously, with ranges and sets that rows share.

        Makes the materialized view NAME.

        Parameters
        ----------
        source : str
            A registered relation, such as 'public.census'.
        publication : str
            Name of the publication.
        k : int
            Fewest rows that share all their cells.
        method : str
            How classes are found.
        weights : str | Mapping[str, Any]
            Factor of the loss, by quasi-identifier.
        options : str | Mapping[str, Any]
            Options of the method, such as '{"time_limit": 60}'.
        constraints : str | Mapping[str, Any]
            On the sensitive values that share cells, such as '{"l": 3}' or '{"t": 0.2}'.
        max_suppressed : float | Decimal | str
            Share of the records that may be left out where that lowers the loss.
        refine : bool
            Lower the loss of the classes found, until the time limit.
        readers : Sequence[str]
            Roles that may read it; kanon_analyst by default.
        replace : bool
            Replace the publication if it exists, in the same transaction.
        """
        return self.perform(
            "publish_generalized",
            {
                "source": source,
                "publication": publication,
                "k": k,
                "method": method,
                "weights": weights,
                "options": options,
                "constraints": constraints,
                "max_suppressed": max_suppressed,
                "refine": refine,
                "readers": readers,
                "replace": replace,
            },
        )

    def publish_freeform(
        self,
        source: str,
        publication: str,
        *,
        k: int,
        method: str = "sort_greedy",
        weights: str | Mapping[str, Any] | None = None,
        options: str | Mapping[str, Any] | None = None,
        readers: Sequence[str] | None = None,
        replace: bool = False,
    ) -> Published:
        """Publish a registered source k-anonymously, each row with ranges and sets of its own.

        Makes the materialized view NAME.

        Parameters
        ----------
        source : str
            A registered relation, such as 'public.census'.
        publication : str
            Name of the publication.
        k : int
            Originals that each row matches, and rows that each original matches.
        method : str
            How matches are found.
        weights : str | Mapping[str, Any]
            Factor of the loss, by quasi-identifier.
        options : str | Mapping[str, Any]
            Options of the method, such as '{"partition_size": 2000}'.
        readers : Sequence[str]
            Roles that may read it; kanon_analyst by default.
        replace : bool
            Replace the publication if it exists, in the same transaction.
        """
        return self.perform(
            "publish_freeform",
            {
                "source": source,
                "publication": publication,
                "k": k,
                "method": method,
                "weights": weights,
                "options": options,
                "readers": readers,
                "replace": replace,
            },
        )

    def publish_suppressed(
        self,
        source: str,
        publication: str,
        *,
        k: int,
        patterns: Sequence[str] | None = None,
        method: str = "greedy",
        rules: str | Sequence[Any] | None = None,
        weights: str | Mapping[str, Any] | None = None,
        options: str | Mapping[str, Any] | None = None,
        readers: Sequence[str] | None = None,
        replace: bool = False,
    ) -> Published:
        """Publish a registered source k-anonymously, with suppressed cells.

        Makes the materialized view NAME. Without patterns and rules, any cells may be suppressed;
        `kanon patterns` shows which combinations they allow.

        Parameters
        ----------
        source : str
            A registered relation, such as 'public.census'.
        publication : str
            Name of the publication.
        k : int
            Fewest rows that share what is kept of them.
        patterns : Sequence[str]
            Pattern vectors: * suppresses, . keeps, in the order of the quasi-identifiers.
        method : str
            How it is chosen what each row keeps.
        rules : str | Sequence[Any]
            Rules that make the patterns, such as '[{"at_most": 2}, {"never": ["age"]}, {"outliers":
            "suppress"}]'.
        weights : str | Mapping[str, Any]
            Cost of a suppressed cell, by quasi-identifier.
        options : str | Mapping[str, Any]
            Options of the method, such as '{"time_limit": 60}'.
        readers : Sequence[str]
            Roles that may read it; kanon_analyst by default.
        replace : bool
            Replace the publication if it exists, in the same transaction.
        """
        return self.perform(
            "publish_suppressed",
            {
                "source": source,
                "publication": publication,
                "k": k,
                "patterns": patterns,
                "method": method,
                "rules": rules,
                "weights": weights,
                "options": options,
                "readers": readers,
                "replace": replace,
            },
        )
