"""Models: accuracy beside one network, time and memory of training and of answers, noisy votes.

Adult is looked for in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``. Each
measurement of time and memory has a process of its own.
"""

from __future__ import annotations

import json
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import model_data
from benchmarks.harness import seconds, table, timed
from benchmarks.real_tables import DATA
from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.models._network import (
    Descent,
    Encoding,
    FeatureKind,
    Float32Array,
    Member,
    TrainingSettings,
    logits,
)
from kanon_db.models._training import parts_of, train
from kanon_db.models._votes import (
    best_threshold,
    calibrate_scores,
    count_votes,
    epsilon_after,
    highest_rate,
    membership_rate,
    noisy_inputs,
    noisy_vote,
    vote,
    votes_within,
)

MEMBERS = 50
HEATS = (10.0, 110.0, 310.0, 500.0)
N_QUESTIONS = 1000
N_TEST = 6000
SIGMAS = (5, 10, 20, 40)
EPSILONS = (1.0, 4.0, 8.0)
DELTA = 1e-5
RANGES = {
    "age": (17, 90), "education-num": (1, 16), "capital-gain": (0, 20_000),
    "capital-loss": (0, 3000), "hours-per-week": (1, 99),
}  # fmt: skip
CATEGORICAL = (
    "workclass", "marital-status", "occupation", "relationship", "race", "sex", "native-country",
)  # fmt: skip
_FIRST = """
import pickle, sys, time
contents, _ = pickle.load(open(sys.argv[1], "rb"))
started = time.perf_counter()
import numpy
from kanon_db.models._network import Member, digest_of, logits
from kanon_db.models._votes import noisy_inputs
from kanon_db.models._votes import vote
imported = time.perf_counter()
members = [Member.from_bytes(content, digest_of(content)) for content in contents]
row = numpy.zeros((1, *members[0].architecture.shape), numpy.float32)
vote(numpy.stack([logits(m, noisy(row, 0.1)).argmax(axis=1) for m in members]), 2)
print(imported - started, time.perf_counter() - imported)
"""
_KILOBYTES = 1024  # in a megabyte


def adult() -> tuple[Float32Array, IntArray]:
    """Return 30,162 people, encoded, and whether they earn more than 50,000."""
    frame = pd.read_csv(DATA / "adult_30162.csv.gz", keep_default_na=False)
    kinds: dict[str, FeatureKind] = dict.fromkeys(RANGES, "numeric") | dict.fromkeys(  # type: ignore[assignment]
        CATEGORICAL, "categorical"
    )
    categories = {name: sorted(frame[name].unique()) for name in CATEGORICAL}
    encoding = Encoding.fit({}, kinds, ranges=RANGES, categories=categories)
    columns = {name: frame[name].tolist() for name in kinds}
    return encoding.encode(columns), (frame["salary-class"] == ">50K").to_numpy().astype(np.int64)


def main() -> str:
    """Return the results as Markdown."""
    adults = {name: _in_a_process(name, 0) for name in ("one", "all", "disjoint")}
    held_out = {name: _in_a_process(name, N_TEST) for name in ("one", "all", "disjoint")}
    return "\n".join([
        _accuracy(held_out),
        _descents(),
        _training(adults),
        _answers(adults["disjoint"]),
        _budgets(held_out["disjoint"]),
        _membership(held_out),
    ])  # fmt: skip


class Trained:
    """Members that a process trained, and what that took."""

    def __init__(self, path: Path, took: dict[str, float]) -> None:
        self.path = path
        self.took = took
        contents, self.parts = pickle.loads(path.read_bytes())  # noqa: S301  # written by ourselves
        self.members = [Member.from_bytes(content) for content in contents]


def _in_a_process(name: str, n_left_out: int) -> Trained:
    """Train members on Adult without some people, in a new process."""
    path = Path(tempfile.gettempdir(), f"kanon-models-{name}-{n_left_out}.pickle")
    command = [sys.executable, "-m", "benchmarks.model_speed", name, str(n_left_out), str(path)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Trained(path, json.loads(printed))


def _train_here(name: str, n_left_out: int, path: Path) -> dict[str, float]:
    x, y = adult()
    order = np.random.default_rng(0).permutation(len(y))
    kept = order[n_left_out:]
    generator = np.random.default_rng(1)
    parts = parts_of(len(kept), MEMBERS, generator) if name == "disjoint" else None
    n_members, temperatures = (1, [1.0]) if name == "one" else (MEMBERS, None)
    started, worked = time.perf_counter(), time.process_time()
    members = list(
        train(
            x[kept], y[kept], 2, members=n_members, temperatures=temperatures, parts=parts,
            settings=TrainingSettings(), generator=generator,
        )
    )  # fmt: skip
    took = {
        "seconds": time.perf_counter() - started, "work": time.process_time() - worked,
        "memory": _peak(),
    }  # fmt: skip
    path.write_bytes(pickle.dumps(([member.to_bytes() for member in members], parts)))
    return took


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KILOBYTES


def _accuracy(held_out: dict[str, Trained]) -> str:
    x, y = adult()
    test = np.random.default_rng(0).permutation(len(y))[:N_TEST]
    rows = [
        [f"Adult, {name}", *_accuracies(trained.members, x[test], y[test], (0.0, 0.1))]
        for name, trained in held_out.items()
    ]
    data = model_data.images()
    one = tuple(
        member
        for seed in range(3)
        for member in train(
            *data.train, model_data.CLASSES, members=1, temperatures=[1.0],
            settings=model_data.SETTINGS, generator=np.random.default_rng(seed),
        )
    )  # fmt: skip
    ensembles = {parts: model_data.ensemble(parts) for parts in ("all", "disjoint")}
    scales = (0.0, model_data.noise_scale("all"))
    digits = [["digits, one (mean of 3)", *_accuracies(one, *data.test, scales, is_one=True)]]
    digits += [
        [f"digits, {name}", *_accuracies(members, *data.test, scales)]
        for name, members in ensembles.items()
    ]
    return (
        f"### Accuracy\n\nOn {len(data.test[1])} test images of {data.name}, and on {N_TEST:,} "
        "people of Adult (whether they earn more than 50,000) of whom nothing was trained. *One*: "
        "a network on everything at temperature 1; *all*: 50 members that each see everything; "
        f"*disjoint*: 50 on disjoint parts. Noise: {scales[1]:g} for digits, 0.1 for Adult, whose "
        "numbers are from -1 to 1; means of ten draws.\n\n"
        + table(
            ["model", "one member", "vote", "one member, with noise", "vote, with noise"],
            digits + rows,
        )
    )


def _accuracies(
    members: Sequence[Member],
    x: Float32Array,
    y: IntArray,
    scales: Sequence[float],
    *,
    is_one: bool = False,
) -> list[str]:
    found = []
    for scale in scales:
        single, together = np.mean(
            [_accuracies_once(members, x, y, scale) for _ in range(10 if scale else 1)], axis=0
        )
        found += [f"{single:.1%}", "" if is_one or len(members) == 1 else f"{together:.1%}"]
    return found


def _accuracies_once(
    members: Sequence[Member], x: Float32Array, y: IntArray, scale: float
) -> tuple[float, float]:
    labels = np.stack([logits(member, noisy_inputs(x, scale)).argmax(axis=1) for member in members])
    n_classes = members[0].architecture.classes
    return float((labels == y).mean()), float((vote(labels, n_classes).winner == y).mean())


def _descents() -> str:
    """[TH] Table 4.2 beside Adam, on images."""
    x, y = model_data.images().train
    test, true = model_data.images().test
    ways: tuple[tuple[Descent, int], ...] = (
        ("adam", 1_500), ("momentum", 1_500), ("momentum", 27_000),
    )  # fmt: skip
    rows = []
    for descent, steps in ways:
        settings = TrainingSettings(steps=steps, batch=64, descent=descent)
        members, taken = timed(
            lambda settings=settings: tuple(  # type: ignore[misc]
                train(
                    x, y, model_data.CLASSES, members=len(HEATS), temperatures=HEATS,
                    settings=settings, generator=np.random.default_rng(4),
                )
            )
        )  # fmt: skip
        single, together = model_data.accuracies(members, test, true)
        rows.append([descent, f"{steps:,}", f"{single:.1%}", f"{together:.1%}", f"{taken:.0f} s"])
    return (
        f"Members with temperatures of {', '.join(f'{heat:.0f}' for heat in HEATS)}, by the way in "
        "which they learn.\n\n"
        + table(["descent", "steps", "one member", "vote", "processor"], rows)
    )


def _training(adults: dict[str, Trained]) -> str:
    rows = []
    for name, trained in adults.items():
        size = sum(len(member.to_bytes()) for member in trained.members) / 1e6
        took = trained.took
        rows.append(
            [name, len(trained.members), f"{took['seconds']:.1f} s", f"{took['work']:.1f} s",
             f"{took['memory']:,.0f} MB", f"{size:.2f} MB"]
        )  # fmt: skip
    return (
        "### Training on Adult\n\n30,162 people, "
        f"{adults['one'].members[0].architecture.shape[0]} inputs, layers of 64 and 32 units, "
        f"{TrainingSettings().steps:,} steps of up to {TrainingSettings().batch} people each."
        " Time "
        "without reading and encoding, with what JAX compiles, on a machine that was busy with "
        "other work: the processors' time says more. Memory is the process's peak, reading "
        "included; the first row shows how much it is with a single member. Size is that of the "
        "members' bytes.\n\n"
        + table(["model", "members", "time", "processors' time", "memory", "size"], rows)
    )


def _answers(trained: Trained) -> str:
    x, _ = adult()
    rows = x[:N_QUESTIONS]
    images = model_data.images().test[0]
    images = np.concatenate([images] * (N_QUESTIONS // len(images) + 1))[:N_QUESTIONS]
    found = []
    for name, members, inputs, scale in (
        ("Adult", trained.members, rows, 0.1),
        ("digits", list(model_data.ensemble("disjoint")), images, 0.1),
    ):
        asked = (
            lambda m=members, i=inputs: logits(m[0], i).argmax(axis=1),
            lambda m=members, i=inputs: _ask(m, i, 0.0),
            lambda m=members, i=inputs, s=scale: _ask(m, i, s),
        )
        took = [seconds(action) for action in asked]  # type: ignore[arg-type]
        work = _work(asked[2])  # type: ignore[arg-type]
        found.append(
            [name, *(f"{1e3 * each:,.1f} ms" for each in took), f"{1e3 * work:,.1f} ms",
             f"{took[2] / N_QUESTIONS * 1e6:,.0f} µs"]
        )  # fmt: skip
    printed = subprocess.run(
        [sys.executable, "-c", _FIRST, str(trained.path)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    imports, first = (1e3 * float(took) for took in printed.split())
    return (
        f"### {N_QUESTIONS:,} classifications\n\nOne network without noise, and {MEMBERS} members "
        "without and with Noisy Logit, in numpy, one process, medians of five. The first answer "
        f"of a new process, for one row of Adult, takes {first:.0f} ms after numpy and "
        f"what answers are imported ({imports:.0f} ms): {MEMBERS} members are read "
        "from their bytes, with their digests.\n\n"
        + table(
            [
                "data",
                "one network",
                "vote",
                "vote with noise",
                "its processors' time",
                "with noise, per row",
            ],
            found,
        )
    )


def _work(action: Callable[[], object]) -> float:
    """Return the processors' time of an action, on which a busy machine has less effect."""
    started = time.process_time()
    action()
    return time.process_time() - started


def _ask(members: Sequence[Member], inputs: Float32Array, scale: float) -> IntArray:
    labels = np.stack(
        [logits(member, noisy_inputs(inputs, scale)).argmax(axis=1) for member in members]
    )
    return vote(labels, members[0].architecture.classes).winner


def _budgets(trained: Trained) -> str:
    x, y = adult()
    test = np.random.default_rng(0).permutation(len(y))[:N_TEST]
    sets = {
        "digits": (model_data.ensemble("disjoint"), *model_data.images().test),
        "Adult": (trained.members, x[test], y[test]),
    }
    labels = {
        name: np.stack([logits(member, inputs).argmax(axis=1) for member in members])
        for name, (members, inputs, _) in sets.items()
    }
    rows = []
    for sigma in SIGMAS:
        right = []
        for name, (members, _, true) in sets.items():
            classes = members[0].architecture.classes
            draws = [
                (noisy_vote(labels[name], classes, sigma).winner == true).mean() for _ in range(5)
            ]
            right.append(f"{np.mean(draws):.1%}")
        rows.append(
            [sigma, f"{epsilon_after(1, DELTA, sigma):.2f}",
             *(f"{votes_within(epsilon, DELTA, sigma):,}" for epsilon in EPSILONS), *right]
        )  # fmt: skip
    margins = {
        name: np.median(np.diff(np.sort(count_votes(l, 10), axis=1)[:, -2:], axis=1))
        for name, l in labels.items()
    }
    return (
        f"### Votes under a budget\n\n{MEMBERS} members on disjoint parts, votes with discrete "
        f"Gaussian noise of parameter sigma; how many rows may be classified within ε at "
        f"δ = {DELTA:g}, for the replacement of one person, and how often the noisy "
        f"vote is right. The winner is ahead by {margins['digits']:.0f} votes of the digits, and "
        f"by {margins['Adult']:.0f} of Adult (medians).\n\n"
        + table(
            ["sigma", "ε of one vote", *(f"rows within ε = {e:g}" for e in EPSILONS),
             "digits, right", "Adult, right"],
            rows,
        )
    )  # fmt: skip


def _membership(held_out: dict[str, Trained]) -> str:
    """Guess who was trained on, from what the members say of the true class."""
    x, y = adult()
    order = np.random.default_rng(0).permutation(len(y))
    outside, inside = order[:N_TEST], order[N_TEST : 2 * N_TEST]
    rows = []
    for name, trained in held_out.items():
        shares = [
            _true_share(trained.members, x[people], y[people]) for people in (inside, outside)
        ]
        margins = [_margins(trained.members, x[people], y[people]) for people in (inside, outside)]
        row = [name, _rate(*shares), _rate(*(m.mean(axis=0) for m in margins))]
        if trained.parts is not None:
            own = trained.parts[:N_TEST]  # parts are numbered in the order of the people kept
            others = np.random.default_rng(2).integers(0, MEMBERS, N_TEST)
            scores = [_calibrated(m, by) for m, by in zip(margins, (own, others), strict=True)]
            row.append(_rate(*scores))
        rows.append(row if len(row) == 4 else [*row, ""])
    bounds = ", ".join(f"{highest_rate(e, DELTA):.1%} at ε = {e:g}" for e in EPSILONS)
    return (
        f"### Who was trained on\n\nAdult, {N_TEST:,} people in the training data and as many "
        "others; balanced accuracy of guesses by a threshold that was learned on half of them, on "
        "the other half; a coin has 50%. From the share of votes for the true class, as readers "
        "see it; from the mean margin of the true class's logits, which readers see only where "
        "logits are allowed; and from the margin of the one member that saw the person (of others: "
        "any one), compared with all other members, for someone who has the members themselves. No "
        f"attack on votes under a budget can be right more often than {bounds}.\n\n"
        + table(["model", "votes", "logits", "members themselves"], rows)
    )


def _true_share(members: Sequence[Member], x: Float32Array, y: IntArray) -> FloatArray:
    labels = np.stack([logits(member, x).argmax(axis=1) for member in members])
    return (labels == y).mean(axis=0)


def _margins(members: Sequence[Member], x: Float32Array, y: IntArray) -> FloatArray:
    """Return how far the true class is ahead, in units of each member's temperature."""
    found = np.stack([logits(member, x) / member.temperature for member in members])
    own = np.take_along_axis(found, y[None, :, None], axis=2)[..., 0]
    np.put_along_axis(found, np.broadcast_to(y[None, :, None], (*found.shape[:2], 1)), -np.inf, 2)
    return (own - found.max(axis=2)).astype(np.float64)


def _calibrated(margins: FloatArray, member: IntArray) -> FloatArray:
    people = np.arange(margins.shape[1])
    own = margins[member, people]
    rest = margins.copy()
    rest[member, people] = np.nan
    others = np.where(np.isnan(rest), np.nanmean(rest, axis=0), rest)
    return calibrate_scores(own, others)


def _rate(inside: FloatArray, outside: FloatArray) -> str:
    half = N_TEST // 2
    threshold = best_threshold(inside[:half], outside[:half])
    return f"{membership_rate(inside[half:], outside[half:], threshold):.1%}"


if __name__ == "__main__":
    print(json.dumps(_train_here(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
