"""The Python interface: the operations of the SQL functions, with pandas frames for results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple
from pathlib import Path
from types import TracebackType
from typing import Self

import pandas as pd

import kanon_db
from kanon_db.answering import estimates
from kanon_db.catalog import sources
from kanon_db.counting.answers import Estimated
from kanon_db.errors import ServerError
from kanon_db.publications import examination, pipeline
from kanon_db.publications.buckets import kind as buckets
from kanon_db.publications.pipeline import Published
from kanon_db.publications.suppressed import kind as suppressed
from kanon_db.session.psycopg_session import PsycopgSession, open_connection
from kanon_db.transfer.load import LoadReport, load_csv

Listener = Callable[[str], None]


def connect(
    dsn: str, *, on_step: Listener | None = None, on_warning: Listener | None = None
) -> Kanon:
    """Open a database with kanon_db installed.

    Parameters
    ----------
    dsn : str
        PostgreSQL connection string.
    on_step, on_warning : callable, optional
        Called with a short text for each step of an operation, and for each warning.

    Returns
    -------
    Kanon
        To be closed, or used in a `with` statement.

    Raises
    ------
    ServerError
        When no connection can be made.
    """
    return Kanon(PsycopgSession(open_connection(dsn), on_step, on_warning))


class Kanon:
    """An open database. Each method is one transaction: all or nothing."""

    def __init__(self, session: PsycopgSession) -> None:
        self._session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._session.connection.close()

    @contextmanager
    def _operation(self) -> Iterator[PsycopgSession]:
        with self._session.transaction():
            self._require_installation()
            yield self._session

    def _require_installation(self) -> None:
        if not self._session.fetch("SELECT 1 WHERE to_regclass('kanon.publications') IS NOT NULL"):
            raise ServerError(
                "kanon_db is not installed in this database, or not open to this role",
                hint="run `kanon install` as the server's administrator, or be granted"
                " kanon_publisher or kanon_analyst",
            )

    def load(
        self, path: str | Path, table: str, *, replace: bool = False, null: str = ""
    ) -> LoadReport:
        """Copy a CSV file into a new table; see :func:`~kanon_db.transfer.load.load_csv`."""
        with self._session.transaction():
            return load_csv(self._session, Path(path), table, replace=replace, null=null)

    def register_source(
        self,
        source: str,
        *,
        quasi_identifiers: Sequence[str],
        sensitive: str | None = None,
        identifiers: Sequence[str] = (),
        attributes: str | None = None,
    ) -> int:
        """Describe microdata; see :func:`~kanon_db.catalog.sources.register_source`."""
        source = self._session.qualified(source)
        with self._operation() as session:
            return sources.register_source(
                session,
                source,
                quasi_identifiers=quasi_identifiers,
                sensitive=sensitive,
                identifiers=identifiers,
                attributes=attributes,
            )

    def publish_buckets(
        self,
        source: str,
        name: str,
        *,
        privacy: str,
        method: str = "two_size",
        max_bucket_size: int = 50,
        assignment: str = "random",
        options: str | None = None,
        readers: Sequence[str] | None = None,
        replace: bool = False,
    ) -> Published:
        """Publish buckets; see :func:`~kanon_db.publications.buckets.kind.publish_buckets`."""
        source = self._session.qualified(source)
        with self._operation() as session:
            return buckets.publish_buckets(
                session,
                source,
                name,
                privacy=privacy,
                method=method,
                max_bucket_size=max_bucket_size,
                assignment=assignment,
                options=options,
                readers=readers,
                replace=replace,
            )

    def publish_generalized(
        self,
        source: str,
        name: str,
        *,
        k: int,
        method: str = "auto",
        weights: str | None = None,
        options: str | None = None,
        constraints: str | None = None,
        max_suppressed: float | str = 0,
        refine: bool = True,
        readers: Sequence[str] | None = None,
        replace: bool = False,
    ) -> Published:
        """Generalize rows; see `publications.generalized.kind`."""
        from kanon_db.publications.generalized.kind import publish_generalized  # loads a compiler

        source = self._session.qualified(source)
        with self._operation() as session:
            return publish_generalized(
                session,
                source,
                name,
                k=k,
                method=method,
                weights=weights,
                options=options,
                constraints=constraints,
                max_suppressed=max_suppressed,
                refine=refine,
                readers=readers,
                replace=replace,
            )

    def publish_freeform(
        self,
        source: str,
        name: str,
        *,
        k: int,
        method: str = "sort_greedy",
        weights: str | None = None,
        options: str | None = None,
        readers: Sequence[str] | None = None,
        replace: bool = False,
    ) -> Published:
        """Publish freeform rows; see `publications.freeform.kind`."""
        from kanon_db.publications.freeform.kind import publish_freeform  # loads a compiler

        source = self._session.qualified(source)
        with self._operation() as session:
            return publish_freeform(
                session,
                source,
                name,
                k=k,
                method=method,
                weights=weights,
                options=options,
                readers=readers,
                replace=replace,
            )

    def publish_suppressed(
        self,
        source: str,
        name: str,
        *,
        k: int,
        patterns: Sequence[str] | None = None,
        method: str = "greedy",
        rules: str | None = None,
        weights: str | None = None,
        options: str | None = None,
        readers: Sequence[str] | None = None,
        replace: bool = False,
    ) -> Published:
        """Publish suppressed rows; see `publications.suppressed.kind`."""
        source = self._session.qualified(source)
        with self._operation() as session:
            return suppressed.publish_suppressed(
                session,
                source,
                name,
                k=k,
                patterns=patterns,
                method=method,
                rules=rules,
                weights=weights,
                options=options,
                readers=readers,
                replace=replace,
            )

    def suppression_patterns(
        self,
        source: str,
        *,
        patterns: Sequence[str] | None = None,
        rules: str | None = None,
        weights: str | None = None,
    ) -> pd.DataFrame:
        """Show patterns before use: ``position``, ``pattern``, ``suppressed``, ``cost``."""
        source = self._session.qualified(source)
        with self._operation() as session:
            found = suppressed.suppression_patterns(
                session, source, patterns=patterns, rules=rules, weights=weights
            )
        return pd.DataFrame([asdict(pattern) for pattern in found])

    def estimate_count(self, query: str) -> Estimated:
        """Estimate a COUNT query from a publication."""
        with self._operation() as session:
            return estimates.estimate_count(session, query)

    def count(self, query: str) -> pd.DataFrame:
        """Estimate COUNT, SUM and AVG, with GROUP BY or without.

        Returns
        -------
        DataFrame
            A row for each group, and for each aggregate where there are several: the group's
            values, then ``aggregate`` (unless the query is one COUNT), ``estimate``,
            ``std_error``, ``lower_bound``, ``upper_bound``. Bounds of sums and averages that are
            not certain are missing.
        """
        with self._operation() as session:
            answer = estimates.estimate(session, query)
        shown = answer.shown
        is_one_count = len(shown) == 1 and shown[0][1].aggregate.function == "count"
        names = [key.name for key in answer.query.keys]
        numbers = ["estimate", "std_error", "lower_bound", "upper_bound"]
        rows = []
        for group in answer.groups:
            values = json.loads(group.key)
            rows += [
                [
                    *(values[name] for name in names),
                    *([] if is_one_count else [measure.label]),
                    *astuple(group.estimates[place]),
                ]
                for place, measure in shown
            ]
        columns = [*names, *([] if is_one_count else ["aggregate"]), *numbers]
        return pd.DataFrame(rows, columns=columns)

    def explain_count(self, query: str) -> pd.DataFrame:
        """Say how a query is answered: ``part``, ``description``, ``accuracy``, ``std_error``."""
        with self._operation() as session:
            lines = estimates.explain_count(session, query)
        return pd.DataFrame([asdict(line) for line in lines])

    def rewrite_count(self, query: str) -> str:
        """Return the SQL that answers a COUNT query."""
        with self._operation() as session:
            return estimates.rewrite_count(session, query)

    def verify(self, name: str) -> pd.DataFrame:
        """Check a publication: columns ``check``, ``bound``, ``measured``, ``holds``."""
        with self._operation() as session:
            return pd.DataFrame([asdict(check) for check in examination.verify(session, name)])

    def metrics(self, name: str) -> pd.DataFrame:
        """Measure a publication: columns ``metric``, ``value``."""
        with self._operation() as session:
            measured = examination.metrics(session, name)
        return pd.DataFrame({"metric": measured.keys(), "value": measured.values()})

    def evaluate_counts(
        self,
        name: str,
        *,
        queries: int = 1000,
        dimensionality: Sequence[int] | None = None,
        selectivity: Sequence[float] | None = None,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """Measure errors of counts; see :func:`~kanon_db.answering.evaluation.evaluate_counts`."""
        from kanon_db.answering.evaluation import evaluate_counts  # loads a compiler

        with self._operation() as session:
            found = evaluate_counts(
                session,
                name,
                queries=queries,
                dimensionality=dimensionality,
                selectivity=selectivity,
                seed=seed,
            )
        return pd.DataFrame([asdict(accuracy) for accuracy in found])

    def publications(self) -> pd.DataFrame:
        """List the publications that the role may read, one row each."""
        columns = (
            "publication_id", "name", "kind", "source", "method", "parameters", "rows",
            "guarantee", "metrics", "published_at", "published_by",
        )  # fmt: skip
        with self._operation() as session:
            rows = session.fetch(
                f"SELECT {', '.join(columns)} FROM kanon.publications ORDER BY publication_id"
            )
        return pd.DataFrame(rows, columns=list(columns))

    def drop_publication(self, name: str) -> None:
        """Drop a publication."""
        with self._operation() as session:
            pipeline.drop_publication(session, name)

    def version(self) -> str:
        """Return the version of this package."""
        return kanon_db.__version__
