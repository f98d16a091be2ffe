"""The attack of Carlini and Wagner (L2, targeted) against members of an ensemble, by foolbox."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray
from kanon_db.models._descent import forward
from kanon_db.models._network import Float32Array, Member

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # foolbox imports what scipy has moved
    import foolbox

ATTACK = {"binary_search_steps": 5, "steps": 100, "stepsize": 0.1, "initial_const": 1e-2}
_AT_ONCE = 5  # members

# foolbox takes one logit of each row with range(n) as an index, which JAX converts number by
# number: most of the time. An array is the same index, converted at once.
foolbox.attacks.carlini_wagner.range = np.arange

Model = Callable[[jax.Array], jax.Array]


def crafted(
    members: Sequence[Member],
    samples: Float32Array,
    targets: AnyIntArray,
    scale: float = 0.0,
) -> Float32Array:
    """Craft an adversarial example of each sample for each target against each member.

    With a scale, the attacker asks members with Noisy Logit: every logit and every gradient has
    fresh noise.

    Returns
    -------
    ndarray of float32, shape (n_members, n_samples, n_targets, *shape)
        Zeros where the attack fails.
    """
    n_samples, n_targets = targets.shape
    repeated = np.repeat(samples, n_targets, axis=0)
    found = []
    for start in range(0, len(members), _AT_ONCE):
        group = members[start : start + _AT_ONCE]
        x = np.tile(repeated, (len(group), *[1] * (samples.ndim - 1)))
        model = with_noise(side_by_side(group), scale)
        adversarial = attacked(model, x, np.tile(targets.ravel(), len(group)))
        found.append(adversarial.reshape(len(group), n_samples, n_targets, *samples.shape[1:]))
    return np.concatenate(found)


def attacked(
    model: Model, x: Float32Array, targets: AnyIntArray, confidence: float = 0.0
) -> Float32Array:
    """Craft an adversarial example of each image; zeros where the attack fails."""
    attack = foolbox.attacks.L2CarliniWagnerAttack(**ATTACK, confidence=confidence)
    criterion = foolbox.criteria.TargetedMisclassification(jnp.asarray(targets))
    seen = foolbox.JAXModel(model, bounds=(0, 1))
    return np.asarray(attack.run(seen, jnp.asarray(x), criterion))


def side_by_side(members: Sequence[Member]) -> Model:
    """Answer with logits; the first images go to the first member, and so on, as many to each."""
    architecture = members[0].architecture
    parameters = [
        jnp.stack(arrays) for arrays in zip(*(m.parameters for m in members), strict=True)
    ]

    @jax.jit
    def model(x: jax.Array) -> jax.Array:
        shares = x.reshape(len(members), -1, *x.shape[1:])
        outputs = jax.vmap(lambda p, s: forward(architecture, p, s))(parameters, shares)
        return outputs.reshape(x.shape[0], -1)

    return model


def together(members: Sequence[Member], scale: float = 0.0) -> Model:
    """Answer with the mean of all members' logits, each divided by its temperature.

    With a scale, each member has noise of its own on its input, fresh for every question.
    """
    heats = np.array([member.temperature for member in members], np.float32)
    model = with_noise(side_by_side(members), scale)

    def mean(x: jax.Array) -> jax.Array:
        outputs = model(jnp.tile(x, (len(members), *[1] * (x.ndim - 1))))
        return (outputs.reshape(len(members), len(x), -1) / heats[:, None, None]).mean(axis=0)

    return mean


def with_noise(model: Model, scale: float, draws: int = 1) -> Model:
    """Answer with Noisy Logit: fresh noise on the input of every question; means of several draws.

    Several draws are what an attacker asks for who averages answers, and, where gradients are
    known, expectation over transformation.
    """
    if not scale:
        return model
    keys = iter(lambda: jax.random.key(int(np.random.default_rng().integers(2**63))), None)

    @jax.jit
    def answer(x: jax.Array, key: jax.Array) -> jax.Array:
        noise = scale * jax.random.laplace(key, (draws, *x.shape), dtype=jnp.float32)
        return sum(model(x + part) for part in noise) / draws

    return lambda x: answer(x, next(keys))


def perturbations(adversarial: Float32Array, samples: Float32Array) -> FloatArray:
    """Return ||a - s|| / ||s|| of each example ([TH] 4.3.1); infinity where the attack failed.

    Both have the shape of an image in their last three dimensions; the others are broadcast.
    """
    axes = (-3, -2, -1)
    size = np.sqrt(((adversarial - samples) ** 2).sum(axis=axes) / (samples**2).sum(axis=axes))
    failed = ~adversarial.any(axis=axes)
    return np.where(failed, np.inf, size).astype(np.float64)


def superimposed(
    adversarial: Float32Array, samples: Float32Array, n: int
) -> tuple[Float32Array, AnyIntArray]:
    """Add the n smallest perturbations of each sample and target to the sample.

    Parameters
    ----------
    adversarial : ndarray of float32, shape (n_members, n_samples, n_targets, *shape)
    samples : ndarray of float32, shape (n_samples, *shape)

    Returns
    -------
    ndarray of float32, shape (n_samples, n_targets, *shape)
        With pixels cut off at 0 and 1.
    ndarray of int, shape (n, n_samples, n_targets)
        The members that the perturbations were crafted against.
    """
    originals = samples[:, None]
    order = np.argsort(perturbations(adversarial, originals), axis=0)[:n]
    picked = np.take_along_axis(adversarial, order[..., None, None, None], axis=0)
    picked = np.where(picked.any(axis=(-3, -2, -1), keepdims=True), picked, originals)
    return np.clip(originals + (picked - originals).sum(axis=0), 0, 1), order
