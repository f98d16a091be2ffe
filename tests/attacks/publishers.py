"""What each kind publishes of a small table, by its own methods and without a database.

A publication is given in one form only: without the numbers and the order of buckets and rows,
which are drawn at random. Tables are described by their quasi-identifiers, which the attacker
knows; records with equal ones cannot be told apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from kanon_db.algorithms import generalization
from kanon_db.algorithms.bucketization import FPrimePrivacy, assign_randomly
from kanon_db.algorithms.bucketization.buckets import BucketSetting
from kanon_db.algorithms.bucketization.cell_assignment import (
    assign_in_cells,
    assign_jointly_in_cells,
)
from kanon_db.algorithms.bucketization.joint_assignment import (
    JointPlan,
    SensitiveCombinations,
    deal_randomly,
)
from kanon_db.algorithms.freeform import cells as cells_of
from kanon_db.algorithms.freeform import draw_assignments
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED
from kanon_db.algorithms.recoding import Constraint, Microdata, Ranges, Sets, cells_of_classes
from kanon_db.algorithms.recoding.microdata import Attribute
from kanon_db.algorithms.releases.m_invariance import NEW, renew
from kanon_db.algorithms.suppression import all_patterns
from kanon_db.declaration import read_request
from kanon_db.errors import IneligibleError
from kanon_db.publications.buckets import methods as bucket_methods
from kanon_db.publications.buckets.assignment_methods import CellSearch
from kanon_db.publications.buckets.methods import BucketPlan, CombinedValues, SensitiveValues
from kanon_db.publications.freeform import methods as freeform_methods
from kanon_db.publications.generalized import methods as generalized_methods
from kanon_db.publications.registry import KINDS
from kanon_db.publications.suppressed import methods as suppressed_methods
from kanon_db.publications.suppressed.methods import SuppressibleRows
from kanon_db.randomness import SecureRandom
from tests.attacks.posterior import Outcomes, Publish, Table

People = tuple[tuple[int, ...], ...]
"""The quasi-identifiers of each person, as codes from 0."""

Thresholds = tuple[Fraction, ...]
Assign = Callable[[CodeArray, CodeArray, FPrimePrivacy, str, Any], AnyIntArray]
"""Finds a bucket for each record: from its quasi-identifiers, the sensitive values as codes, their
thresholds, the name of the method, and a source of randomness."""

MAX_BUCKET_SIZE = 50


def at_random(
    qi_codes: CodeArray, codes: CodeArray, privacy: FPrimePrivacy, method: str, random: Any
) -> AnyIntArray:
    counts = np.bincount(codes, minlength=len(privacy.thresholds))
    plan = _plan(method, tuple(counts.tolist()), privacy)
    return assign_randomly(codes, counts, plan.limits, plan.setting, random)


def in_cells(
    qi_codes: CodeArray, codes: CodeArray, privacy: FPrimePrivacy, method: str, random: Any
) -> AnyIntArray:
    is_anatomy = method == "anatomy"

    def search(counts: IntArray, thresholds: FPrimePrivacy) -> BucketSetting:
        return _plan(method, tuple(counts.tolist()), thresholds).setting

    def tightened(factor: Fraction) -> FPrimePrivacy:
        stricter = privacy.tightened(factor)
        return stricter.diverse() if is_anatomy else stricter

    found = assign_in_cells(
        qi_codes, codes, tightened, codes.size if is_anatomy else MAX_BUCKET_SIZE, search, random,
        least=1,
    )  # fmt: skip
    return found.bucket_of_record


def m_invariantly(
    qi_codes: CodeArray, codes: CodeArray, privacy: FPrimePrivacy, method: str, random: Any
) -> AnyIntArray:
    new = np.full(codes.size, NEW)
    found = renew(codes, new, (), privacy.corresponding_l(), random)
    if found.waits.any():
        raise IneligibleError("no publication can satisfy l-diversity")
    return found.bucket_of


ASSIGNMENTS: dict[str, Assign] = {
    "cells": in_cells, "random": at_random, "m_invariant": m_invariantly,
}  # fmt: skip
"""Every declared assignment; a new one is added here, and to the next list if it is transparent."""

TRANSPARENT = ["random", "cells"]
"""Assignments whose bounds hold against someone who knows the method, for all thresholds; that of
m_invariant, which is for l-diversity, is examined in ``test_m_invariance.py``."""


def declared(kind: str, parameter: str = "method") -> list[str]:
    """List what can be chosen for a parameter."""
    (found,) = [item for item in KINDS[kind].operation.parameters if item.name == parameter]
    return list(found.type.choices)


def in_buckets(people: People, thresholds: Thresholds, assign: Assign, method: str) -> Publish:
    """Publish buckets: whose quasi-identifiers, and which values."""
    privacy, qi_codes = FPrimePrivacy(thresholds), np.array(people, dtype=np.int32)

    def publish(table: Table, random: Any) -> Hashable:
        codes = np.array(table, dtype=np.int32)
        buckets = assign(qi_codes, codes, privacy, method, random).tolist()
        return _without_numbers(zip(buckets, people, table, strict=True))

    return publish


@dataclass(frozen=True)
class Combinations:
    """The values of each combination, and the thresholds of each attribute's values."""

    values: tuple[tuple[int, ...], ...]
    thresholds: tuple[Thresholds, ...]

    def of(self, counts: Sequence[int]) -> SensitiveCombinations:
        """Describe a table with so many records of each."""
        found = SensitiveCombinations(
            np.array(counts, dtype=np.int64),
            np.array(self.values, dtype=np.int64),
            tuple(map(FPrimePrivacy, self.thresholds)),
        )
        return found.having(found.counts)


JointAssign = Callable[[CodeArray, CodeArray, Combinations, str, Any], AnyIntArray]
"""As :data:`Assign`, of records with combinations of values."""


def jointly_at_random(
    qi_codes: CodeArray, codes: CodeArray, data: Combinations, method: str, random: Any
) -> AnyIntArray:
    counts = np.bincount(codes, minlength=len(data.values))
    return deal_randomly(codes, _joint_plan(method, tuple(counts.tolist()), data), random)


def jointly_in_cells(
    qi_codes: CodeArray, codes: CodeArray, data: Combinations, method: str, random: Any
) -> AnyIntArray:
    values = np.array(data.values)
    counts = np.bincount(codes, minlength=len(values))
    request = request_of(
        "buckets", method=method, privacy={"l": 2}, max_bucket_size=MAX_BUCKET_SIZE
    )
    whole = data.of(counts.tolist())
    job: Any = SimpleNamespace(request=request, pulse=lambda _: UNLIMITED)
    search = CellSearch(job, CombinedValues(whole.counts, whole.values, whole.privacies))

    def plan(cell: SensitiveCombinations) -> JointPlan:
        combinations = Combinations(
            tuple(map(tuple, cell.values.tolist())),
            tuple(privacy.thresholds for privacy in cell.privacies),
        )
        return _joint_plan(method, tuple(cell.counts.tolist()), combinations)

    found = assign_jointly_in_cells(
        qi_codes, codes, values, search.tightened_each, search.max_bucket_size, plan, random,
        least=1,
    )  # fmt: skip
    return found.bucket_of_record


def jointly_in_halves_or_merged(
    qi_codes: CodeArray, codes: CodeArray, data: Combinations, method: str, random: Any
) -> AnyIntArray:
    """Cut the table in two, but not if a half is not eligible: what must not be done."""
    half = codes.size // 2
    order = np.lexsort(qi_codes.T[::-1])
    cells = [order[:half], order[half:]]
    for cell in cells:
        part = data.of(np.bincount(codes[cell], minlength=len(data.values)).tolist())
        each = zip(part.privacies, part.counts_of_values, strict=True)
        if any(privacy.ineligible(counts).any() for privacy, counts in each):
            cells = [order]
            break
    buckets = np.zeros(codes.size, dtype=np.int64)
    for cell in cells:
        found = jointly_at_random(qi_codes[cell], codes[cell], data, method, random)
        buckets[cell] = buckets.max() + 1 + found
    return buckets


JOINT_ASSIGNMENTS: dict[str, JointAssign] = {
    "random": jointly_at_random, "cells": jointly_in_cells,
}  # fmt: skip
"""Every declared assignment that takes several sensitive attributes."""


def jointly_in_buckets(
    people: People, data: Combinations, assign: JointAssign, method: str
) -> Publish:
    """Publish buckets of records whose values are combinations."""
    qi_codes = np.array(people, dtype=np.int32)

    def publish(table: Table, random: Any) -> Hashable:
        codes = np.array(table, dtype=np.int32)
        buckets = assign(qi_codes, codes, data, method, random).tolist()
        return _without_numbers(zip(buckets, people, table, strict=True))

    return publish


def in_halves_or_merged(
    qi_codes: CodeArray, codes: CodeArray, privacy: FPrimePrivacy, method: str, random: Any
) -> AnyIntArray:
    """Cut the table in two, but not if a half is not eligible: what must not be done.

    That the halves were merged tells that one of them was not eligible.
    """
    half = codes.size // 2
    order = np.lexsort(qi_codes.T[::-1])
    cells = [order[:half], order[half:]]
    m = len(privacy.thresholds)
    if any(privacy.ineligible(np.bincount(codes[cell], minlength=m)).any() for cell in cells):
        cells = [order]
    buckets = np.zeros(codes.size, dtype=np.int64)
    for cell in cells:
        found = at_random(qi_codes[cell], codes[cell], privacy, method, random)
        buckets[cell] = buckets.max() + 1 + found
    return buckets


def in_classes(
    people: People, method: str, k: int, thresholds: Thresholds | None = None
) -> tuple[Publish, Callable[[Table], list[Hashable]]]:
    """Publish generalized rows; also tell each person's cells.

    Methods are given no sensitive values, so classes are found once for all tables; what they leave
    to chance is drawn once, and known from then on. Constraints are enforced for each table.
    """
    microdata = microdata_of(people)
    request = request_of("generalized", method=method, k=k)
    found = getattr(generalized_methods, method)(microdata, request, UNLIMITED).result

    def cells_of_people(table: Table) -> list[Hashable]:
        classes, constraint = found, None
        if thresholds is not None:
            codes = np.array(table, dtype=np.int64)
            constraint = Constraint(codes, len(thresholds), f_prime=FPrimePrivacy(thresholds))
            constraint.check_eligible()
            classes = generalization.enforce(microdata, classes, k, constraint).class_of_record
        classes = generalization.refine(
            microdata, classes, k, random=np.random.default_rng(0), constraint=constraint
        ).class_of_record
        shown = _shown(cells_of_classes(microdata, classes), int(classes.max()) + 1)
        return [shown[number] for number in classes.tolist()]

    if thresholds is None:
        known = cells_of_people(())
        return rows(lambda _: known), lambda _: known
    return rows(cells_of_people), cells_of_people


def with_suppressed_cells(people: People, method: str, k: int) -> tuple[Publish, list[Hashable]]:
    """Publish suppressed rows; also tell what each person's row shows.

    The method is given no sensitive values: it runs once for all tables.
    """
    codes = np.array(people, dtype=np.int32)
    data = SuppressibleRows(codes, all_patterns(codes.shape[1]), SecureRandom())
    request = request_of("suppressed", method=method, k=k)
    found = getattr(suppressed_methods, method)(data, request, UNLIMITED).result
    shown: list[Hashable] = [tuple(row) for row in np.where(found.suppressed, -1, codes).tolist()]
    return rows(lambda _: shown), shown


def along_a_graph(people: People, method: str, k: int) -> tuple[Publish, CodeArray]:
    """Publish freeform rows, the graph and its split into assignments being known.

    Rows are numbered like the records whose cells they show, so that even rows with the same cells
    are told apart. Of the randomness, only the choice of an assignment is left.
    """
    allowed = {"allow_weaker": True} if method == "k_concealment" else {}
    request = request_of("freeform", method=method, k=k, options=allowed)
    found = getattr(freeform_methods, method)(microdata_of(people), request, UNLIMITED).result

    def publish(table: Table, random: Any) -> Hashable:
        row_of_person = draw_assignments(found, random).cells
        values = np.empty(len(table), dtype=np.int64)
        values[row_of_person] = table
        return tuple(values.tolist())

    return publish, found.matches


class KnownSplit(Outcomes):
    """The randomness of :func:`along_a_graph`: the split is known, the choice of k is not."""

    def __init__(self, k: int, seed: int) -> None:
        super().__init__()
        self._k, self._seed = k, seed
        self._walks = np.random.default_rng(seed)

    def bytes(self, length: int) -> bytes:
        """Return what the walks go by, or the eight bytes that choose one of k assignments."""
        return (
            self.choose(self._k).to_bytes(8, "little") if length == 8 else self._walks.bytes(length)
        )

    def advance(self) -> bool:
        """Walk the same ways again."""
        self._walks = np.random.default_rng(self._seed)
        return super().advance()


def rows(shown_of_people: Callable[[Table], Sequence[Hashable]]) -> Publish:
    """Publish rows: what they show, and their values."""

    def publish(table: Table, random: Any) -> Hashable:
        shown = shown_of_people(table)
        return _without_numbers((cell, cell, x) for cell, x in zip(shown, table, strict=True))

    return publish


def cells_of_matches(people: People, matches: CodeArray) -> list[Hashable]:
    """Tell the cells of each freeform row."""
    return _shown(cells_of(microdata_of(people), matches), len(people))


def microdata_of(people: People) -> Microdata:
    """Describe people by numeric quasi-identifiers."""
    codes = np.array(people, dtype=np.int32)
    numbers = [np.arange(n + 1, dtype=np.float64) for n in codes.max(axis=0).tolist()]
    attributes = [Attribute(x.size, x, 0.0, max(1.0, float(x[-1]))) for x in numbers]
    return Microdata(codes, tuple(attributes))


def _without_numbers(members: Iterable[tuple[Hashable, Any, int]]) -> Hashable:
    """Gather members by a number that is not published: whom, and which values, together have."""
    gathered: dict[Hashable, tuple[list[Any], list[int]]] = defaultdict(lambda: ([], []))
    for number, whom, value in members:
        gathered[number][0].append(whom)
        gathered[number][1].append(value)
    return tuple(
        sorted((tuple(sorted(whom)), tuple(sorted(values))) for whom, values in gathered.values())
    )


def _shown(columns: Iterable[Ranges | Sets], n_cells: int) -> list[Hashable]:
    shown = []
    for column in columns:
        assert isinstance(column, Ranges)
        shown.append(list(zip(column.low.tolist(), column.high.tolist(), strict=True)))
    return [tuple(column[number] for column in shown) for number in range(n_cells)]


def request_of(kind: str, **given: Any) -> Any:
    named = {"source": "data.people", "publication": "p", **given}
    return read_request(KINDS[kind].operation.request, named)


@cache
def _plan(method: str, counts: tuple[int, ...], privacy: FPrimePrivacy) -> BucketPlan:
    """Find the setting: it depends on nothing but the public counts."""
    request = request_of(
        "buckets", method=method, privacy={"l": 2}, max_bucket_size=MAX_BUCKET_SIZE
    )
    data = SensitiveValues(np.array(counts, dtype=np.int64), privacy)
    found: BucketPlan = getattr(bucket_methods, method)(data, request, UNLIMITED).result
    return found


@cache
def _joint_plan(method: str, counts: tuple[int, ...], data: Combinations) -> JointPlan:
    """Find buckets: they depend on nothing but the public counts of combinations."""
    request = request_of(
        "buckets", method=method, privacy={"l": 2}, max_bucket_size=MAX_BUCKET_SIZE
    )
    found: JointPlan = getattr(bucket_methods, method)(data.of(counts), request, UNLIMITED).result
    return found
