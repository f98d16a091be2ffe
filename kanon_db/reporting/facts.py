"""Gathers what a report says: from the catalog, and measured against the source."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.answers.estimates import measure_usefulness
from kanon_db.catalog.entries import Publication, Source, require_harmless
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError, NotFoundError, SchemaMismatchError
from kanon_db.figures import FigureRule, stricter
from kanon_db.metrics.count_queries import CountErrors
from kanon_db.metrics.disclosure_risk import (
    ReidentificationRisk,
    journalist_risk,
    marketer_risk,
    prosecutor_risk,
)
from kanon_db.publications.draws import check_draws
from kanon_db.publications.examination import accepted_reasons, open_target
from kanon_db.publications.guarantees import left_open, linked_in_words
from kanon_db.publications.kind import AttackTarget, RandomQueries
from kanon_db.publications.lifecycle import Access, access_to
from kanon_db.publications.publish_request import RISKS
from kanon_db.publications.registry import kind_named
from kanon_db.publications.releases.ledger import shortened
from kanon_db.publications.results import (
    Attack,
    Check,
    attacks_on,
    waits_in_words,
    worst_first,
)
from kanon_db.session import Row, Session, fetch_one
from kanon_db.transfer.columns import Relation, column_types, find_relation, label
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
class InferenceFacts:
    """What is promised of a sensitive attribute, and what attacks on its values achieve."""

    name: str
    is_bounded: bool  # By the guarantee, for readers who learn nothing
    known: Knowledge
    attacks: Sequence[Attack]  # The worst first

    @property
    def worst(self) -> Attack | None:
        """The attack that exceeds its bound and is right most often, or else is right so."""
        played = [line for line in self.attacks if line.rate is not None]
        return max(played, key=lambda line: (line.exceeds, line.rate or 0.0), default=None)

    @property
    def worst_unbounded(self) -> Attack | None:
        """The attack that is right most often of those outside of a guarantee with bounds."""
        played = [line for line in self.attacks if line.rate is not None and line.bound is None]
        if all(line.bound is None for line in self.attacks):
            return None
        return max(played, key=lambda line: line.rate or 0.0, default=None)


@dataclass(frozen=True)
class LinkingRisk:
    """How likely somebody finds a person's row again, who knows quasi-identifiers only."""

    prosecutor: ReidentificationRisk
    journalist: ReidentificationRisk | None  # None if nothing is known of the population
    marketer: float

    @classmethod
    def of(cls, classes: Sequence[SizedClasses]) -> LinkingRisk:
        """Measure it from the sizes of classes, here and in the population."""
        f, times = [one.size for one in classes], [one.number for one in classes]
        people = [one.people for one in classes if one.people is not None] or None
        return cls(
            prosecutor_risk(f, k=AT_RISK, times=times),
            None if people is None else journalist_risk(f, people, k=AT_RISK, times=times),
            marketer_risk(f, people, times=times),
        )


class SizedClasses(NamedTuple):
    """Classes of one size, in the table and in the population."""

    size: int
    number: int
    people: float | None  # None if nothing is known of the population


@dataclass(frozen=True)
class RiskFacts:
    """The risk of linking: of the source, and of the publication."""

    before: LinkingRisk
    after: LinkingRisk | None  # None where rows make no classes that were measured
    bound: Fraction | None  # What no person's row is found above, where that is promised
    alone: float | None  # The share of published rows that no other is like in all columns
    population: int | str | None  # How many people, or the relation that counts them
    # How many classes are larger than in that relation, and are taken to be of their own size
    misfits: int
    weights: Sequence[tuple[str, float]]  # Columns named as survey weights; records alone in each


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
    """A release of the same tables."""

    name: str
    kind: str
    source: str
    released_at: str
    released_by: str
    now: str  # Who can read it now, by the catalog
    readers: str  # Who could read it since when, as the ledger has it
    state: str
    digest: str
    is_shared: bool  # Whether somebody can read it now, and what is reported on, too


class Counted(Enum):
    """What the rows of a source are, as far as the registration says."""

    PEOPLE = "people"  # one row is about each
    SEVERAL = "several"  # several rows are about one person
    UNKNOWN = "unknown"  # nothing says whom a row is about


@dataclass(frozen=True)
class Facts:
    """All that a report says of a publication."""

    name: str
    kind: str
    shape: str  # See :class:`.DeclaredKind`
    method: str
    source: str
    counted: Counted
    records: int
    left_out: int
    promise: str  # In plain words, as `recommend` says it
    left_open: Sequence[str]  # What it leaves open, besides what all of its kind do
    guarantee: str
    published_at: str
    published_by: str
    reported_at: str
    waits: str  # What waits since when, as of the last refresh; empty if there was none
    access: Access
    columns: list[ColumnFacts]
    risks: list[
        tuple[str, str, str]
    ]  # Accepted risks: their names, what they mean, and the reasons
    before: Knowledge
    after: Knowledge
    linking: RiskFacts
    sensitive: str | None  # The first sensitive attribute, which they are about
    # The same for each further sensitive attribute, with its name
    others: Sequence[tuple[str, Knowledge, Knowledge]]
    inferences: Sequence[InferenceFacts]  # Of each sensitive attribute, the worst first
    attacks: Sequence[Attack]
    checks: Sequence[Check]
    sizes: list[tuple[int, int]]  # Sizes of buckets or classes, each with how many there are
    figures: FigureRule | None  # How people are counted in what is shown, if there is a rule
    # For each quasi-identifier: 0 if each row shows its value, 1 if no row shows anything
    losses: Mapping[str, float]
    gap: float | None  # The share of the loss that another search could save at most, if proven
    errors: list[ErrorsAt]
    releases: list[ReleaseFacts]
    parameters: Mapping[str, Any]
    digest: str

    def line_of(self, attack: str) -> Attack | None:
        """Return what an attack has achieved; None if it was not played, or of too few people."""
        played = (line for line in self.attacks if line.attack == attack and line.rate is not None)
        return next(played, None)


_PHASES: Final = (
    "opening the publication", "verifying", "attacking", "reading the source", "answering counts",
)  # fmt: skip


def gather(
    session: Session,
    name: str,
    population: int | str | None = None,
    figures: FigureRule | None = None,
) -> Facts:
    """Read and measure all that a report says of a publication, with the caller's rights.

    `population` (for the journalist and the marketer risk): a relation of people, or their number.
    """
    # The relation has the quasi-identifiers of those from whom the source was drawn; its column
    # ``people``, if there is one, says how many each row stands for. The number is that of a simple
    # random sample.
    session.plan(_PHASES)
    session.phase("opening the publication")
    target = open_target(session, name)
    publication, source = target.publication, target.source
    kind = kind_named(publication.kind).load()
    session.phase("verifying")
    examined = kind.examine(session, publication)
    session.phase("attacking")
    attacks = worst_first(kind.attack(target))
    session.phase("reading the source")
    counted = _counted(session, source)
    before = _known_of_source(target, source.sensitive)
    others = [
        (name, _known_of_source(target, name), _known_of_publication(publication, attacks, name))
        for name in source.also_sensitive
        if name in publication.all_sensitive
    ]
    session.phase("answering counts")
    errors, losses = _useful(target)
    sizes = _sizes(target, {**publication.metrics, **examined.metrics})
    entry = _entry(session, name)
    waits = json.loads(entry["waits"] or "{}")
    rule = stricter(publication.figures, figures)
    readers = access_to(session, [name])[name]
    releases = _releases(session, source, name, {one.name for one in readers.now})
    own = [release for release in releases if release.name == name]
    return Facts(
        name=name,
        kind=publication.kind,
        shape=kind_named(publication.kind).shape,
        method=publication.method,
        source=publication.source,
        counted=counted,
        records=publication.records,
        left_out=publication.left_out,
        promise=promise_of(target, counted),
        left_open=left_open(publication.promise),
        guarantee=publication.guarantee,
        published_at=entry["at"],
        published_by=entry["publisher"],
        reported_at=entry["now"],
        waits=waits_in_words(waits, with_numbers=rule is None) if waits else "",
        access=readers,
        columns=_columns(publication, source),
        risks=[(risk, RISKS.get(risk, ""), why) for risk, why in accepted_reasons(publication)],
        before=before,
        after=_known_of_publication(publication, attacks, source.sensitive),
        linking=_linking(target, counted, sizes, population),
        sensitive=source.sensitive,
        others=others,
        inferences=_inferences(publication, attacks),
        attacks=attacks,
        checks=[*examined.checks, *check_draws(session, publication)],
        sizes=sizes,
        figures=rule,
        losses=losses,
        gap=publication.metrics.get("gap"),
        errors=errors,
        releases=releases,
        parameters={
            key: value
            for key, value in publication.parameters.items()
            if key not in ("accept", "combined_with")
        },
        digest=own[-1].digest if own else "",
    )


def _entry(session: Session, name: str) -> Row:
    return fetch_one(
        session,
        "SELECT to_char(published_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI \"UTC\"') AS at,"
        " to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI \"UTC\"') AS now,"
        " published_by AS publisher, waits::text AS waits FROM kanon.publications"
        " WHERE name = $1::text",
        name,
    )


def _releases(session: Session, source: Source, name: str, readers: set[str]) -> list[ReleaseFacts]:
    """List what this role released of what a publication is made of, by views and tables alike."""
    # The ledger shows a publisher no more. It hears of grants in this database, but not of who
    # becomes a member of a role that may read: so the catalog says who can read what is there now.
    rows = session.fetch(
        "SELECT name, kind, source,"
        " to_char(released_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') AS at,"
        " coalesce(released_by, '') AS publisher, coalesce(digest, '') AS digest, state,"
        " coalesce((SELECT string_agg((r ->> 'role') || ' (' || left(r ->> 'since', 10)"
        " || coalesce(' to ' || left(r ->> 'until', 10), ' on') || ')', ', '"
        " ORDER BY r ->> 'since', r ->> 'role') FROM jsonb_array_elements(readers) AS r), '')"
        " AS readers FROM kanon.releases AS r WHERE source = $1::text OR EXISTS ("
        " SELECT FROM kanon.releases AS own WHERE own.name = $2::text AND own.ended_at IS NULL"
        " AND (own.bases && r.bases OR own.base_names && r.base_names))"
        " ORDER BY released_at, release_id",
        str(source.relation),
        name,
    )
    live = [row["name"] for row in rows if row["state"] in ("draft", "live")]
    access = access_to(session, live)
    found = []
    for row in rows:
        now = access.get(row["name"]) if row["state"] in ("draft", "live") else None
        logins = [] if now is None else [one.name for one in now.now]
        state = row["state"] if now is None else "live" if now.granted else "draft"
        found.append(
            ReleaseFacts(
                row["name"], row["kind"], row["source"], row["at"], row["publisher"],
                shortened(logins), row["readers"], state, row["digest"],
                not readers.isdisjoint(logins),
            )
        )  # fmt: skip
    return found


def _counted(session: Session, source: Source) -> Counted:
    if source.entity is None:
        return Counted.UNKNOWN
    row = fetch_one(
        session,
        f"SELECT EXISTS (SELECT FROM {source.relation.rows(session)}"
        f" GROUP BY {session.identifier(source.entity)} HAVING count(*) > 1) AS found",
    )
    return Counted.SEVERAL if row["found"] else Counted.PEOPLE


def promise_of(target: AttackTarget, counted: Counted) -> str:
    """Say what a publication promises in the words of `recommend`."""
    k = int(target.publication.parameters.get("k") or 1)
    linked = linked_in_words(k, has_entities=counted is Counted.SEVERAL)
    return kind_named(target.publication.kind).load().promise_in_words(target, linked)


def _columns(publication: Publication, source: Source) -> list[ColumnFacts]:
    """Say of each column of the source what readers see."""
    described = kind_named(publication.kind).description
    roles = dict.fromkeys(source.quasi_identifiers, ("quasi-identifier", described.cells))
    for column, attribute in source.attributes.items():
        if "prefix" in attribute:
            shown = f"its first {attribute['prefix']} characters, {described.cells}"
            roles[column] = ("quasi-identifier", shown)
    for column in source.coarsened:
        is_labelled = "hierarchy" in source.attributes[column]
        shown = "as a label of its hierarchy" if is_labelled else "coarsened, as a range of bins"
        roles[column] = ("quasi-identifier", shown)
    roles |= dict.fromkeys(source.all_sensitive, ("sensitive", described.sensitive))
    roles |= dict.fromkeys(source.insensitive, ("insensitive", described.insensitive))
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


def _inferences(publication: Publication, attacks: Sequence[Attack]) -> list[InferenceFacts]:
    """Set what is promised of each sensitive attribute beside what attacks achieve."""
    names = publication.all_sensitive
    each = [
        InferenceFacts(
            name, name in publication.promise.get("bounded", ()),
            _known_of_publication(publication, attacks, name), attacks_on(attacks, name, names),
        )
        for name in names
    ]  # fmt: skip

    def severity(one: InferenceFacts) -> tuple[bool, bool, float]:
        worst = one.worst
        rate = 0.0 if worst is None or worst.rate is None else worst.rate
        return worst is None or not worst.exceeds, one.is_bounded, -rate

    return sorted(each, key=severity)


def _share(number: Any) -> float:
    return 0.0 if number is None else float(number)


def _known_of_publication(
    publication: Publication, attacks: Sequence[Attack], sensitive: str | None
) -> Knowledge:
    """Take from the attacks' results what follows from the published relations."""
    which = f" of {sensitive}" if len(publication.all_sensitive) > 1 else ""
    rates = {line.attack: line.rate for line in attacks}
    # Quasi-identifiers of buckets are published as they are, so rows stand out as in the source.
    unique = None if kind_named(publication.kind).shape == "buckets" else rates.get("linking a row")
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


AT_RISK: Final = 11
"""Records are at risk in classes of fewer: a probability above 0.09, as for public releases."""

_WEIGHT: Final = re.compile(
    r"(^|_)(fnl|p|survey_|sample_|sampling_)?(weight|wgt|wt)s?($|_)", re.IGNORECASE
)


def _linking(
    target: AttackTarget,
    counted: Counted,
    sizes: Sequence[tuple[int, int]],
    population: int | str | None,
) -> RiskFacts:
    """Measure the risk of linking, from the sizes of classes of people."""
    session, source, publication = target.session, target.source, target.publication
    known = ", ".join(map(session.identifier, source.quasi_identifiers))
    is_several = source.entity is not None and counted is Counted.SEVERAL
    number = (
        f"count(DISTINCT {session.identifier(str(source.entity))})" if is_several else "count(*)"
    )
    described = _population(target, population) if isinstance(population, str) else None
    is_bucket = kind_named(publication.kind).shape == "buckets"
    has_classes = bool(sizes) and not is_bucket and not is_several
    if described is not None:
        original = described.of_source(number)
        measured = described.of_classes() if has_classes else None
    else:
        rows = session.fetch(
            f"SELECT size, count(*) AS n FROM (SELECT {number} AS size FROM"
            f" {source.relation.rows(session)} GROUP BY {known}) AS alike"
            " WHERE size > 0 GROUP BY size"
        )
        found = [(int(row["size"]), int(row["n"])) for row in rows]
        each = _people_for_each(sum(size * n for size, n in found), population)
        original = [SizedClasses(size, n, each and size * each) for size, n in found]
        of_rows = [SizedClasses(size, n, each and size * each) for size, n in sizes]
        measured = of_rows if has_classes else None
    before = LinkingRisk.of([one._replace(people=_at_least(one)) for one in original])
    after = None
    if is_bucket:
        after, measured = before, original  # quasi-identifiers are published as they are
    elif measured is not None:
        after = LinkingRisk.of([one._replace(people=_at_least(one)) for one in measured])
    misfits = sum(one.number for one in measured or original if _at_least(one) != one.people)
    k = publication.parameters.get("k")
    bound = Fraction(1, int(k)) if k and publication.method != "k_concealment" else None
    return RiskFacts(
        before, after, bound, _alone(target), population, misfits, _weights(target)
    )  # fmt: skip


def _people_for_each(n_people: int, population: int | str | None) -> float | None:
    """Return how many people there are for each in the table, if the population is a number."""
    if not isinstance(population, int):
        return None
    if population < n_people:
        raise InvalidParameterError(
            "the population is smaller than the table",
            detail=f"{population:,} people, and {n_people:,} in the table",
            hint="give how many people the table was drawn from",
        )
    return population / max(n_people, 1)


def _at_least(classes: SizedClasses) -> float | None:
    return None if classes.people is None else max(float(classes.size), classes.people)


@dataclass(frozen=True)
class PopulationCounts:
    """The people from whom a source was drawn, counted by their quasi-identifiers."""

    target: AttackTarget
    # Quoted; its columns are those of the source, as values of their types, and `kanon_people`
    table: str

    def of_source(self, number: str) -> list[SizedClasses]:
        """Count classes of the source; `number` is what SQL counts in them."""
        session, source = self.target.session, self.target.source
        names = list(map(session.identifier, source.quasi_identifiers))
        same = " AND ".join(f"p.{name} IS NOT DISTINCT FROM s.{name}" for name in names)
        return self._counted(
            f"SELECT s.size, sum(p.kanon_people) AS people FROM (SELECT {', '.join(names)},"
            f" {number} AS size FROM {source.relation.rows(session)} GROUP BY {', '.join(names)})"
            f" AS s LEFT JOIN {self.table} AS p ON {same} GROUP BY {_of('s', names)}, s.size"
        )

    def of_classes(self) -> list[SizedClasses] | None:
        """Count classes of the publication; None where that takes knowing labels."""
        session, layout = self.target.session, self.target.publication.layout
        cells = layout["quasi_identifiers"]
        if any(cell["cell"] == "label" for cell in cells):
            return None
        names = [session.identifier(cell["name"]) for cell in cells]
        pattern = [session.identifier(layout["pattern"])] if layout.get("pattern") else []
        fits = []
        for place, (cell, name) in enumerate(zip(cells, names, strict=True), start=1):
            fit = {
                "range": f"kanon.possibly(c.{name}, p.{name})",
                "set": f"kanon.possibly(c.{name}, VARIADIC ARRAY[{label(f'p.{name}')}])",
            }.get(cell["cell"], f"c.{name} IS NOT DISTINCT FROM p.{name}")
            fits.append(f"kanon.possibly({fit}, c.{pattern[0]}, {place})" if pattern else fit)
        by = [*names, *pattern]
        view = Relation(self.target.schema, self.target.publication.name).quoted(session)
        return self._counted(
            f"SELECT c.size, sum(p.kanon_people) AS people FROM (SELECT {', '.join(by)},"
            f" count(*) AS size FROM {view} GROUP BY {', '.join(by)}) AS c"
            f" LEFT JOIN {self.table} AS p ON {' AND '.join(fits)} GROUP BY {_of('c', by)}, c.size"
        )

    def _counted(self, classes: str) -> list[SizedClasses]:
        rows = self.target.session.fetch(
            f"SELECT size, coalesce(people, 0)::float8 AS people, count(*) AS n FROM ({classes})"
            " AS counted WHERE size > 0 GROUP BY 1, 2"
        )
        return [SizedClasses(int(row["size"]), int(row["n"]), row["people"]) for row in rows]


def _of(alias: str, names: Sequence[str]) -> str:
    return ", ".join(f"{alias}.{name}" for name in names)


def _population(target: AttackTarget, name: str) -> PopulationCounts:
    """Read a relation with the quasi-identifiers of a population."""
    session, source = target.session, target.source
    try:
        relation, oid, _ = find_relation(session, name)
    except NotFoundError:
        raise NotFoundError(
            "the relation of the population does not exist",
            hint="give a relation with the quasi-identifiers of the population, such as"
            " public.census, or how many people there are",
        ) from None
    require_harmless(session, relation, oid)
    types = column_types(session, oid)
    missing = [column for column in source.quasi_identifiers if column not in types]
    unlike = [
        column
        for column in source.quasi_identifiers
        if column in types and types[column].type_name != target.types[column].type_name
    ]
    if missing or unlike:
        raise SchemaMismatchError(
            "the population does not have the quasi-identifiers of the source",
            detail=f"{relation}: {', '.join(missing) or 'none'} missing,"
            f" {', '.join(unlike) or 'none'} of another type",
            hint="make a view of it whose columns are named, and have the types, as in the source",
        )
    names = ", ".join(map(session.identifier, source.quasi_identifiers))
    has_counts = "people" in types and "people" not in source.quasi_identifiers
    if has_counts and not types["people"].is_number:
        raise SchemaMismatchError(
            "the people of a population must be numbers",
            detail=f'{relation}: the type of column "people" is {types["people"].type_name}',
        )
    number = "sum(people)" if has_counts else "count(*)"
    counted = f"SELECT {names}, {number} AS kanon_people FROM {relation.quoted(session)}"
    return PopulationCounts(target, f"({counted} GROUP BY {names})")


def _alone(target: AttackTarget) -> float | None:
    """Return the share of the published rows that no other one is like in all columns."""
    if kind_named(target.publication.kind).shape != "rows":
        return None
    view = Relation(target.schema, target.publication.name).quoted(target.session)
    row = fetch_one(
        target.session,
        "SELECT sum(size) FILTER (WHERE size = 1) / sum(size) AS alone FROM"
        f" (SELECT count(*) AS size FROM {view} AS p GROUP BY p::text) AS c",
    )
    return _share(row["alone"])


def _weights(target: AttackTarget) -> list[tuple[str, float]]:
    """Find published columns that are named as survey weights, and who is alone with theirs."""
    session, source = target.session, target.source
    found = []
    for name in source.insensitive if kind_named(target.publication.kind).shape == "rows" else ():
        if _WEIGHT.search(name) and target.types[name].is_number:
            row = fetch_one(
                session,
                "SELECT sum(size) FILTER (WHERE size = 1) / sum(size) AS alone FROM"
                f" (SELECT count(*) AS size FROM {source.relation.rows(session)}"
                f" GROUP BY {session.identifier(name)}) AS c",
            )
            found.append((name, _share(row["alone"])))
    return found


def _useful(target: AttackTarget) -> tuple[list[ErrorsAt], dict[str, float]]:
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
    useful = measure_usefulness(target, asked)
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
