"""Reads the columns of a relation from the server's catalogs, and passes numbers in bulk.

Text that names a value, such as a threshold's, is the same in every session (`fix_labels`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kanon_db.errors import DatabaseError, NotFoundError, SchemaMismatchError
from kanon_db.query.expressions import CATEGORIES
from kanon_db.query.ranges import AXES, choose_range
from kanon_db.session.protocol import UNDEFINED_FUNCTION, Session, settings

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import AnyIntArray, CodeArray


class Relation(NamedTuple):
    """A relation by its schema and name, as the catalogs spell them."""

    schema: str
    name: str
    kept: KeptRows | None = None  # which of its rows are read, if not all of them
    shortened: ShortenedColumns | None = None  # columns of which only the beginnings are read

    def __str__(self) -> str:
        """Write it for people; statements use :meth:`quoted`."""
        return f"{self.schema}.{self.name}"

    @property
    def whole(self) -> Relation:
        """The relation with all of its rows."""
        return self._replace(kept=None)

    def quoted(self, session: Session) -> str:
        """Return the schema-qualified name, safe in a statement."""
        return session.identifier(self.schema, self.name)

    def columns(self, session: Session, sample: str = "") -> str:
        """Write what follows FROM to read the columns of all its rows, or of a sample, as ``s``."""
        if self.shortened is None:
            return f"{self.quoted(session)} AS s{sample}"
        names = self.shortened.read(session)
        return f"(SELECT {names} FROM {self.quoted(session)} AS s{sample}) AS s"

    def rows(self, session: Session, where: str = "true") -> str:
        """Write what follows FROM to read its rows, as ``s``.

        Of the rows that meet a condition, those are read that are kept.
        """
        if self.kept is None:
            return f"{self.columns(session)} WHERE ({where})"
        return f"{self.kept.chosen(session, self, where)} AS s WHERE true"


class ColumnType(NamedTuple):
    """A column, and the base type behind its domains.

    Attributes
    ----------
    name : str
        The column's name.
    type_name : str
        The base type as SQL spells it, schema-qualified where needed, without modifiers
        (``numeric``, ``bpchar``, ``public.citext``).
    type_category : str
        PostgreSQL's ``pg_type.typcategory``: ``N`` numeric, ``S`` string, ``D`` date/time, ...
    operator_schema : str or None
        Schema of the type's own comparison operators; None if it uses PostgreSQL's built-in ones.
    has_constant_input : bool
        Whether the type's text input is immutable, so that it does not depend on any setting.
    is_domain : bool
        Whether the column's own type is a domain, whose constraints others may have written.
    is_others : bool
        Whether the type, or its schema, belongs to somebody who could attach casts to it, or drop
        the column with it; see ``sql/05_types.sql``. Its values are published as texts, and
        `type_name` is ``text``.
    has_others_collation : bool
        Likewise for the column's collation; it is published with the database's default.
    """

    name: str
    type_name: str
    type_category: str
    operator_schema: str | None
    has_constant_input: bool
    is_domain: bool = False
    is_others: bool = False
    has_others_collation: bool = False

    def read(self, session: Session) -> str:
        """Return SQL for the column's values, which have a type and collation of a superuser's."""
        name = session.identifier(self.name)
        if self.is_others:  # format() calls the type's output function, and no cast
            return f"CASE WHEN num_nulls({name}) = 0 THEN format('%s', {name}) END"
        if self.has_others_collation:
            return f'{name}::{self.type_name} COLLATE "default"'
        return f"{name}::{self.type_name}" if self.is_domain else name

    def operator(self, session: Session, symbol: str) -> str:
        """Write a comparison operator so that `search_path` cannot change its meaning."""
        if self.operator_schema is None:
            return f"OPERATOR(pg_catalog.{symbol})"
        return f"OPERATOR({session.identifier(self.operator_schema)}.{symbol})"

    def number(self, value: str) -> str | None:
        """Return SQL for an expression's value as a float8; None for types without numbers."""
        axis = AXES.get(self.type_name)
        return None if axis is None else axis.number.format(value)

    def number_of_end(self, end: str) -> str | None:
        """Return :meth:`number` of the value that an end of a range of such values stands for."""
        axis = AXES.get(self.type_name)
        return None if axis is None else axis.number_of_end.format(end)

    def range_type(self, largest: float) -> str | None:
        """Return the type of ranges of the column's values; None if there is no such type."""
        return choose_range(self.type_name, largest)

    @property
    def bound_type(self) -> str:
        """Return the type of the ends of bins: numbers, but of dates and timestamps these."""
        return self.type_name if CATEGORIES.get(self.type_name) == "moment" else "numeric"

    @property
    def is_number(self) -> bool:
        """Whether its values are numbers."""
        return self.type_name in _NUMBERS


class ShortText(NamedTuple):
    """A column of texts of which the first characters are read: of ZIP codes, the area."""

    column: ColumnType
    length: int
    # The beginnings that are read as they are; the others are read as zeros. None: all are.
    large_areas: tuple[str, ...] | None = None

    def read(self, session: Session) -> str:
        """Return SQL for the column's values, of its own type."""
        short = f"left({self.column.read(session)}::text, {self.length})"
        if self.large_areas is not None:
            listed = f"ARRAY[{', '.join(map(session.literal, self.large_areas))}]::text[]"
            # PostgreSQL 14 looks up = ANY of many constants by their hashes, but not <> ALL.
            is_large = f'({short}) COLLATE pg_catalog."C" = ANY ({listed})'
            small = f"WHEN num_nulls({short}) = 0 THEN '{self.small_area}'"
            short = f"CASE WHEN {is_large} THEN {short} {small} END"
        return f"({short})::{self.column.type_name}"

    @property
    def small_area(self) -> str:
        """What is read in the place of an area with few people."""
        return "0" * self.length


class ShortenedColumns(NamedTuple):
    """The columns of a relation, some of which are read as their first characters."""

    texts: tuple[ShortText, ...]
    others: tuple[str, ...]  # those that the role may read

    def read(self, session: Session) -> str:
        """Write the select list of all of them."""
        read = [session.identifier(name) for name in self.others]
        read += [
            f"{text.read(session)} AS {session.identifier(text.column.name)}" for text in self.texts
        ]
        return ", ".join(read)


class KeptRows(NamedTuple):
    """Which row of each entity is read, instead of all of them, and what stands in it.

    It follows from `open_columns`; among equal rows, a secret key draws, so values decide nothing.
    """

    entity: ColumnType
    open_columns: tuple[ColumnType, ...]
    secret_columns: tuple[ColumnType, ...]
    order: ColumnType | None  # None: by chance
    is_last: bool  # whether the greatest value comes first; NULL comes last
    aggregates: tuple[tuple[ColumnType, str], ...]  # columns, and the functions of all rows
    draw_key: Callable[[Session], str]  # Returns the key of the role that reads

    def chosen(self, session: Session, relation: Relation, where: str) -> str:
        """Write the kept rows of those that meet a condition, as a table without an alias."""
        suffix = os.urandom(8).hex()
        place, first, alike, whose, window = (
            session.identifier(f"kanon_{name}_{suffix}") for name in "pfaew"
        )
        aggregates = dict(self.aggregates)
        read = [
            f"({aggregates[column]}({column.read(session)}) OVER {window})::{column.type_name}"
            f" AS {session.identifier(column.name)}"
            if column in aggregates
            else f"s.{session.identifier(column.name)}"
            for column in (self.entity, *self.open_columns, *self.secret_columns)
        ]
        by = [self._write_hash(session, self.open_columns)]
        if self.order is not None:
            is_last = "DESC" if self.is_last else "ASC"
            by.insert(0, f"{self.order.read(session)} {is_last} NULLS LAST")
        of_open = f"({window} ORDER BY {', '.join(by)})"
        # Numbered by their values, so that where they lie decides nothing; drawn without these.
        by.append(self._write_hash(session, self.secret_columns))
        of_all = f"({window} ORDER BY {', '.join(by)})"
        entity = self.entity.read(session)
        return (
            f"(SELECT * FROM (SELECT {', '.join(read)}, rank() OVER {of_open} AS {first},"
            f" count(*) OVER {of_open} AS {alike}, row_number() OVER {of_all} AS {place},"
            # Entities that are equal may have several texts.
            f" first_value({_write_label(self.entity, entity)}) OVER {of_all} AS {whose}"
            f" FROM {relation.columns(session)} WHERE ({where})"
            f" WINDOW {window} AS (PARTITION BY {entity})) AS s WHERE s.{first} = 1"
            f" AND s.{place} = {self._write_rank(session, f's.{whose}', f's.{alike}')}"
            # Rows without an entity are no entity: all are read, and refused.
            f" OR num_nulls(s.{session.identifier(self.entity.name)}) > 0)"
        )

    def _write_hash(self, session: Session, columns: Sequence[ColumnType]) -> str:
        """Write a hash of the entity and some columns, to put rows in an order of no meaning."""
        labels = ", ".join(
            _write_label(column, column.read(session)) for column in (self.entity, *columns)
        )
        return f'hashtextextended(ARRAY[{labels}]::text COLLATE pg_catalog."C", 0)'

    def _write_rank(self, session: Session, entity: str, alike: str) -> str:
        """Write which of an entity's first rows that are alike is drawn, from 1 on."""
        key = session.identifier("pg_temp", f"kanon_key_{os.urandom(8).hex()}")
        session.fetch(
            f"CREATE TEMPORARY TABLE {key} ON COMMIT DROP AS SELECT $1::text AS key",
            self.draw_key(session),
        )
        digest = f"sha256(convert_to((SELECT k.key FROM {key} AS k) || {entity}, 'UTF8'))"
        number = f"('x' || left(encode({digest}, 'hex'), 15))::bit(60)::int8"
        return f"CASE {alike} WHEN 1 THEN 1 ELSE 1 + {number} % {alike} END"


def _write_label(column: ColumnType, value: str) -> str:
    """Write a text for a value that no setting changes, as the caller's own settings are in force.

    Some types that are rare in microdata have none.
    """
    if column.type_name in (*WHOLE_NUMBERS, *_TEXTS):
        return f"{value}::text"
    if column.type_name == "numeric":
        return f"trim_scale({value})::text"
    number = column.number(value)
    return label(value) if number is None else f"encode(float8send({number} + 0), 'hex')"


WHOLE_NUMBERS: Final = ("smallint", "integer", "bigint")
_NUMBERS: Final = (*WHOLE_NUMBERS, "numeric", "real", "double precision")

_COLUMNS = """
WITH RECURSIVE typed AS (
    SELECT a.attname, a.attnum, a.attcollation, false AS is_domain, t.oid AS type_oid, t.typtype,
           t.typbasetype, t.typcategory, t.typinput, t.typnamespace
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = $1::text::oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT d.attname, d.attnum, d.attcollation, true, t.oid, t.typtype, t.typbasetype,
           t.typcategory, t.typinput, t.typnamespace
    FROM typed d JOIN pg_type t ON t.oid = d.typbasetype
    WHERE d.typtype = 'd'
), judged_type AS MATERIALIZED (  -- each once: a table may have 1,600 columns
    SELECT d.type_oid AS judged, NOT kanon.is_safe_type(d.type_oid) AS is_others
    FROM (SELECT DISTINCT type_oid FROM typed WHERE typtype <> 'd' OFFSET 0) d
), judged_collation AS MATERIALIZED (
    SELECT d.attcollation AS judged, NOT kanon.is_safe_collation(d.attcollation) AS is_others
    FROM (SELECT DISTINCT attcollation FROM typed OFFSET 0) d
), column_type AS (
    SELECT c.*, j.is_others, l.is_others AS has_others_collation, n.nspname,
           c.typtype = 'b' AND c.typcategory <> 'A' AS is_base
    FROM typed c JOIN judged_type j ON j.judged = c.type_oid
    JOIN judged_collation l ON l.judged = c.attcollation
    JOIN pg_namespace n ON n.oid = c.typnamespace
    WHERE c.typtype <> 'd'
)
SELECT c.attname::text AS name, c.is_domain, c.is_others,
       CASE WHEN c.is_others THEN 'text' ELSE format_type(c.type_oid, -1) END AS type_name,
       CASE WHEN c.is_others THEN 'S' ELSE c.typcategory::text END AS type_category,
       CASE WHEN c.nspname <> 'pg_catalog' AND c.is_base AND NOT c.is_others THEN c.nspname::text
           END AS operator_schema,
       c.is_others OR f.provolatile = 'i' AS has_constant_input,
       c.has_others_collation
FROM column_type c JOIN pg_proc f ON f.oid = c.typinput
ORDER BY c.attnum
"""


def find_relation(session: Session, name: str) -> tuple[Relation, str, str]:
    """Look up a relation by the text of a ``regclass``.

    Returns
    -------
    relation : Relation
    oid : str
        Its object identifier.
    kind : str
        ``pg_class.relkind``, or ``t`` for a temporary relation of any kind.

    Raises
    ------
    NotFoundError
        When there is none of that name.
    """
    rows = session.fetch(
        "SELECT n.nspname::text AS schema, c.relname::text AS name, c.oid::text AS oid,"
        " CASE c.relpersistence WHEN 't' THEN 't' ELSE c.relkind::text END AS kind"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.oid = to_regclass($1::text)",
        name,
    )
    if not rows:
        raise NotFoundError(
            "the source relation does not exist",
            hint="name it with its schema, like public.census, quoted as in SQL; \\dt *.* in psql"
            " lists tables",
        )
    row = rows[0]
    return Relation(row["schema"], row["name"]), row["oid"], row["kind"]


def column_types(session: Session, oid: str) -> dict[str, ColumnType]:
    """Return a relation's columns by name, in their order."""
    return {row["name"]: ColumnType(**row) for row in session.fetch(_COLUMNS, oid)}


def selected(session: Session, relation: Relation, columns: Sequence[str]) -> str:
    """Return the select list that reads columns of a source, under their own names.

    Raises NotFoundError when the relation is gone, or one of the columns.
    """
    types = types_of(session, relation, columns)
    return ", ".join(f"{each.read(session)} AS {session.identifier(each.name)}" for each in types)


def types_of(session: Session, relation: Relation, columns: Sequence[str]) -> list[ColumnType]:
    """Look up columns of a source."""
    _, oid, _ = find_relation(session, relation.quoted(session))
    types = column_types(session, oid)
    missing = [column for column in columns if column not in types]
    if missing:
        raise NotFoundError(
            "the relation has lost columns", detail=f"{relation} has no {', '.join(missing)}"
        )
    return [types[column] for column in columns]


def check_comparable(session: Session, relation: Relation, columns: Sequence[str]) -> None:
    """Refuse columns whose values cannot be compared or sorted.

    Raises SchemaMismatchError: it names the first such column (of types like json, xml or point).
    """
    for column in incomparable(session, relation, columns):
        raise SchemaMismatchError(
            "a column's values cannot be compared",
            detail=f'column "{column}" of {relation}: its type has no equality and order',
            hint="publish a view that casts it, for example json to jsonb",
        )


def incomparable(session: Session, relation: Relation, columns: Sequence[str]) -> list[str]:
    """Return the columns whose values cannot be compared or sorted.

    That depends on the type alone: one column of each is tried.
    """
    types = types_of(session, relation, columns)
    first = {each._replace(name=""): each for each in reversed(types)}
    comparable = {kind: _is_comparable(session, relation, each) for kind, each in first.items()}
    return [each.name for each in types if not comparable[each._replace(name="")]]


def _is_comparable(session: Session, relation: Relation, column: ColumnType) -> bool:
    try:
        with session.savepoint():
            session.fetch(
                f"EXPLAIN SELECT FROM (SELECT {column.read(session)} AS value"
                f" FROM {relation.quoted(session)}) AS s GROUP BY s.value ORDER BY s.value"
            )
    except DatabaseError as error:
        if error.sqlstate != UNDEFINED_FUNCTION:
            raise
        return False
    return True


def with_numbers(
    session: Session, relation: str, *columns: tuple[int, str], widths: Sequence[int] = ()
) -> tuple[str, list[str]]:
    """Add columns of numbers, parameters made by :func:`int4_bytes`, to the relation ``r`` in SQL.

    `columns`: a parameter's number, and the place of a row's number in it. Names are quoted.
    """
    # A column of a million numbers is passed as one bytea, copied once; as int4[] it would become a
    # million Python objects (1.1 s instead of 0.1 s, and ten times the memory). Numbers have 4
    # bytes each, or as many as `widths` says; see `number_bytes`.
    suffix = os.urandom(8).hex()
    names = [session.identifier(f"kanon_number_{i}_{suffix}") for i in range(len(columns))]
    values = ", ".join(
        f"{_number_at(parameter, index, width)} AS {name}"
        for name, (parameter, index), width in zip(
            names, columns, widths or [4] * len(columns), strict=True
        )
    )
    bound = ", ".join(f"${i}::bytea AS b{i}" for i in sorted({i for i, _ in columns}))
    # The planner turns every mention of a parameter into a constant, a copy of many megabytes, so
    # each is mentioned only once here. OFFSET 0 keeps the planner from copying it elsewhere, and
    # the bytes from travelling with the rows into sorts and hash tables.
    numbered = (
        f"(SELECT r.*, {values} FROM (SELECT {bound} OFFSET 0) AS bound CROSS JOIN {relation} AS r"
        " OFFSET 0)"
    )
    return numbered, names


def _number_at(parameter: int, index: str, width: int) -> str:
    byte = [
        f"(get_byte(bound.b{parameter}, {width} * ({index}) + {i}) << {8 * (width - 1 - i)})"
        for i in range(width)
    ]
    return f"({' | '.join(byte)})"


def parts_of(session: Session, table: str, n_rows: int, alias: str) -> list[str]:
    """Divide a table into runs of pages, so that what is read of each fits into one value.

    A value may have a gigabyte, and is copied. Returns conditions; each row meets one of them.
    """
    n_parts = -(-n_rows // _ROWS_AT_ONCE)
    if n_parts <= 1:
        return ["true"]
    (pages,) = session.fetch(
        "SELECT pg_relation_size(to_regclass($1::text)) / current_setting('block_size')::int4 AS n",
        table,
    )
    starts = [pages["n"] * part // n_parts for part in range(1, n_parts)]
    bounds = [f"'({start},0)'::tid" for start in starts]
    return [
        " AND ".join(
            [f"{alias}.ctid >= {low}"] * (low != "") + [f"{alias}.ctid < {high}"] * (high != "")
        )
        for low, high in zip(["", *bounds], [*bounds, ""], strict=True)
    ]


_ROWS_AT_ONCE: Final = 1 << 23


def int4_bytes(values: AnyIntArray) -> bytes:
    """Return the bytes of an integer array for :func:`with_numbers`."""
    return values.astype(">i4").tobytes()


def number_bytes(values: AnyIntArray) -> tuple[bytes, int]:
    """Return the bytes of numbers from 0 on for :func:`with_numbers`, and how many each has."""
    import numpy as np

    width = 1 if not values.size else max(1, (int(values.max()).bit_length() + 7) // 8)
    if width >= 4:  # the highest bit is a sign
        return int4_bytes(values), 4
    digits = np.empty((values.size, width), dtype=np.uint8)
    for i in range(width):
        digits[:, i] = (values >> 8 * (width - 1 - i)).astype(np.uint8)
    return digits.tobytes(), width


def inverse_permutation(order: AnyIntArray) -> CodeArray:
    """Return each record's place in an order; there must be fewer than 2^31 records."""
    import numpy as np

    places = np.empty(order.size, dtype=np.int32)
    places[order] = np.arange(order.size, dtype=np.int32)
    return places


_SETTINGS: Final = {
    "bytea_output": "hex",
    "datestyle": "ISO, YMD",
    "extra_float_digits": "1",
    "intervalstyle": "postgres",
    "lc_monetary": "C",
    "timezone": "UTC",
}


def fix_labels(session: Session) -> AbstractContextManager[None]:
    """Run the block with fixed settings for how values are written.

    Else a time zone would decide what verifying finds; sources are read with the caller's own.
    """
    return settings(session, _SETTINGS)


def label(value: str) -> str:
    """Return SQL for the text of an expression's value; NULL if the value is NULL.

    num_nulls() tells NULL from a row of NULLs; format() uses the type's output function.
    """
    return f"CASE WHEN num_nulls({value}) = 0 THEN format('%s', {value}) END"


def label_of(column: ColumnType, value: str) -> str:
    """Return SQL for the text of a column's value, as :func:`label` does; a text is its own."""
    return f"{value}::text" if column.type_name in _TEXTS else label(value)


_TEXTS: Final = ("text", "character varying")


def text_in_set(column: ColumnType, label: str) -> str:
    """Return SQL for the text in a set that stands for a value, from the value's label.

    Texts in sets are compared as they are, so the blanks that fill up a ``char(n)`` must go.
    """
    return f"rtrim({label}, ' ')" if column.type_name == "bpchar" else label


# Types are kept with a publication, so that a comparison of a published column means what it means
# on the source.

_TYPES = """
WITH RECURSIVE typed AS (
    SELECT a.attname, a.atttypmod AS modifier, a.attcollation, t.oid, t.typtype, t.typbasetype,
           t.typtypmod
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = to_regclass($1::text) AND a.attname = ANY ($2::text[])
    UNION ALL
    SELECT d.attname, CASE WHEN d.typtypmod < 0 THEN d.modifier ELSE d.typtypmod END,
           d.attcollation, t.oid, t.typtype, t.typbasetype, t.typtypmod
    FROM typed d JOIN pg_type t ON t.oid = d.typbasetype
    WHERE d.typtype = 'd'
)
SELECT c.attname::text AS name,
       CASE WHEN kanon.is_safe_type(c.oid) AND c.typtype <> 'e' THEN format_type(c.oid, -1) END
           AS type,
       CASE WHEN c.oid = 'bpchar'::regtype AND c.modifier > 4 THEN c.modifier - 4 END AS length,
       CASE WHEN c.typtype = 'e' THEN ARRAY(
           SELECT enumlabel::text FROM pg_enum WHERE enumtypid = c.oid ORDER BY enumsortorder
       ) END AS labels,
       CASE WHEN l.collname <> 'default' AND kanon.is_safe_collation(l.oid)
           THEN ARRAY[n.nspname::text, l.collname::text] END AS collation,
       CASE WHEN NOT kanon.is_safe_collation(c.attcollation)
           OR NOT (kanon.is_safe_type(c.oid) OR c.typtype = 'e') THEN false END AS is_ordered
FROM typed c
LEFT JOIN (pg_collation l JOIN pg_namespace n ON n.oid = l.collnamespace) ON l.oid = c.attcollation
WHERE c.typtype <> 'd'
"""


def describe_types(
    session: Session, relation: Relation, columns: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Describe what comparisons of columns depend on, by column: of these what applies."""
    # `type`, SQL's name of the type behind its domains; the `length` of a char(n); the `labels` of
    # an enumeration, in their order; its `collation`, schema and name, if that is not the
    # database's; `is_ordered`, false if its values are published as texts, or with another
    # collation, whose order is not theirs; the `prefix` of texts that is read.
    rows = session.fetch(_TYPES, relation.quoted(session), list(columns))
    texts = () if relation.shortened is None else relation.shortened.texts
    short = {text.column.name: {"prefix": text.length} for text in texts}
    return {
        str(row["name"]): {
            key: list(value) if isinstance(value, list) else value
            for key, value in row.items()
            if key != "name" and value is not None
        }
        | short.get(row["name"], {})
        for row in rows
    }
