"""Divides a question about rows into what cells, values, and combinations of values tell of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from kanon_db.answers.likelihoods import (
    MOST_GROUPED,
    Block,
    JointCondition,
    arrange,
    columns_to_list,
    compares_ranges,
    find_summed_column,
    least_unknown,
    most_listed,
    names_of,
)
from kanon_db.dataclasses import dataclass
from kanon_db.query import expressions as ex
from kanon_db.query.layout import CellLayout, condition_of, is_vague
from kanon_db.query.ranges import may_fail
from kanon_db.query.sql import Request, leaves, require_few


@dataclass(frozen=True)
class Unit:
    """A condition, or a part of it whose columns nothing else mentions."""

    condition: ex.Expression | None
    spread: list[int]  # The columns whose values are listed
    places: list[int]  # All of its columns
    by_cell: Mapping[ex.Expression, int]  # The leaves that follow from one cell, with its column
    # Those that follow from values, with the columns of these
    by_value: Mapping[ex.Expression, tuple[int, ...]]
    # Of the latter, comparisons of ranges: what is certain follows from the ends of these two
    compared: Mapping[ex.Expression, tuple[int, ...]]
    parts: Mapping[ex.Expression, Unit]
    open_: list[int]  # Listed columns of which a leaf needs all values, for anything to be certain
    tested: list[int]  # Listed ranges of which it is asked whether they hold a NULL

    @property
    def whole(self) -> Block:
        """All columns whose cells stand for several values."""
        return tuple(sorted({*self.spread, *self.by_cell.values()}))

    def block_of(self, leaf: ex.Expression) -> Block:
        """Return the columns that decide on a leaf; none where these are listed, or are known."""
        if leaf in self.parts:
            return self.parts[leaf].whole
        return (self.by_cell[leaf],) if leaf in self.by_cell else ()

    @property
    def listed_leaves(self) -> list[ex.Expression]:
        """The leaves that follow from values of listed columns."""
        return [leaf for leaf, places in self.by_value.items() if set(places) & set(self.spread)]

    def all(self) -> Iterator[Unit]:
        """Return it, and its parts."""
        yield self
        for part in self.parts.values():
            yield from part.all()


@dataclass(frozen=True)
class Summed:
    """What is summed."""

    expression: ex.Expression
    is_ranked: bool  # Whether its values are told apart by their order, and are no numbers
    moments: int | None  # The column whose cells alone decide on it
    values: tuple[int, ...]  # Otherwise, the columns whose values do
    own: int | None  # If it is one of these that is listed, itself
    # Listed columns of which all values are needed, for bounds; not of the column itself
    open_: list[int]


@dataclass(frozen=True)
class Pieces:
    """What an answer depends on beside the records themselves, found once for each cell or value.

    Columns have numbers; leaves, keys and sums are expressions.
    """

    places: Mapping[str, int]  # The number of each column that the request mentions
    vague: list[int]  # Those whose cells stand for several values
    marked: list[int]  # Those that have suppressed cells
    unit: Unit
    keys: list[tuple[ex.Expression, tuple[int, ...]]]  # The columns of each group key
    summed: Summed | None
    least_unknown: float  # See `kanon_db.answers.likelihoods`
    most_listed: Mapping[int, int]  # How many values of each wide range are listed
    # Of ranges that are grouped by, what is asked of their values, if it is asked of each column
    # alone: runs of values that it does not tell apart are listed as one
    of_runs: Mapping[int, list[ex.Expression]]
    lists_values: bool  # Whether what is summed is listed, which need not be finite then
    n_leaves: int
    may_fail: bool  # Whether the server may fail to calculate something for some values

    @cached_property
    def blocks(self) -> list[Block]:
        """The columns whose shares are off together, block by block."""
        of_leaves = map(self.unit.block_of, [*self.unit.by_cell, *self.unit.parts])
        summed = None if self.summed is None else self.summed.moments
        blocks = [*((place,) for place in self.unit.spread), *of_leaves]
        return list(dict.fromkeys(blocks if summed is None else [*blocks, (summed,)]))

    @staticmethod
    def of(
        request: Request,
        layout: CellLayout,
        also: Iterable[str] = (),
        *,
        lists_values: bool = False,
    ) -> Pieces:
        """Divide a request.

        `also`: columns to tell types apart by, beside those that it mentions.
        """
        return _Divider(request, layout, also, lists_values).divide()


class _Divider:
    def __init__(
        self,
        request: Request,
        layout: CellLayout,
        also: Iterable[str],
        lists_values: bool,
    ) -> None:
        query, aggregate = request.query, request.aggregate
        self._layout, self._lists_values = layout, lists_values
        self._condition = condition_of(query, aggregate)
        self._keys = [key.expression for key in query.keys]
        self._function = aggregate.function
        self._weighed = None if aggregate.function == "count" else aggregate.operand
        self._names = names_of(request)
        names = {*also, *self._names}
        self._places = {
            name: place for place, name in enumerate(name for name in layout.cells if name in names)
        }
        arranged = arrange(query, aggregate, layout)
        self._put, spread = arranged.condition, set(arranged.spread)
        summed = find_summed_column(query, aggregate, layout)
        self._summed = None if summed in spread or lists_values else summed
        if lists_values:
            spread |= ex.attributes(self._weighed)
        self._spread = [
            name for name, cell in layout.cells.items() if name in spread and is_vague(cell)
        ]
        self._most: dict[int, int] = {}

    def divide(self) -> Pieces:
        grouped = {name for key in self._keys for name in ex.attributes(key)}
        cells = {place: self._layout.cells[name] for name, place in self._places.items()}
        unit = self._unit(self._put, self._spread, grouped)
        is_failing = any(
            may_fail(part)
            for part in (self._condition, *self._keys, self._weighed)
            if part is not None
        )
        return Pieces(
            places=self._places,
            vague=[place for place, cell in cells.items() if is_vague(cell)],
            marked=[place for place, cell in cells.items() if cell.mark is not None],
            unit=unit,
            keys=[(key, self._mentioned(key)) for key in self._keys],
            summed=None if self._weighed is None else self._weigh(self._weighed),
            least_unknown=least_unknown(self._names, self._layout),
            most_listed=self._most,
            of_runs={} if is_failing else self._find_runs(unit),
            lists_values=self._lists_values,
            n_leaves=len(set(leaves(self._condition))),
            may_fail=is_failing,
        )

    def _unit(
        self,
        condition: ex.Expression | None,
        spread: Sequence[str],
        grouped: frozenset[str] | set[str] = frozenset(),
    ) -> Unit:
        cells = self._layout.cells
        for name in spread:
            most = MOST_GROUPED
            if name not in grouped:
                most = most_listed((cells[one] for one in spread), self._layout.n_rows)
            self._most.setdefault(self._places[name], most)
        by_cell: dict[ex.Expression, int] = {}
        by_value: dict[ex.Expression, tuple[int, ...]] = {}
        compared: dict[ex.Expression, tuple[int, ...]] = {}
        parts: dict[ex.Expression, Unit] = {}
        own_leaves = dict.fromkeys(leaves(condition))
        for leaf in own_leaves:
            names = ex.attributes(leaf)
            vague = [name for name in names if is_vague(cells[name]) and name not in spread]
            if isinstance(leaf, JointCondition):
                inner = columns_to_list(leaf.condition, self._layout)
                parts[leaf] = self._unit(leaf.condition, inner)
            elif vague:
                (name,) = vague
                by_cell[leaf] = self._places[name]
            else:
                by_value[leaf] = self._mentioned(leaf)
                if compares_ranges(leaf, cells):
                    left, right = leaf.children
                    compared[leaf] = *self._mentioned(left), *self._mentioned(right)
        require_few(len(own_leaves), len(by_cell))
        opened = [leaf for leaf in own_leaves if not self._is_closed(leaf)]
        tests = [
            leaf for leaf in own_leaves if isinstance(leaf, ex.NullTest) and leaf not in opened
        ]
        return Unit(
            condition, [self._places[name] for name in spread],
            [] if condition is None else [*self._mentioned(condition)],
            by_cell, by_value, compared, parts,
            [self._places[n] for n in spread if any(n in ex.attributes(leaf) for leaf in opened)],
            [
                self._places[n]
                for n in spread
                if cells[n].kind == "range" and any(n in ex.attributes(leaf) for leaf in tests)
            ],
        )  # fmt: skip

    def _find_runs(self, unit: Unit) -> dict[int, list[ex.Expression]]:
        weighed = () if self._weighed is None else ex.attributes(self._weighed)
        of_runs = {}
        for name in self._spread:
            mentioning = [
                part for part in (*self._keys, *unit.by_value) if name in ex.attributes(part)
            ]
            is_alone = all(
                ex.attributes(part) == {name} and not isinstance(part, ex.Column)
                for part in mentioning
            )
            is_grouped = any(name in ex.attributes(key) for key in self._keys)
            if is_alone and is_grouped and name not in weighed:
                of_runs[self._places[name]] = mentioning
        return of_runs

    def _is_closed(self, leaf: ex.Expression) -> bool:
        """Whether what is certain of a condition does not depend on the values that are listed."""
        match leaf:
            case ex.NullTest(ex.Column(lookup=None, name=name)):
                return self._layout.cells[name].mark is None
            case _:
                return compares_ranges(leaf, self._layout.cells)

    def _weigh(self, weighed: ex.Expression) -> Summed:
        if self._summed is not None:
            return Summed(weighed, False, self._places[self._summed], (), None, [])
        is_own = isinstance(weighed, ex.Column) and weighed.name in self._spread
        own = self._places[weighed.name] if is_own else None  # type: ignore[attr-defined]
        values, spread = self._mentioned(weighed), [self._places[name] for name in self._spread]
        open_ = [place for place in values if place in spread and own is None]
        return Summed(weighed, self._function == "distinct", None, values, own, open_)

    def _mentioned(self, expression: ex.Expression) -> tuple[int, ...]:
        names = ex.attributes(expression)
        return tuple(place for name, place in self._places.items() if name in names)
