"""The array types of all algorithms, declared once.

Named after what they hold where that fixes the type, otherwise after the type.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

CodeArray: TypeAlias = npt.NDArray[np.int32]
"""Codes of values, as they come from the database; matches of freeform records."""

SmallIntArray: TypeAlias = npt.NDArray[np.int16]
"""Limits on how often a value may stand in a bucket."""

SmallWordArray: TypeAlias = npt.NDArray[np.uint32]
"""Sets of bits beside numbers of 32 bits."""

IntArray: TypeAlias = npt.NDArray[np.int64]
"""Counts, positions, numbers of records and classes, losses in units."""

AnyIntArray: TypeAlias = npt.NDArray[np.integer]
"""Integers of any width, where a caller's are taken as they come."""

WordArray: TypeAlias = npt.NDArray[np.uint64]
"""Sets of bits; the state of a random generator."""

FloatArray: TypeAlias = npt.NDArray[np.float64]

SingleArray: TypeAlias = npt.NDArray[np.float32]
"""Estimates that exact numbers are compared with before anything depends on them."""

BoolArray: TypeAlias = npt.NDArray[np.bool_]

Integer: TypeAlias = int | np.integer
"""What compiled code takes and gives back for a whole number."""
