"""Published rows as classes with the codes that they cover, and the people who may be in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.algorithms.ground.sort_keys import sort_keys
from kanon_db.algorithms.recoding.cells import Ranges, Sets
from kanon_db.algorithms.releases.fitting import Fits, fits_of
from kanon_db.catalog.entries import Source
from kanon_db.errors import InfeasibleError, SchemaMismatchError
from kanon_db.publications.partition import Classes
from kanon_db.publications.rows.published_cells import classes_of_rows, read_cells
from kanon_db.session.protocol import Session
from kanon_db.transfer.columns import column_types, find_relation
from kanon_db.transfer.labels import fixed_labels
from kanon_db.transfer.room import Room
from kanon_db.transfer.snapshot import take_snapshot
from kanon_db.transfer.source_types import describe_types
from kanon_db.transfer.values import DistinctValues, distinct_values, read_codes, read_integers


@dataclass(frozen=True, eq=False)
class People:
    """Everybody who is in the source now.

    Attributes
    ----------
    values : dict of str to DistinctValues
        Of each quasi-identifier that a publication of rows has.
    codes : ndarray of int32, shape (n_tuples, n_qi)
        The distinct combinations of their codes.
    number : ndarray of int64, shape (n_tuples,)
        How many people have each.
    person : ndarray of int64, shape (n_tuples,)
        A keyed hash of the quasi-identifiers that all releases show.
    """

    values: dict[str, DistinctValues]
    codes: CodeArray
    number: IntArray
    person: IntArray

    @property
    def n_codes(self) -> dict[str, int]:
        """How many values each quasi-identifier has."""
        return {name: len(values.labels) for name, values in self.values.items()}

    def drop(self) -> None:
        """Remove what was read of the source before the transaction ends."""
        for values in self.values.values():
            values.drop()


@dataclass(frozen=True, eq=False)
class ReadClasses:
    """A publication of rows.

    Attributes
    ----------
    fits : Fits
        The classes that each combination of quasi-identifiers fits.
    class_of_row : ndarray of int64, shape (n_rows,)
    cells : sequence of Ranges or Sets
        The distinct cells of each quasi-identifier.
    cell_of_class : ndarray of int32, shape (n_classes, n_qi)
    others : dict of str to (list of str or None, ndarray of int32)
        The texts of each other column's values, and the code of each row.
    """

    fits: Fits
    class_of_row: IntArray
    cells: Sequence[Ranges | Sets]
    cell_of_class: CodeArray
    others: dict[str, tuple[list[str | None], CodeArray]]

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return int(self.cell_of_class.shape[0])


def read_people(
    session: Session, source: Source, publications: Sequence[Classes], hashed: str, shown: set[str]
) -> People:
    """Read the quasi-identifiers that publications of rows have, of everybody in the source.

    Parameters
    ----------
    session : Session
    source : Source
    publications : sequence of Classes
    hashed : str
        SQL for the keyed hash of a row ``s``.
    shown : set of str
        The columns that it reads.

    Raises
    ------
    SchemaMismatchError
        When the source's columns are not those that were published.
    InfeasibleError
        When it is empty, or there is no room for it.
    PermissionDeniedError
        When the role may not read it.
    """
    names = list(dict.fromkeys(name for one in publications for name in one.quasi_identifiers))
    described = describe_types(session, source.relation, names)
    for one in publications:
        if any(one.types.get(n) != described.get(n, {}) for n in one.quasi_identifiers):
            raise SchemaMismatchError("the source's columns are not those that it has")
    columns = list(dict.fromkeys([*names, *sorted(shown)]))
    snapshot = take_snapshot(session, source.relation, columns, Room.of(session))
    _, oid, _ = find_relation(session, source.relation.quoted(session))
    types = column_types(session, oid)
    values = {name: distinct_values(snapshot, types[name]) for name in names}
    codes = read_codes(snapshot, list(values.values()))
    with fixed_labels(session):
        person = read_integers(snapshot, hashed, kind="int8")
    snapshot.drop()
    keys = sort_keys([codes[:, a] for a in range(len(names))])
    _, first, number = np.unique(keys, return_index=True, return_counts=True)
    return People(values, codes[first], number.astype(np.int64), person[first].astype(np.int64))


def read_classes(session: Session, publication: Classes, people: People) -> ReadClasses:
    """Read the published rows, and find who fits which of their classes.

    Raises
    ------
    SchemaMismatchError
        When the source's values cannot be compared with the published ones any more.
    InfeasibleError
        When people fit too many classes, or there is no room.
    """
    names = publication.quasi_identifiers
    pattern = [] if publication.pattern is None else [publication.pattern]
    view = take_snapshot(
        session, publication.relation, [*names, *pattern, *publication.others], Room.of(session)
    )
    _, oid, _ = find_relation(session, publication.relation.quoted(session))
    types = column_types(session, oid)
    columns = [people.values[name] for name in names]
    cells, numbers = read_cells(view, types, publication.cells, columns, pattern)
    class_of_row, first = classes_of_rows(numbers)
    others = {}
    for name in publication.others:
        distinct = distinct_values(view, types[name])
        others[name] = distinct.labels, read_codes(view, [distinct])[:, 0]
        distinct.drop()
    view.drop()
    place = {name: position for position, name in enumerate(people.values)}
    fits = fits_of(
        people.codes[:, [place[name] for name in names]], cells, numbers[first],
        [len(column.labels) for column in columns], Pulse(heartbeat=session.heartbeat),
    )  # fmt: skip
    if fits is None:
        raise InfeasibleError("its classes overlap too much")
    return ReadClasses(fits, class_of_row, cells, numbers[first], others)
