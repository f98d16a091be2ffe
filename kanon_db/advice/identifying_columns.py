"""Finds the columns that identify people, and how many records are unique in them.

Before registration, :func:`inspect_relation` guesses the role of each column of a relation, from
its name and from how its values recur.
"""

from __future__ import annotations

import csv
import io
import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from itertools import combinations
from math import prod
from typing import Any, Final, Literal

import numpy as np

from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, sort_keys
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.catalog.column_names import NameMeaning, read_name, words_of
from kanon_db.catalog.entries import Source, require_harmless
from kanon_db.catalog.sources import (
    open_source,
    require_readable,
    require_rows,
    require_unchanged,
)
from kanon_db.errors import InfeasibleError
from kanon_db.session import Session, fetch_one, undone
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.cell_texts import count_read_texts, find_lists
from kanon_db.transfer.columns import (
    ColumnType,
    Relation,
    column_types,
    find_relation,
    incomparable,
    label,
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
    """Count the records that have combinations of values that no other has.

    Parameters
    ----------
    codes : ndarray of int32, shape (n_records, n_columns)
        Not negative.
    pulse : Pulse
        When its time is over, the other combinations are left out.

    Yields
    ------
    Unique
        For all columns together, for each single one, each pair, and each three of them.

    Examples
    --------
    >>> codes = np.array([[0, 0], [0, 1], [1, 0], [1, 0]], dtype=np.int32)
    >>> [(found.columns, found.records) for found in unique_records(codes)]
    [((0, 1), 2), ((0,), 0), ((1,), 1)]
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


def copy_source(session: Session, source: Source, room: Allowance) -> SourceCopy:
    """Copy what would be published of a source, at most :data:`MOST_RECORDS` records."""
    n_source = count_records(session, source.relation)
    share = MOST_RECORDS / max(n_source, 1)
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

_NEARLY_UNIQUE: Final = 0.1
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
    if len(columns) == 1 and share >= _NEARLY_UNIQUE:
        said += f"; {NEARLY_UNIQUE}"
    return said


# -- before registration --------------------------------------------------------------------------

Role = Literal["identifier", "quasi-identifier", "sensitive", "entity", "arrival", "none"]


@dataclass(frozen=True)
class ColumnProfile:
    """What is counted of a column, without its values."""

    name: str
    type_name: str
    is_text: bool = False
    is_whole: bool = False  # Whole numbers
    is_time: bool = False  # Dates and timestamps
    is_comparable: bool = True
    distinct: int = 0
    filled: int = 0  # Records that have a value
    alone: int = 0  # Records whose value no other has
    length: float = 0.0  # The mean length of texts
    mails: int = 0  # Records with what looks like an e-mail address, or a person's name
    names: int = 0
    is_free: bool = False  # Whether it has free texts
    is_running: bool = False  # Whether the numbers are all different and without gaps
    notes: tuple[str, ...] = field(default=())

    @property
    def share_alone(self) -> float:
        """The share of the records with a value that no other has, of those that have one."""
        return self.alone / self.filled if self.filled else 0.0


_ARRIVING: Final = (
    "arriv", "admi", "creat", "insert", "receiv", "enter", "record", "registered", "submi",
    "timestamp", "zeitstempel", "aufnahme", "eingang", "erfass",
)  # fmt: skip

_MANY_TEXTS: Final = 0.5
_LONG_TEXT: Final = 60.0
_ROWS_OF_ONE: Final = 50
"""More rows for each value of a column are rather those of a place or a doctor than of a person."""


def guess_role(column: ColumnProfile) -> tuple[Role, str]:
    """Guess the role of a column, from its name and its counts; return it with the reason.

    Examples
    --------
    >>> guess_role(ColumnProfile("postcode", "text", distinct=90, filled=100, alone=1))
    ('quasi-identifier', 'its name: others may know it')
    >>> guess_role(ColumnProfile("patient_id", "integer", distinct=60, filled=100, alone=20))
    ('entity', 'its name, and values that recur: several rows are of one')
    >>> guess_role(ColumnProfile("Dx", "text", distinct=9, filled=100, alone=1))
    ('sensitive', 'its name')
    """
    if not column.is_comparable:
        return "none", "its values cannot be compared"
    if column.distinct <= 1:
        return "none", "all values are missing" if not column.distinct else "it has one value only"
    meaning = read_name(column.name)
    if identifying := _identifying_reason(column, meaning):
        return "identifier", identifying
    if column.is_time:
        is_arrival = any(word.startswith(_ARRIVING) for word in words_of(column.name))
        if is_arrival and meaning.topic != "known":
            return "arrival", "its name and type: when a record came"
        return "quasi-identifier", "a date, which others may know"
    if column.is_free or (column.is_text and column.length > _LONG_TEXT):
        return "none", "free texts, which can name people" if column.is_free else "long texts"
    topic = meaning.topic
    if topic in ("person", "number"):
        rows = column.filled / column.distinct
        # A subject may be one of a school, and a member one of yes and no.
        most = _ROWS_OF_ONE if topic == "number" else _ROWS_OF_ONE // 5
        if 1 < rows <= most:
            if meaning.few:
                return "none", "a number, which seems to be of no person"
            if topic == "number" and meaning.subject == "thing":
                return "identifier", _OF_SOMETHING
            return "entity", "its name, and values that recur: several rows are of one"
        topic = meaning.few
    if topic == "sensitive":
        return "sensitive", "its name"
    if topic == "known":
        return "quasi-identifier", "its name: others may know it"
    if 2 * column.names > column.filled:
        return "none", "values like names of people or places"
    if topic == "technical":
        return "none", "its name: of how records were kept"
    return "none", "nothing says what it is"


_OF_SOMETHING: Final = "its name: a number of somebody or something"
_FEW: Final = 5
_SOME_RECORDS: Final = 50


def _identifying_reason(column: ColumnProfile, meaning: NameMeaning) -> str:
    """Say why a column looks like one that identifies people; empty if it does not."""
    if column.is_time:
        return ""
    is_unique = column.share_alone >= 1 - _NEARLY_UNIQUE
    are_few = column.distinct <= _FEW and column.filled >= _SOME_RECORDS
    if meaning.topic == "contact" and not are_few:
        return "its name"
    if 2 * column.mails > column.filled:
        return "values like e-mail addresses"
    if column.is_running:
        return "a running number"
    if is_unique and meaning.topic in ("number", "person"):
        return "its name, and values that are nearly all different"
    if column.is_text and 2 * column.names > column.filled and column.share_alone >= _NEARLY_UNIQUE:
        return "values like people's names"
    if column.is_free:
        return ""
    if column.is_text and column.share_alone >= _MANY_TEXTS and column.length <= _LONG_TEXT:
        return "texts that are mostly different"
    return ""


def guess_roles(columns: Sequence[ColumnProfile]) -> list[tuple[Role, str]]:
    """Guess the role of each column; one at the most is the entity, and one the arrival.

    Where no column looks like one that others know, all that nothing is said of are taken for such.
    """
    found = [guess_role(column) for column in columns]
    entities = [i for i, (role, _) in enumerate(found) if role == "entity"]
    chosen = max(entities, key=lambda i: columns[i].distinct, default=None)
    for i in entities:
        # Rows without an entity are refused.
        if i != chosen or columns[i].filled < max(one.filled for one in columns):
            found[i] = ("identifier", _OF_SOMETHING)
    arrivals = [i for i, (role, _) in enumerate(found) if role == "arrival"]
    for i in arrivals[1:]:
        found[i] = ("quasi-identifier", "a date, which others may know")
    if not any(role == "quasi-identifier" for role, _ in found):
        for i, (role, reason) in enumerate(found):
            if role == "none" and reason == "nothing says what it is":
                found[i] = ("quasi-identifier", "nothing says that others do not know it")
    return found


def registration(columns: Sequence[tuple[str, Role]]) -> dict[str, list[str]]:
    """Return the parameters of `register_source` for these roles; none without quasi-identifiers.

    Examples
    --------
    >>> registration([("age", "quasi-identifier"), ("sick", "sensitive"), ("pay", "sensitive")])
    {'quasi_identifiers': ['age'], 'sensitive': ['sick'], 'also_sensitive': ['pay']}
    """
    of: dict[Role, list[str]] = {}
    for name, role in columns:
        of.setdefault(role, []).append(name)
    if "quasi-identifier" not in of:
        return {}
    sensitive = of.get("sensitive", [])
    given = {
        "quasi_identifiers": of["quasi-identifier"],
        "sensitive": sensitive[:1],
        "also_sensitive": sensitive[1:],
        "identifiers": of.get("identifier", []),
        "entity": of.get("entity", []),
        "arrival": of.get("arrival", []),
        # Buckets and freeform rows need one row a person; who came first stays so in refreshes.
        "keep": ["first" if "arrival" in of else "random"] if "entity" in of else [],
    }
    return {parameter: names for parameter, names in given.items() if names}


_LISTS: Final = ("quasi_identifiers", "also_sensitive", "identifiers")


def register_command(source: str, given: Mapping[str, Sequence[str]]) -> str:
    r"""Write the command that registers a source, quoted for a POSIX shell.

    Examples
    --------
    >>> register_command("public.stays", {"quasi_identifiers": ["age", "a, b"], "entity": ["id"]})
    'kanon register public.stays --quasi-identifiers \'age,"a, b"\' --entity id'
    """
    words = ["kanon", "register", source]
    for parameter, names in given.items():
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(names)
        value = text.getvalue() if parameter in _LISTS else names[0]
        words += [f"--{parameter.replace('_', '-')}", value]
    return shlex.join(words)


@dataclass(frozen=True)
class InspectedColumn:
    """A column and its guessed role; without a name, the relation and how to register it."""

    name: str | None
    type: str | None
    role: str | None
    reason: str | None
    distinct_values: int  # Of the relation: different rows
    missing: float | None  # Share of the records without a value
    once: float | None  # Share of the records whose value occurs once
    notes: str  # What else is odd; of values, only codes from a fixed list
    sql: str | None = None
    command: str | None = None


def inspect_relation(session: Session, source: str) -> list[InspectedColumn]:
    """Count what is in the columns of a table or view, and guess their roles for registration.

    The relation comes first, with the command that registers it; it need not be registered yet.
    """
    with undone(session):
        relation, oid, kind = find_relation(session, source)
        require_rows(session, relation, oid, kind)
        require_harmless(session, relation, oid)
        types = column_types(session, oid)
        if not types:
            raise InfeasibleError("the relation has no columns", detail=f"relation {relation}")
        require_readable(session, relation, oid, list(types))
        n = count_records(session, relation)
        share = MOST_RECORDS / max(n, 1)
        where = "true" if share >= 1 else f"random() < {share!r}::float8"
        room = Allowance.of(session)
        snapshot = take_snapshot(session, relation, list(types), room, where=where)
        if snapshot.n_records < n:
            session.tell(
                f"counted in a random sample of {snapshot.n_records:,} of {n:,} records: of all of"
                " them, fewer values occur once"
            )
        unknown = incomparable(session, relation, list(types))
        session.step("looking at columns")
        profiles = []
        for i, column in enumerate(types.values()):
            session.done(i, len(types))
            profiles.append(_profile(session, snapshot, column, column.name not in unknown))
        roles = guess_roles(profiles)
        (row,) = session.fetch(
            "SELECT to_regclass($1::text)::text AS name", relation.quoted(session)
        )
        whole = _inspected_relation(session, snapshot, row["name"], profiles, roles)
        return [whole, *map(_inspected, profiles, roles, [snapshot.n_records] * len(roles))]


def _inspected(column: ColumnProfile, role: tuple[Role, str], n_records: int) -> InspectedColumn:
    notes = list(column.notes)
    if role[0] == "quasi-identifier" and column.share_alone >= _NEARLY_UNIQUE:
        notes.insert(0, "nearly unique: coarsen it, or leave it out")
    return InspectedColumn(
        column.name, column.type_name, *role, column.distinct,
        1 - column.filled / n_records, column.alone / n_records, "; ".join(notes),
    )  # fmt: skip


def _inspected_relation(
    session: Session, snapshot: Snapshot, name: str, columns: Sequence[ColumnProfile],
    roles: Sequence[tuple[Role, str]],
) -> InspectedColumn:  # fmt: skip
    """Count rows that are alike, and write what registers the relation."""
    kept = [
        column.name for column, (role, _) in zip(columns, roles, strict=True)
        if role != "identifier" or column.share_alone < 1 - _NEARLY_UNIQUE
    ]  # fmt: skip
    texts = ", ".join(label(session.identifier(one)) for one in kept or [columns[0].name])
    row = fetch_one(
        session,
        f"SELECT count(*) AS n, coalesce(sum(n) - count(*), 0)::int8 AS repeated FROM (SELECT"
        f" count(*) AS n FROM {snapshot.table} GROUP BY ROW({texts})::text) AS alike",
    )
    notes = [f"{snapshot.n_records:,} records"]
    if row["repeated"]:
        but = ", but for identifiers" if len(kept) < len(columns) else ""
        notes.append(f"{row['repeated']:,} repeat another one in all columns{but}")
    for column, (role, _) in zip(columns, roles, strict=True):
        if role == "entity":
            mean = column.filled / column.distinct
            notes.append(f"{mean:.1f} records for each {column.name}")
    given = registration([(one.name, role) for one, (role, _) in zip(columns, roles, strict=True)])
    if not given:
        notes.append("no column can be a quasi-identifier")
        return InspectedColumn(None, None, None, None, row["n"], None, None, "; ".join(notes))
    arguments = [session.literal(name)]
    for parameter, names in given.items():
        values = ", ".join(map(session.literal, names))
        text = f"ARRAY[{values}]" if parameter in _LISTS else values
        arguments.append(f"{parameter} => {text}")
    return InspectedColumn(
        None, None, None, None, row["n"], None, None, "; ".join(notes),
        f"SELECT kanon.register_source({', '.join(arguments)});", register_command(name, given),
    )  # fmt: skip


_TEXT_CODES: Final = (
    "na", "n/a", "nan", "null", "none", "nil", "unknown", "missing", "unbekannt", "k.a.", "?", "-",
    "--", ".", "*", "#n/a", "tbd", "-1", "-9", "-99", "99", "999", "9999",
)  # fmt: skip
_LONG_CODE: Final = r"^-?(([06-9])\2{4,}|9{4,}[0-8])$"
_NUMBER_CODE: Final = r"^(-[1-9]|-?([6-9])\2+|-?9+[0-8])$"
_DATE_CODES: Final = (
    "0001-01-01", "1753-01-01", "1899-12-30", "1899-12-31", "1900-01-01", "1901-01-01",
    "1970-01-01", "2999-12-31", "3000-01-01", "9999-12-31", "infinity", "-infinity",
)  # fmt: skip
"""What often stands for a missing value."""

_TIME_TYPES: Final = ("date", "timestamp without time zone", "timestamp with time zone")
_WHOLE: Final = ("smallint", "integer", "bigint")
_PATTERNS: Final = {
    "mails": r"^[^@\s]+@[^@\s]+\.[^@\s]+$",
    "names": r"^[[:upper:]][[:alpha:]''.-]+,? ([[:upper:]]\.? )?[[:upper:]][[:alpha:]''-]+$",
    "numbers": r"^\s*[-+]?([0-9]+|[0-9]{1,3}([.,][0-9]{3})+)([.,][0-9]+)?\s*%?$",
    "dates": r"^\s*([0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{1,2}[./][0-9]{1,2}[./][0-9]{2,4}"
    r"|[0-9]{1,2}-[A-Za-z]{3}-[0-9]{2,4}|(19|20)[0-9]{2}(0[1-9]|1[0-2])([0-2][0-9]|3[01])$)",
    "codes": r"^[[:alpha:]]{0,2}[0-9][[:alnum:].-]+$",
}
_MOSTLY: Final = 0.9
_FEW_LENGTHS: Final = 0.2
"""Up to this share, codes of another length are odd; of more, lengths just differ."""


def _profile(
    session: Session, snapshot: Snapshot, column: ColumnType, is_comparable: bool
) -> ColumnProfile:
    """Count what is in a column; no value leaves the server but codes from the fixed lists."""
    name = session.identifier(column.name)
    is_text = column.type_category == "S"
    matching = ", ".join(
        f"coalesce(sum(n) FILTER (WHERE v ~ '{pattern}'), 0)::int8 AS {what}"
        for what, pattern in _PATTERNS.items()
    )
    row = fetch_one(
        session,
        f'WITH c AS (SELECT {label(name)} COLLATE pg_catalog."C" AS v, count(*)::int8 AS n'
        f" FROM {snapshot.table} GROUP BY 1)"
        " SELECT count(v) AS distinct, coalesce(sum(n) FILTER (WHERE v IS NOT NULL), 0)::int8"
        " AS filled, count(v) FILTER (WHERE n = 1) AS alone,"
        " coalesce(sum(n * length(v)) / nullif(sum(n) FILTER (WHERE v IS NOT NULL), 0), 0)::float8"
        " AS length, coalesce(sum(n) FILTER (WHERE v <> btrim(v)), 0)::int8 AS padded,"
        f" count(DISTINCT lower(btrim(v))) AS folded, {matching},"
        # Codes are as long as those that begin with a zero, unless it got lost.
        " coalesce(sum(n) FILTER (WHERE v ~ '^[1-9][0-9]*$' AND length(v) = (SELECT"
        " max(length(v)) FROM c WHERE v ~ '^0[0-9]+$') - 1), 0)::int8 AS shorter,"
        " (SELECT ARRAY[length, n] FROM (SELECT length(v)::int8 AS length, sum(n)::int8 AS n FROM c"
        " WHERE num_nulls(v) = 0 GROUP BY 1) AS l ORDER BY n DESC, length LIMIT 1) AS usual FROM c",
    )
    texts = count_read_texts(snapshot, [column]).get(column.name)
    profile = ColumnProfile(
        column.name, column.type_name, is_text=is_text,
        is_whole=column.type_name in _WHOLE, is_time=column.type_name in _TIME_TYPES,
        is_comparable=is_comparable, distinct=row["distinct"], filled=row["filled"],
        alone=row["alone"], length=row["length"],
        mails=row["mails"] if is_text else 0, names=row["names"] if is_text else 0,
        is_free=texts is not None and texts.matter,
    )  # fmt: skip
    notes = []
    if is_text:
        notes = list(_text_notes(row))
    elif profile.is_whole:
        notes = [text for text in _form_notes(row, "numbers") if text.endswith("dates")]
        if profile.alone == profile.filled > 1:
            low, high = snapshot.ends.get(column.name, (0, 0))
            profile = replace(profile, is_running=high - low + 1 == profile.filled)
    notes += _code_notes(session, snapshot, column, name)
    if profile.is_free:
        notes.append(f"free texts, which can name people ({texts})")
    if (lists := find_lists(session, f"FROM {snapshot.table} AS s", column)) is not None:
        notes.append(
            f"{lists}: a bound on it is on the whole cell; one row or one column for each value"
            " would be bounded by values"
        )
    return replace(profile, notes=tuple(notes))


def _form_notes(row: Mapping[str, Any], what: str) -> Iterator[str]:
    """Say what nearly all values look like; a date, which may be a number too, comes first."""
    for form in ("dates", "numbers"):
        if row[form] >= _MOSTLY * max(row["filled"], 1):
            others = row["filled"] - row[form]
            but = f", but for {others:,} records" if others else ""
            yield f"{what} that look like {form}{but}"
            return


def _text_notes(row: Mapping[str, Any]) -> Iterator[str]:
    yield from _form_notes(row, "texts")
    if row["shorter"]:
        yield f"{row['shorter']:,} records have a code that may have lost a zero at its beginning"
    length, usual = row["usual"] or (0, row["filled"])
    unusual = row["filled"] - usual - row["shorter"]
    if row["codes"] >= _MOSTLY * row["filled"] and 0 < unusual <= row["filled"] * _FEW_LENGTHS:
        yield f"{unusual:,} records have a code of another length than {length}, which is usual"
    if row["padded"]:
        yield f"{row['padded']:,} records with blanks around the text"
    if row["folded"] < row["distinct"]:
        yield f"{row['distinct'] - row['folded']:,} values differ in case or blanks alone"


def _code_notes(session: Session, snapshot: Snapshot, column: ColumnType, name: str) -> list[str]:
    """Name the codes that seem to stand for missing values, and how many records have them.

    Of numbers and dates, such a code lies far from the other values, or is the first or last one.
    """
    codes: tuple[str, ...] = ()
    ends, empty, pattern = "", [], "^$"
    if column.type_category == "S":
        value, odd = f"lower(btrim({label(name)}))", "true"
        codes, pattern = _TEXT_CODES, _LONG_CODE
        empty = session.fetch(
            f"SELECT count(*) AS n FROM {snapshot.table} WHERE btrim({label(name)}) = ''"
        )
    elif column.type_category == "N" and (number := column.number(name)) is not None:
        value, pattern = f"({number})::text", _NUMBER_CODE
        ends = (
            f", e AS (SELECT min({number}) AS low, max({number}) AS high FROM {snapshot.table}"
            f" WHERE {value} !~ $2::text AND {number} NOT IN"
            " ('NaN', 'Infinity', '-Infinity'))"
        )
        odd = (
            "(SELECT code::float8 > high + (high - low) / 10 OR (code::float8 < 0 AND low >= 0)"
            " OR code::float8 < low - (high - low) / 10 FROM e)"
        )
    elif column.type_name in _TIME_TYPES:
        codes, value = _DATE_CODES, f"left({label(name)}, 10)"
        ends = (
            f", e AS (SELECT min({name}) AS low, max({name}) AS high FROM {snapshot.table}"
            f" WHERE {value} <> ALL ($1::text[]))"
        )
        odd = f"(SELECT code::{column.type_name} NOT BETWEEN low AND high FROM e)"
    else:
        return []
    rows = session.fetch(
        # The condition is about codes alone: other texts need not be numbers or dates.
        f"WITH c AS MATERIALIZED (SELECT {value} AS code, count(*) AS n FROM {snapshot.table}"
        f" WHERE {value} = ANY ($1::text[]) OR {value} ~ $2::text GROUP BY 1){ends}"
        f" SELECT code, n FROM c WHERE {odd} ORDER BY n DESC, code",
        list(codes),
        pattern,
    )
    said = [f"{row['n']:,} records have {row['code']}, which may mean missing" for row in rows]
    return said + [f"{row['n']:,} records have an empty text" for row in empty if row["n"]]
