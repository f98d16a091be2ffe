"""Reads published rows as the codes that their cells cover; answers and attacks them.

Readers and attackers see the view only; the source scores what they say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from kanon_db.algorithms.attacks import (
    AttackScore,
    Deductions,
    PairCounts,
    PublishedRows,
    SampledRows,
    TrueValues,
    count_tables,
    downcode,
    guess_people,
    score_guesses,
    single_out,
    unusual_records,
)
from kanon_db.algorithms.ground.arrays import CodeArray, FloatArray, IntArray, sort_keys
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.generalized_cells import Ranges, RowClasses, Sets
from kanon_db.catalog.entries import Publication
from kanon_db.errors import SchemaMismatchError
from kanon_db.publications.examination import AttackSession
from kanon_db.publications.guarantees import SensitiveCounts
from kanon_db.publications.kind import AttackTarget
from kanon_db.publications.results import Attack
from kanon_db.query.layout import ANYTHING
from kanon_db.session.protocol import fetch_one
from kanon_db.transfer.columns import ColumnType, Relation, column_types, find_relation, text_in_set
from kanon_db.transfer.snapshot import Snapshot, take_snapshot
from kanon_db.transfer.values import (
    DistinctValues,
    distinct_values,
    read_codes,
    read_integers,
    read_known_codes,
    read_numbers,
)

_CLOSED, _NULL, _ANYTHING = 1, 2, 3  # kinds of ranges; of any other kind, the upper end is open


def classes_of_rows(numbers: CodeArray) -> tuple[IntArray, IntArray]:
    """Return the number of each row's class, which has the same cells, and a row of each class."""
    columns: Sequence[CodeArray] = [numbers[:, a] for a in range(numbers.shape[1])]
    _, first, classes = np.unique(sort_keys(columns), return_index=True, return_inverse=True)
    return classes.astype(np.int64), first


def read_cells(
    view: Snapshot,  # the published rows
    types: Mapping[str, ColumnType],  # the columns of the view
    described: Sequence[Mapping[str, Any]],
    columns: Sequence[DistinctValues],
    pattern: Sequence[str] = (),  # the column that marks suppressed cells, if there is one
) -> tuple[list[Ranges | Sets], CodeArray]:
    """Read the distinct cells of each quasi-identifier, and which of them each row has.

    `described` is the layout's description of each quasi-identifier, in any order; cells are coded
    by `columns`, its values in the source, and cover no code for values that are gone. A suppressed
    cell covers everything. Returns the cells, and the number of each row's cell, shape
    (n_rows, n_qi), in the order of `columns`.
    """
    places = {cell["name"]: (place, cell) for place, cell in enumerate(described, start=1)}
    cells: list[Ranges | Sets] = []
    numbers = np.empty((view.n_records, len(columns)), dtype=np.int32)
    for position, column in enumerate(columns):
        place, cell = places[column.column.name]
        if cell["cell"] == "value":
            codes = read_known_codes(view, [column])[:, 0]
            cells.append(single_values(len(column.labels)))
            # Not coded: only a row of people who are gone; it covers no code.
            numbers[:, position] = np.where(codes < 0, len(column.labels) + 1, codes)
            for name in pattern:
                mark = f"s.{view.session.identifier(name)}"
                stars = read_integers(view, f"(substr({mark}, {place}, 1) = '*')::int4")
                numbers[stars == 1, position] = len(column.labels)
            continue
        distinct = distinct_values(view, types[cell["name"]])
        numbers[:, position] = read_codes(view, [distinct])[:, 0]
        if cell["cell"] == "label":
            cells.append(_labelled(distinct, column, cell["labels"]))
        else:
            is_range = cell["cell"] == "range"
            cells.append(_ranges(distinct, column) if is_range else _sets(distinct, column))
        distinct.drop()
    return cells, numbers


def single_values(n_codes: int) -> Ranges:
    """Cells of each single value, of all together, and of none."""
    low = np.append(np.arange(n_codes), [0, n_codes]).astype(np.int32)
    high = np.append(np.arange(n_codes), [n_codes - 1, -1]).astype(np.int32)
    return Ranges(low, high, np.arange(n_codes + 2) == n_codes)


def _ranges(distinct: DistinctValues, column: DistinctValues) -> Ranges:
    """Find the codes within ranges by the same numbers by which they were published."""
    values = read_numbers(column)
    ends = [column.column.number_of_end(f"{end}(value)") for end in ("lower", "upper")]
    if values is None or None in ends:
        raise SchemaMismatchError(
            "the source's values have changed since they were published",
            detail=f'column "{column.column.name}" was published as ranges',
            hint="publish again with replace => true",
        )
    row = fetch_one(
        distinct.session,
        "SELECT string_agg(float8send(l) || float8send(u) || float8send(kind), ''::bytea"
        " ORDER BY code) AS numbers FROM ("
        " SELECT code, CASE WHEN num_nulls(value) > 0 THEN 0 WHEN lower_inf(value)"
        f" THEN '-infinity' ELSE {ends[0]} END AS l, CASE WHEN num_nulls(value) > 0 THEN 0"
        f" WHEN upper_inf(value) THEN 'infinity' ELSE {ends[1]} END AS u,"
        f" CASE WHEN num_nulls(value) > 0 THEN {_NULL}"
        f" WHEN lower_inf(value) AND upper_inf(value) THEN {_ANYTHING}"
        f" ELSE upper_inc(value)::int4 END::float8 AS kind FROM {distinct.table}) AS ranges",
    )
    lower, upper, kind = np.frombuffer(row["numbers"], dtype=">f8").reshape(-1, 3).T
    numbers: FloatArray = values[~np.isnan(values)]
    low = np.searchsorted(numbers, lower, side="left")
    high = np.where(
        kind == _CLOSED,
        np.searchsorted(numbers, upper, side="right"),
        np.searchsorted(numbers, upper, side="left"),
    )
    high = high - 1
    # NULL's code comes after all numbers; without one, such a cell covers no code.
    low = np.where(kind == _NULL, numbers.size, low)
    high = np.where(kind == _NULL, values.size - 1, high)
    return Ranges(low.astype(np.int32), high.astype(np.int32), kind == _ANYTHING)


def _labelled(
    distinct: DistinctValues, column: DistinctValues, described: Mapping[str, Any]
) -> Sets:
    """Find the codes of the values that labels stand for."""
    is_padded = column.column.type_name == "bpchar"
    code_of = {
        text.rstrip(" ") if is_padded and text is not None else text: code
        for code, text in enumerate(column.labels)
    }
    values = described["values"]
    spans = {value: (at, at) for at, value in enumerate(values)}
    spans |= {label: (first, last) for label, first, last in described["labels"]}
    codes, ends = list[int](), list[int]()
    for label in distinct.labels:
        first, last = spans.get(label or "", (0, len(values) - 1))
        texts = [None] if label is None else values[first : last + 1]
        texts = [*texts, None] if label == ANYTHING else texts
        codes += sorted(code_of[text] for text in texts if text in code_of)
        ends.append(len(codes))
    return Sets(np.array(codes, dtype=np.int32), np.array(ends, dtype=np.int64))


def _sets(distinct: DistinctValues, column: DistinctValues) -> Sets:
    """Find the codes of the texts in sets."""
    text = text_in_set(column.column, "v.label")
    null = column.labels.index(None) if None in column.labels else -1
    row = fetch_one(
        distinct.session,
        "SELECT string_agg(int4send(c.code) || int4send(coalesce(v.code,"
        f" CASE WHEN l.label IS NULL THEN {null} ELSE -1 END)), ''::bytea) AS pairs"
        f" FROM {distinct.table} AS c CROSS JOIN LATERAL unnest(c.value) AS l (label)"
        f" LEFT JOIN {column.table} AS v ON {text} = l.label",
    )
    pairs = np.frombuffer(row["pairs"] or b"", dtype=">i4").reshape(-1, 2).astype(np.int64)
    pairs = pairs[pairs[:, 1] >= 0]
    keys = np.unique(pairs[:, 0] * len(column.labels) + pairs[:, 1])
    owners, codes = np.divmod(keys, len(column.labels))
    ends = np.cumsum(np.bincount(owners, minlength=len(distinct.labels)))
    return Sets(codes.astype(np.int32), ends)


MOST_COMPARISONS: Final = 1_000_000_000
"""Comparisons of a person with a class, or of a row with a person, that may be made."""

MOST_PEOPLE: Final = 10_000
"""People or rows that are looked up one by one."""


@dataclass(frozen=True, eq=False)
class ValueBounds:
    """The part of a guarantee that is about sensitive values."""

    # Shape (n_values,); the largest probability of each value; None if it says nothing.
    values: FloatArray | None = None
    # The largest share of people whose value may be certain; None if it says nothing.
    certain: float | None = None


@dataclass(frozen=True, eq=False)
class AttackedValues:
    """A sensitive attribute of rows and source, by the same codes."""

    name: str
    sensitive: SensitiveCounts  # the values of the rows
    of_rows: IntArray  # shape (n_rows,); the code of the value of each row
    of_people: IntArray  # shape (n_people,); that of the people in the source; -1 if no row has it


@dataclass(frozen=True, eq=False)
class AttackedRows:
    """Rows and source by the same codes."""

    covering: RowClasses
    class_of_row: IntArray  # shape (n_rows,)
    codes: CodeArray  # shape (n_people, n_qi); the codes of the people in the source
    values: Sequence[AttackedValues]  # the sensitive attributes

    @classmethod
    def of(
        cls,
        cells: Sequence[Ranges | Sets],  # the distinct cells of each quasi-identifier
        numbers: CodeArray,  # shape (n_rows, n_qi); which of them each row has
        codes: CodeArray,
        n_codes: Sequence[int],  # the number of values of each quasi-identifier in the source
        values: Sequence[AttackedValues],
    ) -> Self:
        """Gather rows into classes, and set the source against them."""
        class_of_row, first = classes_of_rows(numbers)
        covering = RowClasses(cells, numbers[first], n_codes)
        return cls(covering, class_of_row, codes, values)

    def with_values(self, of: AttackedValues | None) -> PublishedRows:
        """Count the values of each class; all are the same without an attribute."""
        if of is None:
            nothing = np.zeros(self.class_of_row.size, dtype=np.int64)
            return PublishedRows.of(self.covering, self.class_of_row, nothing, 1)
        n_values = len(of.sensitive.labels)
        return PublishedRows.of(self.covering, self.class_of_row, of.of_rows, n_values)

    def combined(self) -> tuple[IntArray, IntArray]:
        """Return codes of the rows' combinations of sensitive values, and of the people's."""
        of_rows = np.zeros(self.class_of_row.size, dtype=np.int64)
        of_people = np.zeros(len(self.codes), dtype=np.int64)
        for one in self.values:
            n_values = len(one.sensitive.labels)
            is_known = (of_people >= 0) & (one.of_people >= 0)
            found, of_rows = np.unique(of_rows * n_values + one.of_rows, return_inverse=True)
            wanted = of_people * n_values + one.of_people
            place = np.minimum(np.searchsorted(found, wanted), found.size - 1)
            of_people = np.where(is_known & (found[place] == wanted), place, -1)
        return of_rows.astype(np.int64), of_people


def read_rows(target: AttackTarget) -> AttackedRows:
    """Read the published rows, and the source."""
    session, layout = target.session, target.publication.layout
    names = [cell["name"] for cell in layout["quasi_identifiers"]]
    sensitive = target.publication.all_sensitive
    source = take_snapshot(session, target.source.relation, [*names, *sensitive], target.room)
    columns = [distinct_values(source, target.types[name]) for name in names]
    codes = read_codes(source, columns)

    relation = Relation(target.schema, target.publication.name)
    pattern = [layout["pattern"]] if layout.get("pattern") else []
    view = take_snapshot(session, relation, [*names, *pattern, *sensitive], target.room)
    _, oid, _ = find_relation(session, relation.quoted(session))
    cells, numbers = read_cells(
        view, column_types(session, oid), layout["quasi_identifiers"], columns, pattern
    )
    values = []
    for name in sensitive:
        shown = distinct_values(view, target.types[name])
        of_rows = read_codes(view, [shown])[:, 0].astype(np.int64)
        of_people = read_known_codes(source, [shown])[:, 0].astype(np.int64)
        values.append(AttackedValues(name, shown, of_rows, of_people))
        shown.drop()
    for column in columns:
        column.drop()
    source.drop()
    view.drop()
    n_codes = [len(column.labels) for column in columns]
    return AttackedRows.of(cells, numbers, codes, n_codes, values)


def attack_read_rows(
    listener: AttackSession,
    pulse: Pulse,
    publication: Publication,
    attacked: AttackedRows,
    bounds: Sequence[ValueBounds],  # of each sensitive attribute
    deductions: Deductions | None,  # None where nothing is known to follow from the method
    *,
    shares_cells: bool,
) -> list[Attack]:
    """Play all attacks on published rows.

    Where cells are not shared, the rows that may be a person's take the place of a class.
    """
    return [
        Attack(name, found.bound, found.base_rate, found.rate, found.people)
        for name, found in _play(
            listener, pulse, publication, attacked, bounds, deductions, shares_cells=shares_cells
        )
    ]


_SEED: Final = 1
"""Attacks on the same publication achieve the same twice."""


def _play(
    session: AttackSession,
    pulse: Pulse,
    publication: Publication,
    attacked: AttackedRows,
    bounds: Sequence[ValueBounds],  # of each sensitive attribute
    deductions: Deductions | None,
    *,
    shares_cells: bool,
) -> Iterator[tuple[str, AttackScore]]:
    k = int(publication.parameters["k"])
    random = np.random.default_rng(_SEED)
    n_people, n_rows = len(attacked.codes), attacked.class_of_row.size
    # Among the rows of k entities, most may be about the same one.
    counts_entities = publication.parameters.get("counts_entities")
    seen: list[tuple[AttackedValues | None, ValueBounds]] = [(None, ValueBounds())]
    if attacked.values:
        seen = list(zip(attacked.values, bounds, strict=True))

    session.step("attacking: people")
    unusual = unusual_records(attacked.codes, pulse=pulse)
    _, numbers, sizes = np.unique(
        sort_keys([*attacked.codes.T]), return_inverse=True, return_counts=True
    )
    is_unique = sizes[numbers] == 1
    half = random.random(n_people) < 0.5
    for prefix, people in (
        ("", np.arange(n_people)),
        ("unusual people: ", np.flatnonzero(unusual)),
    ):
        drawn = _draw(people, attacked.covering.n_classes, random)
        if drawn.size < people.size:
            session.tell(
                f"{prefix}the attacks look up a random sample of {drawn.size:,} of"
                f" {people.size:,} people"
            )
        for place, (of, bound) in enumerate(seen):
            rows = attacked.with_values(of)
            values = np.zeros(n_people, dtype=np.int64) if of is None else of.of_people
            protected = None if bound.values is None else bound.values < 1
            found = guess_people(rows, attacked.codes, values, drawn, half, protected, pulse=pulse)
            if not place:
                linked = _link(found.n_rows, n_rows, k)
                linked = replace(linked, bound=None) if counts_entities else linked
                yield f"{prefix}linking a row", linked
            if of is None:
                continue
            which = f" of {of.name}" if len(seen) > 1 else ""
            truth, numbers = _truth(values, drawn, rows.n_values)
            guessed = {"most frequent value": found.most_frequent, "deFinetti": found.learned}
            if not prefix:
                # Those whose quasi-identifiers nobody else in the source has.
                alone = np.where(is_unique[drawn], found.learned, -1)
                guessed |= {
                    "unique people: deFinetti": alone, "correlations of the source": found.known,
                }  # fmt: skip
            for name, guesses in guessed.items():
                scored = score_guesses(truth, numbers, guesses, bound.values)
                yield f"{prefix}{name}{which}", scored
            if not prefix:
                in_classes = n_rows, rows.homogeneous_share
                in_rows = drawn.size, float((found.n_values == 1).mean())
                certain = in_classes if shares_cells else in_rows
                is_known = float(rows.n_values == 1)
                yield f"homogeneity{which}", AttackScore(*certain, is_known, bound.certain)
    session.step("attacking: singling out")
    yield "singling out", _single_out(attacked, random, pulse)
    if any(cell["cell"] != "value" for cell in publication.layout["quasi_identifiers"]):
        session.step("attacking: tight cells")
        yield "downcoding", _downcode(attacked, k, random, pulse)
    if deductions is None:
        return
    session.step("attacking: refinement")
    sizes = np.bincount(attacked.class_of_row, minlength=attacked.covering.n_classes)
    counts = count_tables(attacked.covering, sizes, deductions, random, pulse)
    yield "refinement", counts.score
    yield "refinement: known values", counts.known_score
    if deductions.preference is None:
        return
    drawn = _draw(np.arange(n_people), attacked.covering.n_classes, random)
    for place, (of, bound) in enumerate(seen):
        rows = attacked.with_values(of)
        values = np.zeros(n_people, dtype=np.int64) if of is None else of.of_people
        protected = None if bound.values is None else bound.values < 1
        found = guess_people(
            rows, attacked.codes, values, drawn, half, protected, deductions.preference, pulse
        )
        if not place:
            yield "refinement: linking a row", _link(found.n_rows, n_rows, k)
        if of is not None:
            which = f" of {of.name}" if len(seen) > 1 else ""
            truth, numbers = _truth(values, drawn, rows.n_values)
            scored = score_guesses(truth, numbers, found.most_frequent, bound.values)
            yield f"refinement: most frequent value{which}", scored


def _link(n_candidates: IntArray, n_rows: int, k: int) -> AttackScore:
    """Pick one of the rows that may be a person's."""
    if not n_candidates.size:
        return AttackScore(0, None, None, None)
    rates = np.divide(1, n_candidates, out=np.zeros(n_candidates.size), where=n_candidates > 0)
    return AttackScore(n_candidates.size, float(rates.mean()), 1 / n_rows, 1 / k)


def _truth(values: IntArray, people: IntArray, n_values: int) -> tuple[TrueValues, IntArray]:
    """Everybody who is looked up has a true value of their own."""
    counts = np.bincount(values[values >= 0], minlength=n_values)
    numbers = np.arange(people.size)
    truth = TrueValues.of(numbers, values[people], people.size, n_values)
    return TrueValues(truth.pairs, truth.people, int(counts.argmax())), numbers


def _draw(people: IntArray, n_others: int, random: np.random.Generator) -> IntArray:
    """Draw as many people as can be compared with all the others."""
    most = min(MOST_PEOPLE, max(1, MOST_COMPARISONS // max(n_others, 1)))
    if people.size <= most:
        return people
    return np.sort(random.choice(people, most, replace=False))


def _single_out(attacked: AttackedRows, random: np.random.Generator, pulse: Pulse) -> AttackScore:
    rows, of_rows = _draw_rows(attacked, random)
    pairs = PairCounts.of(attacked.class_of_row, of_rows, int(of_rows.max(initial=-1)) + 1)
    return single_out(rows, pairs.count(rows.classes, rows.values), pulse)


def _downcode(
    attacked: AttackedRows, k: int, random: np.random.Generator, pulse: Pulse
) -> AttackScore:
    rows, _ = _draw_rows(attacked, random)
    sizes = np.bincount(attacked.class_of_row, minlength=attacked.covering.n_classes)
    return downcode(rows, np.maximum(sizes, k), pulse)


def _draw_rows(attacked: AttackedRows, random: np.random.Generator) -> tuple[SampledRows, IntArray]:
    """Draw rows to attack; also return the combination of sensitive values of every row."""
    of_rows, of_people = attacked.combined()
    drawn = _draw(np.arange(of_rows.size), of_people.size, random)
    classes, values = attacked.class_of_row[drawn], of_rows[drawn]
    return SampledRows(attacked.covering, classes, values, attacked.codes, of_people), of_rows
