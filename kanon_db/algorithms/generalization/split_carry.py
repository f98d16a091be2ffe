"""Split & Carry ([OB] Algorithm 1): optimal classes of a few neighbors at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.generalization.exact.distinct_records import DistinctRecords
from kanon_db.algorithms.generalization.exact.set_partition import set_partition
from kanon_db.algorithms.generalization.initial import classes_of_k
from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.exact_loss import ExactLoss, Loss
from kanon_db.algorithms.recoding.microdata import Microdata, check_k
from kanon_db.algorithms.recoding.order import sort_order
from kanon_db.errors import InvalidParameterError


@dataclass(frozen=True, eq=False)
class SplitCarry:
    """Classes found by Split & Carry.

    Parameters
    ----------
    class_of_record : ndarray of int64, shape (n_records,)
        Number of the class of each record, in the order in which classes became final.
    sizes : ndarray of int64, shape (p,)
        Records of each sub-problem.
    n_cut_short : int
        Sub-problems whose classes are not proven to be optimal, as their time was over.
    """

    class_of_record: IntArray
    sizes: IntArray
    n_cut_short: int


def split_carry(
    microdata: Microdata,
    k: int,
    *,
    s: int = 3,
    carry: int | None = None,
    bubble: tuple[int, int] | None = None,
    loss: Loss = "ncp",
    pulse: Pulse = UNLIMITED,
) -> SplitCarry:
    """Split the sorted records into small problems, solve these, and carry classes to the next.

    Each class has k to 2k - 1 records. Without ``bubble``, the loss is never
    above that of the initial classes.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 1. Time grows steeply with it.
    s : int
        New groups of k records in each sub-problem, at least 1.
    carry : int, optional
        The classes of so many last records go on to the next sub-problem; ``k`` if not given.
    bubble : tuple of two ints, optional
        P and A: each sub-problem has P records; the A classes that lose least become final, the
        others go on. In place of ``s`` and ``carry``.
    loss : {"ncp", "binary"}
        See :class:`~kanon_db.algorithms.recoding.exact_loss.ExactLoss`.
    pulse : Pulse
        Its time is shared out evenly among the sub-problems; what one leaves over is for later
        ones. Where the time is over, the best classes found so far remain. Beaten every few
        milliseconds.

    Returns
    -------
    SplitCarry

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k``, ``s``, ``carry`` or ``bubble`` is out of range, or a sub-problem has more than
        :data:`~.exact.set_partition.MAX_RECORDS` records.

    Notes
    -----
    **Source:** [OB] Algorithm 1, Section 6 (parameters l, P and A), Appendix C.

    - A class of 2k records or more never beats its split: there are none, so that with a class
      all its indirectly equivalent records are carried, and Lemma 2 holds. A sub-problem has at
      most l (2k - 1) + (s + 1) k - 1 records.
    - Left-over records join the last group of k, as in Appendix C: there are ⌈⌊n / k⌋ / s⌉
      sub-problems.
    - A sub-problem keeps the classes that it came with unless others lose less.
    - Instead of a mixed integer linear program, each sub-problem is solved by
      :func:`~kanon_db.algorithms.generalization.exact.set_partition.set_partition`.
    """
    n_records = microdata.n_records
    check_k(k, n_records)
    carry = k if carry is None else carry
    _check(k, s, carry, bubble)
    exact = ExactLoss.of(microdata, loss)
    order = sort_order(microdata)
    chain = _Chain(exact, order, k)
    if k > 1:
        rows_per_problem = k * s if bubble is None else max(bubble[0] - k, k)
        n_problems = -(-n_records // rows_per_problem)
        while chain.n_read < n_records:
            # The share of this sub-problem ends when those to come have only theirs left.
            turn = pulse.until(min(1.0, (len(chain.sizes) + 1) / n_problems))
            if bubble is None:
                chain.read(s)
                chain.solve(turn)
                chain.accept_before(carry)
            else:
                chain.read_up_to(bubble[0])
                chain.solve(turn)
                chain.accept_least(bubble[1])
    return SplitCarry(
        chain.class_of_record(), np.array(chain.sizes, dtype=np.int64), chain.n_cut_short
    )


def _check(k: int, s: int, carry: int, bubble: tuple[int, int] | None) -> None:
    if s < 1 or carry < 1:
        raise InvalidParameterError("s and carry must be at least 1", detail=f"{s = }, {carry = }")
    if bubble is not None and not (bubble[0] >= 2 * k and bubble[1] >= 1):
        raise InvalidParameterError(
            "bubble must be two numbers: of records, at least 2k, and of classes, at least 1",
            detail=f"{bubble = }, {k = }",
        )


class _Chain:
    """Sub-problems: classes of positions in the sorted order, and what they lose in units."""

    def __init__(self, exact: ExactLoss, order: IntArray, k: int) -> None:
        self._exact, self._order, self._k = exact, order, k
        n_records = order.size
        self._n_groups = n_records // k
        self._group_ends = np.arange(1, self._n_groups + 1) * k
        self._group_ends[-1:] = n_records
        self._group_losses = (
            exact.of_classes(order, self._group_ends) if n_records else np.zeros(0, np.int64)
        )
        self._next_group = 0
        self._open: list[tuple[int, IntArray]] = []
        self._final: list[IntArray] = []
        self.sizes: list[int] = []
        self.n_cut_short = 0
        self.n_read = 0 if k > 1 else n_records

    def class_of_record(self) -> IntArray:
        """Tell the class of each record."""
        classes = np.empty(self._order.size, dtype=np.int64)
        if self._k == 1:
            classes[self._order] = classes_of_k(self._order.size, 1)
        for number, positions in enumerate(self._final):
            classes[self._order[positions]] = number
        return classes

    def read(self, n_groups: int) -> None:
        """Add the next initial classes."""
        for group in range(self._next_group, min(self._next_group + n_groups, self._n_groups)):
            end = int(self._group_ends[group])
            self._open.append((int(self._group_losses[group]), np.arange(self.n_read, end)))
            self.n_read = end
            self._next_group += 1

    def read_up_to(self, size: int) -> None:
        """Add the next records until there are so many; or all, if fewer than k would be left."""
        n_open = sum(positions.size for _, positions in self._open)
        end = self.n_read + max(size - n_open, 1)
        if self._order.size - end < self._k:
            end = self._order.size
        n_new = end - self.n_read
        if n_new < self._k:
            _, positions = self._open.pop()
            n_new += positions.size
            positions = np.append(positions, np.arange(self.n_read, end))
        else:
            positions = np.arange(self.n_read, end)
        for part in np.split(positions, np.arange(self._k, n_new - self._k + 1, self._k)):
            ends = np.array([part.size])
            self._open.append((int(self._exact.of_classes(self._order[part], ends)[0]), part))
        self.n_read = end

    def solve(self, pulse: Pulse) -> None:
        """Find the best classes of the records that are open."""
        rows = np.sort(np.concatenate([positions for _, positions in self._open]))
        self.sizes.append(rows.size)
        upper = sum(loss for loss, _ in self._open)
        pulse.beat()
        if not upper:
            return
        if pulse.is_over:
            self.n_cut_short += 1
            return
        records = DistinctRecords.of(self._exact, self._order[rows])
        found = set_partition(records, self._k, upper, pulse=pulse)
        if found.classes is not None:
            class_of_row = found.classes.of_records()
            by_class = rows[np.argsort(class_of_row, kind="stable")]
            parts = np.split(by_class, np.cumsum(found.classes.sizes)[:-1])
            self._open = list(zip(found.classes.losses.tolist(), parts, strict=True))
        self.n_cut_short += not found.proof.is_optimal

    def accept_before(self, carry: int) -> None:
        """Make final the classes that hold none of the last records."""
        rows = np.sort(np.concatenate([positions for _, positions in self._open]))
        boundary = rows[-carry:][0] if self.n_read < self._order.size else self._order.size
        self._final += [positions for _, positions in self._open if positions[-1] < boundary]
        self._open = [one for one in self._open if one[1][-1] >= boundary]

    def accept_least(self, n_classes: int) -> None:
        """Make final the classes that lose least."""
        if self.n_read == self._order.size:
            n_classes = len(self._open)
        self._open.sort(key=lambda one: one[0])
        self._final += [positions for _, positions in self._open[:n_classes]]
        self._open = self._open[n_classes:]
