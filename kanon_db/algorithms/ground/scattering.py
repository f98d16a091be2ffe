"""Numbers spread over all 64 bits, so that sums of them tell what was summed up."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, WordArray


def scattered(numbers: AnyIntArray) -> WordArray:
    """Return a number of 64 bits for each number, as good as random, and equal for equal ones.

    Notes
    -----
    **Source:** the output function of SplitMix64 (G. Steele et al., OOPSLA 2014), of which no two
    numbers have the same value.

    Examples
    --------
    >>> scattered(np.array([0, 1]))
    array([16294208416658607535,  7960286522194355700], dtype=uint64)
    """
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed
