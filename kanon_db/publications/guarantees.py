"""Describes a guarantee, checks how frequent sensitive values are, and says what is not covered.

The server compares the frequency of each sensitive value in a bucket or class with its threshold.
No bound on values covers what refusals and waiting tell: whoever knows who was in the source then
learns something of their values. Who waited is not recorded, since it would tell readers.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, fields, replace
from fractions import Fraction
from math import ceil
from typing import Any, Final, Protocol, Self

from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy, PrivacySpecification
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.computation import Proof
from kanon_db.algorithms.ground.exact_numbers import exact_text
from kanon_db.algorithms.recoding import Microdata
from kanon_db.catalog.entries import Publication, Source
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.publish_request import PublishRequest
from kanon_db.publications.results import WAITING_CLAUSE, Check, Remark
from kanon_db.session.protocol import Row, Session, fetch_one
from kanon_db.transfer.columns import fix_labels, label


def summed(default: int = 0) -> Any:
    """Declare a number of records: those of two batches add up."""
    return field(default=default, metadata={"together": operator.add})


def largest(default: float = 0.0) -> Any:
    """Declare a share of the records: of two batches, the larger one counts."""
    return field(default=default, metadata={"together": max})


@dataclass(frozen=True, kw_only=True)
class Guarantee(ABC):
    """The promise of a publication, as figures; a kind has its own, and words it.

    The catalog keeps `plain` beside the text, which is written once, when it is published.
    """

    kept: str | None = None  # which record of each person it is about, if there are others
    pooled: tuple[str, ...] = ()  # the sensitive attributes that are calculated from all records

    @property
    @abstractmethod
    def short(self) -> str:
        """Name it in a few words, for lists of publications."""

    @property
    @abstractmethod
    def promise(self) -> str:
        """What holds for everybody."""

    @property
    def bounded(self) -> Sequence[str]:
        """The sensitive attributes of which no value is inferred above a bound."""
        return ()

    @property
    def conditions(self) -> Sequence[str]:
        """Whom the promise does not cover, and what."""
        return ()

    def __str__(self) -> str:
        """Write it for readers."""
        kept = [] if self.kept is None else [_KEPT.format(self.kept)]
        others = left_open({"kept": self.kept, "pooled": self.pooled})
        kept += [f"{one}, is not covered" for one in others]
        return "; ".join([self.promise, *self.conditions, *kept])

    def about_kept(self, source: Source) -> Self:
        """Say which record of each person it is about."""
        return replace(self, kept=source.kept_in_words, pooled=source.pooled)

    def together(self, batch: Self) -> Self:
        """Return what holds of a publication and a batch of new people, asked for alike."""
        joined = {
            item.name: join(getattr(self, item.name), getattr(batch, item.name))
            for item in fields(self)
            if (join := item.metadata.get("together"))
        }
        return replace(self, **joined)

    def with_earlier(self, old: Publication) -> Self:
        """Return the guarantee of a publication with the batch that this is of."""
        return self.read(old.promise).together(self)

    @property
    def plain(self) -> dict[str, Any]:
        """Return its figures as plain JSON, with what follows from them."""
        return {**asdict(self), "short": self.short, "bounded": list(self.bounded)}

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Self:
        """Return the guarantee that has these figures."""
        kept = {item.name: plain[item.name] for item in fields(cls) if item.name in plain}
        figures: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in kept.items()}
        return cls(**figures)


CORRELATIONS_NOT_COVERED: Final = "what correlations with other columns tell is not covered"
"""What no bound on values covers."""


def threshold_of_1(share: float) -> str:
    """Say of how many records nothing is bounded; nothing of none."""
    return f"the threshold is 1 for {share:.1%} of the records" if share else ""


def times_of(k: int, *, of_people: bool) -> str:
    """Say how often something occurs, and whether k people are meant."""
    return f"{k} times, for as many different people" if of_people else f"{k} times"


_KEPT: Final = "each person is published with one record, {}"
_OTHERS: Final = "what somebody knows of a person's other records, and infers from it"
_POOLED: Final = (
    "{} is calculated from all records of a person, and what somebody knows of how many these are,"
    " and infers from it"
)
_LISTS: Final = "the values of {} are lists: how many of them have one code in common has no bound"


def lists_in_words(names: Sequence[str]) -> str:
    """Say that the parts of values which are lists have no bound; nothing without such values."""
    return _LISTS.format(" and ".join(names)) if names else ""


def left_open(promise: Mapping[str, Any]) -> list[str]:
    """Say what the figures of a guarantee leave open, besides what all of its kind do."""
    return [
        *([_OTHERS] if promise.get("kept") is not None else []),
        *([_POOLED.format(" and ".join(pooled))] if (pooled := promise.get("pooled")) else []),
        *([lists_in_words(lists)] if (lists := promise.get("lists")) else []),
    ]


# What is promised, in plain words: `recommend` and reports say the same.

_ROOM: Final = Fraction(5, 4)
"""How far a bound must lie above the most frequent value's share, so that buckets can be small."""

_STEPS: Final = 20
"""Bounds are rounded up to multiples of one in so many."""


def least_bound(share: Fraction) -> Fraction:
    """Return the least bound that leaves room, where the most frequent value has this share.

    Examples
    --------
    >>> [str(least_bound(Fraction(n, 100))) for n in (12, 60, 97)]
    ['3/20', '3/4', '197/200']
    """
    least = Fraction(ceil(share * _ROOM * _STEPS), _STEPS)
    return least if least < 1 else (1 + share) / 2


@dataclass(frozen=True)
class InferenceBound:
    """How sure anybody may be of a sensitive value."""

    share: Fraction  # Of the records: those that have the most frequent value of these
    flat: Fraction | None  # The bound on all values without one of their own; None for no such one
    theta: Fraction | None = None  # Another one: theta times the value's share, plus base
    base: Fraction = Fraction(0)
    n_own: int = 0  # Values whose own bounds are higher, their share, and the highest of them
    share_own: Fraction = Fraction(0)
    own: Fraction = Fraction(0)
    unbounded: Fraction = Fraction(0)  # The share of the records whose value has a bound of 1

    @classmethod
    def of(
        cls, privacy: PrivacySpecification, labels: Sequence[str | None], counts: Sequence[int]
    ) -> InferenceBound:
        """Apply the rules to the values of a table.

        Examples
        --------
        >>> own = {"Flu": 0.9, "HIV": "1/3"}
        >>> for given in ({"l": 4}, {"default": 0.1, "values": own}):
        ...     privacy = PrivacySpecification.parse(given)
        ...     print(InferenceBound.of(privacy, ["Flu", "HIV"], [80, 20]))
        25% (not less, since 80% of the records have the same value)
        90% (not less, since 80% of the records have the same value)
        """
        total = max(sum(counts), 1)
        rules = (privacy.default, privacy.cap, None if privacy.l is None else 1 / privacy.l)
        flat = min((rule for rule in rules if rule is not None), default=None)
        is_linear = privacy.theta is not None or privacy.base is not None
        thresholds = privacy.thresholds(labels, counts).thresholds
        general = flat if flat is not None else Fraction(0)
        own, others = [], [0]
        for text, threshold, count in zip(labels, thresholds, counts, strict=True):
            is_own = privacy.null is not None if text is None else text in privacy.values
            if is_own and threshold > general:
                own.append((threshold, count))
            else:
                others.append(count)
        unbounded = Fraction(
            sum(n for t, n in zip(thresholds, counts, strict=True) if t >= 1), total
        )
        if len(own) == len(counts) > 0:  # as after a refresh: then the highest is that of all
            highest = max(threshold for threshold, _ in own)
            return cls(Fraction(max(counts), total), highest, unbounded=unbounded)
        return cls(
            Fraction(max(others), total),
            flat,
            (privacy.theta or Fraction(0)) if is_linear else None,
            privacy.base or Fraction(0),
            len(own),
            Fraction(sum(count for _, count in own), total),
            max((threshold for threshold, _ in own), default=Fraction(0)),
            unbounded,
        )

    def __str__(self) -> str:
        """Say what the probability is not above.

        Examples
        --------
        >>> print(InferenceBound(Fraction(1, 9), Fraction(1, 3), Fraction(4), Fraction("0.02")))
        1/3, nor above 4 times the value's share of the table plus 2%
        >>> print(InferenceBound(Fraction(6, 10), Fraction("0.75")))
        75% (not less, since 60% of the records have the same value)
        """
        said = []
        if self.flat is not None:
            close = self.flat <= least_bound(self.share)
            why = f" (not less, since {_percent(self.share)} of the records have the same value)"
            said.append(f"{exact_share(self.flat)}{why if close else ''}")
        if self.theta is not None:
            times = f"{exact_text(self.theta)} times the value's share of the table plus"
            said.append(f"{times} {exact_share(self.base)}")
        text = ", nor above ".join(said)
        if self.n_own:
            which = "values with bounds" if self.n_own > 1 else "value with a bound"
            whose = "their" if self.n_own > 1 else "its"
            most = "at most " if self.n_own > 1 else ""
            text += (
                f"{', but for' if text else '1, and for'} {self.n_own} {which} of {whose} own, that"
                f" {_percent(self.share_own)} of the records have: {most}{exact_share(self.own)}"
            )
        if self.unbounded:
            text += f"; a bound of 1, for {_percent(self.unbounded)} of the records, bounds nothing"
        return text


def exact_share(share: Fraction) -> str:
    """Write a probability exactly: in percent where that is short.

    Examples
    --------
    >>> [exact_share(Fraction(text)) for text in ("1/3", "0.2", "0.985")]
    ['1/3', '20%', '98.5%']
    """
    percent = 100 * share
    decimal = float(percent)
    return f"{decimal:g}%" if Fraction(f"{decimal:g}") == percent else str(share)


def _percent(share: Fraction) -> str:
    """Round a share; only all is written as all, and only nothing as nothing."""
    rounded = f"{float(share):.0%}"
    if rounded == "100%" and share < 1:
        return "more than 99%"
    return "less than 1%" if rounded == "0%" and share else rounded


def inferred_in_words(bounds: Mapping[str, InferenceBound]) -> str:
    """Say how sure anybody may be of each sensitive attribute."""
    bounded: dict[str, list[str]] = {}
    for name, bound in bounds.items():
        bounded.setdefault(str(bound), []).append(name)
    said = ", ".join(
        f"nobody's {' or '.join(names)}{'' if i else ' is inferred with a probability'}"
        f" above {bound}"
        for i, (bound, names) in enumerate(bounded.items())
    )
    if len(bounds) > 1:
        said += "; who knows one of these of a person may be surer of another"
    return f"{said}; {CORRELATIONS_NOT_COVERED}{WAITING_CLAUSE}"


def buckets_in_words(bounds: Mapping[str, InferenceBound]) -> str:
    """Say what buckets promise."""
    return (
        f"{inferred_in_words(bounds)}; the other columns are published as they are,"
        " so that people with unusual ones can be found"
    )


def linked_in_words(k: int, *, has_entities: bool) -> str:
    """Say how surely anybody finds a person's row; records of one person are no k people."""
    if has_entities:
        return f"every group of rows that look alike is of at least {k} people"
    return f"a published row is a given person's with a probability of at most 1/{k}"


UNINFORMED: Final = "for readers who do not know how the groups were formed"


def classes_in_words(linked: str, inferred: str) -> str:
    """Say what rows promise whose classes depend on sensitive values."""
    return f"{UNINFORMED}: {linked}, and {inferred}"


def rows_in_words(linked: str, sensitive: Sequence[str]) -> str:
    """Say what rows promise that depend on quasi-identifiers alone."""
    said = f"{linked}, also for readers who know everybody's quasi-identifiers and the method"
    if not sensitive:
        return said
    return f"{said}; what is inferred about {' or '.join(sensitive)} has no bound"


# How frequent sensitive values are in each group; the server compares that with thresholds.


class SensitiveCounts(Protocol):
    """The sensitive values of a table."""

    @property
    def labels(self) -> Sequence[str | None]:
        """Their texts."""

    @property
    def counts(self) -> IntArray:
        """Number of records with each value."""


def share_unbounded(privacy: FPrimePrivacy, counts: IntArray) -> float:
    """Return the share of the records whose value has a threshold of 1."""
    unbounded: int = sum(
        count
        for count, threshold in zip(counts.tolist(), privacy.thresholds, strict=True)
        if threshold >= 1
    )
    records = int(counts.sum())
    if unbounded == records > 0:
        raise InvalidParameterError(
            "the privacy specification bounds no value",
            detail=f"the threshold is 1 for all {len(counts)} values, so it protects nobody",
            hint="lower theta, or add a cap, which bounds all values",
        )
    return unbounded / max(records, 1)


def measure_exposure(
    session: Session,
    privacy: PrivacySpecification,
    profile: str,
    *values: Sequence[str | None],
    l: str = "1",
    by: str = "value",
) -> Row:
    """Run the statement of :func:`exposure_statement`, whose parameters these are."""
    statement, bound = exposure_statement(privacy, profile, *values, l=l, by=by)
    with fix_labels(session):
        return fetch_one(session, statement, *bound)


def exposure_statement(
    privacy: PrivacySpecification,
    profile: str,
    *values: Sequence[str | None],
    l: str = "1",  # diversity to compare with, independently of the specification
    by: str = "value",  # what tells values apart: a column of the profile
) -> tuple[str, list[str | Sequence[str | None]]]:
    """Count the pairs of a group (bucket or equivalence class) and a value above its threshold.

    Each distinct (value, count, size) is judged once. Thresholds are fractions written as
    numerator and denominator, so that no comparison is rounded.

    `profile` selects ``value, count, size, buckets``: in how many groups of this size a value
    occurs this often; `values` are what it binds, from ``$5`` on. The one row of the result has
    ``above`` and ``not_diverse``, the numbers of pairs above the threshold and above 1/l; the
    largest ``ratio`` and ``frequency``; the numbers of distinct ``values``, of ``records``, and of
    those that are ``unbounded``.
    """
    labels = list(privacy.values)
    own = [_capped(threshold, privacy) for threshold in privacy.values.values()]
    rules = _general_rules(privacy)
    cases = [("WHEN o.label IS NOT NULL THEN", _OWN)]
    if privacy.null is not None:
        cases.append(("WHEN is_null THEN", _rule(_capped(privacy.null, privacy))))
    together = _Rule(
        " OR ".join(rule.above for rule in rules),
        f"greatest({', '.join(rule.ratio for rule in rules)})",
        " AND ".join(rule.unbounded for rule in rules),
    )
    cases.append(("ELSE", together))
    statement = (
        f"WITH profile AS ({profile}),"
        " judged AS ("
        f"  SELECT {label('value')} AS label,"
        "  num_nulls(value) > 0 AS is_null, count, size, buckets,"
        f"  sum(count * buckets) OVER (PARTITION BY {by}) AS records,"
        "  sum(count * buckets) OVER () AS total FROM profile),"
        " own AS (SELECT * FROM unnest($1::text[], $2::text[]::numeric[], $3::text[]::numeric[])"
        "  AS o (label, numerator, denominator)),"
        " compared AS ("
        "  SELECT j.label, j.is_null, j.buckets, j.count, j.count / j.size::float8 AS frequency,"
        "  j.count * $4::int8 > j.size AS not_diverse,"
        f"  CASE {' '.join(f'{when} {rule.above}' for when, rule in cases)} END AS above,"
        f"  CASE {' '.join(f'{when} {rule.ratio}' for when, rule in cases)} END AS ratio,"
        f"  CASE {' '.join(f'{when} {rule.unbounded}' for when, rule in cases)} END AS unbounded"
        "  FROM judged AS j LEFT JOIN own AS o ON o.label = j.label)"
        " SELECT coalesce(sum(buckets) FILTER (WHERE above), 0)::int8 AS above,"
        " coalesce(sum(buckets) FILTER (WHERE not_diverse), 0)::int8 AS not_diverse,"
        " coalesce(max(ratio), 0)::float8 AS ratio,"
        " coalesce(max(frequency), 0)::float8 AS frequency,"
        " coalesce(sum(count * buckets), 0)::int8 AS records,"
        " coalesce(sum(count * buckets) FILTER (WHERE unbounded), 0)::int8 AS unbounded,"
        " (count(DISTINCT label) + (count(*) FILTER (WHERE is_null) > 0)::int4)::int8 AS values"
        " FROM compared"
    )
    return statement, [
        labels,
        [str(threshold.numerator) for threshold in own],
        [str(threshold.denominator) for threshold in own],
        l,
        *values,
    ]


def check_exposure(group: str, exposure: Row, whose: str = "") -> Check:
    """Check what :func:`measure_exposure` has found in buckets or classes.

    `whose` names the attribute, where there are several: " of cost".
    """
    return Check(
        f"F'-privacy: frequency in {group} <= threshold{whose}",
        f"0 pairs of {group} and value exceed it",
        f"{exposure['above']} exceed it, largest ratio {exposure['ratio']:.6g}",
        holds=exposure["above"] == 0,
    )


def report_unbounded(exposure: Row, whose: str = "") -> Check:
    """Say for which share of the records nothing is bounded: what thresholds of 1 protect."""
    share = exposure["unbounded"] / max(exposure["records"], 1)
    return Remark(
        f"share of the records whose value{whose} has a threshold of 1",
        "such a threshold bounds nothing",
        f"{share:.1%}: {exposure['unbounded']} of {exposure['records']} records",
    )


@dataclass(frozen=True)
class _Rule:
    """SQL of a rule: whether a frequency exceeds its threshold, the quotient, whether it is 1."""

    above: str
    ratio: str
    unbounded: str


_OWN = _Rule(
    "j.count * o.denominator > j.size * o.numerator",
    "(j.count * o.denominator) / (j.size * o.numerator)::float8",
    "o.numerator >= o.denominator",
)


def _capped(threshold: Fraction, privacy: PrivacySpecification) -> Fraction:
    return threshold if privacy.cap is None else min(threshold, privacy.cap)


def _general_rules(privacy: PrivacySpecification) -> list[_Rule]:
    """Return the general rules, of which the strictest counts."""
    rules = [_rule(Fraction(1))]  # no threshold exceeds 1
    if privacy.default is not None:
        rules.append(_rule(privacy.default))
    if privacy.l is not None:
        rules.append(_rule(1 / privacy.l))
    if privacy.cap is not None:
        rules.append(_rule(privacy.cap))
    if privacy.theta is not None or privacy.base is not None:
        theta, base = privacy.theta or Fraction(0), privacy.base or Fraction(0)
        # The threshold theta * records / total + base, with a common denominator.
        bound = (
            f"({theta.numerator * base.denominator} * records"
            f" + {base.numerator * theta.denominator} * total)"
        )
        scale = f"({theta.denominator * base.denominator} * total)"
        rules.append(
            _Rule(
                f"count * {scale} > size * {bound}",
                f"(count * {scale}) / (size * {bound})::float8",
                f"{bound} >= {scale}",
            )
        )
    return rules


def _rule(threshold: Fraction) -> _Rule:
    count = f"count * {threshold.denominator}"
    bound = f"size * {threshold.numerator}"
    is_one = str(threshold >= 1).lower()
    return _Rule(f"{count} > {bound}", f"({count}) / ({bound})::float8", is_one)


# Warnings that all kinds share.


class WarnsCaller(Protocol):
    """Warns the caller; implemented by sessions."""

    def warn(self, message: str) -> None:
        """Warn the caller of something that does not stop the operation."""


def warn_of_unused_options(session: WarnsCaller, request: PublishRequest) -> None:
    """Warn of options that belong to other methods."""
    for option in request.unused_options:
        session.warn(
            f"the option {option.name} has no effect: it belongs to {' and '.join(option.methods)}"
        )


_SHOWN: Final = 0.0001
"""The least gap that a warning shows as it is."""


def warn_of_gap(session: WarnsCaller, method: str, proof: Proof | None) -> None:
    """Warn that the result of an exact method may be worse than the optimum."""
    if proof is None and method == "optimal":
        session.warn(
            "what is published is not proven optimal, and no bound on the optimum is known: it was"
            " sought for another loss or other records than those that are published"
        )
    elif proof is not None and not proof.is_optimal:
        session.warn(
            "what is published is not proven optimal; the optimum may lose"
            + (
                f" up to {proof.gap:.2%} less"
                if proof.gap >= _SHOWN
                else f" {_SHOWN:.2%} less at most"
            )
        )


# Proofs of a search, restated for the rows that are published.

_ROUNDING: Final = Fraction(1, 10**9)  # of a measured loss, relative


def proof_of_published(
    proof: Proof | None, data: Microdata, loss: float, *, is_found: bool
) -> Proof | None:
    """Compare a published loss with a bound that was proven for the loss that was searched for.

    `proof` was found for the same records and at least as many solutions; None is returned where
    its bound says nothing about `loss`, the measured weighted loss. `is_found` tells whether what
    is published is the solution that the proof is about: if it is proven optimal, its loss is the
    bound, as far as a measured loss is rounded.

    Notes
    -----
    Bins: the search compares the beginnings of bins, and a cell ends where its last bin ends. So a
    cell loses at least what the search assumes, and the bound holds.

    Hierarchies: the search compares places in an order of the values, in which values that share
    only a high label are far apart; the loss of a label depends on how many values it stands for.
    For the same values, either loss can be the larger one, so the bound says nothing.
    """
    if proof is None or any(attribute.taxonomy is not None for attribute in data.attributes):
        return None
    published = Fraction(loss)
    bound = min(proof.lower_bound, published)
    is_least = is_found and proof.is_optimal and published - bound <= _ROUNDING * published
    return Proof(bound if is_least else published, bound)
