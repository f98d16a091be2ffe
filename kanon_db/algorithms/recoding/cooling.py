"""What every simulated annealing needs: its schedule, its acceptance, its random numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numba
import numpy as np

from kanon_db.algorithms.ground.arrays import Integer, WordArray
from kanon_db.algorithms.ground.pulse import Pulse

_COLD_SHARE = 0.05  # of the proposals come last, without any heat
_PROPOSALS_PER_CALL = 2**13  # some milliseconds

PROPOSALS_PER_SECOND = 500_000
"""What a second of a time limit is worth to each worker: most machines make more in a second."""

_OVERDUE = 4.0  # times its seconds, after which annealing ends all the same


@dataclass(frozen=True)
class Schedule:
    """How many changes are proposed, and how the temperature falls from the first to the last.

    Parameters
    ----------
    n_proposals : int
    hottest, coldest : float
        Temperatures as shares of the mean loss; with 0 as ``hottest`` there is no heat at all. The
        default is for equivalence classes.
    """

    n_proposals: int
    hottest: float = 0.4
    coldest: float = 0.045

    def steps(
        self, mean_loss: float, pulse: Pulse, workers: int = 1
    ) -> Iterator[tuple[int, float]]:
        """Divide the work into calls of some milliseconds.

        Parameters
        ----------
        mean_loss : float
            In units.
        pulse : Pulse
            It beats before each call. Its seconds are counted in proposals, at
            ``PROPOSALS_PER_SECOND`` for each worker, so that the same request finds the same
            however busy the machine is. The clock ends the work only after ``_OVERDUE`` times as
            long.
        workers : int
            How many share the proposals of a call.

        Yields
        ------
        n_proposals : int
        temperature : float
            In units.
        """
        n_done = 0
        in_time = max(pulse.seconds, 0.0) * workers * PROPOSALS_PER_SECOND
        n_planned = int(min(self.n_proposals, in_time))
        while True:
            pulse.beat()
            if n_done >= n_planned or pulse.spent >= _OVERDUE:
                return
            n_proposals = min(workers * _PROPOSALS_PER_CALL, n_planned - n_done)
            yield n_proposals, mean_loss * self._temperature(n_done / n_planned)
            n_done += n_proposals

    def _temperature(self, done: float) -> float:
        """Temperature after a share of the work, as a share of the mean loss."""
        if not self.hottest or done >= 1 - _COLD_SHARE:
            return 0.0
        return float(self.hottest * (self.coldest / self.hottest) ** (done / (1 - _COLD_SHARE)))


def random_state(random: np.random.Generator) -> WordArray:
    """Draw where the random numbers of an annealing begin.

    Parameters
    ----------
    random : numpy.random.Generator

    Returns
    -------
    ndarray of uint64, shape (1,)
        Not 0.
    """
    return random.integers(1, 2**64, size=1, dtype=np.uint64)


@numba.njit(cache=True, nogil=True)
def threshold_of(temperature: float, state: WordArray) -> Integer:
    """Draw how much more a change may lose: exponentially distributed."""
    if temperature <= 0.0:
        return 0
    share = (np.float64(random_bits(state) >> np.uint64(11)) + 0.5) * 2.0**-53
    return np.int64(-math.log(share) * temperature)


@numba.njit(cache=True, nogil=True)
def random_bits(state: WordArray) -> np.uint64:
    """Draw the next 64 bits of xorshift64*."""
    bits = state[0]
    bits ^= bits >> np.uint64(12)
    bits ^= bits << np.uint64(25)
    bits ^= bits >> np.uint64(27)
    state[0] = bits
    return np.uint64(bits * np.uint64(2685821657736338717))


@numba.njit(cache=True, nogil=True)
def scaled(bits: np.uint64, end: np.uint64) -> np.uint64:
    """Make a number below ``end`` of 32 random bits."""
    return (bits * end) >> np.uint64(32)
