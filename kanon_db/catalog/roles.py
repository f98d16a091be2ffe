"""The roles that a source's columns may have."""

from __future__ import annotations

from difflib import get_close_matches

from kanon_db.catalog.entries import Source
from kanon_db.catalog.names import require_plain
from kanon_db.errors import InvalidParameterError, NotFoundError


def check_roles(source: Source) -> None:
    """Refuse roles of columns that do not exist, and two roles of one column.

    Raises
    ------
    NotFoundError, InvalidNameError, InvalidParameterError
    """
    if not source.quasi_identifiers:
        raise InvalidParameterError(
            "a source needs at least one quasi-identifier",
            detail=f"relation {source.relation}",
            hint="name what others may know about a person: quasi_identifiers => '{...}'",
        )
    roles: dict[str, str] = {}
    for role, columns in (
        ("a quasi-identifier", source.quasi_identifiers),
        ("the sensitive attribute", [source.sensitive]),
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
