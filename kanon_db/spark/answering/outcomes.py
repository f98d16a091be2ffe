"""How likely a condition on one column holds for each of its cells.

It is what `kanon_db.query.cell_conditions` writes as SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.answers.evidence import Flags, Truths
from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import MOST_TABLED, MOST_VALUES, can_cover, may_fail
from kanon_db.spark.answering.cells import ANYTHING, CellShares, ColumnCells, Key, Listed
from kanon_db.spark.answering.places import array_of
from kanon_db.spark.answering.regions import Regions

Tried = Callable[[Any], tuple[Flags, Flags]]
"""Says for which values of an Arrow array a condition is true, and for which false."""


def outcomes(
    leaf: ex.Expression,
    own: ColumnCells,
    tried: Tried,
    rarity: float,
    *,
    is_tabled: bool = True,
) -> Truths:
    """Find what each cell tells.

    Parameters
    ----------
    leaf : Expression
        A condition on this column only.
    own : ColumnCells
    tried : callable
    rarity : float
        See :class:`~kanon_db.query.layout.CellLayout`.
    is_tabled : bool
        Whether all values of wide ranges are tried, as :mod:`kanon_db.query.cell_conditions`
        does, or only those that are listed.
    """
    if own.cell.kind == "range":
        return _of_ranges(leaf, own, tried, is_tabled=is_tabled)
    listed = own.listed()
    found = _of_listed(listed, *tried(listed.values), own.n.size)
    if own.hidden.any():
        _add_hidden(found, own, rarity)
    return found


def _add_hidden(found: Truths, own: ColumnCells, rarity: float) -> None:
    """Let suppressed cells meet the condition as those do that are kept, the rarer the more."""
    kept = own.n[~own.hidden] ** rarity
    for likely in (found.true, found.false):
        likely[own.hidden] = kept @ likely[~own.hidden] / kept.sum() if kept.size else 0.0
    for certain in (found.surely, found.surely_false):
        certain[own.hidden] = False
    for possible in (found.possibly, found.possibly_false):
        possible[own.hidden] = True


def _of_listed(listed: Listed, true: Flags, false: Flags, n_cells: int) -> Truths:
    """Add up the values that each cell may stand for."""

    def told(of_value: Flags) -> tuple[FloatArray, Flags, Flags]:
        own = of_value[listed.value]
        likely = np.bincount(listed.cell, listed.w * own, n_cells).astype(np.float64, copy=False)
        n_sure = np.bincount(listed.cell, own & ~listed.is_open, n_cells)
        possibly = np.bincount(listed.cell, own | listed.is_open, n_cells) > 0
        return likely, n_sure == n, possibly

    n = np.bincount(listed.cell, minlength=n_cells)
    (t, st, pt), (f, sf, pf) = told(true), told(false)
    return Truths(t, f, st, pt, sf, pf)


def _of_ranges(leaf: ex.Expression, own: ColumnCells, tried: Tried, *, is_tabled: bool) -> Truths:
    type_, shares = own.cell.column.type, own.shares
    regions = Regions(leaf, type_) if can_cover(own.cell, leaf) else None
    inside = np.array(
        [i for i, key in enumerate(own.keys) if key not in (None, ANYTHING)], dtype=np.int64
    )
    lows, highs = ([own.keys[i][end] for i in inside] for end in (0, 1))
    asked = [None] if shares is None else [None, *shares.points, *lows, *highs]
    if regions is not None:
        true, false = regions.truths(asked)
    else:
        true, false = tried(array_of(asked, type_))
    found = _of_no_value(own, is_true=bool(true[0]), is_false=bool(false[0]))
    if not inside.size:
        return found
    if regions is not None:
        part, is_whole, some = regions.shares(lows, highs, is_discrete=own.cell.is_discrete)
        likely = Truths(part, 1 - part, is_whole, some, ~some, ~is_whole)
    else:
        likely = _tried(leaf, own, inside, tried, is_tabled=is_tabled)
    if shares is not None:
        keys = [own.keys[i] for i in inside]
        likely = _shared(likely, shares, keys, (true[1:], false[1:]))
    for name in Truths.__match_args__:
        getattr(found, name)[inside] = getattr(likely, name)
    return found


def _of_no_value(own: ColumnCells, *, is_true: bool, is_false: bool) -> Truths:
    """Say what NULL tells, and what says nothing, which could be a NULL as well."""
    n = own.n.size
    found = Truths(
        np.full(n, float(is_true)), np.full(n, float(is_false)),
        *(np.full(n, flag) for flag in (is_true, is_true, is_false, is_false)),
    )  # fmt: skip
    for certain in (found.surely, found.surely_false):
        certain[own.anything] = False
    for possible in (found.possibly, found.possibly_false):
        possible[own.anything] = True
    return found


def _tried(
    leaf: ex.Expression, own: ColumnCells, inside: IntArray, tried: Tried, *, is_tabled: bool
) -> Truths:
    """Try all values that any range has, or if they are too many, those that are listed."""
    keys = [own.keys[i] for i in inside]
    if is_tabled and own.cell.is_discrete and not may_fail(leaf):
        low, high = (np.array([key[end] for key in keys], dtype=np.int64) for end in (0, 1))
        first, n, n_of = int(low.min()), int(high.max() - low.min()) + 1, high - low + 1
        if n <= min(int(np.minimum(n_of, MOST_VALUES).sum()), MOST_TABLED):
            flags = tried(array_of(range(first, first + n), own.cell.column.type))
            upto = [np.append(0, np.cumsum(of_value)) for of_value in flags]
            t, f = (one[high - first + 1] - one[low - first] for one in upto)
            return Truths(t / n_of, f / n_of, t == n_of, t > 0, f == n_of, f > 0)
    listed = replace(own, n=own.n[inside], hidden=own.hidden[inside], keys=keys).listed(
        with_shares=False
    )
    return _of_listed(listed, *tried(listed.values), inside.size)


def _shared(
    likely: Truths, shares: CellShares, keys: Sequence[Key], truths: tuple[Flags, Flags]
) -> Truths:
    """Put the shares of the parts of the axis that meet the condition in place of even ones.

    Parameters
    ----------
    likely : Truths
        If all values of a range are equally likely.
    shares : CellShares
    keys : sequence
        The ends of the ranges.
    truths : tuple of ndarray of bool, shape (n_parts + 2 n_cells,)
        Whether the condition is true, and false, for a value of each part, and for the lower and
        the upper ends.

    Notes
    -----
    What is certain is so for each value, while the axis has parts that lie in it by half.
    """
    known = [shares.of_ranges.get(key) for key in keys]
    first, last, own = (np.array([0 if one is None else one[k] for one in known]) for k in range(3))
    base = shares.upto[last + 1] - shares.upto[first]
    has_share = np.array([one is not None for one in known]) & (base != 0)
    p, n = np.diff(shares.upto), len(keys)
    found = []
    for of_value, even, surely, possibly in (
        (truths[0], likely.true, likely.surely, likely.possibly),
        (truths[1], likely.false, likely.surely_false, likely.possibly_false),
    ):
        upto = np.append(0.0, np.cumsum(p * of_value[: p.size]))
        at_ends = of_value[p.size : p.size + n].astype(int) + of_value[p.size + n :]
        inside = np.divide(upto[last + 1] - upto[first], base, out=np.zeros(n), where=has_share)
        share = np.where(has_share, own * at_ends + (1 - 2 * own) * inside, even)
        found.append(np.where(surely, 1.0, np.where(possibly, np.clip(share, 0, 1), 0.0)))
    return replace(likely, true=found[0], false=found[1])
