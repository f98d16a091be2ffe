"""Decides whether a release may be read beside earlier ones, and lets more roles read it.

Two releases that keep their promises apart may tell together what neither does. So a release is
refused that any reader of an earlier one could read, unless the publisher accepts the risk
``combined_releases``. A release that only puts buckets of another together, or the other way round,
and one of another sensitive attribute in the same buckets are allowed without acceptance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, Final

from kanon_db.algorithms.releases.bucket_releases import coarsening
from kanon_db.catalog.entries import (
    WITHOUT_CODES,
    Publication,
    Source,
    find_publication,
    find_source,
    published_schema,
    require_publisher,
    require_whole,
    run_errand,
    source_of,
)
from kanon_db.dataclasses import dataclass
from kanon_db.errors import (
    InvalidParameterError,
    NotFoundError,
    RiskError,
    SchemaMismatchError,
)
from kanon_db.publications.kind import PublishedBuckets, PublishedClasses
from kanon_db.publications.publish_request import COMBINED, RISKS
from kanon_db.publications.registry import kind_named
from kanon_db.publications.relations import ShownNames
from kanon_db.publications.releases.joint_disclosure import (
    OF_NO_CLASSES,
    ComparableRelease,
    measure_together,
    read_releases,
)
from kanon_db.publications.releases.ledger import (
    EarlierRelease,
    ReleaseFinding,
    check_readers,
    earlier_releases,
    finding_sentences,
    names_of,
    not_measured,
    only_warns,
    shortened,
)
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.columns import find_relation

# Two cases are allowed without a word: a release that only puts buckets of another one together, or
# the other way round, and a release of another sensitive attribute in the same buckets.


@dataclass(frozen=True)
class CombinedReleases:
    """The findings about a release."""

    findings: list[ReleaseFinding] = field(default_factory=list)
    # The tickets of all earlier releases that were considered.
    seen: list[str] = field(default_factory=list)
    # Those that the new release may not be set against.
    refused: list[EarlierRelease] = field(default_factory=list)

    @property
    def described(self) -> dict[str, Any] | None:
        """Return the ledger's entry as plain JSON."""
        if not self.refused:
            return None
        return {
            "against": [one.kept for one in self.refused],
            "findings": [asdict(finding) for finding in self.findings],
        }


def combine(
    session: Session,
    source: Source,  # what the new release was made from
    new: Publication,  # as it is in the database now, under the name of its relations
    shown: str,  # the name that it will have
    earlier: Sequence[EarlierRelease],
) -> CombinedReleases:
    """Measure what a new release and earlier ones tell together."""
    own = _partition(session, new)
    readable: list[ComparableRelease] = []
    reasons: dict[str, list[EarlierRelease]] = {}
    for one in earlier:
        other = _without_classes(new) if own is None else _readable(session, one)
        if isinstance(other, str):
            reasons.setdefault(other, []).append(one)
        else:
            readable.append(other)
    views: Sequence[PublishedBuckets | PublishedClasses] = () if own is None else (own,)
    if isinstance(own, PublishedClasses):
        views = own.of_each
    found: list[ReleaseFinding] = []
    refused = {one.release_id: one for reason in reasons.values() for one in reason}
    for view in views:
        compared = []
        for other in readable:
            seen = replace(other, partition=_seen_by(other.partition, view.sensitive))
            told = _comparable(session, source, view, seen.partition)
            if told is None:
                compared.append(seen)
            elif told:
                refused[seen.earlier.release_id] = seen.earlier
                because = reasons.setdefault(told, [])
                because += [] if seen.earlier in because else [seen.earlier]
        if not compared:
            continue
        session.step("comparing what releases tell")
        against, its = measure_together(session, source, ComparableRelease(_NEW, view), compared)
        refused |= {one.release_id: one for one in against}
        names = f"{names_of(against)}, {shown}"
        for finding in its:
            named = replace(finding, releases=finding.releases or names)
            if len(views) > 1 and not named.check.startswith("not measured"):
                named = replace(named, check=f"{named.check} ({view.sensitive})")
            found += [] if named in found else [named]
    return CombinedReleases(
        not_measured(reasons) + found,
        [one.ticket for one in earlier],
        [refused[number] for number in sorted(refused)],
    )


def _seen_by(
    partition: PublishedBuckets | PublishedClasses, sensitive: str | None
) -> PublishedBuckets | PublishedClasses:
    """Return a release with what is promised of an attribute, if it shows several."""
    return partition.seen_by(sensitive) if isinstance(partition, PublishedClasses) else partition


def require_compatible(
    session: Session,
    source: Source,
    new: Publication,
    shown: str,
    earlier: Sequence[EarlierRelease],
    accept: Mapping[str, str],
) -> CombinedReleases:
    """Refuse a release that readers may not set against earlier ones, unless that is accepted."""
    combined, refusal = judge_release(session, source, new, shown, earlier, accept)
    if refusal is not None:
        raise refusal
    return combined


def judge_release(
    session: Session,
    source: Source,
    new: Publication,
    shown: str,
    earlier: Sequence[EarlierRelease],
    accept: Mapping[str, str],
) -> tuple[CombinedReleases, RiskError | None]:
    """Measure a release together with earlier ones, and say why it is refused, if it is.

    Where ``combined_releases`` is ``warn``, the publisher is warned, and nothing is measured.
    """
    if (warned := _warned(session, earlier, accept)) is not None:
        return warned, None
    combined = combine(session, source, new, shown, earlier)
    if not combined.refused or COMBINED in accept:
        return combined, None
    return combined, _refusal(combined)


def _refusal(combined: CombinedReleases) -> RiskError:
    readers = list(dict.fromkeys(role for one in combined.refused for role in one.shared))
    return RiskError(
        f"a known risk is not accepted: {COMBINED}",
        detail=f"{RISKS[COMBINED]}: {shortened(readers)} could also read"
        f" {names_of(combined.refused)}. {finding_sentences(combined.findings)}",
        hint="for people who never read the other one, name a role of theirs (CREATE ROLE team IN"
        " ROLE kanon_user, and readers => '{team}'); for the same people, publish only who came"
        f' since (kanon.refresh), or say why: accept => \'{{"{COMBINED}":'
        ' "why this is acceptable"}\'',
    )


def _warned(
    session: Session, earlier: Sequence[EarlierRelease], accept: Mapping[str, str]
) -> CombinedReleases | None:
    """Warn of earlier releases, where an administrator has accepted the risk for all publishers."""
    if not earlier or COMBINED in accept or not only_warns(session):
        return None
    session.warn(
        "the same readers can read other publications of this source"
        f" ({names_of(earlier)}), or could: combined, they can reveal more about a person than"
        " the bound of each allows"
    )
    return CombinedReleases(seen=[one.ticket for one in earlier])


def require_alone(
    session: Session, earlier: Sequence[EarlierRelease], accept: Mapping[str, str], reason: str
) -> CombinedReleases:
    """Refuse a release that can be set against earlier ones where nothing can be measured."""
    if (warned := _warned(session, earlier, accept)) is not None:
        return warned
    reasons = {reason: earlier} if earlier else {}
    combined = CombinedReleases(
        not_measured(reasons), [one.ticket for one in earlier], list(earlier)
    )  # fmt: skip
    if earlier and COMBINED not in accept:
        raise _refusal(combined)
    return combined


def _partition(
    session: Session, publication: Publication
) -> PublishedBuckets | PublishedClasses | None:
    kind = kind_named(publication.kind).load()
    return kind.partition(session, published_schema(session), publication)


def _without_classes(publication: Publication) -> str:
    return kind_named(publication.kind).load().not_compared or OF_NO_CLASSES


_NEW: Final = EarlierRelease(0, "", "", None, ())


def _readable(session: Session, one: EarlierRelease) -> ComparableRelease | str:
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
    if partition is None:
        return _without_classes(publication)
    if isinstance(partition, PublishedClasses):
        shown = {*partition.quasi_identifiers, *partition.others}
        if not shown <= publication.coded:
            return WITHOUT_CODES
    return ComparableRelease(one, partition)


def _comparable(
    session: Session,
    source: Source,
    own: PublishedBuckets | PublishedClasses,
    other: PublishedBuckets | PublishedClasses,
) -> str | None:
    """Return why two releases are not measured together; "" if needless, None if they are."""
    if own.sensitive == other.sensitive:
        return None
    if isinstance(own, PublishedClasses) and isinstance(other, PublishedClasses):
        return None
    both = isinstance(own, PublishedBuckets) and isinstance(other, PublishedBuckets)
    if both and _are_same_buckets(session, source, own, other):
        return ""
    return "it has another sensitive attribute"


def _are_same_buckets(
    session: Session,
    source: Source,
    own: PublishedBuckets | PublishedClasses,
    other: PublishedBuckets | PublishedClasses,
) -> bool:
    """Tell whether two releases of different attributes have the same people in each bucket."""
    if set(own.quasi_identifiers) != set(other.quasi_identifiers):
        return False
    found = read_releases(session, source, [own, other], "").releases
    return all(coarsening(one, two) is not None for one, two in (found, reversed(found)))


def check_release(
    session: Session, source: str, publication: str, readers: Sequence[str] | None = None
) -> list[ReleaseFinding]:
    """Measure what a draft would tell together with earlier releases of the same people.

    Nothing is published, granted or kept. No finding: it may be granted without a word.
    """
    found = _own(session, publication)
    relation, _, _ = find_relation(session, source)
    if relation != source_of(session, publication):
        raise SchemaMismatchError(
            "the publication was made from another source",
            detail=f'publication "{publication}": made from {found.source}',
        )
    wanted = readers
    if wanted is None:
        wanted = [str(role) for role in found.parameters.get("readers") or ()] or None
    roles = check_readers(session, wanted, published_schema(session))
    session.plan(["looking for earlier releases", "comparing releases"])
    session.phase("looking for earlier releases")
    made_from, earlier = _earlier(session, found, roles)
    session.phase("comparing releases")
    return combine(session, made_from, found, publication, earlier).findings


def grant_publication(
    session: Session, name: str, readers: Sequence[str], accept: Mapping[str, str]
) -> None:
    """Let more roles read a publication, under the rules for publishing it to them."""
    found = _own(session, name)
    if not readers:
        raise InvalidParameterError("no role is named", hint="name the roles that may read it")
    roles = check_readers(session, readers, published_schema(session))
    source, earlier = _earlier(session, found, roles)
    combined = require_compatible(session, source, found, name, earlier, accept)
    kind = kind_named(found.kind).load()
    notes = kind.all_notes(found, ShownNames(session))
    run_errand(
        session,
        "grant",
        name=name,
        readers=list(roles),
        notes={suffix: note.plain for suffix, note in notes.items()},
        accept={COMBINED: accept[COMBINED]} if combined.refused and COMBINED in accept else {},
        measured=combined.described,
        seen=combined.seen,
    )


def _earlier(
    session: Session, publication: Publication, readers: Sequence[str]
) -> tuple[Source, list[EarlierRelease]]:
    """Return the source, and the releases of it that readers could set against a publication."""
    row = fetch_one(
        session,
        "SELECT publication_id AS id FROM kanon.publication WHERE name = $1::text",
        publication.name,
    )
    source = find_source(session, source_of(session, publication.name))
    return source, earlier_releases(session, source.source_id, readers, row["id"])


def _own(session: Session, name: str) -> Publication:
    found = find_publication(session, name)
    require_publisher(session, name, "grant it, or set it against others")
    require_whole(found)
    return found
