"""Random count queries, and what a publication is good for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kanon_db.algorithms.ground.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Usefulness:
    """What a publication is good for.

    Attributes
    ----------
    answers : ndarray of float64, shape (n_queries,)
        What `estimate_count` answers.
    losses : ndarray of float64, shape (n_qi,)
        Of each quasi-identifier: 0 if each row shows its value, 1 if no row shows anything.
    """

    answers: FloatArray
    losses: FloatArray


SELECTIVITY: Final = (0.01, 0.05, 0.1)
"""Expected shares of matching records, of which each random query draws one."""


@dataclass(frozen=True)
class Workload:
    """Random count queries, as the parameters of `evaluate_counts` describe them."""

    queries: int
    dimensionality: tuple[int, ...] | None = None
    selectivity: tuple[float, ...] = SELECTIVITY
    seed: int | None = None
