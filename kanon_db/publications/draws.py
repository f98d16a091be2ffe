"""Draws whole records from published relations alone, and keeps a draw beside them.

What is kept is what anybody draws with the seed 0: it follows from the publication, so that nobody
can draw until they like it, and it is verified by drawing it again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

import numpy as np

from kanon_db.algorithms.bucketization.bucket_assignment import draw_matchings
from kanon_db.algorithms.bucketization.buckets import BucketSetting, in_slots
from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray, IntArray, unpack_levels
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.generalized_cells import (
    Axis,
    Sets,
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
from kanon_db.errors import InvalidParameterError, NotFoundError
from kanon_db.publications.buckets.learned_weights import read_weights
from kanon_db.publications.codes import CodeTables
from kanon_db.publications.registry import kind_named
from kanon_db.publications.relations import Note, StagedRelations, counting_note
from kanon_db.publications.results import Check, require_checks
from kanon_db.query.expressions import NUMBERS, TEXT, Column
from kanon_db.query.layout import (
    ANYTHING,
    DRAWN,
    RARITY,
    BucketTables,
    CellDescription,
    Quotes,
    RowView,
    check_described,
    labels,
    members_of,
    texts,
)
from kanon_db.query.ranges import (
    AXES,
    RANGES,
    describe_cells,
    ends_of,
    place_of_end,
    type_of_ends,
    value_at,
    value_of_end,
)
from kanon_db.session.protocol import Row, Session, fetch_one, settings
from kanon_db.transfer.columns import column_types, find_relation, label

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
    view = RowView.of(session, schema, publication.name, publication.layout)
    return _RowDrawing(session, view, _shown_columns(session, view, publication))


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
    mark: int | None  # the place of its mark in the pattern, if cells are suppressed
    cell: CellDescription | None = None  # of ranges, sets and labels
    range_type: str = ""  # of ranges

    @property
    def shown(self) -> str:
        """A cell as text; a value that is published as it is, as JSON."""
        return f"to_json(v.{self.quoted})::text" if self.cell is None else f"v.{self.quoted}::text"


def _shown_columns(session: Session, view: RowView, publication: Publication) -> list[_ShownColumn]:
    layout = publication.layout
    described = layout.get("types")
    described = described if isinstance(described, dict) else {}
    cells = {cell["name"]: (i, cell) for i, cell in enumerate(layout["quasi_identifiers"], 1)}
    names = [name for name in view.columns if name != layout.get("pattern")]
    of_source = {
        name: one if isinstance(one := described.get(name), dict) else {} for name in names
    }
    lengths = [one.get("length") for one in of_source.values()]
    types = session.fetch(
        _SOURCE_TYPES,
        names,
        [one["type"] if isinstance(one.get("type"), str) else None for one in of_source.values()],
        [str(length) if isinstance(length, int) else None for length in lengths],
    )
    type_of = {row["name"]: str(row["type"]) for row in types}
    _, oid, _ = find_relation(session, view.view)
    published = column_types(session, oid)
    columns = []
    for name in names:
        place, described_cell = cells.get(name, (None, {"cell": "value"}))
        mark = None if view.pattern is None else place
        column = _ShownColumn(name, session.identifier(name), type_of[name], mark)
        kind, shown_type = described_cell["cell"], published[name].type_name
        if kind != "value":
            shares = layout.get("shares")
            known = shares.get(name) if isinstance(shares, dict) else None
            described = of_source[name].get("type")
            cell = describe_cells(
                Column(name, column.quoted, TEXT), shown_type, described
            )._replace(
                shares=known if known in ("of_each", "of_parts") else None,
                labels=check_described(described_cell.get("labels")),
            )
            if (cell.kind == "range") != (kind == "range"):
                raise NotFoundError(
                    "the cells of a published column cannot be read",
                    detail=f'column "{name}" of {publication.name}, type {shown_type}',
                    hint="publish the source again",
                )
            range_type = shown_type if kind == "range" else ""
            column = column._replace(cell=cell, range_type=range_type)
        columns.append(column)
    return columns


class _RowDrawing:
    """Gives each row a value of each cell, each as often as the estimator takes it to be there.

    A suppressed cell has a value that others keep, the rarer the more.
    """

    promise = "each drawn record lies in the cells of a published row, and has what that shows"

    def __init__(self, session: Session, view: RowView, columns: Sequence[_ShownColumn]) -> None:
        self._session, self._view, self._columns = session, view, columns

    def shape(self) -> str:
        shown = ", ".join(
            f"v.{one.quoted}" if one.cell is None else f"NULL::{one.type_name} AS {one.quoted}"
            for one in self._columns
        )
        return f"SELECT {shown} FROM {self._view.view} AS v"

    def amiss(self, table: str) -> str:
        fits = " AND ".join(self._fits(column) for column in self._columns)
        return (
            "SELECT count(*) AS n FROM unnest($1::text[], $2::text[]) AS t (record, row),"
            f" {_populate(table)} AS d,"
            f" LATERAL (SELECT (t.row::{self._view.view}).*) AS v WHERE ({fits}) IS NOT TRUE"
        )

    def _fits(self, column: _ShownColumn) -> str:
        """Write whether the value of a record ``d`` lies in the cell of a row ``v``."""
        drawn, shown = f"d.{column.quoted}", f"v.{column.quoted}"
        if column.range_type and column.cell is not None:
            end = AXES[column.cell.column.type.name].end.format(drawn)
            own = f"{end}::{RANGES[column.range_type].end}"
            return (
                f"CASE WHEN num_nulls({shown}, {drawn}) > 0 THEN num_nonnulls({drawn}) = 0 AND"
                f" (num_nulls({shown}) = 1 OR lower_inf({shown}) AND upper_inf({shown}))"
                f" ELSE {shown} @> {own} END"
            )
        if column.cell is not None and column.cell.labels is not None:
            return self._fits_label(column, column.cell.labels)
        if column.cell is not None:
            return (
                f"EXISTS (SELECT FROM unnest(coalesce({shown}, ARRAY[NULL::text])) AS m (x) WHERE"
                f" m.x::{column.type_name}::text IS NOT DISTINCT FROM {drawn}::text)"
            )
        same = f"{drawn}::text IS NOT DISTINCT FROM {shown}::text"
        if column.mark is None:
            return same
        return f"(substr(v.{self._view.pattern}, {column.mark}, 1) = '*' OR {same})"

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
        session, pattern = self._session, self._view.pattern
        session.step("reading the published rows")
        shown = ", ".join(one.shown for one in self._columns)
        marks = "NULL::text" if pattern is None else f"v.{pattern}"
        # The order of stored rows may differ after a restore; a seed must meet the same rows.
        rows = [
            (row["row"], row["marks"], row["cells"])
            for row in session.stream(
                _AT_ONCE,
                f"SELECT ROW(v.*)::text AS row, {marks} AS marks, ARRAY[{shown}]::text[] AS cells"
                f' FROM {self._view.view} AS v ORDER BY ROW(v.*)::text COLLATE pg_catalog."C"',
            )
        ]
        session.step("drawing values")
        fields = []
        for place, column in enumerate(self._columns):
            session.heartbeat()
            values: list[str | None] = [cells[place] for _, _, cells in rows]
            if column.cell is not None:
                values = self._draw_cells(column, column.cell, values, random)
            elif column.mark is not None:
                at = column.mark - 1
                hidden = [marks[at : at + 1] == "*" for _, marks, _ in rows]
                values = _fill_hidden(values, np.array(hidden, dtype=np.bool_), random)
            name = json.dumps(column.name, ensure_ascii=False)
            fields.append([f"{name}:{'null' if one is None else one}" for one in values])
        return _DrawnRecords(
            [f"{{{','.join(record)}}}" for record in zip(*fields, strict=True)],
            [row for row, _, _ in rows],
        )

    def _draw_cells(
        self,
        column: _ShownColumn,
        cell: CellDescription,
        cells: Sequence[str | None],
        random: np.random.Generator,
    ) -> list[str | None]:
        """Draw a value for each cell, as JSON."""
        numbers: dict[str | None, int] = {}
        codes = np.array([numbers.setdefault(one, len(numbers)) for one in cells], dtype=np.int64)
        draw_values = self._draw_in_ranges if column.range_type else self._draw_in_sets
        return draw_values(column, cell, list(numbers), codes, spread_levels(codes, random))

    def _join_shares(self, cell: CellDescription, attribute: str, text: str) -> str:
        """Write the join of the line ``s`` of a cell in the table of shares."""
        of_cell = f"s.attribute = {attribute} AND s.cell = {text}"
        if cell.shares is None:
            # The same columns, without a line.
            return (
                " LEFT JOIN (SELECT NULL::float8[] AS shares, NULL::int4 AS first, NULL::int4 AS"
                " last, NULL::float8 AS own) AS s ON false"
            )
        return f" LEFT JOIN {self._view.shares} AS s ON {of_cell}"

    def _draw_in_sets(
        self,
        column: _ShownColumn,
        cell: CellDescription,
        cells: Sequence[str | None],
        codes: IntArray,
        levels: FloatArray,
    ) -> list[str | None]:
        members = "t.cell::text[]"
        if cell.labels is not None:
            literal = f"{self._session.literal(cell.labels)}::jsonb"
            members = _members_of_label("t.cell", literal)
        rows = self._session.fetch(
            f"SELECT m.members, s.shares FROM (SELECT t.i, {members} AS members"
            " FROM unnest($1::text[]) WITH ORDINALITY AS t (cell, i)) AS m"
            f"{self._join_shares(cell, '$2::text', 'm.members::text')} ORDER BY m.i",
            cells, column.name,
        )  # fmt: skip
        listed = [list(row["members"] or [None]) for row in rows]
        shares = [
            row["shares"]
            if row["shares"] is not None and len(row["shares"]) == len(own)
            else [1 / len(own)] * len(own)
            for row, own in zip(rows, listed, strict=True)
        ]
        sets, members_of_all = Sets.number(listed)
        of_members = np.array([one for own in shares for one in own], dtype=np.float64)
        drawn = draw_members(sets.ends, of_members, codes, levels)
        values = self._session.fetch(
            f"SELECT to_json(u.v::{column.type_name})::text AS value"
            " FROM unnest($1::text[]) WITH ORDINALITY AS u (v, i) ORDER BY u.i",
            members_of_all,
        )
        return [values[code]["value"] for code in sets.codes[drawn].tolist()]

    def _draw_in_ranges(
        self,
        column: _ShownColumn,
        cell: CellDescription,
        cells: Sequence[str | None],
        codes: IntArray,
        levels: FloatArray,
    ) -> list[str | None]:
        session, cell_range = self._session, f"t.cell::{column.range_type}"
        low, high = ends_of(cell, cell_range)
        if cell.column.type.category == "moment":  # of which infinite ones have no place
            finite = " AND ".join(
                f"isfinite({end}({cell_range})) IS NOT FALSE" for end in ("lower", "upper")
            )
            low, high = (f"CASE WHEN {finite} THEN {end} END" for end in (low, high))
        rows = session.fetch(
            f"SELECT {low} AS low, {high} AS high, s.first, s.last, s.own::float8 AS own"
            " FROM unnest($1::text[]) WITH ORDINALITY AS t (cell, i)"
            f"{self._join_shares(cell, '$2::text', 't.cell')} ORDER BY t.i",
            cells, column.name,
        )  # fmt: skip
        starts, ends = (
            np.array([row[end] for row in rows], dtype=np.float64) for end in ("low", "high")
        )
        even = partial(even_places, starts, ends)
        axis = self._read_axis(cell, column.name, rows)
        places = even(codes, levels) if axis is None else axis.places(codes, levels, even)
        if cell.is_discrete:
            places = np.rint(places)
        distinct, at = np.unique(places, return_inverse=True)
        pairs, pair = np.unique(codes * max(distinct.size, 1) + at.reshape(-1), return_inverse=True)
        cell_of, place_of_pair = np.divmod(pairs, max(distinct.size, 1))
        values = session.fetch(
            f"SELECT to_json({_value_in_range(cell, cell_range, 't.place')}::{column.type_name})"
            "::text AS value FROM unnest($1::text[], $2::text[]::float8[]) WITH ORDINALITY"
            " AS t (cell, place, i) ORDER BY t.i",
            [cells[one] for one in cell_of.tolist()],
            list(map(repr, distinct[place_of_pair].tolist())),
        )
        return [values[one]["value"] for one in pair.tolist()]

    def _read_axis(self, cell: CellDescription, name: str, rows: Sequence[Row]) -> Axis | None:
        if cell.shares is None:
            return None
        place = place_of_end(cell.column.type, f"u.v::{type_of_ends(cell)}")
        lines = self._session.fetch(
            f"SELECT u.share, ({place})::float8 AS place, s.known FROM {self._view.shares} AS s,"
            " unnest(s.points, s.shares) WITH ORDINALITY AS u (v, share, i)"
            " WHERE s.attribute = $1::text AND num_nulls(s.cell) = 1 ORDER BY u.i",
            name,
        )
        if not lines:
            return None
        shares, points = (
            np.array([line[what] for line in lines], dtype=np.float64)
            for what in ("share", "place")
        )
        first, last = (
            np.array([row[end] or 1 for row in rows], dtype=np.int64) - 1
            for end in ("first", "last")
        )
        own = np.array([row["own"] for row in rows], dtype=np.float64)
        upto = np.append(0.0, np.cumsum(shares))
        trust = float(lines[0]["known"])
        return Axis(cell.shares == "of_each", upto, points, first, last, own, trust)


def _members_of_label(label: str, described: str) -> str:
    """Write the values of a label as an array."""
    return (
        f"(SELECT {members_of(label, 'l', texts(described))} FROM (SELECT 1) AS one"
        f" LEFT JOIN ({labels(described)}) AS l ON l.label = {label})"
    )


def _value_in_range(cell: CellDescription, range_: str, place: str) -> str:
    """Write the value at a place in a range, and never one beyond its ends.

    Without a place, one is an end. Of a range without a lower end, the greatest value.
    """
    type_ = cell.column.type
    ends = [f"{end}({range_})" for end in ("lower", "upper")]
    lower, upper = (value_of_end(type_, end) for end in ends)
    less = value_at(type_, f"({place_of_end(type_, ends[1])} - 1)::float8")
    greatest = (
        less
        if cell.is_discrete
        else (
            f"CASE WHEN upper_inc({range_}) THEN {upper}"
            f" WHEN lower_inf({range_}) THEN {less} ELSE {lower} END"
        )
    )
    low = f"CASE WHEN lower_inf({range_}) THEN {greatest} ELSE {lower} END"
    high = f"CASE WHEN upper_inf({range_}) THEN {lower} ELSE {greatest} END"
    value = value_at(type_, place)
    if type_.category in NUMBERS and not cell.is_discrete:
        # With as many digits as the ends have, which are values of the source if both belong to it.
        digits = f"greatest(scale({ends[0]}), scale({ends[1]}))"
        value = (
            f"CASE WHEN upper_inc({range_}) THEN round({place}::numeric, {digits})::{type_.name}"
            f" ELSE {value} END"
        )
    return (
        f"(CASE WHEN {place} = '-Infinity' THEN {low} WHEN {place} = 'Infinity' THEN {high}"
        f" WHEN {lower} > {value} THEN {low} WHEN {upper} < {value}"
        f" OR {upper} = {value} AND NOT upper_inc({range_}) THEN {high} ELSE {value} END)"
    )


def _fill_hidden(
    values: Sequence[str | None], hidden: BoolArray, random: np.random.Generator
) -> list[str | None]:
    """Give hidden cells values that others keep, as likely as the estimator takes them to be."""
    is_hidden = hidden.tolist()
    counts = Counter(one for one, hides in zip(values, is_hidden, strict=True) if not hides)
    kept = sorted(counts, key=lambda value: (value is not None, value or ""))
    if not kept:
        return [None] * len(values)
    shares = np.array([counts[value] for value in kept], dtype=np.float64) ** RARITY
    cells = np.zeros(int(hidden.sum()), dtype=np.int64)
    ends = np.array([len(kept)], dtype=np.int64)
    drawn = iter(draw_members(ends, shares, cells, spread_levels(cells, random)).tolist())
    return [
        kept[next(drawn)] if hides else one for one, hides in zip(values, is_hidden, strict=True)
    ]
