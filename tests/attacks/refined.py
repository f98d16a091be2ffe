"""All source tables from which a method publishes the same rows: who knows it, by enumeration.

The attacker knows the method, the values that each quasi-identifier may have and how many records
there are, and sees the rows. Each assignment of records to rows is one that some source table
gives, so that what remains of them is exact; :mod:`kanon_db.algorithms.attacks.refinement`
must leave at least as much. ``python -m tests.attacks.refined`` prints how much remains.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations_with_replacement, compress, permutations, product
from typing import Any, NamedTuple

import numpy as np

from kanon_db.algorithms.attacks import (
    Deductions,
    MatchCount,
    TableCounts,
    count_tables,
    deduce_from_patterns,
)
from kanon_db.algorithms.freeform import cells as cells_of_matches
from kanon_db.algorithms.generalization import refine
from kanon_db.algorithms.ground.computation import UNLIMITED
from kanon_db.algorithms.recoding import (
    Attribute,
    Microdata,
    Ranges,
    RowClasses,
    Sets,
    cells_of_classes,
)
from kanon_db.algorithms.suppression import LEFT_OVER, Suppression, all_patterns
from kanon_db.publications.freeform import methods as freeform_methods
from kanon_db.publications.generalized import methods as generalized_methods
from kanon_db.publications.rows.published_rows import single_values
from kanon_db.publications.suppressed import methods as suppressed_methods
from kanon_db.publications.suppressed.methods import SuppressibleRows
from tests.attacks.posterior import every_outcome
from tests.attacks.publishers import request_of

K = 2
NUMBER = Attribute(3, numbers=np.arange(3.0), lower=0, upper=2)

Domain = tuple[Attribute, ...]
LARGE, SMALL = (NUMBER, Attribute(3)), (NUMBER, Attribute(2))
"""A number of three values, and a category of three or two."""

Record = tuple[int, ...]
Cell = tuple[int, ...]
"""The codes that a cell covers."""

Shown = tuple[Cell, ...]
"""The cells of a row."""

Rows = tuple[tuple[Shown, Record], ...]
"""Published rows, with the record that each is of, sorted."""

Publish = Callable[[Microdata], Iterator[Rows]]
"""Publishes a table in every way that chance may choose, the rows being known to be of whom."""


@dataclass(frozen=True)
class Publication:
    """All that can be behind the same rows."""

    domain: Domain
    rows: tuple[Shown, ...]
    remaining: frozenset[Rows]

    @property
    def within(self) -> float:
        """The logarithm to base 2 of how many assignments lie within the cells."""
        return sum(math.log2(len(cell)) for shown in self.rows for cell in shown)

    @property
    def exact(self) -> float:
        """The same of those that some source table gives."""
        alike = Counter(self.rows).values()
        total = 0
        for rows in self.remaining:
            orders = math.prod(map(math.factorial, alike))
            total += orders // math.prod(map(math.factorial, Counter(rows).values()))
        return math.log2(total)

    @property
    def n_cells(self) -> int:
        """How many cells cover several values."""
        return sum(len(cell) > 1 for shown in self.rows for cell in shown)

    @property
    def n_known(self) -> int:
        """Of how many of them all rows with the same cells have known values, in some order."""
        seen: dict[tuple[Shown, int], set[tuple[int, ...]]] = defaultdict(set)
        for rows in self.remaining:
            codes: dict[tuple[Shown, int], list[int]] = defaultdict(list)
            for shown, record in rows:
                for attribute, code in enumerate(record):
                    codes[shown, attribute].append(code)
            for key, values in codes.items():
                seen[key].add(tuple(sorted(values)))
        return sum(
            len(cell) > 1 and len(seen[shown, attribute]) == 1
            for shown in self.rows
            for attribute, cell in enumerate(shown)
        )


Deduce = Callable[[RowClasses, Any], Deductions]
"""Says what the attack deduces, given classes and their sizes."""


def publications(publish: Publish, n_records: int, domain: Domain = LARGE) -> list[Publication]:
    """Publish every table of so many records; gather those of which the same rows are published."""
    found: dict[tuple[Shown, ...], set[Rows]] = defaultdict(set)
    records = list(product(*(range(attribute.n_values) for attribute in domain)))
    for table in combinations_with_replacement(records, n_records):
        for rows in publish(Microdata(np.array(table, dtype=np.int32), domain)):
            found[tuple(shown for shown, _ in rows)].add(rows)
    return [Publication(domain, rows, frozenset(behind)) for rows, behind in found.items()]


def in_classes(method: str, *, is_refined: bool = False, **options: Any) -> Publish:
    """Publish generalized rows."""
    request = request_of("generalized", method=method, k=K, options=options)

    def publish(data: Microdata) -> Iterator[Rows]:
        classes = getattr(generalized_methods, method)(data, request, UNLIMITED).result
        if is_refined:
            random = generalized_methods.new_random()
            classes = refine(data, classes, K, random=random).class_of_record
        shown = _shown(cells_of_classes(data, classes), int(classes.max()) + 1)
        yield _sorted(
            (shown[number], one) for number, one in zip(classes, _records(data), strict=True)
        )

    return publish


def with_patterns(method: str, **options: Any) -> Publish:
    """Publish suppressed rows; left-over records have none."""
    request = request_of("suppressed", method=method, k=K, options=options)

    def publish(data: Microdata) -> Iterator[Rows]:
        patterns = all_patterns(len(data.attributes))

        def run(random: Any) -> Rows:
            rows = SuppressibleRows(data.codes, patterns, random)
            return shown(data, getattr(suppressed_methods, method)(rows, request, UNLIMITED).result)

        for rows, _ in every_outcome(run):
            yield rows

    def shown(data: Microdata, found: Suppression) -> Rows:
        cells = [
            tuple(
                tuple(range(attribute.n_values)) if star else (code,)
                for code, star, attribute in zip(record, stars, data.attributes, strict=True)
            )
            for record, stars in zip(_records(data), found.suppressed.tolist(), strict=True)
        ]
        is_shown = (found.pattern_of_record != LEFT_OVER).tolist()
        return _sorted(compress(zip(cells, _records(data), strict=True), is_shown))

    return publish


def along_matches(method: str, *, k: int = K, **options: Any) -> Publish:
    """Publish freeform rows: each record may be drawn for any row of a perfect matching."""
    request = request_of("freeform", method=method, k=k, options=options)

    def publish(data: Microdata) -> Iterator[Rows]:
        found = getattr(freeform_methods, method)(data, request, UNLIMITED).result
        shown = _shown(cells_of_matches(data, found.matches), data.n_records)
        matched = [set(own) for own in found.matches.tolist()]
        records = _records(data)
        if method == "k_concealment":  # whose records keep their own rows
            matched = [{row} for row in range(data.n_records)]
        for order in permutations(range(data.n_records)):
            if all(one in matched[row] for row, one in enumerate(order)):
                yield _sorted((shown[row], records[one]) for row, one in enumerate(order))

    return publish


def leave(publication: Publication, deduce: Deduce) -> TableCounts:
    """Count what the attack leaves of a publication, and refuse it if it excludes what there is."""
    classes = sorted(set(publication.rows))
    number = {shown: i for i, shown in enumerate(classes)}
    covering = covering_of(classes, publication.domain)
    sizes = np.bincount([number[shown] for shown in publication.rows])
    deduced = deduce(covering, sizes)
    if deduced.preference is not None:
        for rows in publication.remaining:
            for shown, record in rows:
                may_be = covering.classes_of(np.array(record))
                assert number[shown] in deduced.preference.remaining(may_be), (shown, record)
    return count_tables(covering, sizes, deduced, np.random.default_rng(0))


def covering_of(classes: list[Shown], domain: Domain) -> RowClasses:
    """Read cells as an attacker does."""
    cells: list[Ranges | Sets] = []
    for attribute, column in zip(domain, zip(*classes, strict=True), strict=True):
        if attribute.is_numeric:
            low, high = (np.array([end(cell) for cell in column], np.int32) for end in (min, max))
            cells.append(Ranges(low, high, np.zeros(len(column), dtype=np.bool_)))
        else:
            ends = np.cumsum([len(cell) for cell in column])
            cells.append(Sets(np.concatenate([*map(np.array, column)]).astype(np.int32), ends))
    numbers = np.repeat(np.arange(len(classes))[:, np.newaxis], len(domain), axis=1)
    return RowClasses(cells, numbers, [attribute.n_values for attribute in domain])


def tight(covering: RowClasses, sizes: Any) -> Deductions:
    """Deduce from any generalized rows."""
    return Deductions(K, np.ones(len(covering.n_codes), dtype=np.bool_))


def uncut(covering: RowClasses, sizes: Any) -> Deductions:
    """Deduce from Mondrian's classes."""
    return Deductions(K, np.ones(len(covering.n_codes), dtype=np.bool_), is_uncut=True)


def matched(covering: RowClasses, sizes: Any, k: int = K) -> Deductions:
    """Deduce from rows that match k records each."""
    return replace(tight(covering, sizes), k=k, matches=MatchCount.EXACTLY_K)


def loosely_matched(covering: RowClasses, sizes: Any) -> Deductions:
    """Deduce from rows that match K records or more."""
    return replace(tight(covering, sizes), matches=MatchCount.AT_LEAST_K)


def in_turn(covering: RowClasses, sizes: Any) -> Deductions:
    """Deduce from patterns that were tried in turn."""
    return _by_patterns(covering, sizes, is_greedy=True)


def at_least_cost(covering: RowClasses, sizes: Any) -> Deductions:
    """Deduce from patterns of the least cost."""
    return _by_patterns(covering, sizes, is_greedy=False)


def in_an_order_that_is_drawn(covering: RowClasses, sizes: Any) -> Deductions:
    """Deduce from patterns that were tried in turn, nobody knows in which."""
    return _by_patterns(covering, sizes, is_greedy=True, is_drawn=True)


def _by_patterns(covering: RowClasses, sizes: Any, **known: bool) -> Deductions:
    n_codes = covering.n_codes
    widths = [covering.widths_of(a) for a in range(len(n_codes))]
    firsts = [
        [int(np.flatnonzero(covering.values_of(g, a))[0]) for g in range(covering.n_classes)]
        for a in range(len(n_codes))
    ]
    numbers = [np.where(w > 1, n, f) for w, n, f in zip(widths, n_codes, firsts, strict=True)]
    read = RowClasses([single_values(n) for n in n_codes], np.column_stack(numbers), n_codes)
    return deduce_from_patterns(read, sizes, all_patterns(len(n_codes)), K, **known)


def _records(data: Microdata) -> list[Record]:
    return [tuple(record) for record in data.codes.tolist()]


def _shown(columns: Any, n_cells: int) -> list[Shown]:
    cells: list[list[Cell]] = []
    for column in columns:
        if isinstance(column, Ranges):
            ends = zip(column.low.tolist(), column.high.tolist(), strict=True)
            cells.append([tuple(range(low, high + 1)) for low, high in ends])
        else:
            cells.append([tuple(one.tolist()) for one in np.split(column.codes, column.ends[:-1])])
    return [tuple(column[number] for column in cells) for number in range(n_cells)]


def _sorted(rows: Any) -> Rows:
    return tuple(sorted(rows))


class Case(NamedTuple):
    """What is published, what the attack deduces, and of how many records."""

    publish: Publish
    deduce: Deduce
    n_records: int
    domain: Domain = LARGE


CASES = {
    "generalized, mondrian": Case(in_classes("mondrian"), uncut, 5),
    "generalized, mondrian, relaxed cuts": Case(in_classes("mondrian", cut="relaxed"), tight, 5),
    "generalized, initial": Case(in_classes("initial"), tight, 5),
    "generalized, greedy_search": Case(in_classes("greedy_search"), tight, 5),
    "generalized, greedy_search, refined": Case(
        in_classes("greedy_search", is_refined=True), tight, 5
    ),
    "generalized, k_member": Case(in_classes("k_member"), tight, 5),
    "generalized, split_carry": Case(in_classes("split_carry"), tight, 4),
    "generalized, optimal": Case(in_classes("optimal"), tight, 4, SMALL),
    "suppressed, greedy": Case(with_patterns("greedy"), in_turn, 5),
    "suppressed, greedy, in an order that is drawn": Case(
        with_patterns("greedy", order="drawn"), in_an_order_that_is_drawn, 4
    ),
    "suppressed, optimal": Case(with_patterns("optimal"), at_least_cost, 5, SMALL),
    "freeform, sort_greedy, not refined": Case(
        along_matches("sort_greedy", refine=False), matched, 4
    ),
    "freeform, sort_greedy": Case(along_matches("sort_greedy"), matched, 4),
    "freeform, sort_greedy, k = 3": Case(
        along_matches("sort_greedy", k=3), partial(matched, k=3), 5
    ),
    "freeform, optimal": Case(along_matches("optimal"), matched, 4, SMALL),
    "freeform, ring": Case(along_matches("ring"), matched, 4),
    "freeform, k_concealment": Case(
        along_matches("k_concealment", allow_weaker=True), loosely_matched, 4
    ),
}


def main() -> None:
    """Print what remains: means over the cells of all publications, each counted once."""
    print("|published|records|within the cells|attack|exactly|known|")
    print("|---|---|---|---|---|---|")
    for name, (publish, deduce, n_records, domain) in CASES.items():
        found = [one for one in publications(publish, n_records, domain) if one.n_cells]
        within = sum(one.within for one in found)
        left = sum(leave(one, deduce).remaining for one in found)
        bits = (within, left, sum(one.exact for one in found))
        n_cells = sum(one.n_cells for one in found)
        known = sum(one.n_known for one in found) / n_cells
        values = "|".join(f"{2 ** (one / n_cells):.2f}" for one in bits)
        print(f"|{name}|{n_records}|{values}|{known:.0%}|")


if __name__ == "__main__":
    main()
