"""Run one tool on one table, in an environment of the tools' own.

Arguments: a JSON object with ``tool``, ``k``, ``l`` (or null), ``table`` (a file of
:func:`benchmarks.peers.tables.saved`), ``hierarchies`` (a folder, or null), ``output``. Prints a
JSON object with the seconds of the tool's own work, and the megabytes of the process at its most.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SENSITIVE = "sensitive"


def main() -> None:
    """Anonymize, and write the class of each record; -1: suppressed."""
    task = json.loads(sys.argv[1])
    run = {
        "anonypy": _anonypy, "anonypyx": _anonypyx, "anonypyx MDAV": _anonypyx_mdav,
        "anjana": _anjana,
    }[task["tool"]]  # fmt: skip
    frame = _read(task["table"])
    names = [name for name in frame.columns if name != SENSITIVE]
    started = time.perf_counter()
    parts = run(frame, names, task)
    seconds = time.perf_counter() - started
    classes = np.full(len(frame), -1)
    for number, part in enumerate(parts):
        classes[np.asarray(part)] = number
    np.save(task["output"], classes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "megabytes": peak}))


def _read(path: str) -> pd.DataFrame:
    """Read the columns: numbers, or categories."""
    with np.load(path, allow_pickle=False) as saved:
        columns: dict[str, Any] = {}
        for name in saved["names"]:
            values = saved[f"values of {name}"][saved[f"codes of {name}"]]
            is_number = values.dtype.kind == "f"
            columns[str(name)] = values if is_number else pd.Categorical(values)
        return pd.DataFrame(columns)


def _anonypy(frame: pd.DataFrame, names: list[str], task: dict[str, Any]) -> list[Any]:
    from anonypy.mondrian import Mondrian

    own = Mondrian(frame, names, SENSITIVE if task["l"] else None)
    found: list[Any] = own.partition(task["k"], task["l"] or 0)
    return found


def _anonypyx(frame: pd.DataFrame, names: list[str], task: dict[str, Any]) -> list[Any]:
    from anonypyx import models
    from anonypyx.mondrian import Mondrian

    wanted = [models.kAnonymity(task["k"])]
    if task["l"]:
        wanted.append(models.DistinctLDiversity(task["l"], SENSITIVE))
    found: list[Any] = Mondrian(frame, names).partition(wanted)
    return found


def _anonypyx_mdav(frame: pd.DataFrame, names: list[str], task: dict[str, Any]) -> list[Any]:
    from anonypyx.microaggregation import MDAVGeneric

    if task["l"]:
        raise NotImplementedError("k-anonymity only")
    found: list[Any] = MDAVGeneric(frame, names).partition(task["k"])
    return found


def _anjana(frame: pd.DataFrame, names: list[str], task: dict[str, Any]) -> list[Any]:
    from anjana.anonymity import k_anonymity, l_diversity

    hierarchies = {name: _hierarchy(frame[name], task["hierarchies"]) for name in names}
    plain = frame.astype({name: object for name in frame if frame[name].dtype == "category"})
    numbered = plain.assign(record=np.arange(len(frame)))
    search: Callable[..., pd.DataFrame] = k_anonymity
    given: list[Any] = [numbered, [], names, task["k"], 5, hierarchies]
    if task["l"]:
        search, given = l_diversity, [*given[:3], SENSITIVE, task["k"], task["l"], *given[4:]]
    published = search(*given)
    groups = published.groupby(names, sort=False)["record"]
    return [records.to_numpy() for _, records in groups]


def _hierarchy(column: pd.Series, folder: str | None) -> dict[int, np.ndarray]:
    """Return the levels of a column: of its file, or the values and a star."""
    path = None if folder is None else Path(folder, f"adult_{column.name}.csv")
    if path is None or not path.exists():
        values = np.asarray(column.unique())
        return {0: values, 1: np.full(values.size, "*", dtype=object)}
    levels = pd.read_csv(path, sep=";", header=None, dtype=str)
    values = levels[0].astype(float) if column.dtype.kind == "f" else levels[0]
    return {0: values.to_numpy()} | {
        level: levels[level].to_numpy() for level in range(1, levels.shape[1])
    }


if __name__ == "__main__":
    main()
