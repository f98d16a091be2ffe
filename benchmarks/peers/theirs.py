"""The searches of other tools, for :mod:`benchmarks.peers.searching`.

Nothing of kanon_db is imported here: the tools have an environment of their own. Each has its
functions with what suits the table best: categories as categories, numbers as numbers; those that
generalize by hierarchies have ARX's, and may suppress 5 % of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SENSITIVE = "sensitive"
MOST_SUPPRESSED = 5  # percent

_Search = Callable[[], Any]


def prepared(task: dict[str, Any]) -> tuple[_Search, Callable[[Any], np.ndarray]]:
    """Read the table and import the tool; return the search, and what makes classes of its result.

    The class of a suppressed record is -1.
    """
    frame = _read(task["table"])
    names = [name for name in frame.columns if name != SENSITIVE]
    prepare = {
        "anonypy": _anonypy, "anonypyx": _anonypyx, "anonypyx MDAV": _anonypyx_mdav,
        "anjana": _anjana, "crowds": _crowds,
    }[task["tool"]]  # fmt: skip
    search = prepare(frame, names, task)

    def classes(found: Any) -> np.ndarray:
        parts = found
        if isinstance(found, pd.DataFrame):  # published rows, with the numbers of the records
            groups = found.groupby(names, sort=False, dropna=False, observed=True)
            parts = [rows["record"].to_numpy() for _, rows in groups]
        return _numbered(parts, len(frame))

    return search, classes


def _read(path: str) -> pd.DataFrame:
    """Read the columns: numbers, or categories."""
    with np.load(path, allow_pickle=False) as saved:
        columns: dict[str, Any] = {}
        for name in saved["names"]:
            values = saved[f"values of {name}"][saved[f"codes of {name}"]]
            is_number = values.dtype.kind == "f"
            columns[str(name)] = values if is_number else pd.Categorical(values)
        return pd.DataFrame(columns)


def _numbered(parts: Sequence[Any], n_records: int) -> np.ndarray:
    classes = np.full(n_records, -1)
    for number, part in enumerate(parts):
        classes[np.asarray(part)] = number
    return classes


def _anonypy(frame: pd.DataFrame, names: list[str], task: dict[str, Any]) -> _Search:
    from anonypy.mondrian import Mondrian

    own = Mondrian(frame, names, SENSITIVE if task["l"] else None)
    return lambda: own.partition(task["k"], task["l"] or 0)


def _anonypyx(frame: pd.DataFrame, names: list[str], task: dict[str, Any]) -> _Search:
    from anonypyx import models
    from anonypyx.mondrian import Mondrian

    wanted = [models.kAnonymity(task["k"])]
    if task["l"]:
        wanted.append(models.DistinctLDiversity(task["l"], SENSITIVE))
    return lambda: Mondrian(frame, names).partition(wanted)


def _anonypyx_mdav(frame: pd.DataFrame, names: list[str], task: dict[str, Any]) -> _Search:
    from anonypyx.microaggregation import MDAVGeneric

    if task["l"]:
        raise NotImplementedError("k-anonymity only")
    return lambda: MDAVGeneric(frame, names).partition(task["k"])


def _anjana(frame: pd.DataFrame, names: list[str], task: dict[str, Any]) -> _Search:
    from anjana.anonymity import k_anonymity, l_diversity

    hierarchies = {
        name: dict(enumerate(_levels(frame[name], task["hierarchies"]))) for name in names
    }
    records, k = _with_numbers(frame), task["k"]
    if task["l"]:
        return lambda: l_diversity(
            records, [], names, SENSITIVE, k, task["l"], MOST_SUPPRESSED, hierarchies
        )
    return lambda: k_anonymity(records, [], names, k, MOST_SUPPRESSED, hierarchies)


def _crowds(frame: pd.DataFrame, names: list[str], task: dict[str, Any]) -> _Search:
    from crowds.kanonymity.generalizations import GenRule
    from crowds.kanonymity.ola import anonymize

    if task["l"]:
        raise NotImplementedError("k-anonymity only")
    rules = {}
    for name in names:
        values, *levels, _ = _levels(frame[name], task["hierarchies"])  # it adds the star itself
        rules[name] = GenRule([dict(zip(values, level, strict=True)).get for level in levels])
    records = _with_numbers(frame)
    return lambda: anonymize(records, rules, k=task["k"], max_sup=MOST_SUPPRESSED)[0]


def _with_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with plain values, and the number of each record."""
    plain = frame.astype({name: object for name in frame if frame[name].dtype == "category"})
    return plain.assign(record=np.arange(len(frame)))


def _levels(column: pd.Series, folder: str) -> list[np.ndarray]:
    """Return the values of a column, and what each of them is at each level; the last is a star."""
    path = Path(folder, f"adult_{column.name}.csv")
    values, *levels = pd.read_csv(path, sep=";", header=None, dtype=str).to_numpy().T
    return [values.astype(float) if column.dtype.kind == "f" else values, *levels]
