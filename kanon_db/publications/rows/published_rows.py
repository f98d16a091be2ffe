"""Sets published rows against their source: finds which values cells cover, and attacks rows.

Rows are read from the store of codes; the source scores what readers and attackers say. Many count
queries are answered at once, each as a question on its own would be. They ask for values of the
source; where cells are ranges, for the numbers from such a value up to the next one that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

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
from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    sort_keys,
)
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.generalized_cells import Ranges, RowClasses, Sets
from kanon_db.catalog.entries import Publication
from kanon_db.catalog.published_types import cell_layout
from kanon_db.dataclasses import dataclass
from kanon_db.errors import SchemaMismatchError
from kanon_db.metrics.count_queries import CountQuery
from kanon_db.publications.examination import AttackSession
from kanon_db.publications.guarantees import SensitiveCounts
from kanon_db.publications.kind import AttackTarget, Usefulness
from kanon_db.publications.results import Attack
from kanon_db.publications.rows.cell_columns import (
    Cover,
    KnownCells,
    RangeColumn,
    SetColumn,
    ValueColumn,
)
from kanon_db.publications.rows.stored_cells import PublicationReader, StoredCells
from kanon_db.query.layout import CellLayout
from kanon_db.query.ranges import place_of
from kanon_db.query.sql import Constants
from kanon_db.session.protocol import fetch_one
from kanon_db.transfer.columns import fix_labels, inverse_permutation, label, text_in_set
from kanon_db.transfer.snapshot import take_snapshot
from kanon_db.transfer.tries import FALSE, TRUE, AxisCut
from kanon_db.transfer.values import (
    DistinctValues,
    distinct_values,
    match_values,
    read_codes,
    read_numbers,
)


def classes_of_rows(numbers: CodeArray) -> tuple[IntArray, IntArray]:
    """Return the number of each row's class, which has the same cells, and a row of each class."""
    columns: Sequence[CodeArray] = [numbers[:, a] for a in range(numbers.shape[1])]
    _, first, classes = np.unique(sort_keys(columns), return_index=True, return_inverse=True)
    return classes.astype(np.int64), first


class AskedColumn(Protocol):
    """A column of rows whose values queries name by their codes in the source."""

    @property
    def n_values(self) -> int:
        """How many values the source has."""

    def likely(self, matching: BoolArray) -> FloatArray:
        """Return the share of each cell's records whose value matches, given which values do."""

    def covers(self) -> Ranges | Sets:
        """Return which values of the source each cell covers."""


@dataclass(frozen=True, eq=False)
class AskedValues:
    """An :class:`AskedColumn` of values or sets."""

    cells: ValueColumn | SetColumn
    codes: IntArray  # (n,): the source's code of each value that they stand for; -1 for none
    n_values: int

    def likely(self, matching: BoolArray) -> FloatArray:
        """Return the share of each cell's records whose value matches."""
        return self.cells.truths(np.where(np.append(matching, False)[self.codes], TRUE, FALSE)).true

    def covers(self) -> Ranges | Sets:
        """Return which values of the source each cell covers."""
        own, n = self.cells, self.n_values
        hidden, everything = np.flatnonzero(own.cells.hidden), np.arange(n)
        if isinstance(own, ValueColumn):
            codes = np.where(self.codes < 0, n + 1, self.codes)
            codes[hidden] = n
            return single_values(n).taken(codes)
        kept = ~own.cells.hidden[own.of_cell] & (self.codes[own.members] >= 0)
        cell = np.append(own.of_cell[kept], np.repeat(hidden, n))
        codes = np.append(self.codes[own.members[kept]], np.tile(everything, hidden.size))
        cell, codes = np.divmod(np.unique(cell * n + codes), n)
        ends = np.cumsum(np.bincount(cell, minlength=own.cells.n.size))
        return Sets(codes.astype(np.int32), ends)


@dataclass(frozen=True, eq=False)
class AskedNumbers:
    """An :class:`AskedColumn` of ranges."""

    cells: RangeColumn
    places: NDArray[Any]  # Where the source's values, but for NULL, lie on the axis; ascending
    n_values: int

    def likely(self, matching: BoolArray) -> FloatArray:
        """Return the share of each cell's records whose number matches."""
        cut = self._cut(matching)
        return self.cells.truths(Cover(self.cells, lambda: cut)).true

    def covers(self) -> Ranges:
        """Return which values of the source each cell covers."""
        ends, n = self.cells.ends, self.places.size
        low, high = (ends.low, ends.high) if ends.at is None else (
            ends.coordinates(ends.low), ends.coordinates(ends.high)
        )  # fmt: skip
        first = np.where(ends.from_all, 0, np.searchsorted(self.places, low, "left"))
        last = np.where(ends.to_all, n, np.searchsorted(self.places, high, "right")) - 1
        # NULL's code comes after all numbers; where the source has none, no value is covered.
        first = np.where(ends.is_null, n, first)
        last = np.where(ends.is_null | ends.anything, self.n_values - 1, last)
        return Ranges(first.astype(np.int32), last.astype(np.int32), ends.anything)

    def _cut(self, matching: BoolArray) -> AxisCut:
        """Cut the axis before each value that matches unlike the one before it."""
        n = self.places.size
        is_in = np.concatenate([[False], matching[:n], [False]])
        start, end = (
            np.flatnonzero(~is_in[:-1] & is_in[1:]),
            np.flatnonzero(is_in[:-1] & ~is_in[1:]),
        )
        null = TRUE if matching[n:].any() else FALSE
        to_all = bool(n and matching[n - 1])
        if self.cells.ends.at is None:
            last = np.append(self.places, _FAR)[end] - 1
            none = np.empty(0, dtype=np.int64)
            return AxisCut(self.places[start], last, False, to_all, null, none, none > 0)
        last = np.append(self.places, np.inf)[end]
        numbers, code = self._asked
        n_below = np.searchsorted(last, numbers, "right")
        return AxisCut(self.places[start], last, False, to_all, null, n_below, is_in[code])

    @cached_property
    def _asked(self) -> tuple[FloatArray, IntArray]:
        """The ends and points of continuous ranges, and how many values are not above each."""
        ends, axis = self.cells.ends, self.cells.axis
        points = [] if axis is None else [np.asarray(axis.points)]
        numbers = np.concatenate([*([] if ends.at is None else [ends.at]), *points])
        return numbers, np.searchsorted(self.places, numbers, "right")


_FAR: Final = 1 << 61
"""Beyond all whole numbers of an axis."""


def single_values(n_codes: int) -> Ranges:
    """Cells of each single value, of all together, and of none."""
    low = np.append(np.arange(n_codes), [0, n_codes]).astype(np.int32)
    high = np.append(np.arange(n_codes), [n_codes - 1, -1]).astype(np.int32)
    return Ranges(low, high, np.arange(n_codes + 2) == n_codes)


def match_cells(cells: KnownCells, values: DistinctValues) -> AskedColumn:
    """Find the source's values among those that cells may stand for."""
    n_values = len(values.labels)
    if isinstance(cells, RangeColumn):
        return AskedNumbers(cells, _places(cells, values), n_values)
    if not isinstance(cells, ValueColumn | SetColumn):
        raise TypeError("cells are values, sets or ranges")
    return AskedValues(cells, match_codes(cells, values), n_values)


def match_codes(cells: KnownCells, values: DistinctValues) -> IntArray:
    """Return the source's code of each value that values or sets stand for; -1 for none."""
    session, constants, matches = values.session, Constants(), None
    if isinstance(cells, SetColumn):  # whose texts are compared as they are
        shown, own = (text_in_set(values.column, one) for one in (label("s.v"), "d.label"))
        matches = f'{shown} COLLATE "C" = {own} COLLATE "C"'
    written = cells.domain.write(constants)
    with fix_labels(session):
        return match_values(values, written, *constants.bound, matches=matches)


def _places(cells: RangeColumn, values: DistinctValues) -> NDArray[Any]:
    """Find where the source's values lie on the axis of ranges."""
    type_ = cells.cell.column.type
    place = place_of(type_, f"d.value::{type_.name}")
    if read_numbers(values) is None or place is None:
        raise SchemaMismatchError(
            "the source's values have changed since they were published",
            detail=f'column "{values.column.name}" was published as ranges',
            hint="publish again with replace => true",
        )
    size = "int8" if cells.ends.at is None else "float8"
    row = fetch_one(
        values.session,
        f"SELECT string_agg({size}send(({place})::{size}), ''::bytea ORDER BY d.code) AS places"
        f" FROM {values.table} AS d WHERE num_nulls(d.value) = 0",
    )
    read = np.frombuffer(row["places"] or b"", f">{size[0]}8")
    return read.astype(np.int64 if size == "int8" else np.float64)


def read_covering(
    reader: PublicationReader, layout: CellLayout, columns: Sequence[DistinctValues]
) -> tuple[list[Ranges | Sets], CodeArray, IntArray]:
    """Read which values of the source the rows cover in some quasi-identifiers.

    Returns the distinct cells of each, which of them each class has, shape (n_classes, n_qi), and
    the class of each row, in the store's order. Cells cover no value that is gone.
    """
    store, names = reader.store, [values.column.name for values in columns]
    codes, met = store.all_codes(["", *names]), dict[str, IntArray]()
    sizes = codes.pop("").astype(np.int64)
    if int(sizes.sum()) != sum(chunk.n_records for chunk in store.chunks):
        raise reader.changed()
    for name in names:
        if store.columns[name].by_ends:
            met[name], codes[name] = np.unique(codes[name].view("<i8"), return_inverse=True)
    known = StoredCells(layout, store, {}, met).read(reader, names)
    cells = [
        match_cells(known[name], values).covers()
        for name, values in zip(names, columns, strict=True)
    ]
    numbers = np.stack([codes[name].astype(np.int32) for name in names], axis=1)
    class_of_part, first = classes_of_rows(numbers)  # a large class is stored in parts
    return cells, numbers[first], np.repeat(class_of_part, sizes)


class TypedColumn(NamedTuple):
    """A column that types of records are told apart by."""

    asked: AskedColumn
    place: int  # Its number among the types


Types = Iterable[tuple[Mapping[int, IntArray], FloatArray]]
"""The number of each type's cell, by the number of the column, and its records; part by part."""


def answer_from_types(
    types: Types,
    columns: Sequence[TypedColumn],  # the quasi-identifiers, in the order of the queries
    sensitive: TypedColumn | None,
    queries: Sequence[CountQuery],
    layout: CellLayout,
    heartbeat: Callable[[], None],
) -> Usefulness:
    """Answer queries, and measure what is lost of each quasi-identifier.

    Its loss is the mean of (n - 1) / (N - 1) over all records, where a record's cell covers n of
    the N values; a record without a row loses 1.
    """
    counts, losses = np.zeros(len(queries)), np.zeros(len(columns))
    lost = [
        np.clip((_count_covered(own.covers()) - 1) / max(own.n_values - 1, 1), 0, 1)
        for own, _ in columns
    ]
    for cells, n in types:
        losses += [own[cells[place]] @ n for own, (_, place) in zip(lost, columns, strict=True)]
        for at, query in enumerate(queries):
            heartbeat()
            matching = [(columns[a], mask) for a, mask in query.quasi_identifiers.items()]
            if sensitive is not None:
                matching.append((sensitive, query.sensitive))
            expected = n.copy()
            for (own, place), mask in matching:
                expected *= own.likely(mask).take(cells[place])
            counts[at] += expected.sum() if sensitive is not None or query.sensitive[0] else 0.0
    n_records = max(layout.n_rows + layout.left_out, 1)
    # Records that are left out are as likely to match as the others.
    counts *= n_records / max(layout.n_rows, 1)
    return Usefulness(counts, (losses + layout.left_out) / n_records)


def _count_covered(cells: Ranges | Sets) -> IntArray:
    return cells.sizes if isinstance(cells, Sets) else cells.high.astype(np.int64) - cells.low + 1


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


class CountedValues(NamedTuple):
    """The values that rows have of a sensitive attribute: `SensitiveCounts`."""

    labels: Sequence[str | None]
    counts: IntArray


@dataclass(frozen=True, eq=False)
class AttackedValues:
    """A sensitive attribute of rows and source, by the same codes."""

    name: str
    sensitive: SensitiveCounts  # the values of the rows
    of_rows: IntArray  # shape (n_rows,); the code of the value of each row
    of_people: IntArray  # shape (n_people,); that of the people in the source; -1 if no row has it

    @classmethod
    def of(
        cls,
        name: str,
        labels: Sequence[str | None],  # of the values that rows have
        in_source: IntArray,  # the source's code of each; -1 for none
        of_rows: AnyIntArray,
        of_people: AnyIntArray,  # by the source's codes
    ) -> Self:
        """Return the values in the source's order; those that it does not have are the last."""
        is_known = in_source >= 0
        order = np.lexsort((in_source, ~is_known))
        number = np.empty_like(order)
        number[order] = np.arange(order.size)
        shown = np.full(1 + max(in_source.max(initial=0), of_people.max(initial=0)), -1)
        shown[in_source[is_known]] = number[is_known]
        of_rows = number[of_rows]
        counts = np.bincount(of_rows, minlength=order.size).astype(np.int64)
        ordered = [labels[place] for place in order.tolist()]
        return cls(name, CountedValues(ordered, counts), of_rows, shown[of_people])


@dataclass(frozen=True, eq=False)
class AttackedRows:
    """Rows and source by the same codes, both in the order of these: samples depend on no other."""

    covering: RowClasses
    class_of_row: IntArray  # shape (n_rows,)
    codes: CodeArray  # shape (n_people, n_qi); the codes of the people in the source
    values: Sequence[AttackedValues]  # the sensitive attributes

    @classmethod
    def of(
        cls,
        cells: Sequence[Ranges | Sets],  # the distinct cells of each quasi-identifier
        cell_of_class: AnyIntArray,  # shape (n_classes, n_qi)
        class_of_row: IntArray,
        codes: CodeArray,
        n_codes: Sequence[int],  # the number of values of each quasi-identifier in the source
        values: Sequence[AttackedValues],
    ) -> Self:
        """Put cells, classes, rows and people in order."""
        ordered_cells, columns = [], []
        for own, numbers in zip(cells, cell_of_class.T, strict=True):
            order = _order_of_cells(own)
            ordered_cells.append(own.taken(order))
            columns.append(inverse_permutation(order)[numbers])
        in_order = np.stack(columns, axis=1)
        number_of_class, first = classes_of_rows(in_order)
        class_of_row = number_of_class[class_of_row]
        covering = RowClasses(ordered_cells, in_order[first], n_codes)
        rows = np.argsort(sort_keys([class_of_row, *(one.of_rows for one in values)]))
        people = np.argsort(sort_keys([*codes.T, *(one.of_people + 1 for one in values)]))
        ordered = [
            replace(one, of_rows=one.of_rows[rows], of_people=one.of_people[people])
            for one in values
        ]
        return cls(covering, class_of_row[rows], codes[people], ordered)

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


def _order_of_cells(cells: Ranges | Sets) -> IntArray:
    """Return the order that follows from what cells cover."""
    if isinstance(cells, Ranges):
        return np.lexsort((cells.high, cells.low, cells.tells_nothing))
    members = [own.tolist() for own in np.split(cells.codes, cells.ends[:-1])]
    return np.array(sorted(range(cells.n_cells), key=members.__getitem__), dtype=np.int64)


def read_rows(target: AttackTarget) -> AttackedRows:
    """Read the published rows, and the source."""
    session, publication = target.session, target.publication
    names = [cell["name"] for cell in publication.layout["quasi_identifiers"]]
    sensitive = publication.all_sensitive
    source = take_snapshot(session, target.source.relation, [*names, *sensitive], target.room)
    columns = [distinct_values(source, target.types[name]) for name in (*names, *sensitive)]
    codes = read_codes(source, columns)
    source.drop()

    reader = PublicationReader.of(session, target.schema, publication)
    layout, n_qi = cell_layout(session, target.schema, publication), len(names)
    cells, cell_of_class, class_of_row = read_covering(reader, layout, columns[:n_qi])
    of_rows = reader.store.all_codes(sensitive)
    known = StoredCells(layout, reader.store).read(reader, sensitive)
    values = []
    for place, name in enumerate(sensitive, start=n_qi):
        in_source = match_codes(known[name], columns[place])
        values.append(
            AttackedValues.of(name, reader.labels(name), in_source, of_rows[name], codes[:, place])
        )
    for column in columns:
        column.drop()
    n_codes = [len(own.labels) for own in columns[:n_qi]]
    return AttackedRows.of(cells, cell_of_class, class_of_row, codes[:, :n_qi], n_codes, values)


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
