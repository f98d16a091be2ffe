"""K-Member clustering: classes grown far from one another (Byun et al. 2007)."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.generalization.result import Generalization
from kanon_db.algorithms.ground.arrays import Integer
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.microdata import Microdata, check_k
from kanon_db.algorithms.recoding.ncp import Ncp
from kanon_db.algorithms.recoding.order import sort_order
from kanon_db.algorithms.recoding.pool import Pool


def k_member(
    microdata: Microdata, k: int, *, random: np.random.Generator, pulse: Pulse = UNLIMITED
) -> Generalization:
    """Grow classes of k records, each from the record furthest from the last one that was placed.

    The record joins a class that adds least to its loss, or the first of several in sorted order,
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
    pool = Pool(Ncp.of(microdata), sort_order(microdata), k)
    last: Integer = pool.type_of_record(int(random.integers(microdata.n_records)))
    while pool.n_left >= k:
        pulse.beat()
        last = pool.grow_from(pool.furthest(last))
    return Generalization(pool.finished("least_increase", pulse))
