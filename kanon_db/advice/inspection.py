"""Guesses the roles of the columns of a relation that is not registered yet.

From their names, from how their values recur, and from the keys that constraints declare. Where
people and what happened to them are in two tables, it looks at both as one view.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final, Literal, NamedTuple

from kanon_db.advice.identifying_columns import MOST_RECORDS, NEARLY_UNIQUE_SHARE
from kanon_db.catalog.entries import require_harmless
from kanon_db.catalog.names import NameMeaning, looks_like_entity, read_name, words_of
from kanon_db.catalog.sources import require_readable, require_rows
from kanon_db.dataclasses import dataclass
from kanon_db.declaration.parameter_types import MAX_NAME_BYTES
from kanon_db.errors import InfeasibleError
from kanon_db.session import Session, fetch_one, undone
from kanon_db.session.protocol import temporary_table
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
    is_key: bool = False  # Whether a constraint says that no value occurs twice
    people: str = ""  # The table of people that it refers to
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
    if column.people and column.filled > column.distinct:
        return "entity", f"it refers to {column.people}: several rows are of one"
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
    is_unique = column.share_alone >= 1 - NEARLY_UNIQUE_SHARE
    are_few = column.distinct <= _FEW and column.filled >= _SOME_RECORDS
    if meaning.topic == "contact" and not are_few:
        return "its name"
    if 2 * column.mails > column.filled:
        return "values like e-mail addresses"
    if column.is_running:
        return "a running number"
    if column.is_key:
        return "a key: no two rows have the same"
    if is_unique and meaning.topic in ("number", "person"):
        return "its name, and values that are nearly all different"
    if (
        column.is_text
        and 2 * column.names > column.filled
        and column.share_alone >= NEARLY_UNIQUE_SHARE
    ):
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
        types: Mapping[str, ColumnType] = column_types(session, oid)
        if not types:
            raise InfeasibleError("the relation has no columns", detail=f"relation {relation}")
        require_readable(session, relation, oid, list(types))
        keys, notes = _read_keys(session, oid), _note_events(session, relation, oid)
        looked, view = relation, None
        if (reference := _find_people(session, relation, oid, types)) is not None:
            view = _join(session, relation, types, reference)
            looked, types = view.relation, view.types
            keys = (keys | view.keys) - {view.column}
            notes += _note_view(session, relation, view)
        n = count_records(session, looked)
        share = MOST_RECORDS / max(n, 1)
        where = "true" if share >= 1 else f"random() < {share!r}::float8"
        room = Allowance.of(session)
        snapshot = take_snapshot(session, looked, list(types), room, where=where)
        if snapshot.n_records < n:
            session.tell(
                f"counted in a random sample of {snapshot.n_records:,} of {n:,} records: of all of"
                " them, fewer values occur once"
            )
        unknown = incomparable(session, looked, list(types))
        session.step("looking at columns")
        profiles = []
        for i, column in enumerate(types.values()):
            session.done(i, len(types))
            profile = _profile(session, snapshot, column, column.name not in unknown)
            people = view.people if view is not None and column.name == view.column else ""
            profiles.append(replace(profile, is_key=column.name in keys, people=people))
        roles = guess_roles(profiles)
        whole = _inspected_relation(session, snapshot, view or relation, profiles, roles)
        whole = replace(whole, notes="; ".join([whole.notes, *notes]))
        return [whole, *map(_inspected, profiles, roles, [snapshot.n_records] * len(roles))]


# Which tables are of people, and which of what happened to them.

_REFERENCES: Final = """
SELECT own.columns, own.keys, n.nspname::text AS schema, r.relname::text AS name,
       r.oid::text AS oid
FROM pg_constraint AS c
CROSS JOIN LATERAL (
    SELECT array_agg(a.attname::text ORDER BY u.i) AS columns,
           array_agg(k.attname::text ORDER BY u.i) AS keys
    FROM unnest(c.conkey, c.confkey) WITH ORDINALITY AS u (a, k, i)
    JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = u.a
    JOIN pg_attribute AS k ON k.attrelid = c.confrelid AND k.attnum = u.k
) AS own
JOIN pg_class AS r ON r.oid = CASE WHEN $2::text = 'to' THEN c.conrelid ELSE c.confrelid END
JOIN pg_namespace AS n ON n.oid = r.relnamespace
WHERE c.contype = 'f' AND c.confrelid <> c.conrelid AND c.conparentid = 0
      AND CASE WHEN $2::text = 'to' THEN c.confrelid ELSE c.conrelid END = $1::text::oid
      AND has_table_privilege(r.oid, 'SELECT')
ORDER BY c.conkey, r.relname, n.nspname
"""
"""Foreign keys from a table, or to it, with the tables at their other ends."""

_JOINED: Final = frozenset({"smallint", "integer", "bigint", "uuid", "text", "character varying"})
"""Types of which several columns become one entity: settings do not change their texts."""


class PeopleReference(NamedTuple):
    """Columns that refer to a table of people, by a key of it."""

    columns: tuple[str, ...]
    people: Relation
    oid: str
    keys: tuple[str, ...]


class PeopleView(NamedTuple):
    """A table of what happened to people, and the table of these people, as one view."""

    name: Relation  # what the view is to be called
    column: str  # the column that refers to the people; made of all, where several do
    people: str  # the table of people
    relation: Relation  # the temporary view that is looked at
    types: Mapping[str, ColumnType]
    columns: Mapping[str, str]  # SQL for each column, by its name in the view
    tables: str  # what follows FROM
    keys: set[str]  # columns of people without the same value twice

    def write(self, session: Session, named: str, shown: Collection[str]) -> str:
        """Write the statement that creates it, with some of its columns."""
        names = (f"{self.columns[one]} AS {session.identifier(one)}" for one in shown)
        return f"CREATE {named} AS SELECT {', '.join(names)} FROM {self.tables};"


def _regclass(session: Session, relation: Relation) -> str:
    """Write the name of a relation, with quotes where it needs them."""
    statement = "SELECT format('%I.%I', $1::text, $2::text) AS name"
    return str(fetch_one(session, statement, relation.schema, relation.name)["name"])


def _read_keys(session: Session, oid: str) -> set[str]:
    """Name the columns of which a constraint or an index says that no value occurs twice."""
    rows = session.fetch(
        "SELECT a.attname::text AS name FROM pg_index AS i JOIN pg_attribute AS a"
        " ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] WHERE i.indrelid = $1::text::oid"
        " AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1 AND num_nulls(i.indpred) = 1",
        oid,
    )
    return {row["name"] for row in rows}


def _note_events(session: Session, relation: Relation, oid: str) -> list[str]:
    """Say which tables refer to a table of people."""
    return [
        f"{row['schema']}.{row['name']} refers to it by {', '.join(row['columns'])}: inspect that"
        " table for one view of both"
        for row in session.fetch(_REFERENCES, oid, "to")
        if _is_of_people(relation.name, row["columns"])
    ]


def _note_view(session: Session, events: Relation, view: PeopleView) -> list[str]:
    """Say what the view has, and how many records it lacks."""
    said = f"{view.column} refers to {view.people}: the columns of both are listed"
    notes = [f"{said}, and the statement creates {view.name}, a view of both without identifiers"]
    if without := count_records(session, events) - count_records(session, view.relation):
        notes.append(f"{without:,} records are of nobody in {view.people}")
    return notes


def _find_people(
    session: Session, relation: Relation, oid: str, types: Mapping[str, ColumnType]
) -> PeopleReference | None:
    """Find the table of the people whom the rows are about; of several, that with the most."""
    references = [
        PeopleReference(
            tuple(row["columns"]), Relation(row["schema"], row["name"]), row["oid"],
            tuple(row["keys"]),
        )
        for row in session.fetch(_REFERENCES, oid, "from")
        if _is_of_people(row["name"], row["columns"])
        and _can_be_compared([types[name] for name in row["columns"]])
    ]  # fmt: skip
    if len(references) < 2:
        return next(iter(references), None)
    counts = fetch_one(
        session,
        "SELECT ARRAY["
        + ", ".join(
            f"count(DISTINCT ({', '.join(map(session.identifier, one.columns))}))"
            for one in references
        )
        + f"] AS n FROM {relation.rows(session)}",
    )
    return references[max(range(len(references)), key=lambda i: counts["n"][i])]


def _can_be_compared(columns: Sequence[ColumnType]) -> bool:
    if len(columns) > 1:
        return all(one.type_name in _JOINED for one in columns)
    return columns[0].operator_schema is None


def _is_of_people(table: str, columns: Sequence[str]) -> bool:
    return any(map(looks_like_entity, columns)) or any(
        read_name(name).topic == "person" for name in (table, table.removesuffix("s"))
    )


def _join(
    session: Session, events: Relation, types: Mapping[str, ColumnType], reference: PeopleReference
) -> PeopleView:
    """Create a temporary view of a table and the people that it refers to."""
    people = reference.people
    require_harmless(session, people, reference.oid)
    of_people = column_types(session, reference.oid)
    require_readable(session, people, reference.oid, list(of_people))
    columns = {name: f"e.{session.identifier(name)}" for name in types}
    names = {}
    for name in of_people:
        if name in reference.keys:
            continue
        shown = name if name not in columns else f"{people.name}_{name}"
        if shown not in columns and len(shown.encode()) <= MAX_NAME_BYTES:
            columns[shown] = f"p.{session.identifier(name)}"
            names[name] = shown
    entity = reference.columns[0]
    if len(reference.columns) > 1:
        entity = _shorten("_".join(reference.columns), MAX_NAME_BYTES - 1)
        entity += "_" if entity in columns else ""
        parts = ", ".join(columns[name] for name in reference.columns)
        columns = {entity: f"ROW({parts})::text"} | columns
    condition = " AND ".join(
        f"p.{session.identifier(key)} = e.{session.identifier(name)}"
        for key, name in zip(reference.keys, reference.columns, strict=True)
    )
    tables = (
        f"{_regclass(session, events)} AS e JOIN {_regclass(session, people)} AS p ON {condition}"
    )
    keys = {names[name] for name in _read_keys(session, reference.oid) if name in names}
    temporary = temporary_table(session, "people")
    view = PeopleView(
        _free_name(session, events, people), entity, str(people), events, {}, columns, tables, keys
    )  # fmt: skip
    session.fetch(view.write(session, f"TEMPORARY VIEW {temporary}", columns))
    relation, oid, _ = find_relation(session, temporary)
    return view._replace(relation=relation, types=column_types(session, oid))


def _shorten(name: str, n_bytes: int) -> str:
    return name.encode()[:n_bytes].decode(errors="ignore")


def _free_name(session: Session, events: Relation, people: Relation) -> Relation:
    """Return a name for a view beside a table, which no relation has."""
    name = "_".join(_shorten(one.name, 28) for one in (events, people))
    row = fetch_one(
        session,
        "SELECT min(i) AS i FROM generate_series(1, 1000) AS i WHERE to_regclass(format('%I.%I',"
        " $1::text, CASE i WHEN 1 THEN $2::text ELSE $2::text || '_' || i END)) IS NULL",
        events.schema,
        name,
    )
    return Relation(events.schema, name if row["i"] == 1 else f"{name}_{row['i']}")


def _inspected(column: ColumnProfile, role: tuple[Role, str], n_records: int) -> InspectedColumn:
    notes = list(column.notes)
    if role[0] == "quasi-identifier" and column.share_alone >= NEARLY_UNIQUE_SHARE:
        notes.insert(0, "nearly unique: coarsen it, or leave it out")
    return InspectedColumn(
        column.name, column.type_name, *role, column.distinct,
        1 - column.filled / n_records, column.alone / n_records, "; ".join(notes),
    )  # fmt: skip


def _inspected_relation(
    session: Session, snapshot: Snapshot, target: Relation | PeopleView,
    columns: Sequence[ColumnProfile], roles: Sequence[tuple[Role, str]],
) -> InspectedColumn:  # fmt: skip
    """Count rows that are alike, and write what registers the relation."""
    kept = [
        column.name for column, (role, _) in zip(columns, roles, strict=True)
        if role != "identifier" or column.share_alone < 1 - NEARLY_UNIQUE_SHARE
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
    relation = target.name if isinstance(target, PeopleView) else target
    name, statements = _regclass(session, relation), []
    if isinstance(target, PeopleView):
        hidden = given.pop("identifiers", [])
        shown = [one.name for one in columns if one.name not in hidden]
        statements.append(target.write(session, f"VIEW {name}", shown))
    arguments = [session.literal(name)]
    for parameter, names in given.items():
        values = ", ".join(map(session.literal, names))
        text = f"ARRAY[{values}]" if parameter in _LISTS else values
        arguments.append(f"{parameter} => {text}")
    statements.append(f"SELECT kanon.register_source({', '.join(arguments)});")
    return InspectedColumn(
        None, None, None, None, row["n"], None, None, "; ".join(notes),
        "\n".join(statements), register_command(name, given),
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
