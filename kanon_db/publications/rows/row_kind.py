"""Publishes rows in a materialized view with a cell for each quasi-identifier.

Generalized, freeform and suppressed publications differ in what a cell is; their names, their
layout and the way they are written are the same. Generalized and freeform rows also share how the
source is read as codes, and the check that the original values lie in the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final, Protocol, Self

import numpy as np

from kanon_db.algorithms.attacks import Deductions
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    distinct,
)
from kanon_db.algorithms.ground.computation import Pulse, in_threads, n_cores
from kanon_db.algorithms.recoding import Microdata, NumberedCells
from kanon_db.algorithms.recoding.generalized_cells import MOST_CELLS
from kanon_db.catalog.entries import Publication, Source, published_schema
from kanon_db.catalog.names import free_column_name
from kanon_db.dataclasses import dataclass
from kanon_db.declaration import unknown
from kanon_db.errors import TooFewError
from kanon_db.publications.examination import AttackSession
from kanon_db.publications.guarantees import SensitiveCounts, rows_in_words
from kanon_db.publications.kind import (
    AttackTarget,
    Job,
    Kind,
    PublishedClasses,
    Written,
)
from kanon_db.publications.relations import (
    FOR_THE_ESTIMATOR,
    Note,
    StagedRelations,
    check_relations,
    counting_note,
)
from kanon_db.publications.results import Attack, Check, Examination
from kanon_db.publications.rows.cell_codes import check_value_shares, count_class_differences
from kanon_db.publications.rows.distinct_cells import (
    CellColumn,
    CellTable,
    ClassSizes,
    ShownRows,
    SourceColumns,
    packed_rows,
    packing,
)
from kanon_db.publications.rows.published_rows import (
    AttackedRows,
    ValueBounds,
    attack_read_rows,
    read_rows,
)
from kanon_db.publications.rows.recoded_cells import GeneralizedColumn, microdata_of, write_cells
from kanon_db.publications.rows.row_relations import (
    digest_rows,
    digested_suffixes,
    finish_rows,
    same_digest,
    write_batches,
    write_estimator_tables,
    write_from_rows,
    write_row_view,
)
from kanon_db.query.layout import (
    ANYTHING,
    CELLS,
    CODED_SUFFIXES,
    CODES,
    ROWS,
    SHARES,
    VALUES,
    Quotes,
    RowView,
)
from kanon_db.session import Session, fetch_one
from kanon_db.session.protocol import grouping_by_hash, joining_by_hash, roomy
from kanon_db.transfer.allowance import Allowance, Needs
from kanon_db.transfer.coded_columns import CodedRecords
from kanon_db.transfer.columns import (
    ColumnType,
    fix_labels,
    int4_bytes,
    parts_of,
    with_numbers,
)
from kanon_db.transfer.snapshot import Size
from kanon_db.transfer.values import read_known_codes

_USE: Mapping[str, str] = {
    "range": "A range holds the record's own value; an end in a square bracket belongs to it, one"
    " in a round bracket does not, and whole numbers and dates are shown as [first, next after the"
    " last). [90,) holds 90 and anything above. NULL stands for NULL, and (,) for anything, NULL"
    " too.",
    "label": "A label stands for several values, of which one is the record's own; the layout of"
    " the publication, in kanon.publications, says for which. NULL stands for NULL, and * for"
    " anything, NULL too.",
    "set": "A set holds the record's own value, as a text; NULL may be one of its elements.",
}


def row_notes(publication: Publication, quotes: Quotes) -> Mapping[str, Note]:
    """Return the notes on the view, and on what readers may read besides, by their suffixes."""
    layout = publication.layout
    cells = {cell["cell"] for cell in layout["quasi_identifiers"]}
    use = ["How to use: there is a row for each record, so count(*) counts records."]
    use += [text for cell, text in _USE.items() if cell in cells]
    if layout.get("pattern") is not None:
        pattern = quotes.identifier(layout["pattern"])
        use.append(f"A suppressed cell is NULL; {pattern} tells it from a NULL of the source.")
    use.append("Records that are left out, if there are any, have no row.")
    use.append(counting_note(quotes.identifier(publication.name)))
    return {
        "": Note(" ".join(use), dict(_columns(publication, quotes))),
        SHARES: Note(FOR_THE_ESTIMATOR),
        VALUES: Note(FOR_THE_ESTIMATOR),
        CODES: Note(FOR_THE_ESTIMATOR),
    }


def _columns(publication: Publication, quotes: Quotes) -> Iterator[tuple[str, str]]:
    layout = publication.layout
    cells = layout["quasi_identifiers"]
    pattern = layout.get("pattern")
    for place, cell in enumerate(cells, start=1):
        column = quotes.identifier(cell["name"])
        note = "quasi-identifier, as in the source"
        if cell["cell"] == "range":
            note = (
                "quasi-identifier, as a range that holds the record's own value; NULL: it is NULL;"
                f" (,): anything, NULL too. kanon.surely({column}, x) and kanon.possibly({column},"
                " x) say whether it is x, or lies in the range x"
            )
        elif cell["cell"] == "set":
            note = (
                "quasi-identifier, as a set of texts that holds the record's own value, where NULL"
                f" may be one. kanon.surely({column}, 'x') and kanon.possibly({column}, 'x') say"
                " whether it is x; several values are separated by commas"
            )
        elif cell["cell"] == "label":
            note = (
                "quasi-identifier, as a label that stands for the record's own value among others;"
                " NULL: it is NULL; *: anything, NULL too"
            )
        elif pattern is not None:
            mark = quotes.identifier(pattern)
            note += (
                f"; suppressed, and NULL, where substr({mark}, {place}, 1) = '*'."
                f" kanon.surely({column} = x, {mark}, {place}) and kanon.possibly({column} = x,"
                f" {mark}, {place}) allow for it, with any condition on this column"
            )
        yield cell["name"], note
    if pattern is not None:
        names = ", ".join(cell["name"] for cell in cells)
        note = f"which cells are suppressed: a character for each of {names}, in this order"
        yield pattern, f"{note}; * is suppressed, . is kept"
    for name in layout["others"]:
        is_sensitive = name in publication.all_sensitive
        yield name, f"{'sensitive attribute, ' * is_sensitive}as in the source"


AT_ONCE: Final = "at_once"
"""Key in a layout: all rows were published together, not in batches."""


class RowKind(Kind):
    """A kind that publishes all columns whose role allows it, in a materialized view."""

    suffixes: Sequence[str] = CODED_SUFFIXES
    closed = (ROWS, CELLS)
    told = (ROWS,)
    examine_rows: Callable[[Session, RowView, Publication, ClassSizes], Examination]
    """Checks what the kind promises of its rows, and measures them, using only the view; given how
    many rows have each combination of cells."""
    same_rows = "the rows are those whose entities were counted when they were published"
    """Says, of rows with a digest, what was checked with the source."""
    shares_cells = True
    """Tell whether rows are published in classes of the same cells."""

    def in_order(self, source: Source) -> Source:
        """Sort quasi-identifiers by name, so that ties are decided the same way in any order."""
        return source._replace(quasi_identifiers=tuple(sorted(source.quasi_identifiers)))

    def prepare(self, request: Any, source: Source) -> None:
        """Refuse weights of columns that are not quasi-identifiers."""
        weights_of(source, request.weights)

    def made(self, layout: Mapping[str, Any]) -> Sequence[str]:
        """Leave out the table of cells where rows have their cells themselves."""
        has_numbers = layout.get("number") is not None
        return [suffix for suffix in self.suffixes if suffix != CELLS or has_numbers]

    def digested(self, layout: Mapping[str, Any]) -> Sequence[str]:
        """See :func:`.digested_suffixes`."""
        return digested_suffixes(layout)

    def columns(self, source: Source, types: Mapping[str, ColumnType]) -> list[str]:  # noqa: ARG002
        """Read only what is published."""
        return source.published

    def examine(
        self,
        session: Session,
        publication: Publication,
        *,
        is_new: bool = False,  # noqa: ARG002
    ) -> Examination:
        """Check that the relations are those that were published, and only then read the rows."""
        schema, layout = published_schema(session), publication.layout
        view = RowView.of(session, schema, publication.name, layout)
        with_shares = bool(layout.get("shares"))
        relations = check_row_view(session, view, with_shares=with_shares)
        if not all(check.holds for check in relations):
            return Examination(relations, {})
        sizes, numbered = None, []
        if "store" in layout:
            sizes, check = count_class_differences(session, view, schema, publication)
            numbered.append(check)
        if sizes is None:
            session.step("counting the rows with the same cells")
            sizes = ClassSizes.counted(session, view)
        examined = self.examine_rows(session, view, publication, sizes)
        checks = [*relations, *check_labels(session, view, publication), *examined.checks]
        if "digest" in layout:
            # That of codes says nothing of rows which are not theirs.
            same = digest_rows(session, schema, publication.name, layout) == layout["digest"]
            same = same and all(check.holds for check in numbered)
            checks.append(same_digest(self.same_rows, same=same))
        if with_shares:
            checks.append(check_value_shares(session, view, schema, publication))
        checks += numbered
        return Examination(checks, examined.metrics)

    def extend(
        self, job: Job[Any], old: Publication, batch: Written, whole: StagedRelations
    ) -> Written:
        """See :meth:`Kind.extend`: all rows in one view, with shares of their own."""
        session = job.session
        before, now = (
            RowView.of(session, job.schema, one, layout)
            for one, layout in ((old.name, old.layout), (job.staging.name, batch.layout))
        )
        is_numbered = write_batches(whole, before, now, batch.layout.get("number"))
        view = RowView.of(session, job.schema, whole.name, batch.layout)
        dropped = {AT_ONCE} if is_numbered else {AT_ONCE, "number"}
        layout = {key: kept for key, kept in batch.layout.items() if key not in dropped}
        rows = ShownRows.of_view(session, job.schema, whole.name, layout, job.room)
        layout = write_estimator_tables(
            whole, view, layout, rows, batch.cells if "shares" in layout else None, batch.matches
        )
        parameters = dict(batch.parameters)
        # Entities were counted if they were in any batch.
        if counts := bool(old.parameters.get("counts_entities")):
            parameters["counts_entities"] = True
        if counts or "digest" in layout:
            layout["digest"] = digest_rows(session, job.schema, whole.name, layout)
        whole.analyze("")
        if "suppressed" in parameters:
            parameters["suppressed"] += old.left_out
        return replace(
            batch, guarantee=batch.guarantee.with_earlier(old), layout=layout,
            parameters=parameters,
        )  # fmt: skip

    def complete(
        self, staging: StagedRelations, publication: Publication, room: Allowance
    ) -> Mapping[str, Any]:
        """See :func:`.write_from_rows`."""
        return write_from_rows(
            staging, publication, room, with_shares=SHARES in self.suffixes,
            matches=self.matches(publication),
        )  # fmt: skip

    def matches(self, publication: Publication) -> int | None:  # noqa: ARG002
        """Return how many originals each cell covers, if it is not all of a class."""
        return None

    def partition(
        self,
        session: Session,  # noqa: ARG002
        schema: str,
        publication: Publication,
    ) -> PublishedClasses | None:
        """Read the view; None if rows have no classes, are not people, or came in batches.

        Rows of different batches may look alike, but an earlier copy tells them apart.
        """
        layout, parameters = publication.layout, publication.parameters
        is_people = not parameters.get("counts_entities")
        if not (self.shares_cells and is_people and layout.get(AT_ONCE)):
            return None
        first, *others = (
            PublishedClasses(schema, publication, name, thresholds=None)
            for name in publication.all_sensitive or [None]
        )  # fmt: skip
        return replace(first, also=others)

    def notes(self, publication: Publication, quotes: Quotes) -> Mapping[str, Note]:
        """See :func:`.row_notes`."""
        return row_notes(publication, quotes)

    def promise_in_words(self, target: AttackTarget, linked: str) -> str:
        """See :func:`.rows_in_words`."""
        return rows_in_words(linked, target.publication.all_sensitive)

    def bounds(
        self,
        publication: Publication,  # noqa: ARG002
        name: str,  # noqa: ARG002
        sensitive: SensitiveCounts,  # noqa: ARG002
    ) -> ValueBounds:
        """Return what the guarantee says about an attribute's values; k-anonymity says nothing."""
        return ValueBounds()

    def deductions(
        self,
        publication: Publication,  # noqa: ARG002
        attacked: AttackedRows,  # noqa: ARG002
        attributes: Mapping[str, Mapping[str, Any]],  # noqa: ARG002
    ) -> Deductions | None:
        """Return what follows from the method; `attributes` describe the source's columns."""
        return None

    def attack(self, target: AttackTarget) -> Sequence[Attack]:
        """See :meth:`play`."""
        return self.play(
            target.session, target.pulse(), target.publication, read_rows(target),
            target.source.attributes,
        )  # fmt: skip

    def play(
        self,
        listener: AttackSession,
        pulse: Pulse,
        publication: Publication,
        attacked: AttackedRows,
        attributes: Mapping[str, Mapping[str, Any]],
    ) -> list[Attack]:
        """Play all attacks with what was read; see :func:`.attack_read_rows`."""
        bounds = [self.bounds(publication, one.name, one.sensitive) for one in attacked.values]
        deductions = self.deductions(publication, attacked, attributes)
        return attack_read_rows(
            listener, pulse, publication, attacked, bounds, deductions,
            shares_cells=self.shares_cells,
        )  # fmt: skip


def tight_attributes(publication: Publication) -> BoolArray:
    """Tell whose cells cover no more than their records; others are coarsened."""
    return np.array([not cell.get("is_coarse") for cell in publication.layout["quasi_identifiers"]])


def check_k(job: Job[Any], k: int) -> None:
    """Refuse a k that is larger than the table, or than the number of entities in it.

    Raises
    ------
    TooFewError
    """
    if job.entities is None:
        require_k(job.source, k, job.records.n_records)
    else:
        require_k(job.source, k, job.entities.number, "entities")


def require_k(source: Source, k: int, number: int, what: str = "records") -> None:
    """Refuse a k that is larger than a number of records or entities."""
    if k > number:
        raise TooFewError(
            f"k must not exceed the number of {what}",
            detail=f"{source.relation}: k = {k}, n_{what} = {number}",
            hint=f"lower k to {number} or less, or publish more {what}"
            if number > 1
            else "nobody can be hidden in this table: it needs at least two people",
        )


def weights_of(
    source: Source, weights: Mapping[str, Fraction] | None
) -> list[int | float | Fraction] | None:
    """Return the weight of each quasi-identifier; None if all weights are 1.

    An attribute that `weights` does not name has its registered weight.
    """
    given = weights or {}
    for column in given:
        if column not in source.quasi_identifiers:
            raise unknown("quasi-identifier", column, source.quasi_identifiers)
    return weights_of_columns(source.quasi_identifiers, source.attributes, given)


def weights_of_columns(
    names: Sequence[str],
    attributes: Mapping[str, Mapping[str, Any]],  # the registered ones
    given: Mapping[str, Any],
) -> list[int | float | Fraction] | None:
    """Return the weight of each column: the one that is given, or else the registered one."""
    weights = [given.get(name, attributes.get(name, {}).get("weight", 1)) for name in names]
    return None if all(weight == 1 for weight in weights) else weights


def row_layout(
    source: Source, cells: Sequence[str], *, with_pattern: bool = False
) -> dict[str, Any]:
    """Choose the layout of a publication, which the catalog keeps for :meth:`RowView.of`."""
    # A cell is a ``range``, ``set``, ``label`` or ``value``; an extra column, the pattern, says
    # which cells of a row are suppressed.
    columns = source.published
    layout: dict[str, Any] = {
        "quasi_identifiers": [
            {"name": name, "cell": cell}
            for name, cell in zip(source.quasi_identifiers, cells, strict=True)
        ],
        "sensitive": source.sensitive,
        **({"also_sensitive": list(source.also_sensitive)} if source.also_sensitive else {}),
        "others": [column for column in columns if column not in source.quasi_identifiers],
        AT_ONCE: True,
    }
    if with_pattern:
        layout["pattern"] = free_column_name("pattern", columns)
        columns.append(layout["pattern"])
    layout["columns"] = columns
    return layout


def check_labels(session: Session, view: RowView, publication: Publication) -> list[Check]:
    """Check that all labels are known: the estimator would not know what others stand for."""
    described = publication.layout["quasi_identifiers"]
    checks = []
    for name, cell in zip(view.quasi_identifiers, described, strict=True):
        if cell["cell"] != "label":
            continue
        row = fetch_one(
            session,
            f"SELECT count(*) AS n FROM {view.view} AS c WHERE c.{name} <> ALL ($1::text[])",
            [
                *cell["labels"]["values"],
                *(label for label, *_ in cell["labels"]["labels"]),
                ANYTHING,
            ],
        )
        checks.append(
            Check(
                f"every label of {cell['name']} is one of its hierarchy",
                "0 rows differ",
                f"{row['n']} rows differ",
                holds=row["n"] == 0,
            )
        )
    return checks


_COLUMNS = """
SELECT coalesce(array_agg(attname::text ORDER BY attnum), '{}') AS columns
FROM pg_attribute WHERE attrelid = to_regclass($1::text) AND attnum > 0 AND NOT attisdropped
"""


def check_row_view(session: Session, view: RowView, *, with_shares: bool = False) -> list[Check]:
    """Check in the server's catalogs that the relations are those that were published."""
    columns = fetch_one(session, _COLUMNS, view.view)["columns"]
    tables = [view.rows] if view.number is None else [view.rows, view.cells]
    differing = len(set(columns).symmetric_difference(view.columns))
    return [
        check_relations(
            session,
            "the materialized view reads only the table of its rows",
            view.view,
            [*tables, view.shares] if with_shares else tables,
            materialized=True,
        ),
        Check(
            "the view has the published columns, and no identifier",
            f"{len(view.columns)} columns, 0 differ",
            f"{len(columns)} columns, {differing} differ",
            holds=list(columns) == list(view.columns),
        ),
    ]


# Bytes that publishing rows needs, as measured (``python -m benchmarks forecast``).


def bytes_of_cells(source: Source, types: Mapping[str, ColumnType], k: int, size: Size) -> float:
    """Forecast the disk space of rows with ranges and sets, and of what these are made from."""
    # Sets are the larger, and how large depends on how many values come together in them: k at most
    # in most classes, and fewer where a column has few values.
    n_columns, n_sets = len(source.quasi_identifiers), _n_sets(source, types)
    row = 100 + 4.2 * size.width + 20 * n_columns + (300 + 25 * k) * n_sets
    return row * size.n_records


def bytes_of_shares(
    source: Source, types: Mapping[str, ColumnType], n_cells: float, size: Size
) -> float:
    """Forecast the memory in which the shares of values in sets are found, with their texts."""
    width = size.width / (1 + len(source.quasi_identifiers))
    return _n_sets(source, types) * min(n_cells, MOST_CELLS) * (120 + 12 * width)


def _n_sets(source: Source, types: Mapping[str, ColumnType]) -> int:
    """Count the quasi-identifiers whose cells are sets."""
    return sum(
        source.is_categorical(column) or types[column].number("") is None
        for column in source.quasi_identifiers
    )


# Each of a record's k matches is checked, not only the published one. Few values occur with few
# cells of their column, so the server checks each such pair once. Where there is a copy of the
# source, the server says anew which value each record has; codes read by one statement are not read
# again, since the source may have changed.

_MOST_MARKS: Final = 1 << 26
"""Pairs of a value and a cell that may each have a byte."""

_AT_ONCE: Final = 1 << 18
"""Pairs that are sent to the server at a time."""

_BLOCK: Final = 1 << 17
"""Records whose pairs are looked at together."""


def count_outside(
    session: Session,
    codes: Sequence[AnyIntArray],
    columns: Sequence[GeneralizedColumn],  # in the order of the table's
    table: CellTable,
    assignments: CodeArray,
) -> int:
    """Count the records with an original value that is not in the cell of an assignment.

    Shapes: `codes` (n_records,) for each column, -1 for a value that is not listed; `assignments`
    (k, n_records), the combination of cells of each record. All assignments are counted together.
    """
    session.step("checking each original value")
    outside = [np.zeros(0, dtype=np.int64)]  # numbers of pairs of an assignment and a record
    for own, column, cells in zip(codes, columns, table.columns.values(), strict=True):
        found, is_unknown = _outside(session, column, cells, own, assignments), own < 0
        for number, one in enumerate(assignments) if found.size or is_unknown.any() else ():
            keys = _keys(own, cells, one, len(column.values.labels))
            own_outside = np.flatnonzero(is_unknown | np.isin(keys, found))
            outside.append(number * own.size + own_outside)
    return distinct(np.concatenate(outside)).size


def _outside(
    session: Session,
    column: GeneralizedColumn,
    cells: CellColumn,
    codes: AnyIntArray,
    assignments: CodeArray,
) -> IntArray:
    """Return the keys of values and cells that occur together, and do not belong together."""
    n_values = len(column.values.labels)
    name, low, high = "shown", "low", "high"  # a column's own name could be one of the others
    ends = "".join(f", {sql} AS {end}" for sql, end in column.ends(name, low, high))
    found = [np.zeros(0, dtype=np.int64)]
    for keys in _occurring(session, codes, cells, assignments, n_values):
        numbers, values = np.divmod(keys, n_values)
        pairs, (number, code) = with_numbers(
            session, "(SELECT generate_series(0, $3::int4 - 1) AS i)", (1, "r.i"), (2, "r.i")
        )
        with fix_labels(session), roomy(session):
            row = fetch_one(
                session,
                # Pairs are joined first: a condition on values and cells would compare all of them.
                "SELECT string_agg(int4send(u.i), ''::bytea)"
                f" FILTER (WHERE NOT ({column.covers(name, low, high)})) AS found FROM {pairs} AS u"
                f" JOIN (SELECT v.code, v.value AS {name} FROM {column.values.table} AS v) AS s"
                f" ON s.code = u.{code}"
                f" JOIN (SELECT c.*{ends} FROM (SELECT p.{cells.number} AS number,"
                f" p.{cells.cell} AS {name} FROM {cells.table} AS p) AS c OFFSET 0) AS c"
                f" ON c.number = u.{number}",
                int4_bytes(numbers),
                int4_bytes(values),
                str(keys.size),
            )
        found.append(keys[np.frombuffer(row["found"] or b"", dtype=">i4")])
    return np.concatenate(found)


def _occurring(
    session: Session,
    codes: AnyIntArray,
    cells: CellColumn,
    assignments: CodeArray,
    n_values: int,
) -> Iterator[IntArray]:
    """Return the keys of values and cells that occur together, some at a time."""
    n_keys = cells.n_cells * n_values
    pulse = Pulse(heartbeat=session.heartbeat)

    def keys_of(some: slice, pulse: Pulse) -> Iterator[IntArray]:
        own = codes[some]
        is_known = own >= 0
        for one in assignments:
            pulse.beat()
            yield _keys(own[is_known], cells, one[some][is_known], n_values)

    if n_keys <= _MOST_MARKS:
        marks: BoolArray = np.zeros(n_keys, dtype=np.bool_)

        def mark(some: slice, pulse: Pulse) -> None:
            for keys in keys_of(some, pulse):
                marks[keys] = True

        blocks = [slice(start, start + _BLOCK) for start in range(0, codes.size, _BLOCK)]
        in_threads(mark, blocks, n_cores(), pulse)
        occurring: AnyIntArray = np.flatnonzero(marks).astype(np.int32)
    else:
        occurring = np.zeros(0, dtype=np.int64)
        for keys in keys_of(slice(None), pulse):
            occurring = distinct(np.concatenate([occurring, distinct(keys)]))
    for start in range(0, occurring.size, _AT_ONCE):
        yield occurring[start : start + _AT_ONCE].astype(np.int64)


def _keys(codes: AnyIntArray, cells: CellColumn, one: AnyIntArray, n_values: int) -> IntArray:
    keys: IntArray = cells.of_combination[one].astype(np.int64) * n_values + codes
    return keys


def check_cells(session: Session, relation: str, table: CellTable) -> Check:
    """Check that a relation, quoted, shows the cells that were made, each combination once.

    The columns' cells are looked up in their own tables, not in that of the combinations.
    """
    bases = [1 + column.n_cells for column in table.columns.values()]
    expected, digits, joins = [], [], ""
    for i, (name, column) in enumerate(table.columns.items()):
        first = _first_numbers(session, column)
        expected.append(first[column.of_combination])
        cells, number, cell = f"{column.table} AS c", f"c.{column.number}", f"c.{column.cell}"
        looked_up = f"(SELECT {number} AS number, {cell} AS cell FROM {cells})"
        if (first < np.arange(column.n_cells)).any():
            looked_up = f"(SELECT min({number}) AS number, {cell} AS cell FROM {cells} GROUP BY 2)"
        joins += f" LEFT JOIN {looked_up} AS p{i} ON v.{name} OPERATOR(pg_catalog.=) p{i}.cell"
        null = f"(SELECT min({number}) FROM {cells} WHERE num_nulls({cell}) = 1)"
        digits.append(
            f"coalesce(p{i}.number, CASE WHEN num_nulls(v.{name}) = 1 THEN {null} END, -1) + 1"
        )
    sent = []
    for start, end in packing(bases):
        digit = digits[start]
        for i in range(start + 1, end):
            digit = f"({digit})::int8 * {bases[i]} + {digits[i]}"
        sent.append(f"int8send({digit})")
    found = [np.empty((0, len(sent)), dtype=np.int64)]
    for part in parts_of(session, relation, table.n_combinations, "v"):
        with joining_by_hash(session):
            row = fetch_one(
                session,
                f"SELECT string_agg({' || '.join(sent)}, ''::bytea) AS numbers"
                f" FROM {relation} AS v{joins} WHERE {part}",
            )
        numbers = np.frombuffer(row["numbers"] or b"", dtype=">i8").astype(np.int64)
        found.append(numbers.reshape(-1, len(sent)))
    shown = _in_order(np.concatenate(found))
    del found, row, numbers
    made = packed_rows(bases, [], np.arange(table.n_combinations), expected)
    del expected
    same = np.array_equal(shown, _in_order(np.column_stack(made)))
    return Check(
        "the cells that were made are published",
        "the same combinations",
        f"{'the same' if same else 'other'} combinations",
        holds=same,
    )


def _first_numbers(session: Session, column: CellColumn) -> AnyIntArray:
    """Return, for each number of a cell, the least one of those that look the same.

    They may be of different codes: where two labels of a hierarchy have the same text, for example.
    """
    numbers = np.arange(column.n_cells, dtype=np.min_scalar_type(-1 - column.n_cells))
    cells, number = f"{column.table} AS c", f"c.{column.number}"
    with grouping_by_hash(session):
        found = session.fetch(
            f"SELECT {number} AS number, d.first FROM (SELECT c.{column.cell} AS cell,"
            f" min({number}) AS first FROM {cells} GROUP BY 1 HAVING count(*) > 1) AS d"
            f" JOIN {cells} ON c.{column.cell} OPERATOR(pg_catalog.=) d.cell"
        )
    for row in found:
        numbers[row["number"]] = row["first"]
    return numbers


def _in_order(rows: AnyIntArray) -> AnyIntArray:
    return rows[np.lexsort(rows.T)]


@dataclass(frozen=True, eq=False)
class RecodedRows:
    """A source whose quasi-identifiers are going to be published as ranges and sets."""

    view: RowView
    layout: Mapping[str, Any]  # the publication's layout, as the catalog keeps it
    _job: Job[Any]
    _read: SourceColumns
    _columns: Sequence[GeneralizedColumn]

    @classmethod
    def of(
        cls, job: Job[Any], k: int, weights: Mapping[str, Fraction] | None
    ) -> tuple[Self, Microdata]:
        """Read the source; return what is to be published, and the quasi-identifiers as codes."""
        check_k(job, k)
        read = SourceColumns.of(job)
        microdata, columns = microdata_of(
            job.records, job.source, read, weights_of(job.source, weights)
        )
        layout = row_layout(job.source, [column.cell for column in columns])
        for described, column in zip(layout["quasi_identifiers"], columns, strict=True):
            if column.labels is not None:
                described["labels"] = column.labels.hierarchy.described
            if column.labels is not None or column.bins is not None:
                described["is_coarse"] = True
        view = RowView.of(job.session, job.schema, job.staging.name, layout)
        return cls(view, layout, job, read, columns), microdata

    def require_room(self, n_sets: int, n_records: int, hint: str) -> None:
        """Refuse a search that keeps more sets of categorical values than there is memory for."""
        # `n_sets` are kept at a time, each with a bit for every value of the `n_records` that are
        # searched together.
        n_values = sum(
            min(attribute.n_values, n_records)
            for attribute in (column.attribute for column in self._columns)
            if not attribute.is_numeric
        )
        self._job.room.require(
            Needs(n_sets * n_values / 8, 0), f"{n_sets:,} sets of {n_values:,} values", hint
        )

    def write_cells(self, cells: Sequence[NumberedCells]) -> CellTable:
        """Write the cells of each quasi-identifier."""
        return write_cells(self._job.staging, self.view, self._columns, cells, self._job.random)

    def write(self, table: CellTable, cell_of_record: AnyIntArray) -> None:
        """Write the rows in random order, each with the other columns of a record and its cells.

        `cell_of_record`, shape (n_records,), has -1 for a record that is left out.
        """
        with fix_labels(self._job.session):
            write_row_view(self._job, self.view, table, cell_of_record)

    def count_outside(self, table: CellTable, assignments: CodeArray) -> int:
        """Count the records with an original value outside its cell; see :func:`count_outside`.

        A record with -1 in an assignment is left out.
        """
        job, records = self._job, self._job.records
        if isinstance(records, CodedRecords):
            codes = [column.codes for column in self._read.quasi_identifiers]
        else:
            codes = list(read_known_codes(job.snapshot, self._read.values).T)
        is_left_out = (assignments < 0).any(axis=0)
        if is_left_out.any():
            codes, assignments = [own[~is_left_out] for own in codes], assignments[:, ~is_left_out]
        return count_outside(job.session, codes, self._columns, table, assignments)

    def finish(
        self,
        table: CellTable,
        cell_of_record: AnyIntArray,  # shape (n_records,); as of `write`
        written: Written,
        matches: int | None = None,  # see `write_value_shares`
    ) -> Written:
        """Complete what was written, and drop what is no longer needed."""
        session = self._job.session
        cells = {column.values.column.name: column.published(session) for column in self._columns}
        named = dict(zip(cells, table.columns.values(), strict=True))
        layout = finish_rows(
            self._job, self.view, table, {**self.layout, **written.layout},
            self._read.shown(named, cell_of_record), cells, matches,
        )  # fmt: skip
        for column in self._columns:
            column.drop()
        self._read.drop()
        table.drop(session)
        return replace(written, layout=layout, cells=cells, matches=matches)


class MeasuredLoss(Protocol):
    """The figures that both kinds measure with the source."""

    @property
    def gcp(self) -> float: ...  # noqa: D102
    @property
    def weighted_loss(self) -> float: ...  # noqa: D102
    @property
    def loss_by_attribute(self) -> FloatArray: ...  # noqa: D102


def loss_metrics(source: Source, measured: MeasuredLoss, **others: float) -> dict[str, float]:
    """Return what was measured with the source as metrics."""
    by_column = zip(source.quasi_identifiers, measured.loss_by_attribute, strict=True)
    return {
        "gcp": measured.gcp,
        **others,
        "weighted_loss": measured.weighted_loss,
        **{f"loss_of_{column}": float(loss) for column, loss in by_column},
    }
