"""The tables that tools are compared on, as files that every environment can read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata

SENSITIVE = "sensitive"


@dataclass(frozen=True, eq=False)
class Saved:
    """A table, and its sensitive values as codes."""

    microdata: Microdata
    sensitive: CodeArray


def write(path: Path, columns: dict[str, np.ndarray]) -> Saved:
    """Write a table: columns of numbers or texts; the last one is sensitive."""
    *names, _ = columns
    parts: dict[str, np.ndarray] = {"names": np.array([*names, SENSITIVE])}
    for name, values in zip([*names, SENSITIVE], columns.values(), strict=True):
        codes, distinct = pd.factorize(values, sort=True)
        is_number = np.asarray(values).dtype.kind in "if"
        distinct = np.asarray(distinct, dtype=np.float64 if is_number else str)
        parts |= {f"codes of {name}": codes.astype(np.int32), f"values of {name}": distinct}
    np.savez(path, **parts)
    return read(path)


def read(path: str | Path) -> Saved:
    """Read a table that was written."""
    with np.load(path, allow_pickle=False) as parts:
        *names, sensitive = parts["names"]
        codes, attributes = [], []
        for name in names:
            values = parts[f"values of {name}"]
            numbers = values if values.dtype.kind == "f" else None
            low, high = (numbers[0], numbers[-1]) if numbers is not None else (0.0, 0.0)
            attributes.append(Attribute(len(values), numbers, float(low), float(high)))
            codes.append(parts[f"codes of {name}"])
        microdata = Microdata(np.column_stack(codes), tuple(attributes))
        return Saved(microdata, parts[f"codes of {sensitive}"])
