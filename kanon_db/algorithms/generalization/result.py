"""What the methods of generalization return."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Generalization:
    """Which equivalence class each record is in.

    Parameters
    ----------
    class_of_record : ndarray of int64, shape (n_records,)
        Number of the class; -1 for a suppressed record.
    """

    class_of_record: npt.NDArray[np.int64]
