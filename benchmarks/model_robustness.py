"""Models under the attack of Carlini and Wagner: [TH] 4.3, Tables 4.3 to 4.8, Figures 4.1 to 4.7.

Needs the extras bench and models. With KANON_MNIST, on MNIST instead of scikit-learn's digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks import model_attacks, model_data, model_figures
from benchmarks.harness import table
from benchmarks.model_data import CLASSES, MEMBERS
from kanon_db.algorithms.ground.arrays import AnyIntArray, BoolArray, FloatArray, IntArray
from kanon_db.models._network import Float32Array
from kanon_db.models._votes import vote

N_SAMPLES = 30
N_SINGLE = 9
PARTS = {"disjoint": "disjoint parts", "all": "all images each"}
THESIS_SINGLE = {
    "MNIST": (100.0, 88.37, 3.85, 7.78, 15.34, 15.52, 22.16),
    "MNIST, Noisy Logit": (98.667, 79.98, 8.35, 11.68, 13.58, 19.06, 22.42),
}
THESIS_SUPERIMPOSED = {
    2: {
        "MNIST": (96.8, 55.2963, 66.2963, 13.3333, 20.3704, 14.6285, 25.7126, 24.3226),
        "MNIST, Noisy Logit": (79.6296, 69.1333, 96.6667, 0, 3.3333, 6.4906, 0, 24.3824),
    },
    3: {
        "MNIST": (95.6, 24.6889, 26.6667, 57.7778, 15.5556, 13.0187, 29.0136, 34.7022),
        "MNIST, Noisy Logit": (74.6222, 55.9333, 90.0, 2.2222, 7.7778, 8.36, 50.5385, 26.6385),
    },
}


@dataclass(frozen=True)
class Attacked:
    """How images that were meant for a target are classified by an ensemble.

    Parameters
    ----------
    before, after : ndarray of int, shape (n_members, n)
        Classes that the members give to the samples and to what was made of them.
    true, target : ndarray of int, shape (n,)
    size : ndarray of float64, shape (n,)
        Perturbations.
    """

    before: AnyIntArray
    after: AnyIntArray
    true: AnyIntArray
    target: AnyIntArray
    size: FloatArray

    def outcomes(self) -> dict[str, BoolArray]:
        """Return where the vote is right, the target, or something else."""
        winner = self.winner
        right, hit = winner == self.true, winner == self.target
        return {"correct": right, "target": hit, "other": ~right & ~hit}

    @property
    def winner(self) -> IntArray:
        """Classes by vote."""
        return vote(self.after, CLASSES).winner

    @property
    def voted_before(self) -> IntArray:
        """Classes of the samples by vote."""
        return vote(self.before, CLASSES).winner

    @property
    def clean(self) -> float:
        """Accuracy of the vote on the samples."""
        return float((self.voted_before == self.true).mean())

    def single(self) -> tuple[float, float]:
        """Return the members' mean accuracy on the samples, and on what was made of them."""
        return (self.before == self.true).mean().item(), (self.after == self.true).mean().item()


@dataclass(frozen=True)
class Setting:
    """An ensemble, and the noise in its answers to the attacker and afterwards."""

    parts: str
    scale: float
    crafted_with: float

    @property
    def name(self) -> str:
        """What tables call it."""
        noise = ", Noisy Logit" if self.scale else ""
        copy = ", attacked on an exact copy" if self.scale != self.crafted_with else ""
        return f"{PARTS[self.parts]}{noise}{copy}"


def main() -> str:
    """Return the results as Markdown."""
    settings = [
        Setting(parts, scale, crafted_with)
        for parts in attacked_parts()
        for scale, crafted_with in _noises(model_data.noise_scale(parts))
    ]
    single = {setting: _single(setting) for setting in settings}
    superimposed = {n: {s: _superimposed(s, n) for s in settings} for n in (2, 3)}
    for parts in attacked_parts():
        plain, noisy = (
            single[s] for s in settings if s.parts == parts and s.scale == s.crafted_with
        )
        model_figures.draw(f"models-{parts}.svg", {"plain": plain, "Noisy Logit": noisy})
    return "\n".join([
        _introduction(),
        _of_single(single),
        *(_of_superimposed(n, found) for n, found in superimposed.items()),
        _figures(single),
    ])  # fmt: skip


def attacked_parts() -> tuple[str, ...]:
    """Return which ensembles are attacked: both of MNIST.

    Of the digits, parts have 27 images each, and their members are right for three of five images
    without any attack.
    """
    return tuple(PARTS) if model_data.images().name == "MNIST" else ("all",)


def _noises(scale: float) -> tuple[tuple[float, float], ...]:
    return (0.0, 0.0), (scale, scale), (scale, 0.0)


def samples() -> tuple[Float32Array, AnyIntArray, AnyIntArray]:
    """Return test images, their classes, and all other classes as targets."""
    x, y = (array[:N_SAMPLES] for array in model_data.images().test)
    return x, y, np.array([[c for c in range(CLASSES) if c != true] for true in y.tolist()])


def _crafted(setting: Setting) -> Float32Array:
    return _crafted_with(setting.parts, setting.crafted_with)


@cache
def _crafted_with(parts: str, scale: float) -> Float32Array:
    x, _, targets = samples()
    return model_attacks.crafted(model_data.ensemble(parts), x, targets, scale)


def _single(setting: Setting) -> Attacked:
    """[TH] 4.3.2: an example of 9 samples for each target against each member."""
    adversarial = _crafted(setting)[:, :N_SINGLE]
    return _attacked(setting, adversarial)


def _superimposed(setting: Setting, n: int) -> Attacked:
    """[TH] 4.3.3: the smallest perturbations of a sample for a target, added up."""
    x, _, _ = samples()
    added, _ = model_attacks.superimposed(_crafted(setting), x, n)
    return _attacked(setting, added[None])


def _attacked(setting: Setting, images: Float32Array) -> Attacked:
    """Classify images of shape (any, n_samples, n_targets, *shape), but no failed attacks."""
    x, y, targets = samples()
    n, n_samples, n_targets = images.shape[:3]
    sizes = model_attacks.perturbations(images, x[:n_samples, None]).ravel()
    flat = images.reshape(-1, *x.shape[1:])[np.isfinite(sizes)]
    sample = np.tile(np.repeat(np.arange(n_samples), n_targets), n)[np.isfinite(sizes)]
    members = model_data.ensemble(setting.parts)
    return Attacked(
        model_data.labels(members, x[sample], setting.scale),
        model_data.labels(members, flat, setting.scale),
        y[sample],
        np.tile(targets[:n_samples].ravel(), n)[np.isfinite(sizes)],
        sizes[np.isfinite(sizes)],
    )


def _introduction() -> str:
    data = model_data.images()
    shape = "x".join(map(str, data.train[0].shape[1:3]))
    counts = [len(y) for _, y in (data.train, data.validation, data.test)]
    layers = ", ".join(
        f"{layer.kind} {layer.units or '2x2'}"
        for layer in model_data.ensemble("all")[0].architecture.layers
    )
    rows = []
    for parts, name in PARTS.items():
        members, scale = model_data.ensemble(parts), model_data.noise_scale(parts)
        for noise in (0.0, scale):
            found = (
                model_data.accuracies(members, *part, noise)
                for part in (data.validation, data.test)
            )
            rows.append([name, f"{noise:g}", *(_percent(v) for pair in found for v in pair)])
    return (
        f"Data: {data.name}, {shape} pixels from 0 to 1: {counts[0]:,} images to train with, "
        f"{counts[1]:,} to choose the noise, {counts[2]:,} to test. {MEMBERS} members with the "
        f"temperatures 10, 20, … 500; layers: {layers}. The scale of the noise is the largest of "
        f"{', '.join(map(str, model_data.SCALES))} with which the vote on the images for choosing "
        f"loses at most {model_data.MOST_LOST:.0%}; no attack was asked. "
        "[What models withstand](../understand/model-robustness.md) says what the figures mean.\n\n"
        + table(
            ["members see", "noise", "one member, to choose", "vote, to choose", "one member, test",
             "vote, test"],
            rows,
        )
        + f"\nAttack: Carlini and Wagner, L2, targeted, by foolbox, {_attack()}. Each "
        f"of {N_SAMPLES} test images is attacked for each of {CLASSES - 1} targets on each member: "
        f"{N_SAMPLES * (CLASSES - 1) * MEMBERS:,} examples. {_left_out()}"
        "*Noisy Logit*: the "
        "attacker gets noisy logits, and noisy gradients, with fresh noise each time. *Attacked "
        "on an exact copy*: the attacker has the members without noise, and the examples are "
        "classified with noise. Rows in italics are the thesis's, of its Tables 4.3 to 4.8 (MNIST: "
        "disjoint parts of 1,100 images; noise 0.5).\n"
    )  # fmt: skip


def _left_out() -> str:
    if len(attacked_parts()) == len(PARTS):
        return ""
    return (
        "Members that see disjoint parts are not attacked: with 27 images each, they are right too "
        "seldom for the figures to mean anything. "
    )


def _attack() -> str:
    found = model_attacks.ATTACK
    return (
        f"{found['binary_search_steps']} constants from {found['initial_const']:g}, "
        f"{found['steps']} steps of {found['stepsize']:g}"
    )


def _of_single(found: Mapping[Setting, Attacked]) -> str:
    rows = [[f"*{name}*", *map(_written, values)] for name, values in THESIS_SINGLE.items()]
    rows += [[s.name, _percent(a.clean), *_shares(a)] for s, a in found.items()]
    heading = ["ensemble", "clean", "correct", "target", "other", *_SIZES]
    own = "; ".join(
        f"{s.name} {_percent(_own_target(s, a))}"
        for s, a in found.items()
        if s.scale == s.crafted_with
    )
    counts = {len(a.true) for a in found.values()}
    return (
        "### One member attacked (Tables 4.3 and 4.4)\n\n"
        f"The vote on examples against one member each: {N_SINGLE} samples, {min(counts):,} to "
        f"{max(counts):,} examples; clean: the vote on these samples. Perturbations are "
        "‖a - s‖ / ‖s‖ (4.3.1), means over the examples with that outcome.\n\n"
        + table(heading, rows)
        + f"\nThe attacked member itself says the target: {own}.\n"
    )


_SIZES = ("size if correct", "size if target", "size if other")


def _own_target(setting: Setting, found: Attacked) -> float:
    """Return how often the attacked member says the target of its own examples."""
    sizes = model_attacks.perturbations(
        _crafted(setting)[:, :N_SINGLE], samples()[0][:N_SINGLE, None]
    )
    own = np.repeat(np.arange(MEMBERS), sizes[0].size)[np.isfinite(sizes).ravel()]
    return float((found.after[own, np.arange(own.size)] == found.target).mean())


def _of_superimposed(n: int, found: Mapping[Setting, Attacked]) -> str:
    rows = [
        [f"*{name}*", *map(_written, values)] for name, values in THESIS_SUPERIMPOSED[n].items()
    ]
    rows += [[s.name, *map(_percent, a.single()), *_shares(a)] for s, a in found.items()]
    tables = {2: "4.5 and 4.6", 3: "4.7 and 4.8"}[n]
    heading = [
        "members", "one, clean", "one, attacked", "vote correct", "vote target", "vote other",
        *_SIZES,
    ]  # fmt: skip
    return (
        f"### The {n} smallest superimposed (Tables {tables})\n\n"
        f"{N_SAMPLES * (CLASSES - 1)} tests (the thesis: {270 if n == 2 else 90}).\n\n"
        + table(heading, rows)
    )


def _shares(found: Attacked) -> list[str]:
    """Write the shares of the outcomes, and the mean perturbation of each."""
    outcomes = found.outcomes().values()
    sizes = [f"{found.size[where].mean():.1%}" if where.any() else "" for where in outcomes]
    return [*(_percent(where.mean().item()) for where in outcomes), *sizes]


def _figures(single: Mapping[Setting, Attacked]) -> str:
    """Draw what happens to one image on each member (Figure 4.7), and name all figures."""
    x, y, targets = samples()
    place = int(np.argmax(y == 7)) if (y == 7).any() else 0
    aim = int(np.argmin(targets[place]))
    panels = {}
    for setting in single:
        if setting.scale != setting.crafted_with:
            continue
        images = _crafted(setting)[:, place, aim]
        members = model_data.ensemble(setting.parts)
        own = np.diag(model_data.labels(members, images, setting.scale))
        sizes = model_attacks.perturbations(images, x[place])
        panels[setting.name] = (sizes, own == targets[place, aim], own == y[place])
    model_figures.draw_one("models-one.svg", panels)
    counts: Sequence[Sequence[object]] = [
        [name, int(hit.sum()), int(right.sum()), f"{np.median(sizes):.1%}"]
        for name, (sizes, hit, right) in panels.items()
    ]
    return (
        "### Figures\n\n"
        "As Figures 4.1 to 4.6: counts of members and shares of votes changed to the target and to "
        "others, accuracy, and where the examples are that are classified correctly, in 40 bins of "
        "perturbations.\n\n"
        + "\n\n".join(
            f"![{PARTS[parts]}](../figures/models-{parts}.svg)" for parts in attacked_parts()
        )
        + "\n\n"
        f"Figure 4.7: a {y[place]} to become a {targets[place, aim]}, attacked on each member, and "
        "what that member then says (the thesis, MNIST with Noisy Logit: 8 the target, 29 the "
        "truth).\n\n"
        "![one image](../figures/models-one.svg)\n\n"
        + table(["members see", "target", "truth", "median size"], counts)
    )


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _written(percent: float) -> str:
    return f"{percent:.1f}%"
