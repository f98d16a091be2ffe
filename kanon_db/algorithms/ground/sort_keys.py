"""One integer for each record, by which to sort on several attributes at once."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.ground.distinct import numbered

_LARGEST_KEY = 2**62


def sort_keys(columns: Iterable[AnyIntArray], *, reflected: bool = False) -> IntArray:
    """Pack the codes of each record, the first attribute foremost.

    Parameters
    ----------
    columns : iterable of ndarray of int, shape (n_records,)
        Codes of each attribute, in [0, 2^31); at least one attribute. Only one of them is kept at
        a time.
    reflected : bool
        Let the order within an attribute turn back and forth, as in a reflected Gray code, so
        that records on either side of a change in one attribute tend to agree in the next.

    Returns
    -------
    ndarray of int64, shape (n_records,)
        Equal for equal records, and for those only.

    Notes
    -----
    Where the packed codes would overflow, what is packed so far is numbered anew.

    Examples
    --------
    >>> first, second = np.array([0, 0, 1, 1], np.int32), np.array([0, 1, 0, 1], np.int32)
    >>> sort_keys([first, second]).tolist(), sort_keys([first, second], reflected=True).tolist()
    ([0, 1, 2, 3], [0, 1, 3, 2])
    """
    keys = np.zeros(1, dtype=np.int64)
    n_keys = 1
    for column in columns:
        n_codes = int(column.max(initial=0)) + 1
        if n_keys * n_codes > _LARGEST_KEY:
            keys = numbered(keys)
            n_keys = int(keys.max(initial=0)) + 1
        turned = np.where(keys % 2, n_codes - 1 - column, column) if reflected else column
        keys = keys * n_codes
        keys = np.add(keys, turned, out=keys if keys.size == turned.size else None)
        n_keys *= n_codes
    return keys
