"""What readers could find out who set a new release against earlier ones; and whether they may.

Two releases that keep their promises apart may tell together what neither does. So a release is
refused that any reader of an earlier one could read, unless the publisher accepts the risk
``combined_releases``. These are allowed without a word: a release that only puts buckets of another
together, or the other way round, and one of another sensitive attribute in the same buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from kanon_db.algorithms.releases.coarser import coarsening
from kanon_db.catalog.entries import Publication, Source, find_publication, published_schema
from kanon_db.errors import NotFoundError, RiskError
from kanon_db.publications.partition import Classes, Partition
from kanon_db.publications.registry import kind_named
from kanon_db.publications.releases.findings import (
    Finding,
    names_of,
    not_measured,
    said,
    shortened,
)
from kanon_db.publications.releases.ledger import Earlier, digest, only_warns
from kanon_db.publications.releases.measuring import OF_NO_CLASSES, Compared, measure_together
from kanon_db.publications.releases.reading import read_releases
from kanon_db.publications.risks import RISKS
from kanon_db.session.protocol import Session

RISK: Final = "combined_releases"


@dataclass(frozen=True)
class Combined:
    """What was found.

    Attributes
    ----------
    findings : list of Finding
    seen : list of str
        The tickets of all earlier releases that were considered.
    refused : list of Earlier
        Those that the new release may not be set against.
    """

    findings: list[Finding] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    refused: list[Earlier] = field(default_factory=list)

    @property
    def described(self) -> dict[str, Any] | None:
        """What the ledger keeps, as plain JSON."""
        if not self.refused:
            return None
        return {
            "against": [one.kept for one in self.refused],
            "findings": [asdict(finding) for finding in self.findings],
        }


def combine(
    session: Session, source: Source, new: Publication, shown: str, earlier: Sequence[Earlier]
) -> Combined:
    """Measure what a new release and earlier ones tell together.

    Parameters
    ----------
    session : Session
    source : Source
        What the new release was made from.
    new : Publication
        As it is in the database now, under the name of its relations.
    shown : str
        The name that it will have.
    earlier : sequence of Earlier
    """
    own = _partition(session, new)
    compared: list[Compared] = []
    refused: list[Earlier] = []
    reasons: dict[str, list[Earlier]] = {}
    for one in earlier:
        other = _without_classes(new) if own is None else _readable(session, one)
        if own is not None and not isinstance(other, str):
            told = _comparable(session, source, own, other.partition)
            if told is None:
                compared.append(other)
                continue
            other = told
        if other:
            refused.append(one)
            reasons.setdefault(str(other), []).append(one)
    found: list[Finding] = []
    if own is not None and compared:
        session.step("comparing what releases tell")
        against, found = measure_together(session, source, Compared(_NEW, own), compared)
        refused += against
        names = f"{names_of(against)}, {shown}"
        found = [replace(one, releases=one.releases or names) for one in found]
    return Combined(
        not_measured(reasons) + found,
        [one.ticket for one in earlier],
        sorted(refused, key=lambda one: one.release_id),
    )


def require_compatible(
    session: Session,
    source: Source,
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
    combined, refusal = weigh(session, source, new, shown, earlier, accept)
    if refusal is not None:
        raise refusal
    return combined


def weigh(
    session: Session,
    source: Source,
    new: Publication,
    shown: str,
    earlier: Sequence[Earlier],
    accept: Mapping[str, str],
) -> tuple[Combined, RiskError | None]:
    """Measure a release together with earlier ones, and say why it is refused, if it is.

    Where an administrator has set ``combined_releases`` to ``warn``, nothing is measured: the
    publisher is warned.
    """
    if (warned := _warned(session, earlier, accept)) is not None:
        return warned, None
    combined = combine(session, source, new, shown, earlier)
    if not combined.refused or RISK in accept:
        return combined, None
    return combined, _refusal(combined)


def _refusal(combined: Combined) -> RiskError:
    readers = list(dict.fromkeys(role for one in combined.refused for role in one.shared))
    return RiskError(
        f"a known risk is not accepted: {RISK}",
        detail=f"{RISKS[RISK]}: {shortened(readers)} could also read {names_of(combined.refused)}."
        f" {said(combined.findings)}",
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


def _warned(
    session: Session, earlier: Sequence[Earlier], accept: Mapping[str, str]
) -> Combined | None:
    """Warn of earlier releases, where an administrator has accepted the risk for all publishers."""
    if not earlier or RISK in accept or not only_warns(session):
        return None
    session.warn(
        "the same readers can read other publications of this source"
        f" ({names_of(earlier)}), or could: combined, they can reveal more about a person than"
        " the bound of each allows"
    )
    return Combined(seen=[one.ticket for one in earlier])


def require_alone(
    session: Session, earlier: Sequence[Earlier], accept: Mapping[str, str], reason: str
) -> Combined:
    """Refuse a release that can be set against earlier ones where nothing can be measured.

    Parameters
    ----------
    session : Session
    earlier : sequence of Earlier
    accept : mapping of str to str
    reason : str
        Why nothing is measured.

    Raises
    ------
    RiskError
    """
    if (warned := _warned(session, earlier, accept)) is not None:
        return warned
    reasons = {reason: earlier} if earlier else {}
    combined = Combined(
        not_measured(reasons), [one.ticket for one in earlier], list(earlier)
    )  # fmt: skip
    if earlier and RISK not in accept:
        raise _refusal(combined)
    return combined


def _partition(session: Session, publication: Publication) -> Partition | Classes | None:
    kind = kind_named(publication.kind).load()
    return kind.partition(session, published_schema(session), publication)


def _without_classes(publication: Publication) -> str:
    return kind_named(publication.kind).load().not_compared or OF_NO_CLASSES


_NEW: Final = Earlier(0, "", "", None, ())


def _readable(session: Session, one: Earlier) -> Compared | str:
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
    return _without_classes(publication) if partition is None else Compared(one, partition)


def _comparable(
    session: Session,
    source: Source,
    own: Partition | Classes,
    other: Partition | Classes,
) -> str | None:
    """Return why two releases are not measured together, "" if need not be; None if they can be."""
    if own.sensitive == other.sensitive:
        return None
    if isinstance(own, Classes) and isinstance(other, Classes):
        return None
    both = isinstance(own, Partition) and isinstance(other, Partition)
    if both and _are_same_buckets(session, source, own, other):
        return ""
    return "it has another sensitive attribute"


def _are_same_buckets(
    session: Session, source: Source, own: Partition | Classes, other: Partition | Classes
) -> bool:
    """Whether two releases of different attributes have the same people in each bucket."""
    if set(own.quasi_identifiers) != set(other.quasi_identifiers):
        return False
    found = read_releases(session, source, [own, other], "").releases
    return all(coarsening(one, two) is not None for one, two in (found, reversed(found)))
