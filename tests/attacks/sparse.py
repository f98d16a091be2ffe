"""Sparse people: nearly everybody is alone with their birth date, zip code and sex."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray

RARE = 0.02


def sparse_codes(n_people: int) -> tuple[CodeArray, CodeArray]:
    """Draw birth dates in days, zip codes and sexes, and who has the rare value (1).

    One person in fifty has it, whatever their quasi-identifiers.
    """
    random = np.random.default_rng(1)
    codes = random.integers(0, [80 * 365, 900, 2], (n_people, 3)).astype(np.int32)
    return codes, (random.random(n_people) < RARE).astype(np.int32)
