"""Optimal classes beside those of the heuristics, on 20 to 100 records.

Rows of real tables are looked for in ``data/`` of the folder named by KANON_SHARED, or of
``../shared``.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd

from benchmarks.harness import table
from kanon_db.algorithms.generalization.greedy_classes import greedy_search, initial
from kanon_db.algorithms.generalization.optimal_classes import optimal, split_carry
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.loss import ExactLoss
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata

DATA = Path(os.environ.get("KANON_SHARED", Path(__file__).resolve().parents[2] / "shared"), "data")
TABLES = {
    "fars": (
        "fars_occupants.csv.gz",
        ("age", "sex", "state", "modelyr", "year", "airbag", "inimpact", "Restraint"),
        {"state", "airbag", "inimpact", "Restraint"},
    ),
    "adult": (
        "adult_30162.csv.gz",
        ("age", "sex", "race", "marital-status", "workclass", "education", "occupation",
         "native-country"),
        {"sex", "race", "marital-status", "workclass", "education", "occupation",
         "native-country"},
    ),
    "ipums": (
        "ipums1980.csv.gz",
        ("age", "sex", "educrec", "marstat", "race", "classwk", "hispanic", "yrsusa"),
        set[str](),
    ),
}  # fmt: skip
SMALL = [
    (name, n, k, m)
    for name in ("fars", "adult")
    for n, k, m in [
        (20, 3, 4), (30, 3, 8), (30, 5, 8), (50, 3, 2), (50, 3, 4), (50, 2, 8), (50, 3, 8),
        (50, 5, 8), (100, 2, 8), (100, 3, 2), (100, 3, 4), (100, 3, 8), (100, 5, 4), (100, 5, 8),
    ]
]  # fmt: skip
SECONDS = 20.0


def rows_of(name: str, n: int, m: int) -> Microdata:
    """Draw n records with the first m quasi-identifiers of a table; always the same ones."""
    file, columns, categorical = TABLES[name]
    frame = pd.read_csv(DATA / file, usecols=list(columns[:m]))[list(columns[:m])]
    frame = frame.iloc[np.random.default_rng(1).permutation(len(frame))[:n]]
    codes, attributes = [], []
    for column in frame:
        values, code = np.unique(frame[column].to_numpy(), return_inverse=True)
        codes.append(code)
        if column in categorical:
            attributes.append(Attribute(values.size))
        else:
            numbers = values.astype(np.float64)
            attributes.append(
                Attribute(values.size, numbers, float(numbers[0]), float(numbers[-1]))
            )
    return Microdata(np.column_stack(codes), tuple(attributes))


def main() -> str:
    """Return the results as Markdown."""
    compiled = rows_of("fars", 60, 8)
    optimal(compiled, 3)
    split_carry(compiled, 3)
    rows = []
    for name, n, k, m in SMALL:
        microdata = rows_of(name, n, m)
        start = perf_counter()
        found = optimal(microdata, k, pulse=Pulse(SECONDS))
        seconds = perf_counter() - start
        exact = ExactLoss.of(microdata, "ncp")
        best = found.proof.objective
        ratios = [
            f"{float(exact.total(classes) / best):.3f}"
            for classes in (
                split_carry(microdata, k).class_of_record,
                greedy_search(microdata, k).class_of_record,
                initial(microdata, k).class_of_record,
            )
        ]
        rows.append(
            [name, n, k, m, f"{float(best):.3f}", f"{100 * found.proof.gap:.2f}%",
             f"{found.n_classes:,}", f"{seconds:.2f} s", *ratios]
        )  # fmt: skip
    heading = ["rows of", "n", "k", "m", "loss", "gap", "classes", "time", "split_carry",
               "greedy_search", "initial"]  # fmt: skip
    return (
        f"The search for the optimum had {SECONDS:.0f} s. The losses of the heuristics are "
        "multiples of the loss that it found.\n\n" + table(heading, rows)
    )


if __name__ == "__main__":
    print(main())
