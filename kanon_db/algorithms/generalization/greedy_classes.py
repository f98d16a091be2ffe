"""Finds equivalence classes greedily: by Greedy Search [OB], K-Member, or in sorted order.

It also defines :class:`Generalization`, the result of every method, and recommends a method.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray, Integer, sort_keys
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.class_growth import LeftOverRule, RecordPool, grow_classes
from kanon_db.algorithms.recoding.loss import Ncp
from kanon_db.algorithms.recoding.microdata import Microdata, Sorting, check_k, sort_order
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError


@dataclass(frozen=True, eq=False)
class Generalization:
    """Which equivalence class each record is in.

    Parameters
    ----------
    class_of_record : ndarray of int64, shape (n_records,)
        Number of the class; -1 for a suppressed record.
    """

    class_of_record: IntArray


_MOST_FOR_OPTIMUM = 30
_MOST_FOR_SEARCH = 100_000
_BLOCK = 20_000
_FEW_ATTRIBUTES, _SMALL_K = 2, 5


@dataclass(frozen=True)
class Recommendation:
    """A method, and why.

    Parameters
    ----------
    method : {"optimal", "greedy_search", "mondrian"}
    block_size : int or None
        Records among which the search looks for the members of a class; None for all.
    reason : str
    """

    method: Literal["optimal", "greedy_search", "mondrian"]
    block_size: int | None
    reason: str


def recommend(n_records: int, n_attributes: int, k: int, *, refined: bool = True) -> Recommendation:
    """Recommend a method for a table by its size.

    Parameters
    ----------
    n_records, n_attributes : int
    k : int
    refined : bool
        Whether the classes are to be refined.

    Returns
    -------
    Recommendation

    Notes
    -----
    Deviation from [OB] Section 5, which advises Split & Carry for small k and few attributes, and
    Greedy Search otherwise. In our measurements (``benchmarks generalization_figures``)
    Split & Carry is better than Greedy Search in all cases for two attributes, where Mondrian,
    refined, is better still; from four attributes on that depends on the table, and Greedy Search
    takes a tenth of the time.

    Examples
    --------
    >>> recommend(1_000_000, 8, 10).block_size
    20000
    """
    if n_records <= _MOST_FOR_OPTIMUM and k <= 3:
        return Recommendation(
            "optimal", None, f"{n_records} records and k = {k}: the optimum is within reach"
        )
    table = f"{n_records:,} records, {n_attributes} attributes, k = {k}"
    if refined and n_attributes <= _FEW_ATTRIBUTES and k <= _SMALL_K:
        return Recommendation(
            "mondrian",
            None,
            f"{table}: after refinement, its classes lose least when there are few attributes",
        )
    search = f"{table}: its classes usually lose little for the time it takes"
    if n_records <= _MOST_FOR_SEARCH:
        return Recommendation("greedy_search", None, search)
    return Recommendation(
        "greedy_search", _BLOCK, f"{search}, in blocks of {_BLOCK:,} sorted records"
    )


def one_of_each(microdata: Microdata, entities: AnyIntArray) -> tuple[Microdata, IntArray]:
    """Take the records of one entity with the same quasi-identifiers as one record.

    Where an entity's quasi-identifiers are the same in all its records, classes of k of these
    records have k entities.

    Parameters
    ----------
    microdata : Microdata
    entities : ndarray of int, shape (n_records,)
        Whom each record is about, in [0, 2^31).

    Returns
    -------
    microdata : Microdata
        With at most as many records.
    place : ndarray of int64, shape (n_records,)
        The record of ``microdata`` that stands for each record.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding import Attribute
    >>> table = Microdata(np.array([[0], [1], [0]]), (Attribute(2),))
    >>> fewer, place = one_of_each(table, np.array([7, 7, 7]))
    >>> fewer.n_records, place.tolist()
    (2, [0, 1, 0])
    """
    keys = sort_keys([*microdata.codes.T, entities])
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    return Microdata(microdata.codes[first], microdata.attributes), place


def initial(microdata: Microdata, k: int, *, sorting: Sorting = "alternating") -> Generalization:
    """Group every k records in sorted order; the last class takes the records left over.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 1.
    sorting : {"alternating", "ascending"}
        See :func:`~kanon_db.algorithms.recoding.microdata.sort_order`.

    Returns
    -------
    Generalization
        Classes numbered in sorted order.

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k`` is less than 1.

    Notes
    -----
    **Source:** [OB] Section 2.3; left-over records as in its Appendix C.
    """
    check_k(k, microdata.n_records)
    class_of_record = np.empty(microdata.n_records, dtype=np.int64)
    class_of_record[sort_order(microdata, sorting)] = classes_of_k(microdata.n_records, k)
    return Generalization(class_of_record)


def classes_of_k(n_records: int, k: int) -> IntArray:
    """Assign every k consecutive records to a class, up to 2k - 1 to the last one."""
    return np.minimum(np.arange(n_records) // k, max(n_records // k - 1, 0))


def k_member(
    microdata: Microdata, k: int, *, random: np.random.Generator, pulse: Pulse = UNLIMITED
) -> Generalization:
    """Grow classes of k records, each from the record furthest from the last one that was placed.

    The record that adds least to the loss joins the class, or the first of several in sorted order,
    until the class has k records. In the end fewer than k records remain; each of them joins the
    class whose loss grows least.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 1.
    random : numpy.random.Generator
        Draws the record that the first class begins far from.
    pulse : Pulse
        Only its heartbeat is used.

    Returns
    -------
    Generalization
        Classes numbered in the order in which they grew.

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k`` is less than 1.

    Notes
    -----
    **Source:** Byun, Kamra, Bertino and Li: Efficient k-anonymization using clustering techniques,
    2007, Figure 3; the baseline of [OB] Section 4. Information loss is weighted NCP, and
    categorical attributes have no taxonomy: two values are at distance 1 unless they are equal.
    The paper does not say which of equally good records is taken.

    Cost: one pass over the row types that are left for each class.
    """
    check_k(k, microdata.n_records)
    if not microdata.n_records:
        return Generalization(np.zeros(0, dtype=np.int64))
    pool = RecordPool(Ncp.of(microdata, pulse=pulse), sort_order(microdata), k)
    last: Integer = pool.type_of_record(int(random.integers(microdata.n_records)))
    while pool.n_left >= k:
        pulse.beat()
        last = pool.grow_from(pool.furthest(last))
    return Generalization(pool.finished("least_increase", pulse))


def greedy_search(
    microdata: Microdata,
    k: int,
    *,
    block_size: int | None = None,
    left_over: LeftOverRule = "least_increase",
    sorting: Sorting = "alternating",
    pulse: Pulse = UNLIMITED,
) -> Generalization:
    """Grow classes of k records, each from the first record that is left.

    In sorted order, the first record left begins a class. Until the class has k records, the record
    that adds least to its loss joins it, or the first of several. In the end fewer than k records
    remain; each of them joins a class.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 1.
    block_size : int, optional
        Number of row types to search, at least 2: the next ones in sorted order; None for all.
        A limit makes the time linear in the number of records, not quadratic, at some loss.
    left_over : {"least_increase", "least_result"}
        Which class a left-over record joins: the one whose loss grows least, or the one whose loss
        is least afterwards.
    sorting : {"alternating", "ascending"}
        See :func:`~kanon_db.algorithms.recoding.microdata.sort_order`.
    pulse : Pulse
        Only its heartbeat is used.

    Returns
    -------
    Generalization
        Classes numbered in the order of their first records.

    Raises
    ------
    InfeasibleError
        If there are fewer than ``k`` records.
    InvalidParameterError
        If ``k`` is less than 1, or ``block_size`` less than 2.

    Notes
    -----
    **Source:** [OB] Section 3.2: Algorithm 2, Table 7. Losses are NCP by [FF]; attributes keep
    their numbers, or are expanded to binary ones, as the caller wants.

    The text says that a left-over record joins the class that "would incur the least utility loss",
    but Table 7 takes the class of least *resulting* loss. The least increase is the default, as
    it loses less.

    Cost: one pass over the row types that are left for each class, not for each record. A class
    that gains a record never loses less with any other. So the loss of each row type with the first
    record stays a lower bound, and only the few types below the least loss found are examined
    again: the result is that of the plain algorithm.

    Examples
    --------
    >>> import numpy as np
    >>> from kanon_db.algorithms.recoding.microdata import Attribute
    >>> age = Attribute(5, numbers=np.array([20.0, 30, 31, 52, 60]), lower=20, upper=60)
    >>> table = Microdata([[0], [2], [4], [1], [3]], (age,))
    >>> greedy_search(table, 2).class_of_record.tolist()
    [0, 1, 1, 0, 1]
    """
    check_k(k, microdata.n_records)
    if block_size is not None and block_size < 2:
        raise InvalidParameterError(
            "block_size must be at least 2", detail=f"block_size = {block_size}"
        )
    ncp, order = Ncp.of(microdata, pulse=pulse), sort_order(microdata, sorting)
    return Generalization(
        grow_classes(ncp, order, k, block_size=block_size, left_over=left_over, pulse=pulse)
    )


def split(
    microdata: Microdata, class_of_record: IntArray, k: int, *, pulse: Pulse = UNLIMITED
) -> IntArray:
    """Split each class of 2k records or more by Greedy Search.

    Each part loses at most as much as the class ([OB] Section 2.2 leaves this to the solver).
    """
    sizes = np.bincount(class_of_record)
    large = np.flatnonzero(sizes >= 2 * k)
    if not large.size:
        return class_of_record
    losses = Ncp.of(microdata, pulse=pulse).of_classes(class_of_record)
    order = np.argsort(class_of_record, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    result = class_of_record.copy()
    n_classes = sizes.size
    for g in large.tolist():
        pulse.beat()
        members = order[starts[g] : starts[g + 1]]
        if losses[g]:
            part = Microdata(microdata.codes[members], microdata.attributes)
            parts = greedy_search(part, k, pulse=pulse).class_of_record
        else:
            parts = classes_of_k(members.size, k)
        result[members] = np.where(parts == 0, g, n_classes + parts - 1)
        n_classes += int(parts.max())
    return result
