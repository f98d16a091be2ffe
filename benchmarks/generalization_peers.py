"""Run one peer on Adult; ``benchmarks.generalization`` calls it in an environment of its own.

Arguments: peer (anonypy or anjana), k, folder of the data, file for the classes. Prints the seconds
of the peer's own work.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

QUASI_IDENTIFIERS = [
    "age", "workclass", "education", "marital-status", "occupation", "race", "sex",
    "native-country",
]  # fmt: skip


def main() -> None:
    """Anonymize Adult, and write the class of each record; -1: suppressed."""
    peer, k, data, output = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    frame = pd.read_csv(data / "adult_30162.csv.gz")[QUASI_IDENTIFIERS]
    run = {"anonypy": _anonypy, "anjana": _anjana}[peer]
    classes, seconds = run(frame, k, data)
    np.save(output, classes)
    print(seconds)


def _anonypy(frame: pd.DataFrame, k: int, _: Path) -> tuple[np.ndarray, float]:
    from anonypy.mondrian import Mondrian

    categorical = frame.astype(dict.fromkeys(QUASI_IDENTIFIERS[1:], "category"))
    started = time.perf_counter()
    partitions = Mondrian(categorical, QUASI_IDENTIFIERS).partition(k)
    seconds = time.perf_counter() - started
    classes = np.full(len(frame), -1)
    for number, partition in enumerate(partitions):
        classes[partition] = number
    return classes, seconds


def _anjana(frame: pd.DataFrame, k: int, data: Path) -> tuple[np.ndarray, float]:
    from anjana.anonymity import k_anonymity

    hierarchies = {}
    for name in QUASI_IDENTIFIERS:
        levels = pd.read_csv(
            data / "hierarchies" / f"adult_{name}.csv", sep=";", header=None, dtype=str
        )
        values = levels[0].astype(int) if name == "age" else levels[0]
        hierarchies[name] = {0: values.to_numpy()} | {
            level: levels[level].to_numpy() for level in range(1, levels.shape[1])
        }
    numbered = frame.assign(record=np.arange(len(frame)))
    started = time.perf_counter()
    published = k_anonymity(numbered, [], QUASI_IDENTIFIERS, k, 5, hierarchies)
    seconds = time.perf_counter() - started
    classes = np.full(len(frame), -1)
    groups = published.groupby(QUASI_IDENTIFIERS, sort=False).ngroup()
    classes[published["record"].to_numpy()] = groups.to_numpy()
    return classes, seconds


if __name__ == "__main__":
    main()
