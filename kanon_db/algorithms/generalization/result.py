"""What the methods of generalization return."""

from __future__ import annotations

from dataclasses import dataclass

from kanon_db.algorithms.ground.arrays import IntArray


@dataclass(frozen=True, eq=False)
class Generalization:
    """Which equivalence class each record is in.

    Parameters
    ----------
    class_of_record : ndarray of int64, shape (n_records,)
        Number of the class; -1 for a suppressed record.
    """

    class_of_record: IntArray
