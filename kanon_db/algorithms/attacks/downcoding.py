"""Guessing the original values behind tight cells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kanon_db.algorithms.attacks.covering import Covering
from kanon_db.algorithms.attacks.scoring import Achieved
from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray, FloatArray, IntArray
from kanon_db.algorithms.ground.pulse import UNLIMITED, Pulse
from kanon_db.algorithms.recoding.cells import Ranges


def downcode(
    covering: Covering,
    row_classes: AnyIntArray,
    row_values: AnyIntArray,
    members: IntArray,
    codes: CodeArray,
    values: AnyIntArray,
    pulse: Pulse = UNLIMITED,
) -> Achieved:
    """Guess the original value of each generalized cell of some rows.

    Parameters
    ----------
    covering : Covering
    row_classes, row_values : ndarray of int, shape (n_rows,)
        The class and the sensitive value of each of the rows to attack.
    members : ndarray of int64, shape (n_classes,)
        How many original records the cells of each class were made from, at least.
    codes : ndarray of int32, shape (n_source, n_qi)
        The quasi-identifiers of everybody in the source. Their frequencies in each attribute are
        taken as known, and they score the guesses.
    values : ndarray of int, shape (n_source,)
        Their sensitive values.

    Returns
    -------
    Achieved
        The share of right guesses among the generalized cells, and of the most frequent value of
        the attribute. Nothing bounds it.

    Notes
    -----
    **Source:** A. Cohen, *Attacks on deidentification's defenses*, USENIX Security 2022, from which
    we take the weakness and not the attack. Cells are as tight as their records allow, so somebody
    in the class has the smallest value of a range, and somebody the largest; of a class of two,
    both values are known. The guess is the value that most records of the class are expected to
    have: one at each end of a range (or one for each value of a set), and the others as in the
    table. Cohen's attack also uses how cells of different classes depend on each other.

    Which person a row is about is not known. A guess is right with the share of those who have
    the value among the people who fit the row in all cells and in its sensitive value.
    """
    frequencies = [
        np.bincount(column, minlength=n)
        for column, n in zip(codes.T, covering.n_codes, strict=True)
    ]
    common = [int(counts.argmax()) for counts in frequencies]
    right: list[float] = []
    base: list[float] = []
    n_rows = 0
    for number, value in zip(row_classes.tolist(), row_values.tolist(), strict=True):
        pulse.beat()
        people = covering.people_of(number, codes)
        people = people[values[people] == value]
        guesses = expected_values(covering, number, int(members[number]), frequencies)
        if not people.size or not guesses:
            continue
        n_rows += 1
        for attribute, guess in guesses.items():
            originals = codes[people, attribute]
            right.append(float((originals == guess).mean()))
            base.append(float((originals == common[attribute]).mean()))
    if not n_rows:
        return Achieved(0, None, None, None)
    return Achieved(n_rows, float(np.mean(right)), float(np.mean(base)), None)


def expected_values(
    covering: Covering, number: int, members: int, frequencies: Sequence[IntArray]
) -> dict[int, int]:
    """Return the value that most records of a class are expected to have, by attribute.

    Attributes whose cell shows a single value are left out.

    Examples
    --------
    >>> cells = Ranges(np.array([0]), np.array([2]), np.array([False]))
    >>> covering = Covering([cells], np.zeros((1, 1), np.int64), [4])
    >>> expected_values(covering, 0, 2, [np.array([1, 9, 2, 9])]), expected_values(
    ...     covering, 0, 9, [np.array([1, 9, 2, 9])])
    ({0: 0}, {0: 1})
    """
    found = {}
    for attribute, counts in enumerate(frequencies):
        covered = covering.values_of(number, attribute)
        codes = np.flatnonzero(covered)
        if codes.size < 2:
            continue
        cells = covering.cells[attribute]
        surely: FloatArray = np.zeros(codes.size)
        if not isinstance(cells, Ranges):
            surely[:] = 1
        elif not cells.tells_nothing[covering.cell_of_class[number, attribute]]:
            surely[[0, -1]] = 1
        others = max(members - float(surely.sum()), 0)
        expected = surely + others * counts[codes] / max(int(counts[codes].sum()), 1)
        found[attribute] = int(codes[expected.argmax()])
    return found
