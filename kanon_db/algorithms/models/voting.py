"""Ensemble Voting, and votes with noise that a budget pays for."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray, IntArray
from kanon_db.algorithms.models.discrete_gaussian import Bits, discrete_gaussian
from kanon_db.errors import InvalidParameterError
from kanon_db.randomness import SecureRandom


@dataclass(frozen=True)
class Votes:
    """What an ensemble says of some rows.

    Parameters
    ----------
    winner : ndarray of int64, shape (n_rows,)
        The class with most votes; of several, the one with the lowest number.
    share : ndarray of float64, shape (n_rows,)
        Share of the members that voted for it; an estimate between 0 and 1 if there is noise.
    """

    winner: IntArray
    share: FloatArray


def count_votes(labels: AnyIntArray, classes: int) -> IntArray:
    """Count the votes for each class.

    Parameters
    ----------
    labels : ndarray of int, shape (n_members, n_rows)
        The class that each member holds most probable.
    classes : int

    Returns
    -------
    ndarray of int64, shape (n_rows, classes)
    """
    n_rows = labels.shape[1]
    places = (labels + np.arange(n_rows) * classes).ravel()
    return np.bincount(places, minlength=n_rows * classes).reshape(n_rows, classes)


def vote(labels: AnyIntArray, classes: int) -> Votes:
    """Let the members vote.

    Parameters
    ----------
    labels : ndarray of int, shape (n_members, n_rows)
    classes : int

    Returns
    -------
    Votes

    Notes
    -----
    **Source:** [TH] 4.2.3, equation 4.2.5: the answer is that of the largest set of members that
    agree. The thesis says nothing of ties; the lowest number of a class wins, so that the same
    votes always give the same answer.

    Examples
    --------
    >>> votes = vote(np.array([[0, 1], [2, 1], [2, 0], [0, 1]]), 3)
    >>> votes.winner.tolist(), votes.share.tolist()
    ([0, 1], [0.5, 0.75])
    """
    counts = count_votes(labels, classes)
    return Votes(counts.argmax(axis=1), counts.max(axis=1, initial=0) / len(labels))


def noisy_vote(labels: AnyIntArray, classes: int, sigma: int, random: Bits | None = None) -> Votes:
    """Let the members vote, with noise on the number of votes for each class.

    Parameters
    ----------
    labels : ndarray of int, shape (n_members, n_rows)
        Of members that were trained on disjoint parts, or nothing is promised.
    classes : int
        Declared, not learned from the records.
    sigma : int
        Parameter of the noise, at least 1: about its standard deviation, in votes.
    random : Bits, optional
        The operating system's generator by default.

    Returns
    -------
    Votes
        The share is that of the noisy votes, within 0 and 1.

    Raises
    ------
    InvalidParameterError
        If sigma is no whole number, or below 1.

    Notes
    -----
    **Source:** N. Papernot et al., *Scalable private learning with PATE*, ICLR 2018 (GNMax), with
    the discrete Gaussian of C. Canonne, G. Kamath, T. Steinke, *The discrete Gaussian for
    differential privacy*, NeurIPS 2020, in place of the continuous one: votes plus noise are whole
    numbers, drawn without rounding, so that the attack on floating-point noise (Mironov 2012) has
    nothing to work on.

    **What it promises.** Someone whose records are replaced changes one part, thus one member,
    thus at most one vote: from one class to another. The counts of a row then change by at most
    sqrt(2) in L2. With independent discrete Gaussian noise of parameter sigma on each count, the
    noisy counts of a row satisfy zero-concentrated differential privacy with
    rho = (sqrt(2))^2 / (2 sigma^2) = 1 / sigma^2 (Canonne, Kamath, Steinke, Theorem 14). Winner and
    share are computed from these alone, so they satisfy it, too (post-processing). Rows add up:
    :mod:`kanon_db.algorithms.models.accounting`.

    It holds if nothing else that the reader sees, or that all members share, was made from the
    records: the encoding needs declared ranges and categories.
    """
    if not isinstance(sigma, int) or sigma < 1:
        raise InvalidParameterError(
            "the noise on votes must be a whole number from 1", detail=f"sigma = {sigma}"
        )
    counts = count_votes(labels, classes)
    drawn = discrete_gaussian(Fraction(sigma) ** 2, counts.size, random or SecureRandom())
    counts = counts + drawn.reshape(counts.shape)
    share = counts.max(axis=1, initial=-(2**62)) / len(labels)
    return Votes(counts.argmax(axis=1), np.clip(share, 0.0, 1.0))
