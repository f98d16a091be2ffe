"""Publishes a source in the same steps for all kinds.

The request has been validated when this begins. The data is read once, searched, written to
relations that nobody else sees, and examined; at the end they get the publication's name. A refusal
leaves no trace, since the caller's transaction, or subtransaction, is rolled back.

The same result of a search of the same records draws the same publication, so that publishers
cannot draw again until they like the draft.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray, give_back, order_of, taken
from kanon_db.catalog.entries import Publication, Source, published_schema, run_errand
from kanon_db.catalog.sources import open_source, require_unchanged
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError, InvalidParameterError, RiskError
from kanon_db.publications.draws import require_drawable, write_draws
from kanon_db.publications.guarantees import (
    WarnsCaller,
    warn_of_gap,
    warn_of_unused_options,
)
from kanon_db.publications.kind import AttackTarget, Job, Kind, MethodResult, Workload, Written
from kanon_db.publications.lifecycle import check_name, enter_publication, released_columns
from kanon_db.publications.publish_request import COMBINED, RISKS, PublishRequest, accepted_risks
from kanon_db.publications.registry import kind_of
from kanon_db.publications.relations import StagedRelations
from kanon_db.publications.releases.entities import can_be_hashed, read_entities, stage_published
from kanon_db.publications.releases.ledger import check_readers, earlier_releases
from kanon_db.publications.releases.release_check import judge_release
from kanon_db.publications.results import FIGURES, Examination, Published, require_checks
from kanon_db.query.layout import DRAWN
from kanon_db.randomness import SeededRandom
from kanon_db.session import Session, fetch_one, undone
from kanon_db.transfer.allowance import Allowance, Needs
from kanon_db.transfer.cell_texts import count_read_texts
from kanon_db.transfer.coded_columns import CodedRecords, read_coded
from kanon_db.transfer.columns import (
    WHOLE_NUMBERS,
    ColumnType,
    check_comparable,
    describe_types,
    fix_labels,
    label_of,
)
from kanon_db.transfer.snapshot import (
    MAX_RECORDS,
    Records,
    Size,
    Snapshot,
    count_records,
    estimate_size,
    expected_values,
    take_snapshot,
)
from kanon_db.transfer.values import read_integers

# Every bound on what readers infer assumes that nobody chose the publication for what it shows. A
# publisher who could drop a draft and draw again could keep the draft that shows most about
# somebody. So what is drawn is a function of the publishing role, of the records in any order, and
# of what the search finds (:meth:`.SeededRandom.settle`): of nothing that was written in a request
# or a description. Requests that find the same buckets, classes or matches are one draw.
#
# ``kanon_owner`` makes the seed with a key that nobody else can read (``sql/24_entities.sql``):
# hashing guessed records gives no seed, and no role can try out guesses of what another role has
# published. A dry run has a seed of its own, since it would foretell the publication; each
# candidate of `recommend` gets a new one.
#
# docs/understand/privacy.md says what this leaves open: a superuser can read the key; what finds
# another result, or records that were changed on purpose, are other draws.

Read = TypeVar("Read", bound=Records)

_EQUAL: Final = {
    "numeric": "trim_scale({})",
    "real": "{} + 0",
    "double precision": "{} + 0",
    "interval": "justify_interval({})",
    "bpchar": "{}::text",
    "character": "{}::text",
}
"""One text for all values of a type that are equal: 1.0 and 1.00, 0 and -0, '1 day' and '24:00'."""


def draw_records(
    session: Session, request: PublishRequest, source: Source, records: Read,
    columns: Sequence[ColumnType],  # that are published
    entity: ColumnType | None = None,  # where it matters whom records are about
) -> tuple[Read, SeededRandom]:  # fmt: skip
    """Put the records in a random order, and make all further randomness.

    They are sorted by hashes of what they are, and then shuffled: in the order of their hashes,
    people who are alike in everything would follow each other, and a search that has to part people
    with the same quasi-identifiers would part them by their sensitive values. Quasi-identifiers are
    sorted first, so that where they come does not depend on anything else.

    Only records that are alike in all columns, of people who are, may still have another order
    afterwards.
    """
    session.step("putting the records in order")
    known = [column for column in columns if column.name in source.quasi_identifiers]
    others = [column for column in columns if column not in known]
    of_known, hashes = _hashes(records, known), _hashes(records, others)
    hashes ^= of_known
    if entity is None:
        order = order_of(hashes)
    else:
        order = order_of(_places_of_entities(hashes, _hashes(records, [entity])))
        order = taken(order, order_of(taken(hashes, order), stable=True))
    order = taken(order, order_of(taken(of_known, order), stable=True))
    seed = os.urandom(32)
    if not request.is_tried:
        digest = hashlib.sha256(type(request).__name__.encode())
        digest.update(taken(hashes, order).data)
        given = {"digest": digest.hexdigest(), "dry_run": request.dry_run}
        seed = bytes.fromhex(run_errand(session, "seed", **given))
    random = SeededRandom(seed)
    return records.in_order(taken(order, random.permutation(records.n_records))), random


def _places_of_entities(hashes: IntArray, of_entity: IntArray) -> IntArray:
    """Return the place of each record's entity, by the records that it has, not by its name."""
    entities, codes = np.unique(of_entity, return_inverse=True)
    contents = np.zeros(entities.size, dtype=np.int64)
    np.add.at(contents, codes, hashes)
    places = np.empty(entities.size, dtype=np.int64)
    places[np.lexsort((entities, contents))] = np.arange(entities.size)
    return places[codes]


def _hashes(records: Records, columns: Sequence[ColumnType]) -> IntArray:
    """Hash each record: the exclusive or of its values' hashes, each with its column's own seed.

    The same however the records were read.
    """
    if not columns:
        return np.zeros(records.n_records, dtype=np.int64)
    with fix_labels(records.session):
        if isinstance(records, CodedRecords):
            found = np.zeros(records.n_records, dtype=np.int64)
            for column in columns:
                coded = records.columns[column.name]
                row = fetch_one(
                    records.session,
                    f"SELECT string_agg(int8send({_hash('value', column)}), ''::bytea"
                    f" ORDER BY code) AS hashes FROM {coded.values.table}",
                )
                of_values = np.frombuffer(row["hashes"], dtype=">i8").astype(np.int64)
                found ^= taken(of_values, coded.codes)
            return found
        assert isinstance(records, Snapshot)  # noqa: S101  # there is no third way to read
        each = [_hash(f"s.{records.session.identifier(one.name)}", one) for one in columns]
        return read_integers(records, " # ".join(each), kind="int8").astype(np.int64, copy=False)


def _hash(value: str, column: ColumnType) -> str:
    """Write the hash of a value of a column; NULL has the column's own."""
    name = hashlib.sha256(column.name.encode()).digest()
    own = f"'{int.from_bytes(name[:8], 'big', signed=True)}'::int8"
    if column.type_name in WHOLE_NUMBERS:
        # The hash of an int8 folds it to four bytes, which would be another order of its own.
        high = f"hashint8extended(({value}::int8 >> 32), {own} # 1)"
        return f"coalesce(hashint8extended({value}::int8, {own}) # {high}, {own})"
    if column.type_name in _EQUAL:  # values that are equal have several texts
        text = f"({_EQUAL[column.type_name].format(value)})::text"
    else:
        text = label_of(column, value)
    return f'coalesce(hashtextextended(({text}) COLLATE pg_catalog."C", {own}), {own})'


# Forecasts are made before anything is read; see "Limits" in docs/howto/operation.md.

_HASH: Final = 600
"""Bytes on disk for the hashes of a record: staged, sorted, and kept with their indexes."""


MOST_COLUMNS: Final = 400
"""Each column has statements of its own, which the server plans with all others in view, and a
quasi-identifier some temporary tables, which take locks: 1,000 rows of 1,549 quasi-identifiers had
not even found room for these after two minutes, and 399 were not published after 115 s."""


_MANY_QUASI_IDENTIFIERS: Final = 150
_SECONDS_OF_EACH_PAIR: Final = 0.0006
"""What a generalized or freeform row with many quasi-identifiers takes, at least: of 200 rows, 100
took 9 to 13 s, 200 took 18 to 29 s; of 1,000 rows, 399 took more than 115 s. Statements of each
column read rows that are as wide as all of them."""


@dataclass(frozen=True)
class Forecast:
    """Forecast of what a request will need, for any number of records."""

    kind: Kind
    request: PublishRequest
    source: Source
    types: Mapping[str, ColumnType]  # all columns of the source
    room: Allowance
    n_values: float  # how many values the quasi-identifiers have, as the server's planner expects

    def begin(self, session: Session, columns: Sequence[str]) -> int:
        """Say what publishing will need, by what the server's planner expects of the source.

        Returns for how many records there is room, if they are as wide as expected. Too little, or
        more than :data:`MOST_COLUMNS`, is refused; the planner may be wrong about rows, so these
        are counted before.
        """
        relation = self.source.relation
        if len(columns) > MOST_COLUMNS:
            raise InfeasibleError(
                "the source has too many columns to publish",
                detail=f"{relation}: {len(columns):,} are to be read; the limit is {MOST_COLUMNS}",
                hint="give a role only to those that are needed, or publish parts through views",
            )
        n_known = len(self.source.quasi_identifiers)
        if self.kind.is_slow_if_wide and n_known > _MANY_QUASI_IDENTIFIERS:
            seconds = _SECONDS_OF_EACH_PAIR * n_known**2
            session.warn(
                f"{n_known} quasi-identifiers take {seconds / 60:.1f} minutes or more, however few"
                " rows there are, and such rows tell little: give a role only to what somebody"
                " could know of a person"
            )
        size = estimate_size(session, relation, columns)
        most = bisect_left(
            range(1, MAX_RECORDS + 1),
            True,
            key=lambda n: not self.room.holds(self._needs(replace(size, n_records=n))),
        )
        if size.n_records > most:
            size = replace(size, n_records=count_records(session, relation))
            self.require(size)
        session.tell(f"publishing {_rows(size)} needs some {self._needs(size)}")
        return most

    def require(self, size: Size) -> Needs:
        """Refuse what there is no room for."""
        if size.n_records > MAX_RECORDS:
            raise InfeasibleError(
                "the source has too many rows",
                detail=f"{self.source.relation} has {size.n_records:,}; the limit is"
                f" {MAX_RECORDS:,}",
                hint="publish a part of it, through a view",
            )
        needs = self._needs(size)
        self.room.require(
            needs,
            f"{self.source.relation}, {_rows(size)}",
            "publish fewer rows or columns, through a view, or by another method",
        )
        return needs

    def _needs(self, size: Size) -> Needs:
        most = len(self.source.quasi_identifiers) * size.n_records
        size = replace(size, n_values=min(self.n_values, most))
        needs = self.kind.needs(self.request, self.source, self.types, size)
        if self.source.entity is None:
            return needs
        return needs._replace(disk=needs.disk + _HASH * size.n_records)


def _rows(size: Size) -> str:
    return f"about {size.n_records:,} rows of {size.width:,.0f} bytes"


# A dry run measures staged relations, with the rights of the publishing role, which can read the
# source anyway.

WORKLOAD: Final = Workload(1000, seed=1)
"""The questions that every dry run asks: the same ones for the same source."""


def measure_staged(
    kind: Kind, target: AttackTarget, accepted: Mapping[str, str], refusal: RiskError | None
) -> dict[str, Any]:
    """Measure a staged publication as its publisher could measure it afterwards.

    Plain JSON: ``counts`` (rows of `evaluate_counts`, for buckets), ``attacks`` (rows of `attack`),
    ``risks``, and in ``not_measured`` the reasons for what is missing.
    """
    not_measured: dict[str, str] = {}

    def measured(name: str, rows: Callable[[], Sequence[Any]]) -> list[dict[str, Any]] | None:
        try:
            with target.session.savepoint():
                return [_json_number(asdict(row)) for row in rows()]
        except InfeasibleError as error:
            # Reading may need more memory than publishing does, which is no reason to refuse.
            not_measured[name] = f"{error.message}: {error.detail}"
            target.session.warn(f"{name} were not measured: {error.message}")
            return None

    return {
        "counts": measured("counts", lambda: kind.evaluate(target, WORKLOAD)),
        "attacks": measured("attacks", lambda: kind.attack(target)),
        "risks": _risks(accepted, refusal),
        "not_measured": not_measured,
    }


def _risks(accepted: Mapping[str, str], refusal: RiskError | None) -> list[dict[str, Any]]:
    found = [
        {"risk": risk, "is_refused": False, "meaning": RISKS[risk], "accepted": reason}
        for risk, reason in accepted.items()
    ]
    if refusal is not None:
        found.append(
            {"risk": COMBINED, "is_refused": True, "meaning": refusal.detail, "accepted": None}
        )
    return found


def _json_number(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: an average of nothing is missing."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in row.items()
    }


PHASES: Final = (
    "reading the source", "searching", "writing", "verifying", "comparing releases", "publishing",
)  # fmt: skip
"""Of publishing; a dry run measures instead of the last one."""

MEASURING: Final = "measuring"


def publish(session: Session, request: PublishRequest) -> Published:
    """Publish a source, verified before anybody sees it; a dry run leaves nothing behind.

    The transaction is the publishing role's, which needs SELECT on the source; after a
    `KanonError`, it must be rolled back. `IneligibleError`: no publication can satisfy the request;
    `InfeasibleError`: none exists within the given limits.

    Notes
    -----
    Rows are published in a random order; see :mod:`kanon_db.publications.pipeline`.
    """
    source, types = open_source(session, request.source)
    session.plan([*PHASES[:-1], MEASURING] if request.dry_run else PHASES)
    if not request.dry_run:
        return _publish(session, request, source, types)
    with undone(session):
        return _publish(session, request, source, types)


def _publish(
    session: Session, request: PublishRequest, source: Source, types: Mapping[str, ColumnType]
) -> Published:
    started = time.perf_counter()
    name = request.publication
    kind = kind_of(request).load()
    schema = published_schema(session)
    suffixes = [*kind.suffixes, DRAWN] if request.draws else kind.suffixes
    check_name(session, name, suffixes, replace=request.replace)
    readers, keeps_grants = _readers(session, request, schema)
    staged = stage(session, request, source, types, readers)
    require_unchanged(session, source)
    publication, accepted = staged.publication, staged.accepted
    session.phase("comparing releases")
    earlier = earlier_releases(session, source.source_id, readers)
    combined, refusal = judge_release(session, source, publication, name, earlier, request.accept)
    if combined.refused and COMBINED in request.accept:
        accepted[COMBINED] = request.accept[COMBINED]

    def published(publication_id: int | None, measured: Mapping[str, Any]) -> Published:
        figures = {**publication.metrics, **measured}
        entered = replace(publication, name=name, metrics=figures)
        return described_result(entered, staged.metrics, started, publication_id)

    if request.dry_run:
        session.phase(MEASURING)
        if refusal is not None:
            session.warn(f"publishing it would be refused: {refusal.message}")
        target = AttackTarget(session, publication, source, types, schema, staged.room)
        return published(None, {FIGURES: measure_staged(kind, target, accepted, refusal)})
    if refusal is not None:
        raise refusal
    session.phase("publishing")
    publication_id = enter_publication(
        staged.staging, publication, name, source, metrics=staged.metrics,
        columns=released_columns(source, staged.columns), combined=combined,
        replace=request.replace, upto=staged.upto, keeps_grants=keeps_grants,
        entities=staged.entities,
    )  # fmt: skip
    return published(publication_id, {})


@dataclass(frozen=True, eq=False)
class StagedPublication:
    """A publication that is written and verified, and that nobody else can read yet."""

    staging: StagedRelations
    publication: Publication  # under the name of its staged relations
    # The known risks that it takes, with the reasons; the publication's own record of them.
    accepted: dict[str, str]
    metrics: Mapping[str, float]  # those that follow from the published relations
    columns: list[str]  # the columns of the source that it shows
    upto: str | None  # the greatest value of the column that says when a record came
    entities: str | None  # the staged relation of the hashes of its entities, if it is to have one
    room: Allowance


def stage(
    session: Session,
    request: PublishRequest,
    source: Source,
    types: Mapping[str, ColumnType],
    readers: Sequence[str],
) -> StagedPublication:
    """Read, search, write and verify: all of publishing but the publication's name and readers."""
    kind = kind_of(request).load()
    if request.draws:
        require_drawable(kind_of(request).name)
    source = kind.in_order(source)
    session.phase("reading the source")
    accepted = accept_request(session, kind, request, source)
    entity = [] if source.entity is None else [source.entity]
    published = kind.chosen(request, source, types)
    columns = source.with_origin(published)
    _warn_of_texts(session, [types[column] for column in published])
    room = Allowance.of(session)
    n_values = expected_values(session, source.relation, source.quasi_identifiers)
    forecast = Forecast(kind, request, source, types, room, n_values)
    most = forecast.begin(session, columns)
    records: CodedRecords | Snapshot | None = None
    if kind.takes_codes and source.entity is None and source.arrival is None:
        read = [types[column] for column in columns]
        records = read_coded(session, source.relation, read, room, most)
    records = records or take_snapshot(session, source.relation, columns, room, most)
    records.hold(forecast.require(records.size()).memory, "the rows")
    if request.draws:
        require_drawable(kind_of(request).name, records.n_records)
    accepted |= accept_free_texts(request, source, records, [types[name] for name in published])
    described = describe_types(session, source.relation, published)
    check_comparable(session, source.relation, [*kind.comparable(source), *entity])
    # Entities matter only where they are counted; the order in which records came, never.
    counted = types[str(source.entity)] if entity and kind.counts_entities else None
    records, random = draw_records(
        session, request, source, records, [types[name] for name in published], counted
    )
    entities, upto = None, None
    if isinstance(records, Snapshot):
        entities = read_entities(records, source, are_counted=kind.counts_entities)
        upto = None if source.arrival is None else records.greatest(source.arrival)
    staging = StagedRelations.begin(session, published_schema(session))
    job = Job(session, request, source, types, staging, records, room, random, entities)
    with kind.memory():
        session.phase("searching")
        found = kind.search(job)
        give_back()
        warn_of_gap(session, request.method, found.proof)
        session.phase("writing")
        written = kind.write(job, found)
        give_back()
    known = None
    if can_be_hashed(session, source, types):
        known = stage_published(
            session, staging.schema, job.snapshot, types[str(source.entity)],
            [types[column] for column in published], written.signatures,
        )  # fmt: skip
    records.drop()

    publication, examined = verify_written(
        session, request, source, found, written,
        sink=_ServerSink(session, kind, staging.name, described), n_records=records.n_records,
        parameters={
            "readers": list(readers), "accept": accepted,
            **count_kept(session, source, records.n_records),
        },
    )  # fmt: skip
    give_back()
    write_draws(staging, publication)
    named = None if known is None else known.staging.name
    return StagedPublication(
        staging, publication, accepted, examined.metrics, published, upto, named, room
    )


def count_kept(session: Session, source: Source, n_kept: int | None = None) -> dict[str, Any]:
    """Say which record of each person is published, and how many rows of the source are not."""
    if source.kept_in_words is None:
        return {}
    n_rows = count_records(session, source.relation.whole)
    if n_kept is None:
        n_kept = count_records(session, source.relation)
    n_rows = max(n_rows, n_kept)  # some may have gone since the records were read
    session.tell(
        f"{n_rows - n_kept:,} of {n_rows:,} rows are not published: each person has one record,"
        f" {source.kept_in_words}"
    )
    return {"kept": source.kept_in_words, "not_kept": n_rows - n_kept}


def accept_request(
    session: WarnsCaller,
    kind: Kind,
    request: PublishRequest,
    source: Source,
    risks: Sequence[str] = (),
) -> dict[str, str]:
    """Refuse what does not fit the source; return the reasons for the known risks.

    `risks` are those that the kind does not know of.
    """
    kind.require_shown(source)
    require_protected(source, protects_several=kind.protects_several)
    kind.prepare(request, source)
    pooled = ["pooled_values"] if source.pooled and kind.bounds_values(request) else []
    accepted = accepted_risks(request.accept, [*kind.risks(request), *pooled, *risks])
    warn_of_unused_options(session, request)
    return accepted


def accept_free_texts(
    request: PublishRequest, source: Source, records: Records, columns: Sequence[ColumnType]
) -> dict[str, str]:
    """Refuse free texts, which can name people, unless the publisher accepts this risk."""
    shown = [one for one in columns if "hierarchy" not in source.attributes.get(one.name, {})]
    counted = count_read_texts(records, shown)
    said = [f'column "{name}" ({texts})' for name, texts in counted.items() if texts.matter]
    if not said or request.is_tried:
        return {}
    return accepted_risks(request.accept, ["free_text"], f"; {'; '.join(said)}")


def require_protected(source: Source, *, protects_several: bool) -> None:
    """Refuse a source with several sensitive attributes, unless a kind protects these."""
    if source.also_sensitive and not protects_several:
        raise InvalidParameterError(
            "this kind of publication protects one sensitive attribute",
            detail=f"{source.relation} was registered with {len(source.all_sensitive)}",
            hint="publish a view that is registered with one of them",
        )


class Sink(Protocol):
    """Where the relations of a publication were written: a server's schema, or a folder."""

    @property
    def name(self) -> str:
        """What the publication is called there."""

    @property
    def types(self) -> Mapping[str, Any]:
        """The types of the source's columns, as the layout keeps them."""

    def examine(self, publication: Publication) -> Examination:
        """Check and measure what was written, using nothing else."""


@dataclass(frozen=True, eq=False)
class _ServerSink:
    """The staged relations of a server."""

    session: Session
    kind: Kind
    name: str
    types: Mapping[str, Any]

    def examine(self, publication: Publication) -> Examination:
        """See :meth:`Kind.examine`."""
        return self.kind.examine(self.session, publication, is_new=True)


def verify_written(
    session: Any, request: PublishRequest, source: Source, found: MethodResult, written: Written,
    *, sink: Sink, n_records: int, parameters: Mapping[str, Any],
) -> tuple[Publication, Examination]:  # fmt: skip
    """Describe what was written, and refuse it if any check fails: of a server, and of files."""
    session.phase("verifying")
    guarantee = written.guarantee.about_kept(source)
    publication = Publication(
        name=sink.name,
        kind=kind_of(request).name,
        method=found.method or request.method,
        source=str(source.relation),
        parameters={**request.recorded, **written.parameters, **parameters},
        layout={**written.layout, "types": sink.types},
        records=n_records,
        guarantee=str(guarantee),
        promise=guarantee.plain,
        metrics={**written.metrics, **({} if found.proof is None else found.proof.metrics)},
    )
    examined = sink.examine(publication)
    require_checks([*examined.checks, *written.checks])
    return publication, examined


def described_result(
    publication: Publication, measured: Mapping[str, Any], started: float, number: int | None = None
) -> Published:
    """Return what publishing returns, `started` being when it began."""
    return Published(
        publication_id=number,
        name=publication.name,
        guarantee=publication.guarantee,
        records=publication.records,
        metrics={**measured, **publication.metrics},
        seconds=time.perf_counter() - started,
    )


def _readers(session: Session, request: PublishRequest, schema: str) -> tuple[Sequence[str], bool]:
    """Return who is to read it, and whether these are the readers of what it takes the place of."""
    if request.replace and request.readers is None:
        state = run_errand(session, "batches", name=request.publication)
        if state is not None:
            return tuple(state["grantees"]), True
    return check_readers(session, request.readers, schema), False


def _warn_of_texts(session: Session, columns: Sequence[ColumnType]) -> None:
    others = [column.name for column in columns if column.is_others]
    if others:
        session.warn(
            f"published as texts, since their types do not belong to a superuser:"
            f" {', '.join(others)}; questions about < and > need an enumeration's order"
        )
