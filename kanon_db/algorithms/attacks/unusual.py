"""People who stand out."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, CodeArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.ground.sort_keys import sort_keys

MOST_ALIKE = 3


def unusual_records(
    qi_codes: CodeArray, most_alike: int = MOST_ALIKE, pulse: Pulse = UNLIMITED
) -> BoolArray:
    """Find records with a pair of values that few records have.

    Parameters
    ----------
    qi_codes : ndarray of int32, shape (n_records, n_qi)
        With a single quasi-identifier, its values count instead of pairs.
    most_alike : int
        How many records may have the pair.

    Returns
    -------
    ndarray of bool, shape (n_records,)

    Notes
    -----
    **Source:** M. J. Elliot, A. M. Manning, R. W. Ford, *A computational algorithm for handling the
    special uniques problem*, 2002: whoever is rare by few attributes is easier to find, and stays
    rare, than those who are rare by all of them together.

    Examples
    --------
    >>> ages_and_sexes = np.array([[0, 0], [0, 0], [0, 1], [1, 1], [1, 1]], dtype=np.int32)
    >>> unusual_records(ages_and_sexes, 1).tolist()
    [False, False, True, False, False]
    """
    n_records, n_qi = qi_codes.shape
    unusual = np.zeros(n_records, dtype=np.bool_)
    for attributes in combinations(range(n_qi), min(2, n_qi)):
        pulse.beat()
        keys = sort_keys([qi_codes[:, a] for a in attributes])
        _, number, counts = np.unique(keys, return_inverse=True, return_counts=True)
        unusual |= counts[number] <= most_alike
    return unusual
