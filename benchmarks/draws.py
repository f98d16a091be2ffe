"""How well drawn records keep what the true ones show: marginals, pairs, and what models learn.

Run from the root of the repository: ``python -m benchmarks draws``. Adult is looked for as in
:mod:`benchmarks.protection`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder

import kanon_db
from benchmarks.harness import private_server, table
from benchmarks.protection import DATA, QUASI_IDENTIFIERS, SENSITIVE

PRIVACY: Final = '{"theta": 8, "base": 0.02}'
PUBLICATIONS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "buckets, two_size, random": (
        "publish_buckets", {"method": "two_size", "assignment": "random", "privacy": PRIVACY},
    ),
    "the same, `estimates => 'paper'`": (
        "publish_buckets",
        {"method": "two_size", "assignment": "random", "privacy": PRIVACY, "estimates": "paper"},
    ),
    "buckets, multi_size, cells": (
        "publish_buckets", {"method": "multi_size", "assignment": "cells", "privacy": PRIVACY},
    ),
    "generalized, k = 5": ("publish_generalized", {"k": 5}),
}  # fmt: skip
N_SEEDS: Final = 5
HELD_OUT: Final = 0.2


def main() -> str:
    """Return the results as Markdown."""
    columns = [*QUASI_IDENTIFIERS, SENSITIVE]
    people = pd.read_csv(DATA / "adult_30162.csv.gz", usecols=columns)[columns]
    people = people.sample(frac=1, random_state=16).reset_index(drop=True)
    n_tested = int(HELD_OUT * len(people))
    tested, known = people[:n_tested], people[n_tested:].reset_index(drop=True)
    frequent = float((tested[SENSITIVE] == known[SENSITIVE].mode()[0]).mean())
    rows = [["the true records", "0", "0", "0", f"{_accuracy(known, tested):.3f}", ""]]
    with private_server() as dsn, kanon_db.connect(dsn) as kanon:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "adult.csv")
            known.to_csv(path, index=False)
            kanon.load(path, "adult")
        kanon.register_source("adult", quasi_identifiers=QUASI_IDENTIFIERS, sensitive=SENSITIVE)
        for name, (method, given) in PUBLICATIONS.items():
            getattr(kanon, method)("adult", "to_draw", replace=True, **given)
            found = []
            for seed in range(N_SEEDS):
                started = time.perf_counter()
                drawn = kanon.draw("to_draw", seed=seed)[columns]
                taken = time.perf_counter() - started
                found.append((*_distances(known, drawn), _accuracy(drawn, tested), taken))
            single, pairs, sensitive, accuracy, taken = map(median, zip(*found, strict=True))
            rows.append([name, f"{single:.3f}", f"{pairs:.3f}", f"{sensitive:.3f}",
                         f"{accuracy:.3f}", f"{taken:.1f} s"])  # fmt: skip
            print(rows[-1], file=sys.stderr, flush=True)
    return (
        f"Adult, {len(known):,} records published and drawn, {n_tested:,} held out; buckets with"
        f" `{PRIVACY}`; medians of {N_SEEDS} seeds. Distances are total variation, with numbers in"
        " ten bins of as many true records each: the mean over the columns, over all pairs of"
        f" columns, and over the pairs with the sensitive one ({SENSITIVE}). The accuracy is that"
        " of logistic regression of the sensitive column, trained on the draws and tested on the"
        " true records held out; the most frequent value alone has"
        f" {frequent:.3f}.\n\n"
        + table(
            ["records", "columns", "pairs", "pairs with the sensitive one", "accuracy", "drawing"],
            rows,
        )
    )


def _binned(true: pd.DataFrame, drawn: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    both = [true.copy(), drawn.copy()]
    for name in true:
        if pd.api.types.is_numeric_dtype(true[name]):
            ends = np.unique(np.quantile(true[name], np.linspace(0, 1, 11)[1:-1]))
            for frame in both:
                frame[name] = np.searchsorted(ends, frame[name].astype(float), side="right")
        for frame in both:
            frame[name] = frame[name].astype(str)
    return both[0], both[1]


def _distances(true: pd.DataFrame, drawn: pd.DataFrame) -> tuple[float, float, float]:
    true, drawn = _binned(true, drawn)

    def distance(names: list[str]) -> float:
        shares = [frame.value_counts(subset=names, normalize=True) for frame in (true, drawn)]
        return float(shares[0].subtract(shares[1], fill_value=0).abs().sum() / 2)

    pairs = {pair: distance(list(pair)) for pair in combinations(true.columns, 2)}
    return (
        float(np.mean([distance([name]) for name in true])),
        float(np.mean(list(pairs.values()))),
        float(np.mean([one for pair, one in pairs.items() if SENSITIVE in pair])),
    )


def _accuracy(trained: pd.DataFrame, tested: pd.DataFrame) -> float:
    numbers = [name for name in QUASI_IDENTIFIERS if pd.api.types.is_numeric_dtype(tested[name])]
    others = [name for name in QUASI_IDENTIFIERS if name not in numbers]
    model = make_pipeline(
        make_column_transformer(
            (KBinsDiscretizer(8, quantile_method="averaged_inverted_cdf"), numbers),
            (OneHotEncoder(handle_unknown="ignore"), others),
        ),
        LogisticRegression(max_iter=200),
    )
    known = list(QUASI_IDENTIFIERS)
    model.fit(trained[known], trained[SENSITIVE])
    return float((model.predict(tested[known]) == tested[SENSITIVE]).mean())
