"""What identifies people in a source: columns, and combinations of them, that tell them apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

from kanon_db.advice.copies import Copy, copy_source
from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.catalog.sources import open_source, require_unchanged
from kanon_db.metrics.unicity import Unique, unique_records
from kanon_db.session import Session, undone
from kanon_db.transfer.columns import incomparable
from kanon_db.transfer.room import Room
from kanon_db.transfer.values import distinct_values, read_codes

MOST_LISTED: Final = 5
"""Pairs, and combinations of three, that are listed: those that tell most records apart."""

_NEARLY_UNIQUE: Final = 0.1

SECONDS: Final = 10.0


@dataclass(frozen=True)
class Identifying:
    """Columns that tell records apart.

    Attributes
    ----------
    columns : list of str
    records : int
        How many records have values, or a combination of values, that no other has.
    share : float
        Of all records that were looked at.
    meaning : str
        The same in words.
    """

    columns: list[str]
    records: int
    share: float
    meaning: str


def unicity(session: Session, source: str) -> list[Identifying]:
    """Count the records that single columns, pairs, three and all of them tell apart.

    Parameters
    ----------
    session : Session
        Of a role with SELECT on the source.
    source : str
        A registered relation.

    Returns
    -------
    list of Identifying
        All quasi-identifiers together; each published column; then the pairs and the combinations
        of three quasi-identifiers that tell most records apart.
    """
    with undone(session):
        described, _ = open_source(session, source)
        copy = copy_source(session, described, Room.of(session))
        require_unchanged(session, described)
        if copy.is_sample:
            session.warn(
                f"counted in a random sample of {copy.n_records:,} of {copy.n_source:,} records:"
                " of all of them, fewer are unique"
            )
        return _identifying(session, copy)


def _identifying(session: Session, copy: Copy) -> list[Identifying]:
    session.step("counting unique records")
    source, snapshot = copy.source, copy.snapshot
    names = list(source.quasi_identifiers)
    values = [distinct_values(snapshot, copy.types[name]) for name in names]
    codes = read_codes(snapshot, values)
    pulse = Pulse(SECONDS, session.heartbeat)
    found = list(unique_records(codes, pulse=pulse))
    others = [name for name in source.insensitive if name not in names]
    unknown = incomparable(session, source.relation, others)
    for name in others:
        if name not in unknown:
            counts = distinct_values(snapshot, copy.types[name]).counts
            found.append(Unique((len(names),), int((counts == 1).sum())))
            names.append(name)
    return [
        Identifying(
            columns := [names[a] for a in one.columns],
            one.records,
            one.records / snapshot.n_records,
            _meaning(columns, one.records, one.records / snapshot.n_records),
        )
        for one in _listed(found, len(source.quasi_identifiers))
    ]


def _listed(found: Sequence[Unique], n_quasi_identifiers: int) -> Iterator[Unique]:
    """Choose what tells most: everything together, each column, and a few combinations."""
    whole = [one for one in found if len(one.columns) == n_quasi_identifiers]
    singles = [one for one in found if len(one.columns) == 1 and one not in whole]
    yield from whole
    yield from sorted(singles, key=lambda one: -one.records)
    for size in (2, 3):
        some = [
            one for one in found if len(one.columns) == size and one.records and one not in whole
        ]
        yield from nlargest(MOST_LISTED, some, key=lambda one: one.records)


def _meaning(columns: Sequence[str], records: int, share: float) -> str:
    """Say it in words.

    Examples
    --------
    >>> _meaning(["age", "zip"], 25, 0.25)
    '25 records (25.0%) are the only ones with their age, zip: who knows these finds the record'
    >>> _meaning(["sex"], 0, 0.0)
    'no record is the only one with its sex'
    """
    named, these = ", ".join(columns), "this" if len(columns) == 1 else "these"
    if not records:
        return f"no record is the only one with its {named}"
    said = f"{records:,} records ({share:.1%}) are the only ones with their {named}"
    if records == 1:
        said = f"1 record is the only one with its {named}"
    said += f": who knows {these} finds the record"
    if len(columns) == 1 and share >= _NEARLY_UNIQUE:
        said += "; nearly unique: register it as an identifier, or leave it out"
    return said
