"""Suppresses cells at the lowest cost, by integer linear programming ([PG] Section 2.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import ceil, isfinite
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import (
    AnyIntArray,
    BoolArray,
    CodeArray,
    FloatArray,
    IntArray,
    components,
    numbered,
)
from kanon_db.algorithms.ground.computation import UNLIMITED, Proof, Pulse
from kanon_db.algorithms.ground.solver import (
    HIGHS,
    LinearModel,
    Solution,
    run,
    solve,
    solve_problem,
    values_of,
)
from kanon_db.algorithms.suppression.greedy_suppression import (
    LEFT_OVER,
    RowTypes,
    Suppression,
    check_types,
    donations,
    greedy_on_types,
    identical_rows,
)
from kanon_db.algorithms.suppression.pattern_vectors import PatternSet
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError, InvalidParameterError


@dataclass(frozen=True, eq=False)
class SuppressionProgram:
    """Assigns records of groups to instances of patterns, each of which gets none or at least k.

    **Source:** [PG] Section 2.2, Eq. (5) to (8); deviations: see :func:`.optimal`.
    """

    # (o,): the group and the instance of each option; at least one option, ordered by group, then
    # cost
    group: IntArray
    instance: IntArray
    costs: IntArray  # (o,): cost of sending one record
    counts: IntArray  # (g,): records of each group
    k: int  # Fewest records of an instance in use
    is_free: BoolArray  # (i,): which instances may get any number, as others send them k records

    @property
    def is_cheapest(self) -> BoolArray:
        """Which options are the first of their group."""
        return np.append(True, self.group[1:] != self.group[:-1])

    @property
    def least_cost(self) -> int:
        """Cost of sending each record where it is cheapest."""
        cheapest = self.is_cheapest
        return int(self.costs[cheapest] @ self.counts[self.group[cheapest]])

    def solve_relaxation(self, pulse: Pulse) -> int:
        """Bound the cost from below by the linear relaxation."""
        model = self._model(~self.is_free, self.instance)
        highs = replace(model, is_whole=np.zeros_like(model.is_whole)).load_solver(gap=0)
        run(highs, pulse)
        if values_of(highs) is None:
            return self.least_cost
        return ceil(highs.getInfo().objective_function_value - _TOLERANCE)

    def cost(self, flows: IntArray) -> int:
        """Cost of sending ``flows`` records by each option."""
        return int(self.costs @ flows)

    def better(self, known: IntArray | None, values: FloatArray | None) -> IntArray | None:
        """Return the solver's values if they are valid and cost less, else what is known."""
        if values is None:
            return known
        # The solver computes in floating point; its result is checked in integers.
        flows = values.astype(np.int64)
        costs_less = known is None or self.cost(flows) < self.cost(known)
        return flows if costs_less and self.are_valid(flows) else known

    def are_valid(self, flows: IntArray) -> bool:
        """Tell whether every record has its place, and every instance none or k records."""
        groups, of_group = np.unique(self.group, return_inverse=True)
        sent, received = np.zeros_like(groups), np.zeros(self.is_free.size, dtype=np.int64)
        np.add.at(sent, of_group, flows)
        np.add.at(received, self.instance, flows)
        few = (received > 0) & (received < self.k)
        return bool(
            (flows >= 0).all()
            and (sent == self.counts[groups]).all()
            and not (few & ~self.is_free).any()
        )

    def of_part(self, part: IntArray, is_free: BoolArray) -> SuppressionProgram:
        """State the program of some options, in which all options of their groups are."""
        group, instance, costs = self.group[part], self.instance[part], self.costs[part]
        return replace(self, group=group, instance=instance, costs=costs, is_free=is_free)

    def solve(self, start: IntArray | None, pulse: Pulse) -> Solution:
        """Solve it by HiGHS, from the records of each option if some are given."""
        instances, place = np.unique(self.instance, return_inverse=True)
        is_bound = ~self.is_free[instances]
        n_bound = int(is_bound.sum())
        model = self._model(is_bound, place)
        values = None
        if start is not None:
            in_use = np.zeros(instances.size, dtype=np.int64)
            in_use[place[start > 0]] = 1
            values = np.append(in_use[is_bound], start).astype(np.float64).tolist()
        # Costs are whole numbers, so that a gap of less than 1 is none.
        answer = solve(model.load_solver(gap=0.99), pulse, values)
        if answer.values is None:
            return answer
        rounded = np.rint(answer.values)
        if not self.are_valid(rounded[n_bound:].astype(np.int64)):
            # With all u_jl fixed the rest is a transportation problem, solved in moments: the
            # simplex method ends in a vertex, where all x_ij are whole numbers.
            is_u = np.arange(rounded.size) < n_bound
            highs = replace(
                model,
                lower=np.where(is_u, rounded, model.lower),
                upper=np.where(is_u, rounded, model.upper),
                is_whole=np.zeros_like(is_u),
            ).load_solver(gap=0)
            highs.setOptionValue("solver", "simplex")
            # However late it is: a second at most after the time is over.
            highs.setOptionValue("time_limit", max(pulse.seconds_left, 1.0))
            run(highs, pulse)
            vertex = values_of(highs)
            if vertex is None:
                return answer._replace(values=None)
            rounded = np.rint(vertex)
        return answer._replace(values=rounded[n_bound:])

    def _model(self, is_bound: BoolArray, place: IntArray) -> LinearModel:
        """State the program: the variables are the u_jl of bound instances, then the x_ij."""
        n_bound = int(is_bound.sum())
        # Of 2k - 1 records, k are better off where it is cheapest.
        most = max(2 * self.k - 2, 0)
        limits = self.counts[self.group]
        limits = np.where(self.is_cheapest, limits, np.minimum(limits, most))
        x = n_bound + np.arange(limits.size)
        groups, group_row = np.unique(self.group, return_inverse=True)
        number = np.cumsum(is_bound) - 1
        tied = np.flatnonzero(is_bound[place])
        u = number[place[tied]]
        instance_row = groups.size + np.arange(n_bound)
        tied_row = groups.size + n_bound + np.arange(tied.size)
        # Row, variable and coefficient of each term.
        terms = [
            (group_row, x, np.ones_like(x)),  # Eq. (8)
            (instance_row[u], x[tied], np.ones_like(tied)),  # Eq. (7)
            (instance_row, np.arange(n_bound), np.full(n_bound, -self.k)),
            (tied_row, x[tied], np.ones_like(tied)),  # Eq. (6)
            (tied_row, u, -limits[tied]),
        ]
        rows, columns, coefficients = (np.concatenate(parts) for parts in zip(*terms, strict=True))
        order = np.argsort(rows, kind="stable")
        counts, none = self.counts[groups], np.zeros(n_bound, dtype=np.int64)
        return LinearModel(
            costs=np.append(none, self.costs),  # Eq. (5)
            lower=np.append(none, np.zeros_like(x)),
            upper=np.append(none + 1, limits),
            is_whole=np.arange(n_bound + x.size) < n_bound,
            row_lower=np.concatenate([counts, none, np.full(tied.size, -np.inf)]),
            row_upper=np.concatenate([counts, np.full(n_bound, np.inf), np.zeros(tied.size)]),
            rows=rows[order],
            columns=columns[order],
            coefficients=coefficients[order],
        )


def solve_paper_program(
    types: RowTypes, patterns: PatternSet, k: int, pulse: Pulse, solver: str
) -> Solution:
    """Solve the paper's program by a solver of PuLP's.

    The solution has no values where the solver's break a constraint.
    """
    from kanon_db.algorithms.programs import pattern_program

    stars, costs = patterns.stars, patterns.costs.tolist()
    program = pattern_program(types.codes, types.counts.tolist(), stars, costs, k)
    answer = solve_problem(program.problem, pulse, solver=solver)
    if answer.values is None:
        return answer
    x = program.whole_values("x")
    holds = (x >= 0).all() and (x.sum(axis=1) == types.counts).all()
    for sent, kept in zip(x.T, ~stars, strict=True):
        received = np.bincount(identical_rows(types.codes[:, kept]), sent)
        holds = holds and ((received == 0) | (received >= k)).all()
    return answer._replace(values=x.reshape(-1).astype(np.float64) if holds else None)


Formulation = Literal["reduced", "paper"]

MAX_CELLS = 2**24
"""Most row types times patterns; larger programs are out of reach of any solver."""

_UNUSABLE = -1
_CELLS_PER_HEARTBEAT = 2**16
_COLUMNS_PER_HEARTBEAT = 4
_REGION = 4000
"""Options of a region that is solved while all other records stay, as few as take a second."""

_SHARE_OF_PART = 0.5  # of the time that is left, at least
_SHARE_OF_REGIONS = 0.25  # of the time of a part that is not solved by then
_IDLE_TURNS = 3  # without a gain, after which regions are given up
_TOLERANCE = 1e-4  # of the solver's bound, in units of cost, which are whole


@dataclass(frozen=True, eq=False)
class OptimalSuppression:
    """A suppression, and how close to the optimum it is known to be.

    Parameters
    ----------
    suppression : Suppression
        Without left-over records.
    proof : Proof
        Cost of the suppression, which is the sum of the weights of its suppressed cells, and a
        bound on that of any suppression without left-over records.
    """

    suppression: Suppression
    proof: Proof


def optimal(
    codes: npt.ArrayLike,
    patterns: PatternSet,
    k: int,
    *,
    formulation: Formulation = "reduced",
    solver: str = HIGHS,
    on_program: Callable[[int], None] | None = None,
    pulse: Pulse = UNLIMITED,
) -> OptimalSuppression:
    """Suppress cells at the lowest cost so that every combination of kept cells occurs k times.

    Every record, also every fully suppressed one, shares what is kept of it with at least k - 1
    others.

    Parameters
    ----------
    codes : array_like of int, shape (n_records, m)
        One code for each quasi-identifier of each record; equal values have equal codes.
    patterns : PatternSet
        Allowed patterns of the m columns.
    k : int
        Fewest records that share what is kept of them, at least 1.
    formulation : {"reduced", "paper"}
        The program to solve: the paper's, reduced as described in the notes, or as the paper states
        it, for some hundreds of row types.
    solver : str
        PuLP's name of the solver of the formulation ``paper``.
    on_program : callable, optional
        Called with the number of variables before an integer program is stated, which takes most of
        the memory; what it raises ends the work. Not called where nothing is left to solve.
    pulse : Pulse
        Its time limit counts everything from when it was made. Beaten every few milliseconds; what
        that raises ends the work. Large programs are solved in a process of their own, which is
        killed when time is over, or what the pulse raises.

    Returns
    -------
    OptimalSuppression
        The best suppression found, with the bound proven when the time ran out.

    Raises
    ------
    InfeasibleError
        If no suppression by these patterns exists, or none was found in time.
    InvalidParameterError
        If ``k`` is less than 1, ``formulation`` is unknown, ``codes`` and ``patterns`` do not
        match, row types times patterns exceed :data:`MAX_CELLS`, or the table is too large for the
        formulation ``paper``.

    Notes
    -----
    **Source:** [PG] Section 2.2, Eq. (5) to (8). The formulation ``paper`` is that program as it
    is: :func:`~kanon_db.algorithms.programs.pattern_program`.

    HiGHS gets ``reduced`` as arrays: PuLP would state it for seconds, deaf to a cancel.

    Deviations of ``reduced``, none of which changes the optimum:

    - Instances of patterns with fewer than k records are omitted, and so are those with exactly
      the records of a cheaper instance. Two instances have the same records if and only if these
      agree on the same columns, and one record is in both.
    - Row types with the same instances are merged.
    - Where nothing but one instance that all records can go to links parts of the table, each is
      solved on its own; then all together, if fewer than k records went there.
    - A group sends at most 2k - 2 records to an instance that is not its cheapest: of more, k would
      be better off there.
    - Eq. (6), one constraint per instance with the coefficient n, is replaced by one per row type
      and instance with the type's number of records, which makes the linear relaxation far
      tighter.
    - Only the u_jl are declared as integers: for fixed u_jl, the x_ij solve a transportation
      problem, whose vertices are integral.
    - The program starts from the greedy suppression with its left-over records joined to others. If
      that costs no more than the cheapest instance of each record, nothing is left to solve.
    """
    if formulation not in get_args(Formulation):
        raise InvalidParameterError(
            "unknown formulation", hint=f"use one of {', '.join(get_args(Formulation))}"
        )
    types = check_types(codes, patterns, k)
    n_cells = types.counts.size * len(patterns)
    if n_cells > MAX_CELLS:
        raise InvalidParameterError(
            "the table is too large for the method optimal",
            detail=f"{types.counts.size:,} row types, {len(patterns):,} patterns; the limit for "
            f"their product is {MAX_CELLS:,}",
            hint="use the method greedy, or fewer patterns",
        )
    if not types.n_records:
        empty = Suppression(patterns, np.zeros(0, dtype=np.int64))
        return OptimalSuppression(empty, Proof.of(0, 0))
    unit = Fraction(1, patterns.cost_unit)
    if formulation == "paper":
        sent, bound = _solve_as_stated(types, patterns, k, on_program, pulse, solver)
        by_type = np.argsort(types.type_of_record, kind="stable")
        pattern_of_record = np.empty(types.n_records, dtype=np.int64)
        numbers = np.tile(np.arange(len(patterns)), types.counts.size)
        pattern_of_record[by_type] = np.repeat(numbers, sent)
        cost = int(patterns.costs[numbers] @ sent)
        suppression = Suppression(patterns, pattern_of_record)
        return OptimalSuppression(suppression, Proof.of(cost, bound, unit))
    options = PatternOptions.of(types, patterns, k, pulse)
    start = _greedy_start(types, patterns, k, options, pulse)
    program = options.program(k)
    flows, bound = start, program.least_cost
    if start is None or program.cost(start) > bound:
        codes = np.empty((options.counts.size, types.codes.shape[1]), dtype=np.int32)
        codes[options.group_of_type] = types.codes
        flows, bound = _solve(program, codes, start, pulse, on_program)
    if flows is None:
        raise _none_in_time(types, k, pulse)
    suppression = Suppression(patterns, options.pattern_of_record(types, flows))
    return OptimalSuppression(suppression, Proof.of(program.cost(flows), bound, unit))


@dataclass(frozen=True, eq=False)
class PatternOptions:
    """The instances of patterns open to each group: all row types with the same instances.

    Options, pairs of a group and an instance, are ordered by group, then pattern.
    """

    group_of_type: IntArray  # (t,)
    counts: IntArray  # (g,): records of each group
    group: IntArray  # (o,)
    pattern: IntArray  # (o,)
    instance: IntArray  # (o,): consecutive from 0
    costs: IntArray  # (o,): of one record, in units of the pattern set

    @classmethod
    def of(cls, types: RowTypes, patterns: PatternSet, k: int, pulse: Pulse) -> PatternOptions:
        """List the options of a table; InfeasibleError if a record has none."""
        instances = usable_instances(types, patterns, k, pulse)
        n_stuck = int(types.counts[(instances == _UNUSABLE).all(axis=1)].sum())
        if n_stuck:
            raise InfeasibleError(
                "no suppression with these patterns exists",
                detail=f"{n_stuck:,} of {types.n_records:,} records share no allowed combination "
                f"of kept cells with k - 1 others, k = {k}, {len(patterns):,} patterns",
                hint="allow the pattern that suppresses every cell, or others with more stars, or "
                "lower k",
            )
        group_of_type = _types_alike(instances, pulse)
        counts = np.zeros(group_of_type.max() + 1, dtype=np.int64)
        np.add.at(counts, group_of_type, types.counts)
        of_group = np.empty((counts.size, len(patterns)), dtype=np.int64)
        of_group[group_of_type] = instances
        group, pattern = np.nonzero(of_group != _UNUSABLE)
        instance = of_group[group, pattern]
        used = np.zeros(instance.max() + 1, dtype=np.bool_)
        used[instance] = True
        number = np.cumsum(used) - 1
        costs = patterns.costs[pattern]
        return cls(group_of_type, counts, group, pattern, number[instance], costs)

    def program(self, k: int) -> SuppressionProgram:
        """State the program of all options."""
        is_free = np.zeros(self.instance.max() + 1, dtype=np.bool_)
        return SuppressionProgram(self.group, self.instance, self.costs, self.counts, k, is_free)

    def pattern_of_record(self, types: RowTypes, flows: IntArray) -> IntArray:
        """Share out the records of each group among its options."""
        by_group = np.argsort(self.group_of_type[types.type_of_record], kind="stable")
        patterns = np.empty(types.n_records, dtype=np.int64)
        patterns[by_group] = np.repeat(self.pattern, flows)
        return patterns


def usable_instances(types: RowTypes, patterns: PatternSet, k: int, pulse: Pulse) -> IntArray:
    """Find the instance of each pattern that a row type can go to, shape (t, p), or -1."""
    shape = (types.counts.size, len(patterns))
    instances = np.full(shape, _UNUSABLE)
    agreed = np.empty(shape, dtype=np.int64)
    n_instances = 0
    for position, kept in enumerate(~patterns.stars):
        pulse.beat()
        labels = identical_rows(types.codes[:, kept])
        n_records = np.bincount(labels, types.counts)
        usable = (n_records >= k)[labels]
        instances[usable, position] = n_instances + labels[usable]
        n_instances += n_records.size
        agreed[:, position] = _find_agreed_columns(types.codes, labels)[labels]
        # Differs from every set of columns, so that it equals none.
        agreed[~usable, position] = -1 - position
    # A row type is in one instance of each pattern: those that agree on the same columns have
    # the same records, so the first of them, the cheapest, suffices.
    n_rows = max(1, _CELLS_PER_HEARTBEAT // len(patterns))
    for start in range(0, shape[0], n_rows):
        pulse.beat()
        rows = slice(start, start + n_rows)
        order = np.argsort(agreed[rows], axis=1, kind="stable")
        ordered = np.take_along_axis(agreed[rows], order, axis=1)
        repeats = np.zeros(order.shape, dtype=np.bool_)
        np.put_along_axis(repeats, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
        instances[rows][repeats] = _UNUSABLE
    return instances


def _types_alike(instances: IntArray, pulse: Pulse) -> IntArray:
    """Give each distinct row of instances a number, a few columns at a time."""
    labels = np.zeros(instances.shape[0], dtype=np.int64)
    for start in range(0, instances.shape[1], _COLUMNS_PER_HEARTBEAT):
        pulse.beat()
        columns = instances[:, start : start + _COLUMNS_PER_HEARTBEAT] - _UNUSABLE
        labels = identical_rows(np.column_stack([labels, columns]))
    return labels


def _find_agreed_columns(codes: AnyIntArray, labels: IntArray) -> IntArray:
    """Find the columns that all row types of a label agree on, as one bit mask for each label."""
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(labels.max() + 1))
    masks = np.zeros(starts.size, dtype=np.int64)
    for column in codes.T:
        ordered = column[order]
        agree = np.minimum.reduceat(ordered, starts) == np.maximum.reduceat(ordered, starts)
        masks = masks << 1 | agree
    return masks


def _greedy_start(
    types: RowTypes,
    patterns: PatternSet,
    k: int,
    options: PatternOptions,
    pulse: Pulse,
) -> IntArray | None:
    """Make the greedy suppression valid, as records per option; None if that is not possible."""
    pattern_of_type = greedy_on_types(types, patterns, k, pulse=pulse)
    n_left_over = int(types.counts[pattern_of_type == LEFT_OVER].sum())
    if n_left_over:
        if not patterns.suppresses_fully:
            return None
        # Whole instances, the most expensive first, join the left-over records until there are k.
        last = len(patterns) - 1
        for position in range(last - 1, -1, -1):
            members = np.flatnonzero(pattern_of_type == position)
            labels = identical_rows(types.codes[members][:, ~patterns.stars[position]])
            sizes = np.bincount(labels, types.counts[members]).astype(np.int64)
            before = np.cumsum(sizes) - sizes
            joined = members[(n_left_over + before < k)[labels]]
            pattern_of_type[joined] = last
            n_left_over += int(types.counts[joined].sum())
            if n_left_over >= k:
                break
        pattern_of_type[pattern_of_type == LEFT_OVER] = last
    # Types of one group have the same instances, so the greedy heuristic treats them alike.
    pattern_of_group = np.empty_like(options.counts)
    pattern_of_group[options.group_of_type] = pattern_of_type
    chosen = options.pattern == pattern_of_group[options.group]
    flows = np.where(chosen, options.counts[options.group], 0)
    return flows if options.program(k).are_valid(flows) else None


def _solve(
    program: SuppressionProgram,
    codes: CodeArray,
    start: IntArray | None,
    pulse: Pulse,
    on_program: Callable[[int], None] | None,
) -> tuple[IntArray | None, int]:
    """Find the best known records per option, and a lower bound on the cost."""
    # An instance that is open to every record links what nothing else does.
    is_shared = np.bincount(program.instance) == program.counts.size
    linked = components(program.counts.size, *_links(program, ~is_shared[program.instance]))
    parts = _SeparateParts(program, codes, is_shared, _options_of(program, numbered(linked)))
    if on_program is not None:
        on_program(max(part.size for part in parts.options))
    flows, bound = parts.solve(start, pulse)
    if flows is not None and not program.are_valid(flows):
        flows = _with_enough_shared(program, flows, is_shared)
    if (flows is not None and program.cost(flows) <= bound) or pulse.is_over:
        return flows, bound
    if on_program is not None:
        on_program(program.group.size)
    everything = _SeparateParts(program, codes, program.is_free, [np.arange(program.group.size)])
    flows, least = everything.solve(flows, pulse)
    return flows, max(bound, least)


def _links(program: SuppressionProgram, linking: BoolArray) -> tuple[IntArray, IntArray]:
    """Return pairs of groups that have the instance of a linking option in common."""
    group, instance = program.group[linking], program.instance[linking]
    some = np.zeros(program.is_free.size, dtype=np.int64)
    some[instance] = group
    return group, some[instance]


def _options_of(program: SuppressionProgram, part_of_group: IntArray) -> list[IntArray]:
    """List the options of each part, of which none is empty."""
    part = part_of_group[program.group]
    parts = np.split(np.argsort(part, kind="stable"), np.cumsum(np.bincount(part))[:-1])
    return [options for options in parts if options.size]


@dataclass(frozen=True, eq=False)
class _SeparateParts:
    """Parts of a program that can be solved one by one."""

    program: SuppressionProgram
    codes: CodeArray  # (g, m): values of a row type of each group
    is_free: BoolArray
    options: list[IntArray]

    def solve(self, start: IntArray | None, pulse: Pulse) -> tuple[IntArray | None, int]:
        """Find the best known records per option, and a lower bound on the cost."""
        flows = np.zeros_like(self.program.costs) if start is None else start.copy()
        programs = [self.program.of_part(part, self.is_free) for part in self.options]
        bounds = [program.least_cost for program in programs]
        is_found = [start is not None] * len(programs)
        left = sorted(range(len(programs)), key=lambda number: self.options[number].size)
        while left:
            # The smallest first: most need moments, and none may take more than its share of the
            # time, or half of what is left; then those that need more have what the others left.
            again, n_options = [], sum(self.options[number].size for number in left)
            for number in left:
                program, part = programs[number], self.options[number]
                own = pulse.within(pulse.seconds_left * max(part.size / n_options, _SHARE_OF_PART))
                n_options -= part.size
                best = flows[part] if is_found[number] else None
                found, least = _solve_part(program, self.codes, best, bounds[number], own)
                bounds[number] = max(bounds[number], least)
                if found is not None:
                    flows[part], is_found[number] = found, True
                if own.is_over:
                    again.append(number)
            left = [] if pulse.is_over else again
        return flows if all(is_found) else None, sum(bounds)


def _with_enough_shared(
    program: SuppressionProgram, flows: IntArray, is_shared: BoolArray
) -> IntArray:
    """Send k records to the shared instance, to which fewer were sent, as cheaply as can be."""
    received = np.bincount(program.instance, flows, is_shared.size).astype(np.int64)
    (shared,) = np.flatnonzero(is_shared)
    to_shared = np.flatnonzero(program.instance == shared)
    costs = np.zeros_like(received)  # of one record in each instance
    costs[program.instance] = program.costs
    giving = np.flatnonzero((received > 0) & ~is_shared)
    extra, sizes = costs[shared] - costs[giving], received[giving]
    missing = program.k - int(received[shared])
    given = np.zeros_like(received)
    given[giving] = min(
        donations(extra, sizes, sizes, program.k, missing), key=lambda one: int(one @ extra)
    )
    # The options of an instance give one after the other, until it has given all.
    order = np.argsort(program.instance, kind="stable")
    instance, sent = program.instance[order], flows[order]
    before = np.cumsum(sent) - sent
    before -= before[np.searchsorted(instance, instance)]
    moved = np.empty_like(flows)
    moved[order] = np.clip(given[instance] - before, 0, sent)
    flows = flows - moved
    own = np.zeros_like(program.counts)  # the option of each group that leads to the shared one
    own[program.group[to_shared]] = to_shared
    np.add.at(flows, own[program.group], moved)
    return flows


def _solve_part(
    program: SuppressionProgram,
    codes: CodeArray,
    best: IntArray | None,
    bound: int,
    pulse: Pulse,
) -> tuple[IntArray | None, int]:
    """Find the best known records of each option, and a lower bound on their cost."""
    if best is not None and program.cost(best) <= bound:
        return best, bound
    has_regions = best is not None and program.group.size > _REGION
    answer = program.solve(best, pulse.until(1 - _SHARE_OF_REGIONS) if has_regions else pulse)
    if answer.is_infeasible:
        raise none_exists(int(program.counts.sum()), program.k)
    if isfinite(answer.lower_bound):
        bound = max(bound, ceil(answer.lower_bound - _TOLERANCE))
    best = program.better(best, answer.values)
    if has_regions and best is not None and program.cost(best) > bound:
        best = _improve(program, codes, best, pulse)
    return best, bound


def _improve(
    program: SuppressionProgram, codes: CodeArray, flows: IntArray, pulse: Pulse
) -> IntArray:
    """Solve one region after the other, while all other records stay where they are."""
    flows, idle, turn = flows.copy(), 0, 0
    while idle < _IDLE_TURNS and not pulse.is_over:
        before, n_left = program.cost(flows), flows.size
        for part in _regions(program, codes, flows, turn):
            own = pulse.within(pulse.seconds_left * part.size / n_left)
            n_left -= part.size
            rest = flows.copy()
            rest[part] = 0
            received = np.bincount(program.instance, rest, program.is_free.size)
            region = program.of_part(part, program.is_free | (received >= program.k))
            if region.cost(flows[part]) > region.least_cost and not own.is_over:
                better = region.better(flows[part], region.solve(flows[part], own).values)
                flows[part] = flows[part] if better is None else better
        idle = idle + 1 if program.cost(flows) == before else 0
        turn += 1
    return flows


def _regions(
    program: SuppressionProgram, codes: CodeArray, flows: IntArray, turn: int
) -> list[IntArray]:
    """Divide the options into runs of groups in the order of their values, from a column on.

    Groups that are in the same instance stay together.
    """
    in_use = (flows > 0) & ~program.is_free[program.instance]
    cluster = components(program.counts.size, *_links(program, in_use))
    place = np.empty_like(program.counts)
    own = np.unique(program.group)
    columns = np.flatnonzero((codes[own] != codes[own[0]]).any(axis=0))
    place[np.lexsort(codes.T[np.roll(columns, turn)])] = np.arange(place.size)
    first = np.full_like(place, place.size)
    np.minimum.at(first, cluster, place)
    first = first[cluster]
    by_place = np.argsort(first, kind="stable")
    n_options = np.bincount(program.group, minlength=place.size)[by_place]
    begins = np.append(True, np.diff(first[by_place]) > 0)
    n_before = np.maximum.accumulate(np.where(begins, np.cumsum(n_options) - n_options, 0))
    region = np.empty_like(place)
    region[by_place] = n_before // _REGION
    return _options_of(program, region)


def _solve_as_stated(
    types: RowTypes,
    patterns: PatternSet,
    k: int,
    on_program: Callable[[int], None] | None,
    pulse: Pulse,
    solver: str,
) -> tuple[IntArray, int]:
    """Find the records of each row type and pattern, and a lower bound on the cost."""
    if on_program is not None:
        on_program(types.counts.size * len(patterns))
    answer = solve_paper_program(types, patterns, k, pulse, solver)
    if answer.is_infeasible:
        raise none_exists(types.n_records, k)
    if answer.values is None:
        raise _none_in_time(types, k, pulse)
    bound = ceil(answer.lower_bound - _TOLERANCE) if isfinite(answer.lower_bound) else 0
    return answer.values.astype(np.int64), max(bound, 0)


def none_exists(n_records: int, k: int) -> InfeasibleError:
    """Make the error of tables that these patterns cannot make k-anonymous."""
    return InfeasibleError(
        "no suppression with these patterns exists",
        detail=f"{n_records:,} records, k = {k}",
        hint="allow the pattern that suppresses every cell, or others with more stars, or lower k",
    )


def _none_in_time(types: RowTypes, k: int, pulse: Pulse) -> InfeasibleError:
    return InfeasibleError(
        "no suppression was found within the time limit",
        detail=f"time_limit = {pulse.seconds} s, {types.n_records:,} records, k = {k}",
        hint="raise time_limit, allow the pattern that suppresses every cell, or use the method "
        "greedy",
    )
