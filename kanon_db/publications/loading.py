"""Publications that were made elsewhere: loaded, and verified as if they had been made here.

Only the tables from which all others follow are loaded. The rest is written from them, by the code
that publishing uses, and everything is verified from the relations before it gets its name.

There is no source here: the catalog keeps a label of it. What needs the source (attacks,
evaluations, refreshes, later grants) is refused. Two loaded publications of the same label are
taken to be about the same people, and nothing is measured of what they tell together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kanon_db.catalog.entries import Publication, published_schema
from kanon_db.catalog.names import is_plain
from kanon_db.errors import InvalidParameterError, VerificationError
from kanon_db.publications.lifecycle import check_name, enter_publication
from kanon_db.publications.loaded import LoadRequest
from kanon_db.publications.notes import ShownNames
from kanon_db.publications.readers import check_readers
from kanon_db.publications.registry import kind_named
from kanon_db.publications.releases.combining import RISK, require_alone
from kanon_db.publications.releases.ledger import digest, earlier_releases_elsewhere
from kanon_db.publications.results import Published, require_checks
from kanon_db.publications.staging import Staging
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.session.settings import roomy
from kanon_db.transfer.room import Room

PHASES: Final = ("reading the files", "writing", "verifying", "publishing")

_LONGEST_LABEL: Final = 1000


@dataclass(frozen=True, eq=False)
class LoadedTable:
    """A table from elsewhere.

    Attributes
    ----------
    columns : mapping of str to str
        PostgreSQL's types of its columns, as SQL, by their names.
    blocks : callable
        Returns its rows as CSV, in blocks of whole lines: texts are quoted, NULL is nothing.
    """

    columns: Mapping[str, str]
    blocks: Callable[[], Iterable[bytes]]


@dataclass(frozen=True, eq=False)
class Elsewhere:
    """A publication that was made elsewhere.

    Attributes
    ----------
    publication : Publication
        Its source is a label, which people gave it.
    tables : mapping of str to LoadedTable
        By their suffixes.
    columns : mapping
        What the ledger keeps of the source's columns: ``quasi_identifiers``, ``sensitive`` and
        ``published``.
    """

    publication: Publication
    tables: Mapping[str, LoadedTable]
    columns: Mapping[str, Any]


def load_publication(
    session: PsycopgSession, elsewhere: Elsewhere, request: LoadRequest
) -> Published:
    """Load a publication that was made elsewhere, verified before anybody sees it.

    Parameters
    ----------
    session : PsycopgSession
        In a transaction of the publishing role.
    elsewhere : Elsewhere
    request : LoadRequest

    Raises
    ------
    KanonError
        The transaction must then be rolled back.
    """
    started = time.perf_counter()
    given = replace(elsewhere.publication, name=request.publication or elsewhere.publication.name)
    label = given.source if request.source_name is None else request.source_name
    kind = kind_named(given.kind).load()
    if not 0 < len(label.encode()) <= _LONGEST_LABEL or not is_plain(label):
        raise InvalidParameterError(
            "a source cannot have this label",
            detail=f"it needs 1 to {_LONGEST_LABEL:,} bytes, and no control characters",
            hint="give source_name, the same for each publication of these people",
        )
    session.plan(PHASES)
    session.phase("reading the files")
    schema = published_schema(session)
    check_name(session, given.name, kind.suffixes, replace=request.replace)
    roles = check_readers(session, request.readers, schema)
    staging = Staging.begin(session, schema)
    for suffix in kind.told:
        _fill(session, staging, suffix, elsewhere.tables[suffix])
    session.phase("writing")
    accepted = {**given.parameters.get("accept", {}), **request.accept}
    staged = replace(
        given,
        name=staging.name,
        source=label,
        parameters={**given.parameters, "readers": list(roles), "accept": accepted},
    )
    with roomy(session):
        staged = replace(staged, layout=kind.complete(staging, staged, Room.of(session)))
    session.phase("verifying")
    examined = kind.examine(session, staged, is_new=True)
    require_checks(examined.checks)
    session.phase("publishing")
    earlier = earlier_releases_elsewhere(session, label, roles)
    combined = require_alone(
        session, earlier, request.accept, "their source is not in this database"
    )
    if not combined.refused and RISK not in given.parameters.get("accept", {}):
        accepted.pop(RISK, None)
    entered = replace(staged, name=given.name)
    names = [staging.name + suffix for suffix in kind.digested(staged.layout)]
    publication_id = enter_publication(
        staging,
        entered,
        None,
        metrics=examined.metrics,
        suffixes=kind.made(entered.layout),
        closed=kind.closed,
        notes=kind.notes(entered, ShownNames(session)),
        release={
            "label": label,
            "columns": elsewhere.columns,
            "digest": digest(session, [session.identifier(schema, name) for name in names]),
            "measured": combined.described,
            "seen": combined.seen,
            "upto": None,
            "keeps_grants": False,
            "entities": None,
        },
        replace=request.replace,
    )
    return Published(
        publication_id=publication_id,
        name=given.name,
        guarantee=given.guarantee,
        records=given.records,
        metrics={**examined.metrics, **given.metrics},
        seconds=time.perf_counter() - started,
    )


def _fill(session: PsycopgSession, staging: Staging, suffix: str, table: LoadedTable) -> None:
    """Create a staged table, and copy the rows into it."""
    session.step("copying a table")
    names = {name: session.identifier(name) for name in table.columns}
    staging.create_table(
        suffix, f"SELECT {', '.join(f'NULL::{t} AS {names[c]}' for c, t in table.columns.items())}"
    )
    session.copy(
        f"COPY {session.identifier(staging.schema, staging.name + suffix)}"
        f" ({', '.join(names.values())}) FROM STDIN (FORMAT csv)",
        table.blocks(),
    )


def require_told(kind: str, tables: Iterable[str]) -> Sequence[str]:
    """Return the suffixes of the tables that are loaded; refuse a publication that lacks one.

    Raises
    ------
    InvalidParameterError
        When publications of the kind cannot be loaded.
    VerificationError
    """
    told = kind_named(kind).load().told
    if not told:
        raise InvalidParameterError(
            "publications of this kind cannot be loaded", detail=f"kind {kind}"
        )
    if missing := set(told) - set(tables):
        raise VerificationError(
            "a publication lacks a table",
            detail=", ".join(sorted(missing)),
            hint="publish it again",
        )
    return told
