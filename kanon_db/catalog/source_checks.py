"""Checks how an owner describes a source: roles and attributes of its columns.

What cannot be is refused; a role that is allowed but probably a mistake brings a warning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from kanon_db.catalog.attributes import BINNED, UNITS
from kanon_db.catalog.entries import Source, require_harmless
from kanon_db.catalog.names import looks_identifying, looks_like_entity, require_plain
from kanon_db.errors import DatabaseError, InvalidParameterError, NotFoundError, SchemaMismatchError
from kanon_db.session.protocol import DATA_EXCEPTION_CLASS, Session, fetch_one
from kanon_db.transfer.columns import (
    ColumnType,
    Relation,
    ShortText,
    column_types,
    find_relation,
    incomparable,
    types_of,
)


def check_roles(source: Source) -> None:
    """Refuse roles of columns that do not exist, and two roles of one column."""
    if not source.quasi_identifiers:
        raise InvalidParameterError(
            "a source needs at least one quasi-identifier",
            detail=f"relation {source.relation}",
            hint="name what others may know about a person: quasi_identifiers => '{...}'",
        )
    if source.also_sensitive and source.sensitive is None:
        raise InvalidParameterError(
            "a source with also_sensitive needs a sensitive attribute",
            detail=f"relation {source.relation}",
            hint="name the first column to protect with sensitive => ..., and the others with"
            " also_sensitive",
        )
    roles: dict[str, str] = {}
    for role, columns in (
        ("a quasi-identifier", source.quasi_identifiers),
        ("the sensitive attribute", [source.sensitive]),
        ("also sensitive", source.also_sensitive),
        ("an identifier", source.identifiers),
        ("insensitive", source.insensitive),
        ("the entity", [source.entity]),
    ):
        for column in columns:
            if column is None:
                continue
            if column not in source.columns:
                raise NotFoundError(
                    "the source has no such column",
                    detail=f'column "{column}", named as {role} of {source.relation}',
                    hint=_its_columns(source, column),
                )
            require_plain("a column", column)
            if column in roles:
                raise InvalidParameterError(
                    "a column can have only one role",
                    detail=f'column "{column}" of {source.relation} is named as {roles[column]}'
                    f" and as {role}",
                    hint="name it only once; what is sensitive is protected, and published with"
                    " quasi-identifiers that others may know",
                )
            roles[column] = role
    if source.arrival is not None and source.arrival not in source.columns:
        raise NotFoundError(
            "the source has no such column",
            detail=f'column "{source.arrival}", named as arrival of {source.relation}',
            hint=_its_columns(source, source.arrival),
        )


def _its_columns(source: Source, wanted: str) -> str:
    near = get_close_matches(wanted, source.columns, n=1)
    return (
        f"{f'did you mean {near[0]}? ' if near else ''}its columns are {', '.join(source.columns)}"
    )


_NUMERIC_CATEGORIES: Final = "NDT"
"""`pg_type.typcategory`: numbers, dates and times, intervals."""

_MOVING: Final = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_MOVES: Final = "a time must not depend on when it is read"
_HINT: Final = "write the date, such as 2026-01-31"

_WHOLE: Final = ("smallint", "integer", "bigint")


def check_attribute(session: Session, column: ColumnType, described: Mapping[str, Any]) -> None:
    """Refuse a description that does not fit the column's type."""
    require_fitting(column, described)
    where = _where(column)
    if "hierarchy" in described:
        _check_values(session, column, list(described["hierarchy"]), where)
    _check_bounds(session, column, described, ("lower", "upper"), where)
    _check_bounds(session, column, described, ("bottom", "top"), where)


def require_fitting(column: ColumnType, described: Mapping[str, Any]) -> None:
    """Refuse a description of values that a column of this type cannot have."""
    where = _where(column)
    is_numeric = column.type_category in _NUMERIC_CATEGORIES
    if not is_numeric and (
        described.get("kind") == "numeric" or {"lower", "upper"} & described.keys()
    ):
        raise SchemaMismatchError(
            "only columns of numbers, dates or times can be numeric",
            detail=f"{where}: its type is {column.type_name}",
            hint="leave out kind, lower and upper, or use categorical",
        )
    coarse = [key for key in BINNED if key in described]
    if coarse and column.range_type(0) is None:
        raise SchemaMismatchError(
            f"only columns whose cells are ranges can have {coarse[0]}",
            detail=f"{where}: its type is {column.type_name}",
            hint=f"leave out {' and '.join(coarse)}",
        )
    if "round" in described:
        _check_round(column, described["round"], where)
    if "prefix" in described and column.type_category != "S":
        hint = 'numbers are rounded: {"round": 100}' if is_numeric else "leave out prefix"
        raise SchemaMismatchError(
            "only texts can have a prefix",
            detail=f"{where}: its type is {column.type_name}",
            hint=f"{hint}, or publish a view that casts the column to text",
        )


def _where(column: ColumnType) -> str:
    return f'attributes of column "{column.name}"'


def _check_round(column: ColumnType, given: str | float, where: str) -> None:
    """Check that a unit is one of dates and timestamps, and a width one of numbers."""
    is_number = column.bound_type == "numeric"
    detail = f"{where}: its type is {column.type_name}"
    if is_number and isinstance(given, str):
        raise InvalidParameterError(
            "a column of this type is rounded to a number",
            detail=detail,
            hint='such as {"round": 5}; where the ends of its ranges are seconds, of these',
        )
    if not is_number and not isinstance(given, str):
        raise InvalidParameterError(
            "dates and timestamps are rounded to a unit",
            detail=detail,
            hint=f'such as {{"round": "month"}}; units are {", ".join(UNITS)}',
        )
    if column.type_name in _WHOLE and given != int(given):
        raise InvalidParameterError(
            "whole numbers are rounded to a whole number", detail=detail, hint="such as 5"
        )
    if column.type_name == "date" and given == "hour":
        raise InvalidParameterError(
            "a date has no hours", detail=detail, hint='the least unit is "day"'
        )


def read_prefix(
    session: Session, relation: Relation, column: ColumnType, described: Mapping[str, Any]
) -> dict[str, Any]:
    """Find the areas with enough people, and tell how long texts are, in counts alone."""
    texts = (
        f"(SELECT {column.read(session)}::text AS t FROM {relation.rows(session)}"
        f" LIMIT {MOST_RECORDS}) AS s WHERE num_nulls(t) = 0"
    )
    lengths = session.fetch(
        f"SELECT length(t) AS length, count(*) AS n FROM {texts} GROUP BY 1 ORDER BY n DESC, length"
    )
    if len(lengths) > 1:
        counts = [f"{row['length']} in {row['n']:,} records" for row in lengths[:_MOST_LENGTHS]]
        n_more = len(lengths) - len(counts)
        more = f", and {n_more:,} other lengths" if n_more else ""
        session.tell(
            f'the texts of column "{column.name}" have different lengths: {", ".join(counts)}'
            f"{more}; of each, the first {described['prefix']} characters are read"
        )
    if "areas" not in described:
        return dict(described)
    areas = _read_large_areas(session, described, _where(column))
    short = ShortText(column, described["prefix"], areas)
    area = f'left(t, {short.length}) COLLATE pg_catalog."C"'
    few = fetch_one(
        session,
        f"SELECT count(*) AS n, count(DISTINCT {area}) AS areas FROM {texts}"
        f" AND {area} <> ALL ($1::text[])",
        list(areas),
    )
    session.tell(
        f'column "{column.name}": {few["areas"]:,} areas have fewer than'
        f" {described['least_people']:,} people, or none that are known; they are read as"
        f" {short.small_area}, in {few['n']:,} records"
    )
    return {**described, "large_areas": list(areas)}


_MOST_LENGTHS: Final = 5
"""Lengths of texts that a notice lists."""

_MOST_AREAS: Final = 20_000
"""Areas with enough people that are kept with a source."""

_AREAS_HINT: Final = (
    "it has the columns area and people, with a row for each area; a view can name them so"
)


def _read_large_areas(
    session: Session, described: Mapping[str, Any], where: str
) -> tuple[str, ...]:
    """Read which areas have enough people; shorter ones are made of those that begin alike."""
    try:
        relation, oid, _ = find_relation(session, described["areas"])
    except NotFoundError:
        raise NotFoundError(
            "the relation of areas does not exist",
            detail=where,
            hint="name it with its schema, such as public.zip_people",
        ) from None
    require_harmless(session, relation, oid)
    types = column_types(session, oid)
    area, people = types.get("area"), types.get("people")
    number = None if people is None else people.number(people.read(session))
    if area is None or number is None or area.type_category != "S":
        raise SchemaMismatchError(
            "areas is no relation of areas and their people",
            detail=f"{where}: {relation}",
            hint=f"{_AREAS_HINT}; area is a text, people a number",
        )
    name = f"{area.read(session)}::text"
    of_area = f'left({name}, {described["prefix"]}) COLLATE pg_catalog."C"'
    row = fetch_one(
        session,
        f"WITH c AS (SELECT {of_area} AS area, {name} AS name, {number} AS people"
        f" FROM {relation.rows(session)}) SELECT (SELECT count(*) - count(DISTINCT name) FROM c)"
        " AS repeated, (SELECT count(*) FROM c WHERE people >= 0 AND people < 'Infinity') AS good,"
        " (SELECT count(*) FROM c) AS n, ARRAY(SELECT area FROM c WHERE num_nulls(area) = 0"
        f" GROUP BY area HAVING sum(people) >= $1::int8 ORDER BY area LIMIT {_MOST_AREAS + 1})"
        " AS large",
        str(described["least_people"]),
    )
    if row["repeated"] or row["good"] < row["n"]:
        raise InvalidParameterError(
            "areas must be there once, each with a number of people",
            detail=f"{where}: {relation} has {row['repeated']:,} rows of areas that are NULL or"
            f" there before, and {row['n'] - row['good']:,} without a number of people",
            hint=_AREAS_HINT,
        )
    if len(row["large"]) > _MOST_AREAS:
        raise InvalidParameterError(
            "there are too many areas",
            detail=f"{where}: {relation} has more than {_MOST_AREAS:,} with enough people",
            hint="take a shorter prefix, or more people",
        )
    return tuple(row["large"])


def _check_bounds(
    session: Session,
    column: ColumnType,
    described: Mapping[str, Any],
    keys: tuple[str, str],
    where: str,
) -> None:
    """Check that the server can read the bounds as values of the column's type, in order."""
    given = [key for key in keys if key in described]
    if not given:
        return
    type_ = column.type_name
    if any(_is_moving(column, str(described[key])) for key in given):
        raise InvalidParameterError(_MOVES, detail=where, hint=_HINT)
    try:
        with session.savepoint():
            found = fetch_one(
                session,
                f"SELECT $1::text::{type_} <= $2::text::{type_} AS ordered,"
                f" {_is_finite(column)} AS finite",
                str(described[given[0]]),
                str(described[given[-1]]),
            )
    except DatabaseError as error:
        if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
            raise
        raise InvalidParameterError(
            "a bound cannot be read as the column's type",
            detail=f"{where}: its type is {type_}",
        ) from None
    if not found["ordered"]:
        raise InvalidParameterError(f"{keys[0]} must not exceed {keys[1]}", detail=where)
    if keys[0] in BINNED and not found["finite"]:
        raise InvalidParameterError(f"{' and '.join(given)} must be finite", detail=where)


def _check_values(session: Session, column: ColumnType, values: Sequence[str], where: str) -> None:
    """Check that the values of a hierarchy are finite ones of the column's type, each once."""
    type_ = column.type_name
    if any(_is_moving(column, text) for text in values):
        raise InvalidParameterError(_MOVES, detail=where, hint=_HINT)
    value = f"v::{type_}"
    number = column.number(value)
    is_finite = "true" if number is None else f"abs({number}) < 'Infinity'"
    is_ordered = column.range_type(0) is not None
    different = f"count(DISTINCT {value})" if is_ordered else "count(*)"
    try:
        with session.savepoint():
            found = fetch_one(
                session,
                f"SELECT count({value}) AS n, {different} AS different,"
                f" bool_and({is_finite}) AS finite FROM json_array_elements_text($1::text::json)"
                " AS v",
                json.dumps(list(values)),
            )
    except DatabaseError as error:
        if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
            raise
        raise InvalidParameterError(
            "a value of a hierarchy cannot be read as the column's type",
            detail=f"{where}: its type is {type_}",
            hint="the values are those of the column; the first line of a file is one, too",
        ) from None
    if not found["finite"]:
        raise InvalidParameterError("the values of a hierarchy must be finite", detail=where)
    if found["different"] < found["n"]:
        raise InvalidParameterError(
            "a hierarchy has the same value twice",
            detail=f"{where}: {found['n'] - found['different']} times",
            hint="write each value once, as 7 and not also as 07",
        )


def _is_moving(column: ColumnType, text: str) -> bool:
    """Tell whether the meaning of a time depends on when it is read."""
    return column.type_category == "D" and _MOVING.search(text) is not None


def _is_finite(column: ColumnType) -> str:
    """Write whether both bounds are finite; neither infinite, nor no number at all."""
    numbers = [column.number(f"${i}::text::{column.type_name}") for i in (1, 2)]
    if None in numbers:
        return "true"
    return " AND ".join(f"abs({n}) < 'Infinity'" for n in numbers)


# Some roles are allowed, and yet probably a mistake: they bring a warning.

_MOST_UNIQUE: Final = 0.1
"""From this share of unique values on, a column is nearly unique.

One in ten of those who have a value is then singled out by this column alone. In twelve public
tables of microdata (of 1,473 to 1,414,593 records), case numbers, sampling weights and exact
incomes have 24 % to 48 % of unique values, and all other columns at most 6 %.
"""

_MOST_RECURRING: Final = 0.1
"""From this share of recurring values on, an identifier may say whom several records are about."""

MOST_RECORDS: Final = 1_000_000
"""Records that are looked at, so that registering never takes long."""

_AT_ONCE: Final = 64
"""Columns that are counted by one statement: each of them goes through what it has read again."""

_STOPPED: Final = ("40", "57")
"""Classes of SQLSTATE that end the whole operation: a conflict, or a cancel."""


def warn_of_roles(session: Session, source: Source) -> None:
    """Warn of roles that are probably mistakes: by the columns' names, and by their values."""
    if source.without_role:
        session.tell(
            f"columns without a role are not published: {_listed(source.without_role)}; name those"
            " that are to be published as they are as insensitive"
        )
    if source.pooled:
        session.warn(
            f"the values of {_listed(source.pooled)} are calculated from all records of a person:"
            " whoever knows how many these are can be surer of a value than any bound: publishing"
            " with one is refused until the risk pooled_values is accepted"
        )
    # Buckets show no coarsened columns: they are refused.
    shown_by_buckets = [
        name
        for name in source.quasi_identifiers
        if source.sensitive is not None and name not in source.coarsened
    ]
    others = [*source.quasi_identifiers, *source.insensitive, *source.without_role]
    whom = [*source.identifiers, *filter(looks_like_entity, others)]
    recurring = _readable(session, source, whom) if source.entity is None else []
    columns = [*dict.fromkeys([*shown_by_buckets, *source.insensitive, *recurring])]
    shares = _shares_of_unique(session, source, columns)
    once = "occur once" if source.entity is None else "are of one entity"
    warn_of_values(session.warn, shares, shown_by_buckets, source.insensitive, once)
    found = {name: shares[name] for name in recurring if name in shares}
    warn_of_recurring(session.warn, found, [name for name in others if name in found])
    _warn_of_texts(session, source)


def _warn_of_texts(session: Session, source: Source) -> None:
    """Warn of free texts that would be published, and of sensitive cells that are lists."""
    # It needs numpy, for which a first estimate does not wait.
    from kanon_db.transfer.cell_texts import count_free_texts, find_lists

    columns = types_of(session, source.relation, source.published)
    rows = f"FROM {source.relation.rows(session)} LIMIT {MOST_RECORDS}"
    whose = None if source.entity is None else f"s.{session.identifier(source.entity)}"
    shown = [one for one in columns if "hierarchy" not in source.attributes.get(one.name, {})]
    try:
        with session.savepoint():
            texts = count_free_texts(session, rows, shown, whose)
            lists = {
                column.name: find_lists(session, rows, column)
                for column in columns
                if column.name in source.all_sensitive
            }
    except DatabaseError as error:
        if error.sqlstate.startswith(_STOPPED):
            raise
        session.warn(
            f"{source.relation} cannot be read (SQLSTATE {error.sqlstate}), so it is not known"
            " whether its texts name people, or list several values"
        )
        return
    for name, counted in texts.items():
        if counted.matter:
            session.warn(
                f'column "{name}" has free texts, which can name people ({counted}): it is'
                " published as it is, only where the risk free_text is accepted; leave it without"
                " a role, or publish a column of what matters in it"
            )
    for name, listed in lists.items():
        if listed is not None:
            session.warn(
                f'sensitive column "{name}" has cells with several values ({listed}): whatever is'
                " bounded is the whole cell, and one of its values may be far surer; publish a"
                " view with one row for each value, the person as the entity and keep, or with a"
                " column for each value that matters"
            )


def warn_of_values(
    warn: Callable[[str], None],
    shares: Mapping[str, float],
    shown_by_buckets: Sequence[str],
    insensitive: Sequence[str],
    once: str = "occur once",  # how the share was counted, as a verb
) -> None:
    """Warn of columns that are called like what identifies people, or are nearly unique."""
    unique = {column: share for column, share in shares.items() if share >= _MOST_UNIQUE}
    for column in shown_by_buckets:
        if column in unique:
            warn(
                f'quasi-identifier "{column}" is nearly unique ({unique[column]:.0%} of its values'
                f" {once}): buckets show quasi-identifiers as they are, so that whoever knows"
                " this one finds a person's row, and reads all the others; make it an identifier,"
                " leave it without a role, or publish generalized rows instead"
            )
    for column in insensitive:
        if looks_identifying(column):
            warn(
                f'insensitive column "{column}" has a name like a column that identifies people,'
                " and will be published as it is; if it does, register it as an identifier"
            )
        elif column in unique:
            warn(
                f'insensitive column "{column}" is nearly unique ({unique[column]:.0%} of its'
                f" values {once}), and will be published as it is: whoever knows somebody's"
                " value finds that person's row; make it an identifier or a quasi-identifier"
            )


def warn_of_recurring(
    warn: Callable[[str], None],
    shares: Mapping[str, float],
    others: Sequence[str] = (),  # those that are no identifiers
) -> None:
    """Warn of columns that name people more than once: several records may be about one person."""
    for column, share in shares.items():
        if 1 - share >= _MOST_RECURRING:
            what = "column" if column in others else "identifier"
            warn(
                f'{what} "{column}" has recurring values ({share:.0%} of them occur'
                " once): if several records are about the same person, k of them pass for k people,"
                " unless the column that says whom a record is about is registered as the entity"
            )


def _readable(session: Session, source: Source, columns: Sequence[str]) -> list[str]:
    """Return the columns that the role may read; it need not read what is not published."""
    rows = session.fetch(
        "SELECT name FROM unnest($2::text[]) AS name"
        " WHERE has_column_privilege(to_regclass($1::text), name, 'SELECT')",
        source.relation.quoted(session),
        list(columns),
    )
    return [row["name"] for row in rows]


def _shares_of_unique(session: Session, source: Source, columns: Sequence[str]) -> dict[str, float]:
    """Return which share of each column's values occur once; a column of NULLs only has none.

    If there are entities, an entity's records with the same value are counted as one.
    """
    if not columns:
        return {}
    session.step("looking for columns that identify people")
    # Texts stand for values that cannot be compared, such as those of json.
    as_texts = set(incomparable(session, source.relation, columns))
    whose = [] if source.entity is None else [source.entity]
    read = {
        each.name: f"{each.read(session)} AS {session.identifier(each.name)}"
        for each in types_of(session, source.relation, [*columns, *whose])
    }
    shares: dict[str, float] = {}
    for start in range(0, len(columns), _AT_ONCE):
        some = columns[start : start + _AT_ONCE]
        try:
            with session.savepoint():
                taken = ", ".join(read[column] for column in [*some, *whose])
                found = _counted(session, source, some, as_texts, taken)
        except DatabaseError as error:
            if error.sqlstate.startswith(_STOPPED):
                raise
            # The server's message may quote data: a view runs other people's code.
            session.warn(
                f"{source.relation} cannot be read (SQLSTATE {error.sqlstate}), so it is not known"
                " whether some of its columns are nearly unique"
            )
            return {}
        of_columns = zip(some, found, strict=True)
        shares |= {column: share for column, share in of_columns if share is not None}
    return shares


def _counted(
    session: Session,
    source: Source,
    columns: Sequence[str],
    as_texts: Collection[str],
    taken: str,
) -> Sequence[float | None]:
    """Return the shares of some columns; the source, which may be a view, is read once."""
    whose = None if source.entity is None else session.identifier(source.entity)
    names = [session.identifier(column) for column in columns]
    values = [
        f"format('%s', {name})" if column in as_texts else name
        for column, name in zip(columns, names, strict=True)
    ]
    shares = ", ".join(
        "(SELECT (count(*) FILTER (WHERE n = 1) / nullif(sum(n), 0))::float8"
        f" FROM (SELECT count({'*' if whose is None else f'DISTINCT {whose}'}) AS n"
        f" FROM taken WHERE num_nulls({name}) = 0 GROUP BY {value}) AS counted)"
        for name, value in zip(names, values, strict=True)
    )
    found = fetch_one(
        session,
        f"WITH taken AS MATERIALIZED (SELECT {taken} FROM {source.relation.rows(session)}"
        f" LIMIT {MOST_RECORDS}) SELECT ARRAY[{shares}] AS shares",
    )
    shares_found: Sequence[float | None] = found["shares"]
    return shares_found


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
