"""Sparse people: nearly everybody is alone with their birth date, zip code and sex."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray

COLUMNS = "born date, zip int, sex text, sick text"
QUASI_IDENTIFIERS = ["born", "zip", "sex"]
RARE = 0.02


def sparse_codes(n_people: int) -> tuple[CodeArray, CodeArray]:
    """Draw birth dates in days, zip codes and sexes, and who has the rare value (1).

    One person in fifty has it, whatever their quasi-identifiers.
    """
    random = np.random.default_rng(1)
    codes = random.integers(0, [80 * 365, 900, 2], (n_people, 3)).astype(np.int32)
    return codes, (random.random(n_people) < RARE).astype(np.int32)


def sparse_people(n_people: int) -> list[tuple[date, int, str, str]]:
    """Return the same people as the rows of a table."""
    codes, rare = sparse_codes(n_people)
    return [
        (
            date(1940, 1, 1) + timedelta(days=day),
            10_000 + zip_code,
            "mf"[sex],
            "HIV" if is_rare else f"common {day % 4}",
        )
        for (day, zip_code, sex), is_rare in zip(codes.tolist(), rare.tolist(), strict=True)
    ]
