"""Models under attacks that know of the noise: averages, expectation over transformation, theft.

What [TH] 4.5 leaves open. Needs the extras bench and models; images as in model_robustness.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks import model_attacks, model_data
from benchmarks.harness import table
from benchmarks.model_attacks import Model, attacked, perturbations, side_by_side, with_noise
from benchmarks.model_data import CLASSES
from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.models._network import Float32Array, Member, logits
from kanon_db.models._training import train
from kanon_db.models._votes import noisy_inputs, vote

N_SAMPLES = 10
N_TARGETS = 3
ATTACKED = (0, 24, 49)
AVERAGES = (1, 4, 16)
ANSWERS = (1, 10, 100, 1000)
QUESTIONS = (200, 2000)
CONFIDENCES = (0.0, 5.0)
_SHIFTS = (-1, 0, 1)


def main() -> str:
    """Return the results as Markdown."""
    members, scale = model_data.ensemble("all"), model_data.noise_scale("all")
    introduction = (
        f"{model_data.images().name}, {len(members)} members that each see all images, noise "
        f"{scale:g}, as [above](#models-under-attack), and the same attack, against {N_SAMPLES} "
        f"test images for {N_TARGETS} targets each. *Exact vote* is without noise. "
        "[What models withstand](../understand/model-robustness.md) says what the figures mean.\n"
    )
    return "\n".join([
        introduction,
        _averaging(members, scale),
        _one_member(members, scale),
        _whole_ensemble(members, scale),
        _stolen(members, scale),
    ])  # fmt: skip


def samples() -> tuple[Float32Array, AnyIntArray, AnyIntArray]:
    """Return each image as often as it has targets, with its class and its targets."""
    x, y = (array[:N_SAMPLES] for array in model_data.images().test)
    targets = (y[:, None] + np.array([1, 4, 7])[:N_TARGETS]) % CLASSES
    return np.repeat(x, N_TARGETS, axis=0), np.repeat(y, N_TARGETS), targets.ravel()


def _averaging(members: Sequence[Member], scale: float) -> str:
    """Ask for the logits of an image again and again, and average what comes back."""
    x, _ = model_data.images().test
    x = x[:100]
    rows = []
    for n in ANSWERS:
        distances, agree = [], []
        for member in (members[i] for i in ATTACKED):
            exact = logits(member, x)
            total = np.zeros_like(exact)
            for _ in range(n):
                total += logits(member, noisy_inputs(x, scale))
            spread = exact - exact.mean(axis=1, keepdims=True)
            distances.append(np.linalg.norm(total / n - exact) / np.linalg.norm(spread))
            agree.append((total.argmax(axis=1) == exact.argmax(axis=1)).mean())
        rows.append([n, f"{np.mean(distances):.1%}", f"{np.mean(agree):.1%}"])
    return (
        "### Averages of noisy answers\n\nHow far the mean of so many noisy logits of one member "
        "is from its logits without noise (in units of these, from their mean), and how often both "
        f"name the same class: 100 test images, {len(ATTACKED)} members.\n\n"
        + table(["answers", "distance", "same class"], rows)
    )


def _outcome(
    members: Sequence[Member], adversarial: Float32Array, scale: float, n: int = 1
) -> list[str]:
    """Say how large examples are, and what the exact and the noisy vote say of them."""
    x, true, target = (np.concatenate([array] * n) for array in samples())
    sizes = perturbations(adversarial, x)
    found = np.isfinite(sizes)
    if not found.any():
        return ["0%"]
    row = [f"{found.mean():.0%}", f"{sizes[found].mean():.1%}"]
    for noise in (0.0, scale):
        labels = model_data.labels(tuple(members), adversarial[found], noise)
        winner = vote(labels, CLASSES).winner
        row += [f"{(winner == true[found]).mean():.1%}", f"{(winner == target[found]).mean():.1%}"]
    return row


_OUTCOME = (
    "attack succeeds", "size", "exact vote correct", "exact vote target", "noisy vote correct",
    "noisy vote target",
)  # fmt: skip


def _attacked_at(model: Model, n: int = 1, confidence: float = 0.0) -> Float32Array:
    x, _, target = (np.concatenate([array] * n) for array in samples())
    return attacked(model, x, target, confidence)


def _one_member(members: Sequence[Member], scale: float) -> str:
    group = [members[i] for i in ATTACKED]
    rows = [
        [f"mean of {n}", *_outcome(members, found, scale, len(group)), own]
        for n in AVERAGES
        for found in [_attacked_at(with_noise(side_by_side(group), scale, n), len(group))]
        for own in [_own(group, found, scale)]
    ]
    exact = _attacked_at(side_by_side(group), len(group))
    rows.append(
        ["exact copy", *_outcome(members, exact, scale, len(group)), _own(group, exact, scale)]
    )
    return (
        "### One member, by means of noisy answers\n\nThe attacker gets the mean of so many noisy "
        "logits, with its gradient (expectation over transformation), for each step. *The member*: "
        "how often the attacked member, with noise, then says the target.\n\n"
        + table(["attacker sees", *_OUTCOME, "the member"], rows)
    )


def _own(group: Sequence[Member], adversarial: Float32Array, scale: float) -> str:
    _, _, target = samples()
    shares = adversarial.reshape(len(group), -1, *adversarial.shape[1:])
    hits = [
        (logits(member, noisy_inputs(share, scale)).argmax(axis=1) == target).mean()
        for member, share in zip(group, shares, strict=True)
    ]
    return f"{np.mean(hits):.1%}"


def _whole_ensemble(members: Sequence[Member], scale: float) -> str:
    rows = [
        [name, *_outcome(members, _attacked_at(model, confidence=confidence), scale)]
        for name, model, confidence in (
            ("exact copies", model_attacks.together(members), 0.0),
            ("exact copies, confidence 2", model_attacks.together(members), 2.0),
            ("noisy answers", model_attacks.together(members, scale), 0.0),
            ("noisy answers, confidence 2", model_attacks.together(members, scale), 2.0),
        )
    ]
    return (
        "### All members at once\n\nThe attacker sees all members, and attacks the mean of their "
        "logits, each divided by its temperature; noisy answers have fresh noise for each member, "
        "with gradients, so that one step averages over 50 draws. Confidence: by how much the "
        "target must be ahead.\n\n" + table(["attacker sees", *_OUTCOME], rows)
    )


def _stolen(members: Sequence[Member], scale: float) -> str:
    rows = []
    for n in QUESTIONS:
        for noise in (0.0, scale):
            x = _questions(n)
            answers = vote(model_data.labels(tuple(members), x, noise), CLASSES).winner
            (surrogate,) = train(
                x, answers, CLASSES, members=1, temperatures=[1.0],
                settings=model_data.SETTINGS, generator=np.random.default_rng(n),
            )  # fmt: skip
            test, true = model_data.images().test
            own = (logits(surrogate, test).argmax(axis=1) == true).mean()
            for confidence in CONFIDENCES:
                found = _attacked_at(side_by_side([surrogate]), confidence=confidence)
                name = f"{n:,}{', noisy' if noise else ''}"
                rows.append(
                    [name, f"{own:.1%}", f"{confidence:g}", *_outcome(members, found, scale)]
                )
    return (
        "### A stolen model\n\nThe attacker asks only for classes, by exact or noisy vote, of own "
        "images: the 200 for choosing, and shifts of these by a pixel with noise. One network "
        "learns the answers, and is attacked; the examples are tried on the "
        "ensemble.\n\n"
        + table(["questions", "accuracy of the copy", "confidence", *_OUTCOME], rows)
    )


def _questions(n: int) -> Float32Array:
    """Make images to ask about, of those that no member has seen."""
    x, _ = model_data.images().validation
    generator = np.random.default_rng(7)
    picked = x[np.arange(n) % len(x)].copy()
    for i in range(len(x), n):
        shift = generator.choice(_SHIFTS, 2)
        moved = np.roll(picked[i], shift, axis=(0, 1))
        picked[i] = np.clip(moved + generator.normal(0, 0.1, moved.shape), 0, 1)
    return picked
