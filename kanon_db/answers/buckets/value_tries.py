"""Asks the server what conditions, numbers and keys are for the values of buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.answers.buckets.slots import (
    LARGEST,
    Outcomes,
    Slots,
    ValueOutcomes,
    combine_codes,
    leaves_of,
    may_fail,
)
from kanon_db.answers.scope import OpenQuery
from kanon_db.answers.tries import ColumnValues, Combinations, Domain, Ranked, Tries
from kanon_db.publications.codes import Chunk, Store, StoredColumn
from kanon_db.query import expressions as ex

MOST_CROSSED: Final = 1 << 20
"""Combinations of values that are tried whether they occur or not."""

_MOST_MARKED: Final = 1 << 24
"""Combinations of values that have a place each in an array."""


@dataclass(frozen=True)
class Occurring:
    """The combinations of codes that slots have, or pairs of slots if columns are on two sides."""

    columns: Sequence[StoredColumn]
    numbers: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))

    def of(
        self, chunk: Chunk, codes: Mapping[str, bytes], heartbeat: Callable[[], None]
    ) -> Occurring:
        """Find those of a chunk."""
        own = {column.name: column for column in self.columns}
        slots = Slots(ValueOutcomes(own, {}), chunk, codes, heartbeat)
        sizes = [column.n_values for column in self.columns]
        has = np.zeros(prod(sizes), np.bool_) if prod(sizes) <= _MOST_MARKED else None
        numbers = self.numbers[:0]
        for number in self._numbers(slots, sizes):
            if has is None:
                numbers = np.union1d(numbers, number)
            else:
                has[number] = True
        return Occurring(self.columns, numbers if has is None else np.flatnonzero(has))

    def __add__(self, other: Occurring) -> Occurring:
        """Put those of two chunks together."""
        return Occurring(self.columns, np.union1d(self.numbers, other.numbers))

    def _numbers(self, slots: Slots, sizes: Sequence[int]) -> Iterator[AnyIntArray]:
        if len({column.side for column in self.columns}) < 2:
            yield combine_codes([slots.codes(column.name) for column in self.columns], sizes)
            return
        for run in slots.chunk.runs:
            for here in run.some(run.bucket_size**2):
                slots.heartbeat()
                codes = [slots.along(slots.codes(c.name), run, here, c.side) for c in self.columns]
                yield combine_codes(codes, sizes)


@dataclass(eq=False)
class ValueTries:
    """Asks the server of the values of a store's columns."""

    opened: OpenQuery
    store: Store
    _tries: Tries = field(init=False)
    _wanted: dict[tuple[str, ex.Expression], tuple[Callable[[], Any], tuple[str, ...], Any]] = (
        field(default_factory=dict)
    )
    _domains: dict[str, Domain] = field(default_factory=dict)
    _combinations: dict[tuple[str, ...], tuple[Combinations, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tries = self.opened.tries()

    def columns(self, expression: ex.Expression | None) -> tuple[str, ...]:
        """Return the columns that an expression depends on, in the order of the store."""
        names = ex.attributes(expression)
        return tuple(name for name in self.store.columns if name in names)

    def want_truth(self, condition: ex.Expression | None) -> None:
        """Ask for the truth of a condition's leaves."""
        for leaf in leaves_of(condition):
            self.want("truth", leaf)

    def want(self, what: str, expression: ex.Expression) -> None:
        """Ask for a ``truth``, a ``number`` or a ``key`` of each combination of values."""
        if (what, expression) in self._wanted:
            return
        columns = self.columns(expression)
        combinations, codes = self._combine(columns, may_fail(expression))
        ask = {
            "truth": self._tries.want_truth,
            "number": self._tries.want_number,
            "key": self._tries.want_key,
        }[what]
        self._wanted[what, expression] = ask(expression, combinations), columns, codes

    def ask(self) -> ValueOutcomes:
        """Run the statement."""
        self._tries.ask()
        answers = {
            wanted: self._place(answer(), columns, codes)
            for wanted, (answer, columns, codes) in self._wanted.items()
        }
        return ValueOutcomes(self.store.columns, answers)

    def _place(self, answers: Any, columns: tuple[str, ...], codes: IntArray | None) -> Outcomes:
        texts: Sequence[str] = ()
        if isinstance(answers, Ranked):
            if answers.texts is None:
                raise self.opened.limits.too_many()
            answers, texts = answers.ranks, answers.texts
        n = prod(self.store.columns[name].n_values for name in columns)
        if codes is not None and n <= _MOST_MARKED:
            # A place for each combination is found faster than one among those that were tried.
            placed = np.zeros(n, answers.dtype)
            placed[codes] = answers
            answers, codes = placed, None
        return Outcomes(columns, answers, codes, texts)

    def _combine(self, columns: tuple[str, ...], is_unsafe: bool) -> tuple[Combinations, Any]:
        domains = {name: self._domain(name) for name in columns}
        n = prod(domain.n for domain in domains.values())
        if len(columns) < 2 or (n <= MOST_CROSSED and not is_unsafe):
            return Combinations(domains), None
        if n > LARGEST:
            raise self.opened.too_much()
        if columns not in self._combinations:
            codes = self._occurring(columns)
            numbers = np.stack(np.unravel_index(codes, [d.n for d in domains.values()]), axis=1)
            self._combinations[columns] = Combinations(domains, numbers), codes
        return self._combinations[columns]

    def _domain(self, name: str) -> Domain:
        if name not in self._domains:
            text = self.store.values(name)
            self._domains[name] = ColumnValues(lambda _: text, self.store.columns[name].n_values)
        return self._domains[name]

    def _occurring(self, columns: tuple[str, ...]) -> IntArray:
        """Return the numbers of the combinations that some slot has, or some pair of slots."""
        met = Occurring([self.store.columns[name] for name in columns])
        for part in self.store.each(columns, met):
            met = met + part
            if 64 * met.numbers.size > self.opened.limits.kept:
                raise self.opened.too_much()
        return met.numbers
