"""What readers could find out who set a new release against earlier ones; and whether they may.

Two releases that keep their promises apart may tell together what neither does. So a release is
refused that any reader of an earlier one could read, unless the publisher accepts the risk
``combined_releases``. These are allowed without a word: a release that only puts buckets of another
together, or the other way round, and one of another sensitive attribute in the same buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.releases.coarser import coarsening, holds_the_same
from kanon_db.algorithms.releases.measure import measure
from kanon_db.algorithms.releases.placements import Release
from kanon_db.catalog.entries import Publication, Source, find_publication, published_schema
from kanon_db.errors import NotFoundError, RiskError
from kanon_db.publications.partition import Partition
from kanon_db.publications.registry import kind_named
from kanon_db.publications.releases.ledger import Earlier, digest, only_warns
from kanon_db.publications.releases.reading import read_releases
from kanon_db.publications.risks import RISKS
from kanon_db.session.protocol import Session

RISK: Final = "combined_releases"


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes
    ----------
    check : str
    result : {"exact", "sound", "estimate", "not measured"}
        Exact and sound results hold in every world; sound ones may miss something.
    releases : str
        The names of those that were set against each other.
    people : int or None
        For how many people a value exceeds its bound.
    certain : int or None
        How many people's values are certain.
    share, bound : float or None
        The share of a value that exceeds its bound most, or comes closest to it, and the bound.
    holds : bool
        Whether nobody's value exceeds its bound.
    """

    check: str
    result: str
    releases: str
    people: int | None
    certain: int | None
    share: float | None
    bound: float | None
    holds: bool


@dataclass(frozen=True)
class Combined:
    """What was found.

    Attributes
    ----------
    findings : list of Finding
    seen : list of int
        The ids of all earlier releases that were considered.
    refused : list of Earlier
        Those that the new release may not be set against.
    """

    findings: list[Finding] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    refused: list[Earlier] = field(default_factory=list)

    @property
    def described(self) -> dict[str, Any] | None:
        """What the ledger keeps, as plain JSON."""
        if not self.refused:
            return None
        return {
            "against": [asdict(one) for one in self.refused],
            "findings": [asdict(finding) for finding in self.findings],
        }


def combine(session: Session, new: Publication, shown: str, earlier: Sequence[Earlier]) -> Combined:
    """Measure what a new release and earlier ones tell together.

    Parameters
    ----------
    session : Session
    new : Publication
        As it is in the database now, under the name of its relations.
    shown : str
        The name that it will have.
    earlier : sequence of Earlier
    """
    seen = [one.release_id for one in earlier]
    own = _partition(session, new)
    compared: list[_Compared] = []
    findings: list[Finding] = []
    refused: list[Earlier] = []
    for one in earlier:
        other = _OF_NO_BUCKETS if own is None else _readable(session, one)
        if own is None or isinstance(other, str):
            refused.append(one)
            findings.append(_not_measured(one, str(other)))
        elif other.partition.sensitive == own.sensitive:
            compared.append(other)
        elif not _are_same_buckets(session, own, other.partition):
            refused.append(one)
            findings.append(_not_measured(one, "it has another sensitive attribute"))
    if own is not None and compared:
        session.step("comparing what releases tell")
        of_itself = _Compared(_NEW, own)
        against, found = _measured(session, of_itself, compared)
        refused += against
        names = ", ".join([*(one.name for one in against), shown])
        findings += [replace(finding, releases=names) for finding in found]
    return Combined(findings, seen, sorted(refused, key=lambda one: one.release_id))


def require_compatible(
    session: Session,
    new: Publication,
    shown: str,
    earlier: Sequence[Earlier],
    accept: Mapping[str, str],
) -> Combined:
    """Refuse a release that readers may not set against earlier ones, unless that is accepted.

    Raises
    ------
    RiskError
        With what was measured.
    """
    combined, refusal = weigh(session, new, shown, earlier, accept)
    if refusal is not None:
        raise refusal
    return combined


def weigh(
    session: Session,
    new: Publication,
    shown: str,
    earlier: Sequence[Earlier],
    accept: Mapping[str, str],
) -> tuple[Combined, RiskError | None]:
    """Measure a release together with earlier ones, and say why it is refused, if it is.

    Where an administrator has set ``combined_releases`` to ``warn``, nothing is measured: the
    publisher is warned.
    """
    if earlier and RISK not in accept and only_warns(session):
        session.warn(
            "the same readers can read other publications of this source"
            f" ({_named(earlier)}), or could: combined, they can reveal more about a person than"
            " the bound of each allows"
        )
        return Combined(seen=[one.release_id for one in earlier]), None
    combined = combine(session, new, shown, earlier)
    if not combined.refused or RISK in accept:
        return combined, None
    readers = list(dict.fromkeys(role for one in combined.refused for role in one.shared))
    return combined, RiskError(
        f"a known risk is not accepted: {RISK}",
        detail=f"{RISKS[RISK]}: {_shortened(readers)} could also read {_named(combined.refused)}."
        f" {' '.join(_said(finding) for finding in combined.findings if not finding.holds)}",
        hint="let other roles read it (readers => ...), publish only the people that came since"
        f' (kanon.refresh), or say why: accept => \'{{"{RISK}":'
        ' "why this is acceptable"}\'',
    )


def describe_release(
    session: Session,
    source: Source,
    published: Sequence[str],
    relations: Sequence[str],
    combined: Combined,
) -> dict[str, Any]:
    """Describe a release for the ledger.

    Parameters
    ----------
    session : Session
    source : Source
    published : sequence of str
        The columns of the source that it shows.
    relations : sequence of str
        The staged relations from which all others follow.
    combined : Combined
        What it tells together with others.
    """
    schema = published_schema(session)
    return {
        "columns": {
            "quasi_identifiers": list(source.quasi_identifiers),
            "sensitive": source.sensitive,
            "published": list(published),
        },
        "digest": digest(session, [session.identifier(schema, name) for name in relations]),
        "measured": combined.described,
        "seen": combined.seen,
    }


def _named(releases: Sequence[Earlier]) -> str:
    return ", ".join(dict.fromkeys(one.name for one in releases))


_OF_NO_BUCKETS: Final = (
    "only buckets are measured against each other, and only if they were not drawn anew"
)
_MOST_NAMED: Final = 5


def _shortened(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    listed = ", ".join(names[:_MOST_NAMED])
    return listed if more <= 0 else f"{listed} and {more} more roles"


def _said(finding: Finding) -> str:
    """Say a finding in a sentence."""
    if finding.people is None:
        return f"{finding.releases}: {finding.check}."
    return (
        f"{finding.check}: {finding.people:,} people above their bound, {finding.certain:,} certain"
        f" ({finding.result})."
    )


def _not_measured(one: Earlier, why: str) -> Finding:
    return Finding(
        f"not measured: {why}", "not measured", one.name, None, None, None, None, holds=False
    )


def _partition(session: Session, publication: Publication) -> Partition | None:
    kind = kind_named(publication.kind).load()
    return kind.partition(session, published_schema(session), publication)


@dataclass(frozen=True)
class _Compared:
    """A release that can be measured."""

    earlier: Earlier
    partition: Partition


_NEW: Final = Earlier(0, "", "", None, ())


def _readable(session: Session, one: Earlier) -> _Compared | str:
    """Return an earlier release with where to read it, or why that is not possible."""
    if one.ended is not None:
        return f"it was {one.ended}, but readers may have a copy"
    try:
        publication = find_publication(session, one.name)
    except NotFoundError:
        return "you may not read it"
    if not publication.is_whole:
        return "its relations have changed"
    partition = _partition(session, publication)
    return _OF_NO_BUCKETS if partition is None else _Compared(one, partition)


def _are_same_buckets(session: Session, own: Partition, other: Partition) -> bool:
    """Whether two releases of different attributes have the same people in each bucket."""
    if set(own.quasi_identifiers) != set(other.quasi_identifiers):
        return False
    found = read_releases(session, [own, other]).releases
    return all(coarsening(one, two) is not None for one, two in (found, reversed(found)))


def _measured(
    session: Session, new: _Compared, others: Sequence[_Compared]
) -> tuple[list[Earlier], list[Finding]]:
    """Return the releases that tell more together with the new one, and how much."""
    read = read_releases(session, [one.partition for one in (new, *others)])
    first, *rest = read.releases
    kept = [
        (release, other)
        for release, other in zip(rest, others, strict=True)
        if set(other.partition.quasi_identifiers) != set(new.partition.quasi_identifiers)
        or not _tells_nothing_new(first, release)
    ]
    if not kept:
        return [], []
    compared = [*kept, (first, new)]
    bounds = [Fraction(0)] * len(read.labels)
    for release, one in compared:
        bounds = list(map(max, bounds, _bounds(one.partition, read.labels, release)))
    measured = measure(
        [release for release, _ in compared], read.n_tuples, bounds,
        Pulse(heartbeat=session.heartbeat),
    )  # fmt: skip
    found = [
        Finding(
            _CHECKS[check.name], check.kind, "", check.people, check.certain,
            check.value, check.bound, check.holds,
        )
        for check in measured.checks
    ]  # fmt: skip
    if measured.contradicted:
        found.append(
            Finding(_CONTRADICTED, "sound", "", measured.contradicted, 0, None, None, holds=False)
        )
    return [other.earlier for _, other in kept], found


def _tells_nothing_new(one: Release, other: Release) -> bool:
    """Whether either release follows from the other."""
    for fine, coarse in ((one, other), (other, one)):
        bucket = coarsening(fine, coarse)
        if bucket is not None and holds_the_same(fine, coarse, bucket):
            return True
    return False


def _bounds(partition: Partition, labels: Sequence[str | None], release: Release) -> list[Fraction]:
    """Return the threshold of each value in a release; 0 for values that it does not have."""
    counts = np.bincount(release.value, release.count, len(labels)).astype(np.int64)
    there = np.flatnonzero(counts).tolist()
    bounds = [Fraction(0)] * len(labels)
    thresholds = partition.thresholds([labels[at] for at in there], counts[there])
    for at, threshold in zip(there, thresholds, strict=True):
        bounds[at] = threshold
    return bounds


_CHECKS: Final = {
    "inserted": "differencing: who came",
    "deleted": "differencing: who left",
    "candidates": "intersection",
    "forced": "forced values",
    "worlds": "all worlds counted",
    "maximum_entropy": "maximum entropy",
}
"""The names of the checks, for people."""

_CONTRADICTED: Final = "values or quasi-identifiers changed"
