"""Draws whole records from published relations alone, and keeps a draw beside them.

What is kept is what anybody draws with the seed 0: it follows from the publication, so that nobody
can draw until they like it, and it is verified by drawing it again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import numpy as np

from kanon_db.algorithms.bucketization.bucket_assignment import draw_matchings
from kanon_db.algorithms.bucketization.buckets import BucketSetting, in_slots
from kanon_db.algorithms.ground.arrays import FloatArray, IntArray, unpack_levels
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.generalized_cells import (
    draw_members,
    even_places,
    spread_levels,
)
from kanon_db.catalog.entries import (
    Publication,
    find_publication,
    published_schema,
    require_whole,
)
from kanon_db.catalog.published_types import cell_layout
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.buckets.learned_weights import read_weights
from kanon_db.publications.codes import CodeTables
from kanon_db.publications.registry import kind_named
from kanon_db.publications.relations import Note, StagedRelations, counting_note
from kanon_db.publications.results import Check, require_checks
from kanon_db.publications.rows.cell_columns import KnownCells, RangeColumn
from kanon_db.publications.rows.distinct_cells import CellNumbers
from kanon_db.publications.rows.stored_cells import PublicationReader, StoredCells
from kanon_db.query.expressions import NUMBERS
from kanon_db.query.layout import (
    ANYTHING,
    DRAWN,
    BucketTables,
    CellDescription,
    CellLayout,
    Quotes,
    labels,
)
from kanon_db.query.ranges import (
    AXES,
    RANGES,
    place_of_end,
    value_at,
    value_of_end,
)
from kanon_db.query.sql import Constants
from kanon_db.session.protocol import Session, fetch_one, settings
from kanon_db.transfer.columns import column_types, find_relation, label
from kanon_db.transfer.tries import Domain, WholeValues

DRAWS: Final = (
    "these records are draws, not people: they are made of the publication and of chance alone, and"
    " tell nothing that it does not tell"
)

_MOST_DRAWN: Final = 1_000_000
"""Records of which all are held in memory at once, as texts."""

_AT_ONCE: Final = 10_000

_TEXTS: Final = {"intervalstyle": "iso_8601", "timezone": "UTC", "datestyle": "ISO"}
"""Texts of values must not depend on the caller's settings."""


class DrawnRecord(NamedTuple):
    """A record that was drawn, as a JSON object with its columns in their order."""

    record: str


def draw(session: Session, name: str, seed: int | None) -> list[DrawnRecord]:
    """Draw a record for each published one, in a random order."""
    # Raises NotFoundError when there is no such publication, or the role may not read it, and
    # InvalidParameterError for a kind without records, or more than 1,000,000 of them.
    publication = find_publication(session, name)
    require_whole(publication)
    require_drawable(publication.kind, publication.records)
    session.warn(DRAWS)
    random = np.random.default_rng(seed)
    with settings(session, _TEXTS):
        texts = _drawing(session, publication).draw(random).texts
    return [DrawnRecord(texts[place]) for place in random.permutation(len(texts)).tolist()]


def require_drawable(kind: str, n_records: int = 0) -> None:
    """Refuse a kind without records to draw, or too many of them."""
    if not kind_named(kind).description.draws:
        raise InvalidParameterError(
            "records are drawn from buckets and from rows",
            detail=f"a publication of the kind {kind} has neither",
            hint="publish buckets, or ask the model with kanon.classify",
        )
    if n_records > _MOST_DRAWN:
        raise InvalidParameterError(
            "the publication is too large to draw all of its records",
            detail=f"{n_records:,} records, limit {_MOST_DRAWN:,}",
            hint="publish a part of the source",
        )


def has_draws(publication: Publication) -> bool:
    """Tell whether a draw is kept beside a publication."""
    return publication.parameters.get("draws") is True


def write_draws(staging: StagedRelations, publication: Publication) -> None:
    """Write and verify the draw of a staged publication, if it is to have one."""
    if not has_draws(publication):
        return
    session = staging.session
    random = np.random.default_rng(0)
    with settings(session, _TEXTS):
        drawing = _drawing(session, publication)
        staging.create_table(DRAWN, drawing.shape())
        texts = drawing.draw(random).texts
        order = random.permutation(len(texts)).tolist()
        session.step("writing the drawn records")
        table = session.identifier(staging.schema, staging.name + DRAWN)
        for start in range(0, len(order), _AT_ONCE):
            session.fetch(
                f"INSERT INTO {table} SELECT d.* FROM unnest($1::text[]) WITH ORDINALITY"
                f" AS t (record, i), {_populate(table)} AS d"
                " ORDER BY t.i",
                [texts[place] for place in order[start : start + _AT_ONCE]],
            )
    staging.analyze(DRAWN)
    require_checks(check_draws(session, publication))


def check_draws(session: Session, publication: Publication) -> list[Check]:
    """Check that the draw beside a publication, if there is one, says nothing that it does not."""
    if not has_draws(publication):
        return []
    # A fresh draw shows nothing but what the publication shows of each record, as the server finds;
    # and what is kept are the records of that draw.
    table = session.identifier(published_schema(session), publication.name + DRAWN)
    difference: Counter[str] = Counter()
    amiss = 0
    with settings(session, _TEXTS):
        for row in session.stream(_AT_ONCE, f"SELECT ROW(d.*)::text AS text FROM {table} AS d"):
            difference[row["text"]] += 1
        drawing = _drawing(session, publication)
        drawn = drawing.draw(np.random.default_rng(0))
        session.step("checking the drawn records")
        for texts, origins in drawn.parts():
            amiss += fetch_one(session, drawing.amiss(table), texts, origins)["n"]
            for row in session.fetch(
                "SELECT ROW(d.*)::text AS text FROM unnest($1::text[]) AS t (record),"
                f" {_populate(table)} AS d",
                texts,
            ):
                difference[row["text"]] -= 1
    n_others = sum(map(abs, difference.values()))
    return [
        Check(drawing.promise, "0 differ", f"{amiss:,} differ", holds=amiss == 0),
        Check(
            "the drawn records are those that the publication gives to whoever draws",
            "0 other records", f"{n_others:,} other records", holds=n_others == 0,
        ),
    ]  # fmt: skip


def draws_note(publication: Publication, quotes: Quotes) -> Note:
    """Say how to use the draw that is kept."""
    return Note(
        "How to use: count(*), avg and sum, as with any table: each row is a made-up record with"
        " one value in each column, drawn once from the publication and from chance. No row is a"
        f" person's. {counting_note(quotes.identifier(publication.name))}"
    )


def _populate(table: str) -> str:
    """Write a row of a table from JSON, ``t.record``."""
    # The type alone would not have a plan made anew for the table that takes this one's place.
    of_type = f"(SELECT NULL::{table} FROM {table} WHERE false)"
    return f"json_populate_record({of_type}, t.record::json)"


class _DrawnRecords(NamedTuple):
    """Records in the order of the published ones, and what each was drawn from."""

    texts: list[str]  # JSON objects
    origins: list[str]  # the numbers of their buckets, ascending; or published rows

    def parts(self) -> Iterator[tuple[list[str], list[str]]]:
        """Yield both in parts, of which no two have an origin in common."""
        starts = [0]
        for place, (before, now) in enumerate(pairwise(self.origins), start=1):
            if place - starts[-1] >= _AT_ONCE and before != now:
                starts.append(place)
        for start, end in pairwise([*starts, len(self.texts)]):
            yield self.texts[start:end], self.origins[start:end]


class _Drawing(Protocol):
    """Draws from the publications of a kind."""

    promise: str  # what holds of each record

    def shape(self) -> str:
        """Write a query with the columns of a draw, in the types of the source."""

    def draw(self, random: np.random.Generator) -> _DrawnRecords:
        """Draw a record for each published one."""

    def amiss(self, table: str) -> str:
        """Write a query that counts records ($1) that differ from their origins ($2)."""


def _drawing(session: Session, publication: Publication) -> _Drawing:
    schema = published_schema(session)
    if kind_named(publication.kind).shape == "buckets":
        of = session, schema, publication.name, publication.layout
        return _BucketDrawing(session, BucketTables.of(*of), CodeTables.of(*of))
    return _RowDrawing(session, schema, publication)


class _BucketDrawing:
    """Gives each record one value of its bucket, each as often as the bucket has it.

    By the published weights, as :func:`.draw_matchings` says; all matchings are alike without.
    """

    promise = "each drawn record has published quasi-identifiers, and its bucket's values are dealt"

    def __init__(self, session: Session, tables: BucketTables, codes: CodeTables) -> None:
        self._session, self._tables, self._codes = session, tables, codes
        self._known = ", ".join(f"q.{name}" for name in tables.quasi_identifiers)

    def shape(self) -> str:
        tables = self._tables
        return (
            f"SELECT {self._known}, {tables.values('s')} FROM {tables.qit} AS q, {tables.sat} AS s"
        )

    def amiss(self, table: str) -> str:
        tables = self._tables
        drawn = ", ".join(f"d.{name}" for name in tables.quasi_identifiers)
        sides = [
            (drawn, f"ROW({self._known})", "1", tables.qit, "q"),
            (
                tables.values("d"),
                f"ROW({tables.values('s')})",
                f"s.{tables.count}",
                tables.sat,
                "s",
            ),
        ]
        compared = [
            f"SELECT 1 FROM (SELECT t.bucket, ROW({own})::text AS text, -1 AS n"
            " FROM unnest($1::text[], $2::text[]::int4[]) AS t (record, bucket),"
            f" {_populate(table)} AS d"
            f" UNION ALL SELECT {of}.{tables.bucket_id}, {published}::text, {n}"
            f" FROM {relation} AS {of} WHERE {of}.{tables.bucket_id} BETWEEN"
            " (($2::text[])[1])::int4 AND (($2::text[])[cardinality($2::text[])])::int4) AS r"
            " GROUP BY r.bucket, r.text HAVING sum(r.n) <> 0"
            for own, published, n, relation, of in sides
        ]
        return f"SELECT count(*) AS n FROM ({' UNION ALL '.join(compared)}) AS c"

    def draw(self, random: np.random.Generator) -> _DrawnRecords:
        session, tables = self._session, self._tables
        session.step("reading the published relations")
        first = next(iter(tables.sensitive.values()))
        setting = BucketSetting.of(list(tables.sizes), tables.buckets_of_sizes)
        # Without an order of slots, in that of the columns: the same seed must meet the same rows.
        order = tables.slot_order or self._known
        rows = session.stream(
            _AT_ONCE,
            f"SELECT (SELECT row_to_json(r)::text FROM (SELECT {self._known}) AS r) AS record"
            f" FROM {tables.qit} AS q ORDER BY q.{tables.bucket_id}, {order}",
        )
        records = [row["record"] for row in rows]
        numbers: dict[str, int] = {}
        labels: dict[str | None, int] = {}
        pairs = []
        for row in session.stream(
            _AT_ONCE,
            f"SELECT s.{tables.bucket_id} AS bucket, s.{tables.count} AS count,"
            f" (SELECT row_to_json(r)::text FROM (SELECT {tables.values('s')}) AS r) AS value,"
            f" {label(f's.{first}')} AS label FROM {tables.sat} AS s ORDER BY 1, 3",
        ):
            number = numbers.setdefault(row["value"], len(numbers))
            labels[row["label"]] = number
            pairs.append((row["bucket"], number, row["count"]))
        buckets, values, counts = np.array(pairs, dtype=np.int64).reshape(-1, 3).T
        sizes = np.repeat(setting.sizes, setting.counts)
        starts = np.append(0, np.cumsum(sizes))
        n_values = np.bincount(buckets - 1, minlength=sizes.size)
        firsts = np.append(0, np.cumsum(n_values))
        offsets = np.append(0, np.cumsum(sizes * n_values))
        of_pair = sizes[buckets - 1]
        # By pair of a bucket and a value, the cells of its records in the table of weights.
        at = np.repeat(np.arange(buckets.size), of_pair)
        within = np.arange(at.size) - np.repeat(np.cumsum(of_pair) - of_pair, of_pair)
        row_of = starts[buckets - 1][at] + within
        column = np.arange(buckets.size) - firsts[buckets - 1]
        cell = offsets[buckets - 1][at] + within * n_values[buckets - 1][at] + column[at]
        weights = np.empty(int(offsets[-1]))
        weights[cell] = (counts / of_pair)[at]
        caps = np.ones(buckets.size)
        if tables.is_likely:
            bit_of = np.empty(len(records), dtype=np.int64)
            bit_of[in_slots(np.arange(len(records)), setting)] = np.arange(len(records))
            (name,) = tables.sensitive
            for row in read_weights(session.stream, tables, self._codes, name):
                own = values[at] == labels[row["value"]]
                levels, parts = unpack_levels(row["weights"], tables.n_records), row["parts"]
                weights[cell[own]] = levels[bit_of[row_of[own]]] / float(parts)
                caps[values == labels[row["value"]]] = int(levels.max(initial=0)) / parts
        session.step("drawing values")
        pulse = Pulse(heartbeat=session.heartbeat)
        drawn = values[draw_matchings(weights, starts, firsts, counts, caps, random, pulse)]
        texts = list(numbers)
        origins = np.repeat(np.arange(1, sizes.size + 1), sizes).tolist()
        return _DrawnRecords(
            [
                f"{record[:-1]},{texts[value][1:]}"
                for record, value in zip(records, drawn.tolist(), strict=True)
            ],
            list(map(str, origins)),
        )


_SOURCE_TYPES: Final = """
SELECT c.name, coalesce(
    (SELECT format_type(t.oid, coalesce(c.length + 4, -1)) FROM pg_type AS t
     WHERE t.oid = to_regtype(c.type) AND kanon.is_safe_type(t.oid)), 'text') AS type
FROM unnest($1::text[], $2::text[], $3::text[]::int4[]) AS c (name, type, length)
"""
"""The types of the source's columns, as the server writes them."""


class _ShownColumn(NamedTuple):
    """A column of published rows."""

    name: str
    quoted: str
    type_name: str  # of the source, as SQL
    cell: CellDescription
    range_type: str  # of ranges


def _shown_columns(
    session: Session, layout: CellLayout, publication: Publication
) -> list[_ShownColumn]:
    described = publication.layout.get("types")
    described = described if isinstance(described, dict) else {}
    names = [name for name in layout.view.columns if name in layout.cells]
    of_source = [one if isinstance(one := described.get(name), dict) else {} for name in names]
    lengths = [one.get("length") for one in of_source]
    types = session.fetch(
        _SOURCE_TYPES,
        names,
        [one["type"] if isinstance(one.get("type"), str) else None for one in of_source],
        [str(length) if isinstance(length, int) else None for length in lengths],
    )
    type_of = {row["name"]: str(row["type"]) for row in types}
    _, oid, _ = find_relation(session, layout.view.view)
    published = column_types(session, oid)
    return [
        _ShownColumn(
            name, session.identifier(name), type_of[name], cell := layout.cells[name],
            published[name].type_name if cell.kind == "range" else "",
        )
        for name in names
    ]  # fmt: skip


class _RowDrawing:
    """Gives each row a value of each cell, each as often as the estimator takes it to be there.

    A suppressed cell has a value that others keep, the rarer the more.
    """

    promise = "each drawn record lies in the cells of a published row, and has what that shows"

    def __init__(self, session: Session, schema: str, publication: Publication) -> None:
        described = publication.layout
        self._session, self._layout = session, cell_layout(session, schema, publication)
        self._reader = PublicationReader.of(session, schema, publication)
        self._store = self._reader.store
        self._numbering = CellNumbers(session, self._layout.view, self._store.tables, described)
        self._columns = _shown_columns(session, self._layout, publication)

    def shape(self) -> str:
        shown = ", ".join(
            f"v.{one.quoted}"
            if one.cell.kind == "value"
            else f"NULL::{one.type_name} AS {one.quoted}"
            for one in self._columns
        )
        return f"SELECT {shown} FROM {self._layout.view.view} AS v"

    def amiss(self, table: str) -> str:
        fits = " AND ".join(self._fits(column) for column in self._columns)
        return (
            "SELECT count(*) AS n FROM unnest($1::text[], $2::text[]) AS t (record, row),"
            f" {_populate(table)} AS d,"
            f" LATERAL (SELECT (t.row::{self._layout.view.view}).*) AS v WHERE ({fits}) IS NOT TRUE"
        )

    def _fits(self, column: _ShownColumn) -> str:
        """Write whether the value of a record ``d`` lies in the cell of a row ``v``."""
        drawn, shown = f"d.{column.quoted}", f"v.{column.quoted}"
        if column.range_type:
            end = AXES[column.cell.column.type.name].end.format(drawn)
            own = f"{end}::{RANGES[column.range_type].end}"
            return (
                f"CASE WHEN num_nulls({shown}, {drawn}) > 0 THEN num_nonnulls({drawn}) = 0 AND"
                f" (num_nulls({shown}) = 1 OR lower_inf({shown}) AND upper_inf({shown}))"
                f" ELSE {shown} @> {own} END"
            )
        if column.cell.labels is not None:
            return self._fits_label(column, column.cell.labels)
        if column.cell.kind == "set":
            return (
                f"EXISTS (SELECT FROM unnest(coalesce({shown}, ARRAY[NULL::text])) AS m (x) WHERE"
                f" m.x::{column.type_name}::text IS NOT DISTINCT FROM {drawn}::text)"
            )
        same = f"{drawn}::text IS NOT DISTINCT FROM {shown}::text"
        if column.cell.mark is None:
            return same
        return f"({self._numbering.hidden(column.name, 'v')} OR {same})"

    def _fits_label(self, column: _ShownColumn, described: str) -> str:
        drawn, shown = f"d.{column.quoted}", f"v.{column.quoted}"
        literal = f"{self._session.literal(described)}::jsonb"
        return (
            f"CASE WHEN num_nulls({drawn}) > 0 THEN coalesce({shown}, '{ANYTHING}') = '{ANYTHING}'"
            f" ELSE ({shown}, {drawn}::text) IN (SELECT l.label, m.x::{column.type_name}::text"
            f" FROM ({labels(literal)}) AS l JOIN jsonb_array_elements_text({literal} ->"
            " 'values') WITH ORDINALITY AS m (x, i) ON m.i - 1 BETWEEN l.first AND l.last) END"
        )

    def draw(self, random: np.random.Generator) -> _DrawnRecords:
        session = self._session
        session.step("reading the published rows")
        coded = [one.name for one in self._columns if one.cell.kind != "value"]
        shown = [one for one in self._columns if one.cell.kind == "value"]
        digits, joins = self._numbering.looked_up(coded)
        packed = f"ARRAY[{', '.join(digits)}]::int8[]" if digits else "NULL"
        values = ", ".join(f"to_json(v.{one.quoted})::text" for one in shown)
        pattern = self._layout.view.pattern
        marks = "NULL::text" if pattern is None else f"v.{pattern}"
        # The order of stored rows may differ after a restore; a seed must meet the same rows.
        rows = [
            (row["row"], row["marks"], row["shown"], row["digits"])
            for row in session.stream(
                _AT_ONCE,
                f"SELECT ROW(v.*)::text AS row, {marks} AS marks, ARRAY[{values}]::text[] AS shown,"
                f" {packed} AS digits FROM {self._layout.view.view} AS v{joins}"
                ' ORDER BY ROW(v.*)::text COLLATE pg_catalog."C"',
            )
        ]
        session.step("drawing values")
        codes = {
            name: np.array([own[place] for _, _, _, own in rows], dtype=np.int64) - 1
            for place, name in enumerate(coded)
        }
        hidden = {
            one.name: [own[one.cell.mark - 1] == "*" for _, own, _, _ in rows]
            for one in shown
            if one.cell.mark is not None and self._store.columns[one.name].has_hidden
        }
        for name, flags in hidden.items():
            codes[name] = np.full(sum(flags), self._store.columns[name].n_shown)
        drawn = self._draw_from_cells(codes, random)
        for place, one in enumerate(shown):
            kept: list[str | None] = [texts[place] for _, _, texts, _ in rows]
            if one.name in hidden:
                filled, flags = iter(drawn[one.name]), hidden[one.name]
                kept = [
                    next(filled) if hides else text for text, hides in zip(kept, flags, strict=True)
                ]
            drawn[one.name] = kept
        fields = []
        for one in self._columns:
            name = json.dumps(one.name, ensure_ascii=False)
            texts = ("null" if text is None else text for text in drawn[one.name])
            fields.append([f"{name}:{text}" for text in texts])
        return _DrawnRecords(
            [f"{{{','.join(record)}}}" for record in zip(*fields, strict=True)],
            [row for row, *_ in rows],
        )

    def _draw_from_cells(
        self, codes: dict[str, IntArray], random: np.random.Generator
    ) -> dict[str, list[str | None]]:
        """Draw a value for each code of a cell in some columns, as JSON."""
        stored, met = self._store.columns, dict[str, IntArray]()
        if any((own < 0).any() for own in codes.values()):
            raise self._reader.changed()
        for name in codes:
            if stored[name].by_ends:
                met[name], codes[name] = np.unique(codes[name], return_inverse=True)
        hidden = [name for name in codes if stored[name].has_hidden]
        of_classes = self._store.all_codes(["", *hidden])
        counts = {
            name: np.bincount(of_classes[name], of_classes[""], stored[name].n_values).astype(
                np.float64, copy=False
            )
            for name in hidden
        }
        cells = StoredCells(self._layout, self._store, counts, met)
        known, drawn = cells.read(self._reader, list(codes)), {}
        for column in self._columns:
            if column.name not in codes:
                continue
            self._session.heartbeat()
            own, numbers = known[column.name], codes[column.name]
            levels = spread_levels(numbers, random)
            if isinstance(own, RangeColumn):
                drawn[column.name] = self._draw_in_ranges(column, own, cells, numbers, levels)
            else:
                drawn[column.name] = self._draw_listed(column, own, numbers, levels)
        return drawn

    def _draw_listed(
        self, column: _ShownColumn, cells: KnownCells, numbers: IntArray, levels: FloatArray
    ) -> list[str | None]:
        """Draw from sets, and for suppressed cells from the values that others keep."""
        listed = cells.listed(0)
        if not listed.value.size:  # all are suppressed
            return [None] * numbers.size
        ends = np.cumsum(np.bincount(listed.cell, minlength=cells.cells.n.size))
        drawn = draw_members(ends, listed.w, numbers, levels)
        return self._write(listed.domain, column.type_name, listed.value[drawn])

    def _draw_in_ranges(
        self,
        column: _ShownColumn,
        own: RangeColumn,
        cells: StoredCells,
        numbers: IntArray,
        levels: FloatArray,
    ) -> list[str | None]:
        ends, half = own.ends, 0.5 if own.cell.is_discrete else 0.0
        low = np.where(ends.is_null | ends.from_all, np.nan, ends.coordinates(ends.low) - half)
        high = np.where(ends.is_null | ends.to_all, np.nan, ends.coordinates(ends.high) + half)
        even = partial(even_places, low, high)
        axis = own.axis
        places = even(numbers, levels) if axis is None else axis.places(numbers, levels, even)
        if not own.cell.is_discrete:
            return self._write_in_ranges(column, own.cell, cells, numbers, places)
        # Without a place, one is an end; of a range without it, the other one.
        least = np.where(ends.from_all, ends.high, ends.low)[numbers]
        most = np.where(ends.to_all, ends.low, ends.high)[numbers]
        inside = np.rint(np.where(np.isfinite(places), places, 0)).astype(np.int64)
        inside = np.where(ends.from_all[numbers], inside, np.maximum(inside, least))
        inside = np.where(ends.to_all[numbers], inside, np.minimum(inside, most))
        inside = np.select([places == -np.inf, places == np.inf], [least, most], inside)
        distinct, at = np.unique(inside, return_inverse=True)
        none = (ends.is_null | ends.anything)[numbers]
        of = WholeValues(own.cell.column.type, distinct)
        return self._write(of, column.type_name, np.where(none, distinct.size, at))

    def _write(self, domain: Domain, type_name: str, numbers: IntArray) -> list[str | None]:
        """Write values, given by their numbers, as JSON."""
        constants = Constants()
        rows = self._session.fetch(
            f"SELECT to_json(d.v::{type_name})::text AS value FROM ({domain.write(constants)})"
            " AS d ORDER BY d.i",
            *constants.bound,
        )
        return [rows[number]["value"] for number in numbers.tolist()]

    def _write_in_ranges(
        self,
        column: _ShownColumn,
        cell: CellDescription,
        cells: StoredCells,
        numbers: IntArray,
        places: FloatArray,
    ) -> list[str | None]:
        """Write the values at some places of continuous ranges as JSON."""
        distinct, at = np.unique(places, return_inverse=True)
        pairs, pair = np.unique(numbers * max(distinct.size, 1) + at, return_inverse=True)
        number, place = np.divmod(pairs, max(distinct.size, 1))
        constants = Constants()
        given = f"{constants.texts(tuple(map(str, number.tolist())))}::int4[]"
        at_places = f"{constants.texts(tuple(map(repr, distinct[place].tolist())))}::float8[]"
        rows = self._session.fetch(
            f"SELECT to_json({_value_in_range(cell, 'c.cell', 't.place')}::{column.type_name})"
            f"::text AS value FROM unnest({given}, {at_places}) WITH ORDINALITY AS t (number,"
            f" place, i) JOIN ({cells.cells(column.name, constants)}) AS c ON c.number = t.number"
            " ORDER BY t.i",
            *constants.bound,
        )
        return [rows[one]["value"] for one in pair.tolist()]


def _value_in_range(cell: CellDescription, range_: str, place: str) -> str:
    """Write the value at a place in a continuous range, and never one beyond its ends.

    Without a place, one is an end. Of a range without a lower end, the greatest value.
    """
    type_ = cell.column.type
    ends = [f"{end}({range_})" for end in ("lower", "upper")]
    lower, upper = (value_of_end(type_, end) for end in ends)
    less = value_at(type_, f"({place_of_end(type_, ends[1])} - 1)::float8")
    greatest = (
        f"CASE WHEN upper_inc({range_}) THEN {upper}"
        f" WHEN lower_inf({range_}) THEN {less} ELSE {lower} END"
    )
    low = f"CASE WHEN lower_inf({range_}) THEN {greatest} ELSE {lower} END"
    high = f"CASE WHEN upper_inf({range_}) THEN {lower} ELSE {greatest} END"
    value = value_at(type_, place)
    if type_.category in NUMBERS:
        # With as many digits as the ends have, which are values of the source if both belong to it.
        digits = f"greatest(scale({ends[0]}), scale({ends[1]}))"
        # A place has 15 digits: the one that is nearest to a large end may be of no such value.
        inside = f"least(greatest({place}::numeric, {ends[0]}), {ends[1]})"
        value = (
            f"CASE WHEN upper_inc({range_}) THEN round({inside}, {digits})::{type_.name}"
            f" ELSE {value} END"
        )
    return (
        f"(CASE WHEN {place} = '-Infinity' THEN {low} WHEN {place} = 'Infinity' THEN {high}"
        f" WHEN {lower} > {value} THEN {low} WHEN {upper} < {value}"
        f" OR {upper} = {value} AND NOT upper_inc({range_}) THEN {high} ELSE {value} END)"
    )
