"""K-Member clustering: classes grown far from one another (Byun et al. 2007)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kanon_db.algorithms.generalization.initial import check_k, sort_order
from kanon_db.algorithms.generalization.result import Generalization
from kanon_db.algorithms.ground.arrays import Integer
from kanon_db.algorithms.ground.pulse import no_heartbeat
from kanon_db.algorithms.recoding.classes import place_left_over
from kanon_db.algorithms.recoding.growth import Pool
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.algorithms.recoding.ncp import Ncp


def k_member(
    microdata: Microdata,
    k: int,
    *,
    random: np.random.Generator,
    heartbeat: Callable[[], None] = no_heartbeat,
) -> Generalization:
    """Grow classes of k records, each from the record furthest from the last one that was placed.

    The record that a class loses least by joins it, of several the first in sorted order, until
    there are k. Fewer than k records remain in the end; each joins the class whose loss grows
    least.

    Parameters
    ----------
    microdata : Microdata
    k : int
        Fewest records of a class, at least 1.
    random : numpy.random.Generator
        Draws the record that the first class begins far from.
    heartbeat : callable
        Called before each class; what it raises ends the work.

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
    pool = Pool(Ncp.of(microdata), sort_order(microdata), k)
    if not microdata.n_records:
        return Generalization(pool.class_of_record)
    last: Integer = pool.type_of_record(int(random.integers(microdata.n_records)))
    while pool.n_left >= k:
        heartbeat()
        pool.grow_from(pool.furthest(last))
        last = pool.last
    return Generalization(
        place_left_over(pool.ncp, pool.class_of_record, pool.left_over(), heartbeat=heartbeat)
    )
