"""Gathers what a report says: from the catalog, and measured against the source."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.catalog.entries import Publication, Source
from kanon_db.metrics.count_queries import CountErrors
from kanon_db.publications.examination import open_target
from kanon_db.publications.kind import AttackTarget, Kind, RandomQueries
from kanon_db.publications.publish_request import RISKS
from kanon_db.publications.registry import kind_named
from kanon_db.publications.results import Attack, Check, waits_in_words
from kanon_db.session import Row, Session, fetch_one
from kanon_db.transfer.columns import Relation
from kanon_db.transfer.snapshot import take_snapshot

SELECTIVITIES: Final = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
"""Expected shares of matching records."""

N_QUERIES: Final = 600
_SEED: Final = 1
_SIZES: Final = "buckets_of_size_"


@dataclass(frozen=True)
class ColumnFacts:
    """A column of the source: its name, its role, and what readers see of it."""

    name: str
    role: str
    shown: str


@dataclass(frozen=True)
class Knowledge:
    """What someone infers who knows all quasi-identifiers of a person in the table."""

    # Share of the people whose row nobody else's looks like; None where that says nothing
    unique: float | None
    certain: float | None  # Share of the people whose sensitive value is certain
    guessed: float | None  # Share of the people whose value the best guess finds


@dataclass(frozen=True)
class ErrorsAt:
    """Relative errors of count queries that match a share of the records."""

    selectivity: float
    queries: int
    median: float
    tenth: float
    ninetieth: float


@dataclass(frozen=True)
class ReleaseFacts:
    """A release of the same source, as the ledger has it."""

    name: str
    kind: str
    released_at: str
    released_by: str
    readers: str
    state: str
    digest: str


@dataclass(frozen=True)
class Facts:
    """All that a report says of a publication."""

    name: str
    kind: str
    method: str
    source: str
    has_entities: bool  # Whether several rows of the source may be about one person
    records: int
    left_out: int
    guarantee: str
    published_at: str
    published_by: str
    waits: str  # What waits since when, as of the last refresh; empty if there was none
    readers: list[str]
    columns: list[ColumnFacts]
    risks: list[
        tuple[str, str, str]
    ]  # Accepted risks: their names, what they mean, and the reasons
    before: Knowledge
    after: Knowledge
    sensitive: str | None  # The first sensitive attribute, which they are about
    # The same for each further sensitive attribute, with its name
    others: Sequence[tuple[str, Knowledge, Knowledge]]
    attacks: Sequence[Attack]
    checks: Sequence[Check]
    sizes: list[tuple[int, int]]  # Sizes of buckets or classes, each with how many there are
    # For each quasi-identifier: 0 if each row shows its value, 1 if no row shows anything
    losses: Mapping[str, float]
    errors: list[ErrorsAt]
    releases: list[ReleaseFacts]
    parameters: Mapping[str, Any]
    digest: str


_PHASES: Final = (
    "opening the publication", "verifying", "attacking", "reading the source", "answering counts",
)  # fmt: skip


def gather(session: Session, name: str) -> Facts:
    """Read and measure all that a report says of a publication.

    Parameters
    ----------
    session : Session
        The session of the role that published it, which needs SELECT on the source. Everything runs
        with the rights of this role.
    name : str

    Raises
    ------
    NotFoundError, PermissionDeniedError, SchemaMismatchError, VerificationError
        As :func:`~kanon_db.publications.examination.attack`.
    """
    session.plan(_PHASES)
    session.phase("opening the publication")
    target = open_target(session, name)
    publication, source = target.publication, target.source
    kind = kind_named(publication.kind).load()
    session.phase("verifying")
    examined = kind.examine(session, publication)
    session.phase("attacking")
    attacks = list(kind.attack(target))
    session.phase("reading the source")
    before = _known_of_source(target, source.sensitive)
    others = [
        (name, _known_of_source(target, name), _known_of_publication(publication, attacks, name))
        for name in source.also_sensitive
        if name in publication.all_sensitive
    ]
    session.phase("answering counts")
    errors, losses = _useful(kind, target)
    entry = _entry(session, name)
    releases = _releases(session, source)
    own = [release for release in releases if release.name == name]
    accepted = publication.parameters.get("accept") or {}
    return Facts(
        name=name,
        kind=publication.kind,
        method=publication.method,
        source=publication.source,
        has_entities=source.entity is not None and source.keep is None,
        records=publication.records,
        left_out=publication.left_out,
        guarantee=publication.guarantee,
        published_at=entry["at"],
        published_by=entry["publisher"],
        waits=waits_in_words(json.loads(entry["waits"])) if entry["waits"] else "",
        readers=[str(role) for role in publication.parameters.get("readers", [])],
        columns=_columns(publication, source),
        risks=[(risk, RISKS.get(risk, ""), str(reason)) for risk, reason in accepted.items()],
        before=before,
        after=_known_of_publication(publication, attacks, source.sensitive),
        sensitive=source.sensitive,
        others=others,
        attacks=attacks,
        checks=examined.checks,
        sizes=_sizes(target, {**publication.metrics, **examined.metrics}),
        losses=losses,
        errors=errors,
        releases=releases,
        parameters={key: value for key, value in publication.parameters.items() if key != "accept"},
        digest=own[-1].digest if own else "",
    )


def _entry(session: Session, name: str) -> Row:
    return fetch_one(
        session,
        "SELECT to_char(published_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI \"UTC\"') AS at,"
        " published_by AS publisher, waits::text AS waits FROM kanon.publications"
        " WHERE name = $1::text",
        name,
    )


def _releases(session: Session, source: Source) -> list[ReleaseFacts]:
    """List what this role released from the source; the ledger shows a publisher no more."""
    rows = session.fetch(
        "SELECT name, kind, to_char(released_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') AS at,"
        " coalesce(released_by, '') AS publisher, coalesce(digest, '') AS digest, state,"
        " coalesce((SELECT string_agg(DISTINCT r ->> 'role', ', ' ORDER BY r ->> 'role')"
        " FROM jsonb_array_elements(readers) AS r), '') AS readers"
        " FROM kanon.releases WHERE source = $1::text ORDER BY released_at",
        str(source.relation),
    )
    return [
        ReleaseFacts(
            row["name"], row["kind"], row["at"], row["publisher"], row["readers"], row["state"],
            row["digest"],
        )
        for row in rows
    ]  # fmt: skip


def _columns(publication: Publication, source: Source) -> list[ColumnFacts]:
    """Say of each column of the source what readers see."""
    cells = {
        "buckets": "as it is",
        "generalized": "as a range, or a set of values",
        "freeform": "as a range, or a set of values",
        "suppressed": "as it is, or suppressed",
        "model": "nothing of it, but what answers tell",
    }
    roles = dict.fromkeys(
        source.quasi_identifiers, ("quasi-identifier", cells.get(publication.kind, "as published"))
    )
    for column in source.coarsened:
        is_labelled = "hierarchy" in source.attributes[column]
        shown = "as a label of its hierarchy" if is_labelled else "coarsened, as a range of bins"
        roles[column] = ("quasi-identifier", shown)
    values = {"buckets": "in a table of its own, by bucket", "model": cells["model"]}
    roles |= dict.fromkeys(
        source.all_sensitive, ("sensitive", values.get(publication.kind, "as it is"))
    )
    rows = publication.kind not in ("buckets", "model")
    roles |= dict.fromkeys(
        source.insensitive, ("insensitive", "as it is" if rows else "not published")
    )
    roles |= dict.fromkeys(source.identifiers, ("identifier", "not published"))
    if source.entity is not None:
        roles[source.entity] = ("says whom a record is about", "not published")
    if source.arrival is not None:
        roles.setdefault(source.arrival, ("says when a record came", "not published"))
    return [
        ColumnFacts(name, *roles.get(name, ("none", "not published"))) for name in source.columns
    ]


def _known_of_source(target: AttackTarget, sensitive: str | None) -> Knowledge:
    """Measure what the source itself would tell, if it were given away without identifiers."""
    session, source = target.session, target.source
    known = ", ".join(map(session.identifier, source.quasi_identifiers))
    by = known if sensitive is None else f"{known}, {session.identifier(sensitive)}"
    row = fetch_one(
        session,
        "SELECT sum(size) FILTER (WHERE size = 1) / sum(size) AS alone,"
        " sum(size) FILTER (WHERE size = most) / sum(size) AS certain,"
        " sum(most) / sum(size) AS guessed"
        f" FROM (SELECT sum(n) AS size, max(n) AS most FROM (SELECT {known}, count(*) AS n"
        f" FROM {source.relation.rows(session)} GROUP BY {by}) AS each_value GROUP BY {known})"
        " AS alike",
    )
    if sensitive is None:
        return Knowledge(_share(row["alone"]), None, None)
    return Knowledge(_share(row["alone"]), _share(row["certain"]), _share(row["guessed"]))


def _share(number: Any) -> float:
    return 0.0 if number is None else float(number)


def _known_of_publication(
    publication: Publication, attacks: Sequence[Attack], sensitive: str | None
) -> Knowledge:
    """Take from the attacks' results what follows from the published relations."""
    which = f" of {sensitive}" if len(publication.all_sensitive) > 1 else ""
    rates = {line.attack: line.rate for line in attacks}
    # Quasi-identifiers of buckets are published as they are, so rows stand out as in the source.
    unique = None if publication.kind == "buckets" else rates.get("linking a row")
    return Knowledge(
        unique, rates.get(f"homogeneity{which}"), rates.get(f"most frequent value{which}")
    )


def _sizes(target: AttackTarget, metrics: Mapping[str, float]) -> list[tuple[int, int]]:
    """Count the buckets or classes of each size; none where rows make no classes."""
    session, layout = target.session, target.publication.layout
    found = [
        (int(name.removeprefix(_SIZES)), int(number))
        for name, number in metrics.items()
        if name.startswith(_SIZES)
    ]
    if found or "classes" not in metrics:
        return sorted(found)
    names = [cell["name"] for cell in layout["quasi_identifiers"]]
    names += [layout["pattern"]] if layout.get("pattern") else []
    cells = ", ".join(map(session.identifier, names))
    view = Relation(target.schema, target.publication.name).quoted(session)
    rows = session.fetch(
        "SELECT size, count(*) AS n FROM"
        f" (SELECT count(*) AS size FROM {view} GROUP BY {cells}) AS classes"
        " GROUP BY size ORDER BY size"
    )
    return [(row["size"], row["n"]) for row in rows]


def _useful(kind: Kind, target: AttackTarget) -> tuple[list[ErrorsAt], dict[str, float]]:
    """Ask random counts, and find what each quasi-identifier loses; a model answers none."""
    if kind_named(target.publication.kind).shape == "model":
        return [], {}
    source, room = target.source, target.room
    names = [*source.quasi_identifiers, *([source.sensitive] if source.sensitive else [])]
    snapshot = take_snapshot(target.session, source.relation, names, room)
    asked = RandomQueries.draw(
        N_QUERIES, snapshot, source, target.types,
        selectivity=SELECTIVITIES, seed=_SEED, pulse=Pulse(heartbeat=target.session.heartbeat),
    )  # fmt: skip
    useful = kind.usefulness(target, asked.columns, asked.sensitive, asked.queries)
    snapshot.drop()
    errors = CountErrors(asked.actual, useful.answers)
    expected = np.array([query.selectivity for query in asked.queries])
    found = [_errors_at(selectivity, errors, expected == selectivity)
             for selectivity in SELECTIVITIES]  # fmt: skip
    losses = dict(zip(source.quasi_identifiers, useful.losses.tolist(), strict=True))
    return [errors for errors in found if errors.queries], losses


def _errors_at(selectivity: float, errors: CountErrors, chosen: BoolArray) -> ErrorsAt:
    relative = errors.select(chosen).relative
    relative = relative[~np.isnan(relative)]
    if not relative.size:
        return ErrorsAt(selectivity, 0, math.nan, math.nan, math.nan)
    tenth, median, ninetieth = np.quantile(relative, [0.1, 0.5, 0.9]).tolist()
    return ErrorsAt(selectivity, int(relative.size), median, tenth, ninetieth)
