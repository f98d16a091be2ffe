"""Sparse people: nearly everybody is alone with their birth date, zip code and sex."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np

COLUMNS = "born date, zip int, sex text, sick text"
QUASI_IDENTIFIERS = ["born", "zip", "sex"]
RARE = 0.02


def sparse_people(n_people: int) -> list[tuple[date, int, str, str]]:
    """Draw people, of whom one in fifty has the rare value, whatever their quasi-identifiers."""
    random = np.random.default_rng(1)
    days = random.integers(0, 80 * 365, n_people).tolist()
    zips = (random.integers(0, 900, n_people) + 10_000).tolist()
    women = random.integers(0, 2, n_people).tolist()
    common = random.integers(0, 4, n_people).tolist()
    rare = (random.random(n_people) < RARE).tolist()
    return [
        (
            date(1940, 1, 1) + timedelta(days=day),
            zip_code,
            "mf"[woman],
            "HIV" if is_rare else f"common {value}",
        )
        for day, zip_code, woman, value, is_rare in zip(
            days, zips, women, common, rare, strict=True
        )
    ]
