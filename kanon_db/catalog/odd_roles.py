"""Roles of columns that are allowed, and yet probably a mistake: they bring a warning."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kanon_db.catalog.entries import Source
from kanon_db.errors import DatabaseError, SchemaMismatchError
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.columns import Relation, check_comparable

_MOST_UNIQUE: Final = 0.1
"""From this share of unique values on, a column is nearly unique.

One person in ten is then singled out by this column alone. In twelve public tables of microdata
(of 1,473 to 1,414,593 records), case numbers, sampling weights and exact incomes have 24 % to 48 %
of unique values, and all other columns at most 6 %.
"""

_MOST_RECORDS: Final = 1_000_000
"""As many are looked at, so that registering never takes long."""

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
        Values of its columns are only counted. A column that cannot be read is warned of, too.
    """
    if source.without_role:
        session.warn(
            f"columns without a role are not published: {_listed(source.without_role)}; name those"
            " that are to be published as they are as insensitive"
        )
    session.step("looking for columns that identify people")
    if source.sensitive is not None:
        for column in source.quasi_identifiers:
            share = _share_unique(session, source.relation, column)
            if share >= _MOST_UNIQUE:
                session.warn(
                    f'quasi-identifier "{column}" is nearly unique ({share:.0%} of its values occur'
                    " once): buckets show quasi-identifiers as they are, so that whoever knows this"
                    " one finds a person's row, and reads all the others; make it an identifier,"
                    " leave it without a role, or publish generalized rows instead"
                )
    for column in source.insensitive:
        if looks_identifying(column):
            session.warn(
                f'insensitive column "{column}" has a name like a column that identifies people,'
                " and will be published as it is; if it does, register it as an identifier"
            )
        elif (share := _share_unique(session, source.relation, column)) >= _MOST_UNIQUE:
            session.warn(
                f'insensitive column "{column}" is nearly unique ({share:.0%} of its values occur'
                " once), and will be published as it is: whoever knows somebody's value finds that"
                " person's row; make it an identifier or a quasi-identifier"
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


def _share_unique(session: Session, relation: Relation, column: str) -> float:
    """Measure which share of a column's values occurs once; 0 if they cannot be compared."""
    name = session.identifier(column)
    try:
        check_comparable(session, relation, [column])
        with session.savepoint():
            row = fetch_one(
                session,
                "SELECT coalesce(count(*) FILTER (WHERE n = 1) / nullif(sum(n), 0), 0)::float8"
                f" AS share FROM (SELECT count(*) AS n FROM (SELECT {name}"
                f" FROM {relation.quoted(session)} LIMIT {_MOST_RECORDS}) AS taken"
                f" GROUP BY {name}) AS counted",
            )
    except SchemaMismatchError:
        return 0.0
    except DatabaseError as error:
        if error.sqlstate.startswith(_STOPPED):
            raise
        # The server's message may quote data: a view runs other people's code.
        session.warn(
            f'column "{column}" cannot be read (SQLSTATE {error.sqlstate}), so it is not known'
            " whether its values are nearly unique"
        )
        return 0.0
    return float(row["share"])


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
