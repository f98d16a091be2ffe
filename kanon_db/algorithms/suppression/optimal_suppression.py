"""Suppresses cells at the lowest cost, by integer linear programming ([PG] Section 2.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isfinite
from typing import Literal, get_args

import highspy
import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, IntArray
from kanon_db.algorithms.ground.computation import UNLIMITED, Proof, Pulse
from kanon_db.algorithms.ground.solver import (
    LinearModel,
    Solution,
    run,
    solve,
    solve_problem,
    values_of,
)
from kanon_db.algorithms.programs import pattern_program
from kanon_db.algorithms.suppression.greedy_suppression import (
    LEFT_OVER,
    RowTypes,
    Suppression,
    check_types,
    greedy_on_types,
    identical_rows,
)
from kanon_db.algorithms.suppression.pattern_vectors import PatternSet
from kanon_db.errors import InfeasibleError, InvalidParameterError


@dataclass(frozen=True, eq=False)
class SuppressionProgram:
    """Assigns records of groups to instances of patterns, each of which gets none or at least k.

    **Source:** [PG] Section 2.2, Eq. (5) to (8); deviations: see :func:`.optimal`.
    """

    group: IntArray  # (o,): the group and the instance of each option; at least one option
    instance: IntArray
    costs: IntArray  # (o,): cost of sending one record
    counts: IntArray  # (g,): records of each group
    received: IntArray  # (i,): records that each instance has already
    k: int  # Fewest records of an instance in use


def solve_suppression(
    program: SuppressionProgram, start: IntArray | None, pulse: Pulse
) -> Solution:
    """Solve a program by HiGHS."""
    instances, place = np.unique(program.instance, return_inverse=True)
    # An instance that already has records is in use: its u_jl is 1.
    is_open = program.received[instances] == 0
    n_open = int(is_open.sum())
    # Costs are whole numbers, so that a gap of less than 1 is none.
    highs = _model(program, instances, place, is_open).load_solver(gap=0.99)
    values = None
    if start is not None:
        in_use = np.zeros(instances.size, dtype=np.int64)
        in_use[place[start > 0]] = 1
        values = np.append(in_use[is_open], start).tolist()
    answer = solve(highs, pulse, values)
    if answer.values is None:
        return answer
    # With all u_jl fixed the rest is a transportation problem, solved in moments: the simplex
    # method ends in a vertex, where all x_ij are whole numbers.
    fixed = np.rint(answer.values[:n_open])
    highs.changeColsBounds(n_open, np.arange(n_open, dtype=np.int32), fixed, fixed)
    for column in range(n_open):
        highs.changeColIntegrality(column, highspy.HighsVarType.kContinuous)
    highs.setOptionValue("solver", "simplex")
    highs.setOptionValue("time_limit", highspy.kHighsInf)
    run(highs, pulse)
    vertex = values_of(highs)
    return answer._replace(values=None if vertex is None else np.rint(vertex[n_open:]))


def _model(
    program: SuppressionProgram, instances: IntArray, place: IntArray, is_open: BoolArray
) -> LinearModel:
    """State the program: the variables are the u_jl of open instances, then the x_ij."""
    limits = program.counts[program.group]
    n_open = int(is_open.sum())
    u = np.cumsum(is_open) - 1
    x = n_open + np.arange(limits.size)
    groups, group_row = np.unique(program.group, return_inverse=True)
    lacking = np.where(is_open, 0, program.k - program.received[instances])
    is_row = is_open | (lacking > 0)
    instance_row = groups.size + np.cumsum(is_row) - 1
    counted = np.flatnonzero(is_row[place])
    tied = np.flatnonzero(is_open[place])
    tied_row = groups.size + int(is_row.sum()) + np.arange(tied.size)
    # Row, variable and coefficient of each term.
    terms = [
        (group_row, x, np.ones_like(x)),  # Eq. (8)
        (instance_row[place[counted]], x[counted], np.ones_like(counted)),  # Eq. (7)
        (instance_row[is_open], u[is_open], np.full(n_open, -program.k)),
        (tied_row, x[tied], np.ones_like(tied)),  # Eq. (6)
        (tied_row, u[place[tied]], -limits[tied]),
    ]
    rows, columns, coefficients = (np.concatenate(parts) for parts in zip(*terms, strict=True))
    order = np.argsort(rows, kind="stable")
    counts, least = program.counts[groups], lacking[is_row]
    return LinearModel(
        costs=np.append(np.zeros(n_open, dtype=np.int64), program.costs),  # Eq. (5)
        lower=np.zeros(n_open + x.size, dtype=np.int64),
        upper=np.append(np.ones(n_open, dtype=np.int64), limits),
        is_whole=np.arange(n_open + x.size) < n_open,
        row_lower=np.concatenate([counts, least, np.full(tied.size, -np.inf)]),
        row_upper=np.concatenate([counts, np.full(least.size, np.inf), np.zeros(tied.size)]),
        rows=rows[order],
        columns=columns[order],
        coefficients=coefficients[order],
    )


def solve_paper_program(types: RowTypes, patterns: PatternSet, k: int, pulse: Pulse) -> Solution:
    """Solve the paper's program by HiGHS.

    The solution has no values where the solver's break a constraint.
    """
    stars, costs = patterns.stars, patterns.costs.tolist()
    program = pattern_program(types.codes, types.counts.tolist(), stars, costs, k)
    answer = solve_problem(program.problem, pulse)
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
    on_program : callable, optional
        Called with the number of variables before an integer program is stated, which takes most of
        the memory; what it raises ends the work. Not called where nothing is left to solve.
    pulse : Pulse
        Its time limit is for the solver; preparation, some seconds for 10^6 combinations of row
        type and pattern, is finished. Beaten every few milliseconds, in the thread of the caller;
        what that raises ends the work as soon as the solver, which runs in a thread of its own,
        takes notice: within milliseconds as a rule, but it may take some seconds of a large
        program's presolve.

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

    Deviations of ``reduced``, none of which changes the optimum:

    - Instances of patterns with fewer than k records are omitted, and so are those with exactly
      the records of a cheaper instance. Two instances have the same records if and only if these
      agree on the same columns, and one record is in both.
    - Row types with the same instances are merged.
    - An instance that is some record's only one is in use: it needs no binary variable.
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
        sent, bound = _solve_as_stated(types, patterns, k, on_program, pulse)
        by_type = np.argsort(types.type_of_record, kind="stable")
        pattern_of_record = np.empty(types.n_records, dtype=np.int64)
        numbers = np.tile(np.arange(len(patterns)), types.counts.size)
        pattern_of_record[by_type] = np.repeat(numbers, sent)
        cost = int(patterns.costs[numbers] @ sent)
        suppression = Suppression(patterns, pattern_of_record)
        return OptimalSuppression(suppression, Proof.of(cost, bound, unit))
    options = _PatternOptions.of(types, patterns, k, pulse)
    start = _greedy_start(types, patterns, k, options, pulse)
    bound = int(options.counts @ options.cheapest)
    flows = start
    if start is None or options.cost(start) > bound:
        flows, bound = _solve(options, k, start, pulse, on_program)
    if flows is None:
        raise _none_in_time(types, k, pulse)
    suppression = Suppression(patterns, options.pattern_of_record(types, flows))
    return OptimalSuppression(suppression, Proof.of(options.cost(flows), bound, unit))


@dataclass(frozen=True, eq=False)
class _PatternOptions:
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
    def of(cls, types: RowTypes, patterns: PatternSet, k: int, pulse: Pulse) -> _PatternOptions:
        instances = _usable_instances(types, patterns, k, pulse)
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

    @property
    def cheapest(self) -> IntArray:
        """Cost of the cheapest option of each group, which is its first."""
        first = np.searchsorted(self.group, np.arange(self.counts.size))
        return self.costs[first]

    def cost(self, flows: IntArray) -> int:
        """Cost of sending ``flows`` records by each option."""
        return int(self.costs @ flows)

    def are_valid(self, flows: IntArray, k: int) -> bool:
        """Tell whether every record has its place, and every instance none or k records."""
        sent = np.zeros_like(self.counts)
        np.add.at(sent, self.group, flows)
        received = np.zeros(self.instance.max() + 1, dtype=np.int64)
        np.add.at(received, self.instance, flows)
        return bool(
            (flows >= 0).all()
            and (sent == self.counts).all()
            and ((received == 0) | (received >= k)).all()
        )

    def pattern_of_record(self, types: RowTypes, flows: IntArray) -> IntArray:
        """Share out the records of each group among its options."""
        by_group = np.argsort(self.group_of_type[types.type_of_record], kind="stable")
        patterns = np.empty(types.n_records, dtype=np.int64)
        patterns[by_group] = np.repeat(self.pattern, flows)
        return patterns


def _usable_instances(types: RowTypes, patterns: PatternSet, k: int, pulse: Pulse) -> IntArray:
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
    options: _PatternOptions,
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
    return flows if options.are_valid(flows, k) else None


def _solve(
    options: _PatternOptions,
    k: int,
    start: IntArray | None,
    pulse: Pulse,
    on_program: Callable[[int], None] | None,
) -> tuple[IntArray | None, int]:
    """Find the best known records per option, and a lower bound on the cost."""
    only = np.bincount(options.group)[options.group] == 1
    n_instances = int(options.instance.max()) + 1
    received = np.zeros(n_instances, dtype=np.int64)
    np.add.at(received, options.instance[only], options.counts[options.group[only]])
    open_options = np.flatnonzero(~only)
    if on_program is not None:
        on_program(open_options.size)
    program = SuppressionProgram(
        group=options.group[open_options],
        instance=options.instance[open_options],
        costs=options.costs[open_options],
        counts=options.counts,
        received=received,
        k=k,
    )
    answer = solve_suppression(program, None if start is None else start[open_options], pulse)
    if answer.is_infeasible:
        raise _none_exists(int(options.counts.sum()), k)
    fixed = np.where(only, options.counts[options.group], 0)
    best = start
    if answer.values is not None:
        flows = fixed.copy()
        flows[open_options] = answer.values
        # The solver computes in floating point; its result is checked in integers.
        if options.are_valid(flows, k) and (
            best is None or options.cost(flows) < options.cost(best)
        ):
            best = flows
    bound = int(options.counts @ options.cheapest)
    if isfinite(answer.lower_bound):
        bound = max(bound, options.cost(fixed) + ceil(answer.lower_bound - _TOLERANCE))
    return best, bound


def _solve_as_stated(
    types: RowTypes,
    patterns: PatternSet,
    k: int,
    on_program: Callable[[int], None] | None,
    pulse: Pulse,
) -> tuple[IntArray, int]:
    """Find the records of each row type and pattern, and a lower bound on the cost."""
    if on_program is not None:
        on_program(types.counts.size * len(patterns))
    answer = solve_paper_program(types, patterns, k, pulse)
    if answer.is_infeasible:
        raise _none_exists(types.n_records, k)
    if answer.values is None:
        raise _none_in_time(types, k, pulse)
    bound = ceil(answer.lower_bound - _TOLERANCE) if isfinite(answer.lower_bound) else 0
    return answer.values.astype(np.int64), max(bound, 0)


def _none_exists(n_records: int, k: int) -> InfeasibleError:
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


def two_anonymity(
    codes: npt.ArrayLike,
    patterns: PatternSet,
    *,
    pulse: Pulse = UNLIMITED,
) -> OptimalSuppression:
    """Suppress cells at the lowest cost so that no combination of kept cells occurs only once.

    Parameters
    ----------
    codes : array_like of int, shape (n_records, m)
        One code for each quasi-identifier of each record; equal values have equal codes.
    patterns : PatternSet
        Allowed patterns of the m columns.
    pulse : Pulse
        Beaten every few milliseconds; what that raises ends the work.

    Returns
    -------
    OptimalSuppression

    Raises
    ------
    InfeasibleError, InvalidParameterError
        As :func:`~kanon_db.algorithms.suppression.optimal_suppression.optimal`.

    Notes
    -----
    **Source:** [PG] Section 2.2. **The polynomial algorithm of [PG] Theorem 2 is not implemented.**

    Theorem 2 reduces the problem for k = 2 to Simplex Matching: each record is a vertex, and each
    pair and each triple of records that share an allowed pattern is a hyperedge. For the matching,
    the paper refers to Anshelevich and Karagiozova (2011). The integer program finds the same
    optimum (``tests/property/test_programs.py`` compares it with the least matching of the paper's
    hypergraph), but its worst case is exponential. It is faster in practice: with the
    all-star pattern, all pairs and triples are hyperedges, 5 * 10^8 and 6 * 10^12 of Adult's 32,561
    records, where the program has 10^5 variables, since identical records, and records with the
    same choices, are one in it.

    Examples
    --------
    >>> from kanon_db.algorithms.suppression.pattern_vectors import parse_patterns
    >>> rows = [[1, 0, 2], [0, 0, 0], [2, 0, 2], [0, 0, 2], [0, 2, 0]]
    >>> found = two_anonymity(rows, parse_patterns([".**", "*..", "*.*"], 3))
    >>> found.proof.status, found.suppression.n_suppressed
    ('optimal', 7)
    """
    return optimal(codes, patterns, 2, pulse=pulse)
