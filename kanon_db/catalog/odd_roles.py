"""Roles of columns that are allowed, and yet probably a mistake: they bring a warning."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from kanon_db.catalog.entries import Source
from kanon_db.errors import DatabaseError
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.columns import incomparable, types_of

_MOST_UNIQUE: Final = 0.1
"""From this share of unique values on, a column is nearly unique.

One in ten of those who have a value is then singled out by this column alone. In twelve public
tables of microdata (of 1,473 to 1,414,593 records), case numbers, sampling weights and exact
incomes have 24 % to 48 % of unique values, and all other columns at most 6 %.
"""

_MOST_RECURRING: Final = 0.1
"""From this share of recurring values on, an identifier may say whom several records are about."""

MOST_RECORDS: Final = 1_000_000
"""As many are looked at, so that registering never takes long."""

_AT_ONCE: Final = 64
"""Columns that are counted by one statement: each of them goes through what it has read again."""

_STOPPED: Final = ("40", "57")
"""Classes of SQLSTATE that end the whole operation: a conflict, or a cancel."""

_WORDS: Final = frozenset(
    "fax iban imei ip login mail mobile nhs nin passport photo signature ssn street url".split()
)
_PARTS: Final = ("name", "email", "phone", "address", "adresse", "telefon", "socialsecurity")


def warn_of_roles(session: Session, source: Source) -> None:
    """Warn of roles that are probably mistakes: by the columns' names, and by their values.

    Parameters
    ----------
    session : Session
    source : Source
        Values of its columns are only counted. If they cannot be read, that is warned of, too.
    """
    if source.without_role:
        session.tell(
            f"columns without a role are not published: {_listed(source.without_role)}; name those"
            " that are to be published as they are as insensitive"
        )
    shown_by_buckets = [] if source.sensitive is None else source.quasi_identifiers
    recurring = _readable_identifiers(session, source) if source.entity is None else []
    columns = [*shown_by_buckets, *source.insensitive, *recurring]
    shares = _shares_of_unique(session, source, columns)
    once = "occur once" if source.entity is None else "are of one entity"
    warn_of_values(session.warn, shares, shown_by_buckets, source.insensitive, once)
    warn_of_recurring(session.warn, {name: shares[name] for name in recurring if name in shares})


def warn_of_values(
    warn: Callable[[str], None],
    shares: Mapping[str, float],
    shown_by_buckets: Sequence[str],
    insensitive: Sequence[str],
    once: str = "occur once",
) -> None:
    """Warn of columns that are called like what identifies people, or are nearly unique.

    Parameters
    ----------
    warn : callable
    shares : mapping of str to float
        Which share of a column's values is of one person; see :data:`_MOST_UNIQUE`.
    shown_by_buckets : sequence of str
        The quasi-identifiers that are, or could be, published as they are.
    insensitive : sequence of str
    once : str
        How the share was counted, as a verb.
    """
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


def warn_of_recurring(warn: Callable[[str], None], shares: Mapping[str, float]) -> None:
    """Warn of identifiers whose values recur, so that several records may be about one person.

    Parameters
    ----------
    warn : callable
    shares : mapping of str to float
        Which share of the values of an identifier occur once.
    """
    for column, share in shares.items():
        if 1 - share >= _MOST_RECURRING:
            warn(
                f'identifier "{column}" has recurring values ({share:.0%} of them occur'
                " once): if several records are about the same person, k of them pass for k people,"
                " unless the column that says whom a record is about is registered as the entity"
            )


def looks_identifying(column: str) -> bool:
    """Tell whether a column's name is one that columns of names, numbers or addresses have.

    Examples
    --------
    >>> [looks_identifying(name) for name in ("lastName", "e_mail", "home-phone", "weekly_hours")]
    [True, True, True, False]
    """
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", column)]
    whole = "".join(words)
    return not _WORDS.isdisjoint(words) or any(part in whole for part in _PARTS)


def _readable_identifiers(session: Session, source: Source) -> list[str]:
    """Return the identifiers that the role may read; it need not, since none is published."""
    rows = session.fetch(
        "SELECT name FROM unnest($2::text[]) AS name"
        " WHERE has_column_privilege(to_regclass($1::text), name, 'SELECT')",
        source.relation.quoted(session),
        list(source.identifiers),
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
        f"WITH taken AS MATERIALIZED (SELECT {taken} FROM {source.relation.quoted(session)}"
        f" LIMIT {MOST_RECORDS}) SELECT ARRAY[{shares}] AS shares",
    )
    shares_found: Sequence[float | None] = found["shares"]
    return shares_found


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
