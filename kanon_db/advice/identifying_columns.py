"""Finds the columns that identify people, and how many records are unique in them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import combinations
from math import prod
from typing import Final

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, sort_keys
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.catalog.entries import Source
from kanon_db.catalog.sources import (
    open_source,
    require_unchanged,
)
from kanon_db.dataclasses import dataclass
from kanon_db.session import Session, fetch_one, undone
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.columns import (
    ColumnType,
    Relation,
    column_types,
    find_relation,
    incomparable,
)
from kanon_db.transfer.snapshot import Snapshot, count_records, take_snapshot
from kanon_db.transfer.values import distinct_values, read_codes

LARGEST = 3
"""Combinations of more columns, but for all of them, are not counted: there are too many."""


@dataclass(frozen=True)
class Unique:
    """How many records differ from all others in some columns together."""

    columns: tuple[int, ...]
    records: int


def unique_records(codes: CodeArray, *, pulse: Pulse = UNLIMITED) -> Iterator[Unique]:
    """Count records whose values no other has in all columns, each one, each pair, and each three.

    `codes` (n_records, n_columns); when the pulse's time is over, other combinations are left out.
    """
    n_columns = codes.shape[1]
    everything = tuple(range(n_columns))
    yield Unique(everything, _n_unique(codes, everything))
    for size in range(1, min(LARGEST, n_columns - 1) + 1):
        for columns in combinations(everything, size):
            pulse.beat()
            if pulse.is_over and size > 1:
                return
            yield Unique(columns, _n_unique(codes, columns))


def _n_unique(codes: CodeArray, columns: tuple[int, ...]) -> int:
    n_values = [int(codes[:, a].max(initial=0)) + 1 for a in columns]
    counts: IntArray
    if prod(n_values) <= max(4 * codes.shape[0], 1 << 16):
        keys = np.zeros(codes.shape[0], dtype=np.int64)
        for a, n in zip(columns, n_values, strict=True):
            keys = keys * n + codes[:, a]
        counts = np.bincount(keys)
    else:
        counts = np.unique(sort_keys([codes[:, a] for a in columns]), return_counts=True)[1]
    return int((counts == 1).sum())


MOST_RECORDS: Final = 1_000_000
"""Records that are all looked at; a larger source is sampled at random."""

MOST_TRIED: Final = 10_000
"""Records of the random sample on which candidates are tried; a smaller source is used whole."""

MOST_BRIEF: Final = 2_000
"""Records of the small sample for the first candidate, and for those that lack the time."""

MOST_DRAWN: Final = 60_000
"""The same for how well buckets answer counts, which takes less time and depends on their number.

Buckets of a smaller table are drawn several times, with so many records in all.
"""

_HASHES: Final = 2**31


@dataclass(frozen=True)
class SourceCopy:
    """A temporary table with the published columns of a source, and that of the entities."""

    snapshot: Snapshot
    source: Source  # The copy, with the roles of the source's columns
    types: Mapping[str, ColumnType]
    n_source: int  # How many records the source has

    @property
    def n_records(self) -> int:
        """Number of records of the copy."""
        return self.snapshot.n_records

    @property
    def is_sample(self) -> bool:
        """Tell whether the copy has only some of the source's records."""
        return self.n_records < self.n_source

    def has_entities(self, session: Session) -> bool:
        """Tell whether several records are about the same person."""
        if self.source.entity is None:
            return False
        name = session.identifier(self.source.entity)
        row = fetch_one(
            session,
            f"SELECT EXISTS (SELECT FROM {self.snapshot.table} GROUP BY {name}"
            " HAVING count(*) > 1) AS found",
        )
        return bool(row["found"])

    def sampled(self, session: Session, room: Allowance, most: int) -> SourceCopy:
        """Return a copy of about so many records at most; itself if it has no more."""
        if self.n_records <= most:
            return self
        where = _draw_sample(session, self.source, most / self.n_records)
        return _copy_table(session, self.source, self.n_source, room, where)


def copy_source(
    session: Session, source: Source, room: Allowance, most: int = MOST_RECORDS
) -> SourceCopy:
    """Copy what would be published of a source, about so many records at most."""
    n_source = count_records(session, source.relation)
    share = most / max(n_source, 1)
    where = "true" if share >= 1 else _draw_sample(session, source, share)
    # What came since does not matter, nor does what it says of new people.
    return _copy_table(session, source._replace(arrival=None), n_source, room, where)


def _draw_sample(session: Session, source: Source, share: float) -> str:
    """Write a condition that a share of the records meets by chance: of the people, all or none."""
    if source.entity is None:
        return f"random() < {share!r}::float8"
    key = session.literal(secrets.token_hex(16))
    # format() calls the type's output function, and no cast, which could be anybody's code.
    entity = f"format('%s', s.{session.identifier(source.entity)})"
    return f"hashtext({key} || {entity}) & {_HASHES - 1} < {int(share * _HASHES)}"


def _copy_table(
    session: Session, source: Source, n_source: int, room: Allowance, where: str
) -> SourceCopy:
    entity = [] if source.entity is None else [source.entity]
    columns = list(dict.fromkeys([*source.published, *entity]))
    snapshot = take_snapshot(session, source.relation, columns, room, where=where)
    session.fetch(f"ANALYZE {snapshot.table}")
    relation, oid, _ = find_relation(session, snapshot.table)
    copied = source._replace(relation=Relation(relation.schema, relation.name))
    return SourceCopy(snapshot, copied, column_types(session, oid), n_source)


MOST_LISTED: Final = 5
"""Pairs, and combinations of three, that are listed: those that tell most records apart."""

NEARLY_UNIQUE_SHARE: Final = 0.1
NEARLY_UNIQUE: Final = "nearly unique: coarsen it, register it as an identifier, or leave it out"

SECONDS: Final = 10.0


@dataclass(frozen=True)
class Identifying:
    """Columns that tell records apart."""

    columns: list[str]
    records: int  # How many records have values, or a combination of values, that no other has
    share: float  # Their share of all records that were looked at
    meaning: str  # The same in words


def unicity(session: Session, source: str) -> list[Identifying]:
    """Count the records that single columns, pairs, three and all of them tell apart.

    All quasi-identifiers; then each published column; then the most telling pairs and threes.
    """
    with undone(session):
        described, _ = open_source(session, source)
        copy = copy_source(session, described, Allowance.of(session))
        require_unchanged(session, described)
        if copy.is_sample:
            session.warn(
                f"counted in a random sample of {copy.n_records:,} of {copy.n_source:,} records:"
                " of all of them, fewer are unique"
            )
        return _identifying(session, copy)


def _identifying(session: Session, copy: SourceCopy) -> list[Identifying]:
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
        for one in _list_columns(found, len(source.quasi_identifiers))
    ]


def _list_columns(found: Sequence[Unique], n_quasi_identifiers: int) -> Iterator[Unique]:
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
    """Say in words how many records a combination of columns identifies.

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
    if len(columns) == 1 and share >= NEARLY_UNIQUE_SHARE:
        said += f"; {NEARLY_UNIQUE}"
    return said
