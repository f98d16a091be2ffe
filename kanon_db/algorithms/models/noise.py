"""Noisy Logit: Laplace noise on the input of a question, from the operating system."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.models.discrete_gaussian import Bits
from kanon_db.algorithms.models.networks import Float32Array
from kanon_db.randomness import SecureRandom


def noisy(inputs: Float32Array, scale: float, random: Bits | None = None) -> Float32Array:
    """Add Laplace noise to inputs, so that whatever a network makes of them is noisy.

    Parameters
    ----------
    inputs : ndarray of float32
    scale : float
        b of the Laplace distribution, in units of the encoded input; its standard deviation is
        sqrt(2) b. With 0, inputs come back as they are.
    random : Bits, optional
        The operating system's generator by default.

    Returns
    -------
    ndarray of float32, of the same shape

    Notes
    -----
    **Source:** [TH] 4.2.2, equations 4.2.3 and 4.2.4. Each member of an ensemble gets noise of its
    own, as each network has its own Noisy Logit there. Noise on the input at question time, rather
    than on the logits, cannot be averaged away exactly, since the mean of a network's answers is
    not its answer to the mean; how close averages get is measured in
    docs/understand/model-robustness.md.

    This is no differential privacy: nothing about the people in the source rests on it, so that
    the gaps of floating-point Laplace noise (I. Mironov, *On significance of the least significant
    bits for differential privacy*, CCS 2012) tell nothing of them. Noise that privacy rests on is
    drawn in whole numbers (:func:`kanon_db.algorithms.models.voting.noisy_vote`). The noise is from
    the operating system so that no one who learns a seed or a state can subtract it.

    Examples
    --------
    >>> noisy(np.zeros((2, 3), np.float32), 0.0).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    if not scale:
        return inputs
    drawn = np.frombuffer((random or SecureRandom()).bytes(4 * inputs.size), dtype=np.uint32)
    # The lowest bit is the sign; of the others, (2 i + 1) / 2^32 lies strictly between 0 and 1.
    magnitude = np.log((drawn | 1).astype(np.float64) / 2**32) * -scale
    signed = np.where(drawn & 1, magnitude, -magnitude).reshape(inputs.shape)
    return (inputs + signed).astype(np.float32)
