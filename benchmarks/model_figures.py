"""Figures of attacks on models: [TH] Figures 4.1 to 4.7."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kanon_db.algorithms.ground.arrays import BoolArray, FloatArray

if TYPE_CHECKING:
    from benchmarks.model_robustness import Attacked

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
N_BINS = 40
_TITLES = (
    "members changed to the target (4.3.2)", "members changed to others (4.3.3)",
    "votes changed to the target (4.3.4)", "votes changed to others (4.3.5)",
    "accuracy of the vote", "share of examples classified correctly",
)  # fmt: skip


def draw(name: str, found: Mapping[str, Attacked]) -> None:
    """Draw six panels against the perturbation: Figures 4.1 to 4.3."""
    plt = _pyplot()
    figure, axes = plt.subplots(3, 2, figsize=(9, 8), layout="constrained")
    edges = np.linspace(0, max(float(a.size.max()) for a in found.values()), N_BINS + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    for label, attacked in found.items():
        for axis, title, values in zip(axes.flat, _TITLES, _binned(attacked, edges), strict=True):
            axis.plot(middles, values, marker=".", label=label)
            axis.set_title(title, fontsize=9, loc="left")
            axis.grid(axis="y", alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("perturbation")
    axes[0, 0].legend(frameon=False)
    figure.savefig(FIGURES / name, metadata={"Date": None})
    plt.close(figure)


def _binned(found: Attacked, edges: FloatArray) -> list[FloatArray]:
    """Return the values of each panel in each bin; NaN in bins without examples."""
    bins = np.clip(np.digitize(found.size, edges) - 1, 0, N_BINS - 1)
    n = np.bincount(bins, minlength=N_BINS)
    changed = found.after != found.before
    hit = found.after == found.target
    outcome = found.outcomes()
    stayed = found.winner == found.voted_before

    def total(values: FloatArray | BoolArray) -> FloatArray:
        return np.bincount(bins, values.astype(np.float64), N_BINS)

    per_bin = np.where(n > 0, n, np.nan)
    return [
        total((changed & hit).sum(axis=0)) / per_bin,
        total((changed & ~hit).sum(axis=0)) / per_bin,
        total(~stayed & outcome["target"]) / n.sum(),
        total(~stayed & ~outcome["target"]) / n.sum(),
        total(outcome["correct"]) / per_bin,
        total(outcome["correct"]) / max(1, outcome["correct"].sum()),
    ]


def draw_one(name: str, panels: Mapping[str, tuple[FloatArray, BoolArray, BoolArray]]) -> None:
    """Draw histograms of the perturbations on each member, by what it says: Figure 4.7."""
    plt = _pyplot()
    figure, axes = plt.subplots(
        len(panels) // 2, 2, figsize=(9, 1.3 * len(panels)), sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    largest = max(
        float(sizes[np.isfinite(sizes)].max(initial=0)) for sizes, _, _ in panels.values()
    )
    for axis, (label, (sizes, hit, right)) in zip(axes.flat, panels.items(), strict=True):
        known = np.isfinite(sizes)
        says = {"target": hit, "truth": right, "other": ~hit & ~right}
        axis.hist(
            [sizes[known & where] for where in says.values()], bins=20, range=(0, largest),
            stacked=True, label=list(says),
        )  # fmt: skip
        axis.set_title(label, fontsize=9, loc="left")
    axes[0, 0].legend(frameon=False)
    for axis in axes[-1]:
        axis.set_xlabel("perturbation")
    figure.savefig(FIGURES / name, metadata={"Date": None})
    plt.close(figure)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "kanon_db"  # the same results give the same file
    from matplotlib import pyplot as plt

    return plt
