"""Records of one entity that cannot be told apart, taken together."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray, IntArray
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.algorithms.recoding.microdata import Microdata


def one_of_each(microdata: Microdata, entities: AnyIntArray) -> tuple[Microdata, IntArray]:
    """Take the records of one entity with the same quasi-identifiers as one record.

    Where an entity's quasi-identifiers are the same in all its records, classes of k of these
    records have k entities.

    Parameters
    ----------
    microdata : Microdata
    entities : ndarray of int, shape (n_records,)
        Whom each record is about, in [0, 2^31).

    Returns
    -------
    microdata : Microdata
        Of fewer records, or of as many.
    place : ndarray of int64, shape (n_records,)
        Which of these stands for each record.

    Examples
    --------
    >>> from kanon_db.algorithms.recoding import Attribute
    >>> table = Microdata(np.array([[0], [1], [0]]), (Attribute(2),))
    >>> fewer, place = one_of_each(table, np.array([7, 7, 7]))
    >>> fewer.n_records, place.tolist()
    (2, [0, 1, 0])
    """
    keys = sort_keys([*microdata.codes.T, entities])
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    return Microdata(microdata.codes[first], microdata.attributes), place
