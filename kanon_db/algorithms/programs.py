"""States the integer programs of the papers with PuLP, as the papers state them.

:func:`bucket_program` is that of [GB] Section 6.1, :func:`class_program` that of [OB] Section 2,
:func:`graph_program` that of [FF] Section 4, and :func:`pattern_program` that of [PG] Section 2.2.
Variables have the papers' letters, and constraints the papers' numbers; indices begin at 0.

Any solver that PuLP knows can solve them, for small tables: tens of values or records. The methods
``optimal`` solve larger tables, by other programs with the same optimum; with the formulation
``paper`` they solve these, by HiGHS and without a file, or by a solver that is named
(``tests/property/test_programs.py`` holds the two to each other and to exhaustive search).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, product
from math import floor
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import pulp  # type: ignore[import-untyped]

from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, FloatArray, IntArray
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError

MAX_CONSTRAINTS = 2**15
"""Most constraints: PuLP needs two seconds for so many, in which no cancel is heard."""

_MAX_NUMBER = 2**20  # larger numbers are given to solvers as shares of the attribute's range

Variables = Mapping[tuple[int, ...], Any]
"""The variables of one letter, which are PuLP's, by their indices."""


@dataclass(frozen=True, eq=False)
class PaperProgram:
    """A program as a paper states it."""

    problem: Any  # To be minimized
    variables: Mapping[str, Variables]  # By the paper's letter, then by the paper's indices, from 0

    def whole_values(self, letter: str) -> IntArray:
        """Read the variables of a letter from the solution, rounded to whole numbers."""
        of_letter = self.variables[letter]
        shape = [max(axis) + 1 for axis in zip(*of_letter, strict=True)]
        values = np.zeros(shape, dtype=np.int64)
        for indices, variable in of_letter.items():
            values[indices] = round(variable.varValue)
        return values


class CodedDomain(Protocol):
    """An attribute, such as :class:`kanon_db.algorithms.recoding.Attribute`."""

    @property
    def n_values(self) -> int:
        """|A_j|: the number of values."""

    @property
    def numbers(self) -> FloatArray | None:
        """The number of each code; None for a categorical attribute."""

    @property
    def lower(self) -> float:
        """L_j."""

    @property
    def upper(self) -> float:
        """U_j."""

    @property
    def weight(self) -> float:
        """w_j."""


class CodedTable(Protocol):
    """Quasi-identifiers, such as :class:`kanon_db.algorithms.recoding.Microdata`."""

    @property
    def codes(self) -> AnyIntArray:
        """Codes of shape (n, m)."""

    @property
    def attributes(self) -> Sequence[CodedDomain]:
        """The m attributes."""


def bucket_program(
    counts: Sequence[int], thresholds: Sequence[Fraction], smallest: int, largest: int
) -> PaperProgram:
    """State the program of the bucket setting with the least loss.

    Parameters
    ----------
    counts : sequence of int, length m
        o_i: records of each sensitive value.
    thresholds : sequence of Fraction, length m
        f'_i: most of a bucket that may have the value.
    smallest, largest : int
        M and M': the bucket sizes S_j are ``smallest + j``, up to ``largest``.

    Returns
    -------
    PaperProgram
        ``b[j]`` buckets of S_j records, with ``v[i, j]`` records of value i.

    Raises
    ------
    InvalidParameterError
        If there are more than :data:`MAX_CONSTRAINTS` constraints.

    Notes
    -----
    **Source:** [GB] Section 6.1, (1) to (4). Deviation: u_ij is floor(f'_i S_j) b_j, as in
    Definition 5, where Section 6.1 prints f'_j and calls u_ij a constant.
    """
    sizes = range(smallest, largest + 1)
    values, kinds = range(len(counts)), range(len(sizes))
    _check_size(len(values) * (len(sizes) + 1) + len(sizes) + 1)
    problem = pulp.LpProblem("buckets", pulp.LpMinimize)
    b = _add(problem, "b", ((j,) for j in kinds), lowBound=0, cat=pulp.LpInteger)
    v = _add(problem, "v", product(values, kinds), lowBound=0, cat=pulp.LpInteger)
    problem += pulp.lpSum((size - 1) ** 2 * b[j,] for j, size in enumerate(sizes)), "loss"
    for i in values:
        problem += pulp.lpSum(v[i, j] for j in kinds) == int(counts[i]), f"1_{i}"
    for j, size in enumerate(sizes):
        problem += pulp.lpSum(v[i, j] for i in values) == size * b[j,], f"2_{j}"
    for i, j in product(values, kinds):
        problem += v[i, j] <= floor(thresholds[i] * sizes[j]) * b[j,], f"3_{i}_{j}"
    held = pulp.lpSum(size * b[j,] for j, size in enumerate(sizes))
    problem += held == sum(map(int, counts)), "4"
    return PaperProgram(problem, {"b": b, "v": v})


def class_program(
    table: CodedTable,
    k: int,
    *,
    loss: Literal["ncp", "binary"] = "ncp",
    start: AnyIntArray | None = None,
) -> PaperProgram:
    """State the program of the equivalence classes with the least loss.

    Parameters
    ----------
    table : CodedTable
        n records, with numeric attributes J and categorical ones.
    k : int
        Fewest records of a class.
    loss : {"ncp", "binary"}
        What a set of c of the |H| values of a categorical attribute loses: (c - 1) / (|H| - 1), or
        by Section 2.5 c / |H| if c is at least 2, else nothing.
    start : ndarray of int, shape (n,), optional
        Class of each record in an initial feasible solution (Section 2.3), which becomes the
        variables' initial values.

    Returns
    -------
    PaperProgram
        ``v[i, l]``, for i < l, is 1 if the records i and l are equivalent; the cell of record i in
        column j reaches from ``y[i, j]`` to ``z[i, j]``. Columns are the attributes in their
        order, a categorical one being a column for each value that records have.

    Raises
    ------
    InvalidParameterError
        If there are more than :data:`MAX_CONSTRAINTS` constraints, or a numeric attribute holds
        NULL.

    Notes
    -----
    **Source:** [OB] Section 2, (21) to (32), with the weights of (34), which need not sum up to 1
    (35). Deviations:

    - L <= y <= x <= z <= U are bounds, which (21) to (28) lack, and without which all losses are 0.
    - One variable is v_il and v_li.
    - By the loss ``ncp``, a categorical attribute counts as in Definition 8, but with |a_j| - 1 for
      |a_j|, as in [FF]: of its columns, only the z, which say that the cell holds the value.
    - Numbers that are not whole, or above 2^20, are measured from L in units of U - L.
    """
    n = len(table.codes)
    columns = _class_columns(table, loss)
    pairs = list(combinations(range(n), 2))
    _check_size(4 * len(pairs) * len(columns) + n)
    problem = pulp.LpProblem("classes", pulp.LpMinimize)
    v = _add(problem, "v", pairs, cat=pulp.LpBinary)
    for i, l in v if start is not None else ():
        v[i, l].setInitialValue(int(start[i] == start[l]))  # type: ignore[index]
    y: dict[tuple[int, ...], Any] = {}
    z: dict[tuple[int, ...], Any] = {}
    losses = []
    for j, ((x, lower, upper, is_whole), of_y, of_z) in enumerate(columns):
        cat = pulp.LpInteger if is_whole else pulp.LpContinuous  # (27), (28)
        for i in range(n):
            y[i, j] = problem.add_variable(f"y_{i}_{j}", lower, x[i], cat)
            z[i, j] = problem.add_variable(f"z_{i}_{j}", x[i], upper, cat)
            losses += [of_z * z[i, j], -of_y * y[i, j]]
            if start is not None:
                members = [x[l] for l in range(n) if start[l] == start[i]]
                y[i, j].setInitialValue(min(members))
                z[i, j].setInitialValue(max(members))
        for i, l in pairs:
            most_y = max(x[i], x[l]) - lower  # (29), (30)
            most_z = upper - min(x[i], x[l])  # (31), (32)
            problem += y[i, j] - y[l, j] <= most_y * (1 - v[i, l]), f"22_{i}_{l}_{j}"
            problem += y[i, j] - y[l, j] >= -most_y * (1 - v[i, l]), f"23_{i}_{l}_{j}"
            problem += z[i, j] - z[l, j] <= most_z * (1 - v[i, l]), f"24_{i}_{l}_{j}"
            problem += z[i, j] - z[l, j] >= -most_z * (1 - v[i, l]), f"25_{i}_{l}_{j}"
    for i in range(n):
        equivalent = pulp.lpSum(v[min(i, l), max(i, l)] for l in range(n) if l != i)
        problem += equivalent >= k - 1, f"26_{i}"
    free = n * sum(_steps(attribute) for attribute in table.attributes) if loss == "ncp" else 0
    problem += pulp.lpSum(losses) - free, "loss"
    return PaperProgram(problem, {"v": v, "y": y, "z": z})


def graph_program(table: CodedTable, k: int) -> PaperProgram:
    """State the program of the generalization graph with the least loss.

    Parameters
    ----------
    table : CodedTable
        n records, with numeric attributes NA and categorical ones CA.
    k : int
        Matches of each record.

    Returns
    -------
    PaperProgram
        ``x[l, i]`` is 1 if the cells of record i cover the values of record l. Its cell of the
        numeric attribute j reaches from ``l[i, j]`` to ``u[i, j]``; that of the categorical
        attribute j holds the value with the code h if ``h[i, j, h]`` is 1, which is u_i^h.

    Raises
    ------
    InvalidParameterError
        If there are more than :data:`MAX_CONSTRAINTS` constraints, or a numeric attribute holds
        NULL.

    Notes
    -----
    **Source:** [FF] Section 4, (4) to (11). Deviations:

    - Losses are multiplied by the attributes' weights; with weights of 1, they are the paper's.
    - Values that no record has, whose u_i^h would be 0, have no variables, nor has an attribute
      with U = L, or a single value.
    - Numbers above 2^20, or that are not whole, are measured from L in units of U - L.
    """
    n = len(table.codes)
    records = range(n)
    numeric = {
        j: numbers
        for j, attribute in enumerate(table.attributes)
        if (numbers := _numbers(table.codes[:, j], attribute, j)) is not None
    }
    values = [
        (j, h)
        for j, attribute in enumerate(table.attributes)
        if attribute.numbers is None and attribute.n_values > 1
        for h in np.unique(table.codes[:, j]).tolist()
    ]
    _check_size(n * (n + 1) * (2 * len(numeric) + len(values)) + 2 * n)
    problem = pulp.LpProblem("graph", pulp.LpMinimize)
    x = _add(problem, "x", product(records, records), cat=pulp.LpBinary)
    upper = _add(problem, "u", product(records, numeric))
    lower = _add(problem, "l", product(records, numeric))
    held = _add(problem, "h", ((i, *value) for i in records for value in values))
    losses = []
    for i, (j, (q, least, most, _)) in product(records, numeric.items()):
        for l in records:
            reached = q[l] * x[l, i] + (1 - x[l, i]) * q[i]
            problem += upper[i, j] >= reached, f"4_{i}_{l}_{j}"
            problem += lower[i, j] <= reached, f"6_{i}_{l}_{j}"
        problem += upper[i, j] >= q[i], f"5_{i}_{j}"
        problem += lower[i, j] <= q[i], f"7_{i}_{j}"
        share = table.attributes[j].weight / (most - least)
        losses.append(share * (upper[i, j] - lower[i, j]))
    for i, (j, h) in product(records, values):
        q = (table.codes[:, j] == h).astype(int).tolist()
        for l in records:
            reached = q[l] * x[l, i] + (1 - x[l, i]) * q[i]
            problem += held[i, j, h] >= reached, f"8_{i}_{l}_{j}_{h}"
        problem += held[i, j, h] >= q[i], f"9_{i}_{j}_{h}"
        losses.append(_steps(table.attributes[j]) * held[i, j, h])
    for i in records:
        problem += pulp.lpSum(x[i, l] for l in records) == k, f"10_of_original_{i}"
        problem += pulp.lpSum(x[l, i] for l in records) == k, f"10_of_record_{i}"
    free = n * sum(_steps(attribute) for attribute in table.attributes)
    problem += pulp.lpSum(losses) - free, "11"
    return PaperProgram(problem, {"x": x, "u": upper, "l": lower, "h": held})


def pattern_program(
    rows: AnyIntArray, counts: Sequence[int], stars: BoolArray, costs: Sequence[int], k: int
) -> PaperProgram:
    """State the program of the suppression by patterns at the lowest cost.

    Parameters
    ----------
    rows : ndarray of int, shape (t, m)
        The codes of each row type.
    counts : sequence of int, length t
        n_i: records of each row type.
    stars : ndarray of bool, shape (p, m)
        Which columns each pattern suppresses.
    costs : sequence of int, length p
        omega_j: cost of suppressing a record by each pattern; in the paper, its number of stars.
    k : int
        Fewest records of an instance of a pattern that is used.

    Returns
    -------
    PaperProgram
        ``x[i, j]`` records of row type i are suppressed by pattern j; ``u[j, l]`` is 1 if instance
        l of pattern j is used. Instances are in the order of the values that they keep.

    Raises
    ------
    InvalidParameterError
        If there are more than :data:`MAX_CONSTRAINTS` constraints.

    Notes
    -----
    **Source:** [PG] Section 2.2, (5) to (8), without deviation. k is "at least k": the paper's text
    once says "more than k".
    """
    types, patterns = range(len(counts)), range(len(costs))
    # c(i, j, l) is 1 where instance[j][i] is l.
    instance = []
    for j in patterns:
        kept = np.where(stars[j], -1, rows)
        instance.append(np.unique(kept, axis=0, return_inverse=True)[1].reshape(-1).tolist())
    n_instances = [max(of_pattern, default=-1) + 1 for of_pattern in instance]
    _check_size(2 * sum(n_instances) + len(types))
    problem = pulp.LpProblem("patterns", pulp.LpMinimize)
    x = _add(problem, "x", product(types, patterns), lowBound=0, cat=pulp.LpInteger)
    instances = [(j, l) for j in patterns for l in range(n_instances[j])]
    u = _add(problem, "u", instances, cat=pulp.LpBinary)
    problem += pulp.lpSum(int(costs[j]) * x[i, j] for i, j in x), "5"
    n = sum(map(int, counts))
    of_instance: dict[tuple[int, int], list[Any]] = {one: [] for one in instances}
    for i, j in x:
        of_instance[j, instance[j][i]].append(x[i, j])
    for (j, l), sent in of_instance.items():
        problem += pulp.lpSum(sent) <= u[j, l] * n, f"6_{j}_{l}"
        problem += pulp.lpSum(sent) + k * (1 - u[j, l]) >= k, f"7_{j}_{l}"
    for i in types:
        problem += pulp.lpSum(x[i, j] for j in patterns) == int(counts[i]), f"8_{i}"
    return PaperProgram(problem, {"x": x, "u": u})


def _check_size(n_constraints: int) -> None:
    if n_constraints > MAX_CONSTRAINTS:
        raise InvalidParameterError(
            "the table is too large for the formulation paper",
            detail=f"{n_constraints:,} constraints, limit = {MAX_CONSTRAINTS:,}",
            hint="leave out the option formulation, whose default is for larger tables",
        )


def _add(problem: Any, letter: str, indices: Iterable[tuple[int, ...]], **kind: Any) -> Any:
    """Add a variable for each of the indices, named by the letter and these."""
    return {
        one: problem.add_variable("_".join(map(str, (letter, *one))), **kind) for one in indices
    }


class _Numbers(NamedTuple):
    """A column of numbers, their bounds L and U, and whether all of these are whole."""

    x: list[float]
    lower: float
    upper: float
    is_whole: bool


def _class_columns(table: CodedTable, loss: str) -> list[tuple[_Numbers, float, float]]:
    """List the columns of [OB], with the factors of y and z in the loss."""
    columns = []
    for j, attribute in enumerate(table.attributes):
        codes = table.codes[:, j]
        if attribute.numbers is None:
            share = attribute.weight / attribute.n_values
            factors = (0.0, _steps(attribute)) if loss == "ncp" else (share, share)
            columns += [
                (_Numbers((codes == h).astype(int).tolist(), 0, 1, True), *factors)
                for h in (np.unique(codes).tolist() if attribute.n_values > 1 else [])
            ]
        elif (numbers := _numbers(codes, attribute, j)) is not None:
            share = attribute.weight / (numbers.upper - numbers.lower)
            columns.append((numbers, share, share))
    return columns


def _steps(attribute: CodedDomain) -> float:
    """Return what one more value in a set of a categorical attribute loses; 0 if numeric."""
    if attribute.numbers is not None or attribute.n_values == 1:
        return 0.0
    return attribute.weight / (attribute.n_values - 1)


def _numbers(codes: AnyIntArray, attribute: CodedDomain, j: int) -> _Numbers | None:
    """Return the numbers of an attribute; None if it is categorical, or has no range."""
    if attribute.numbers is None or attribute.upper <= attribute.lower:
        return None
    x = np.asarray(attribute.numbers)[codes]
    if np.isnan(x).any():
        raise InvalidParameterError(
            "the formulation paper cannot handle NULL in numeric columns",
            detail=f"attribute {j + 1}",
            hint="leave out the option formulation",
        )
    lower, upper = float(attribute.lower), float(attribute.upper)
    known = np.concatenate([x, [lower, upper]])
    if (known == np.floor(known)).all() and abs(known).max() <= _MAX_NUMBER:
        return _Numbers(x.astype(int).tolist(), int(lower), int(upper), True)
    return _Numbers(((x - lower) / (upper - lower)).tolist(), 0.0, 1.0, False)
