"""Names, replaces, drops and loads publications, and says who can read them.

Loading takes the tables of a publication that was made elsewhere, from which all others follow. The
rest is written and verified by the code that publishing uses, before it gets its name. There is no
source here, so attacks, evaluations, refreshes and later grants are refused.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kanon_db.catalog.entries import Publication, Source, published_schema, run_errand
from kanon_db.catalog.names import is_plain
from kanon_db.dataclasses import dataclass
from kanon_db.errors import (
    DatabaseError,
    DuplicateError,
    InvalidParameterError,
    NotFoundError,
    PermissionDeniedError,
    VerificationError,
)
from kanon_db.publications.draws import draws_note, has_draws, write_draws
from kanon_db.publications.publish_request import COMBINED, LoadRequest
from kanon_db.publications.registry import kind_named
from kanon_db.publications.relations import ShownNames, StagedRelations
from kanon_db.publications.releases.ledger import (
    check_readers,
    digest_of_relations,
    earlier_releases_elsewhere,
    shortened,
)
from kanon_db.publications.releases.release_check import CombinedReleases, require_alone
from kanon_db.publications.results import Published, require_checks
from kanon_db.query.layout import DRAWN
from kanon_db.session import Row, Session, fetch_one
from kanon_db.session.protocol import (
    DUPLICATE_TABLE,
    INSUFFICIENT_PRIVILEGE,
    LOCK_NOT_AVAILABLE,
    roomy,
    settings,
)
from kanon_db.transfer.allowance import Allowance

if TYPE_CHECKING:  # in the server there is no driver to load
    from kanon_db.session.psycopg_session import PsycopgSession

_LOCK_MILLISECONDS: Final = 100
"""Time that readers may have to wait behind one attempt to replace a publication."""

_PAUSE_SECONDS: Final = 0.3
_WITHDRAWAL_SECONDS: Final = 1.0
"""Time that a withdrawal waits for readers to finish; then it only revokes their rights."""

_PATIENCE_SECONDS: Final = 60.0
"""Time after which attempts end; the caller's own lock_timeout comes first."""

_LONGEST_NAME: Final = 63

_CLOSED: Final = "withdrawn from kanon_db: nobody may read it"
"""Beginning of the comment on closed relations; see ``sql/20_withdrawing.sql``."""


def check_name(session: Session, name: str, suffixes: Sequence[str], *, replace: bool) -> None:
    """Refuse a name that the publication could not get in the end.

    Nothing is locked: whoever finishes first gets the name.
    """
    longest = max((name + suffix for suffix in suffixes), key=lambda one: len(one.encode()))
    if len(longest.encode()) > _LONGEST_NAME:
        raise InvalidParameterError(
            "a publication cannot have this name",
            detail=f'"{longest}" is longer than the {_LONGEST_NAME} bytes of a name',
            hint="choose a shorter one",
        )
    if session.fetch("SELECT 1 FROM kanon.publication WHERE name = $1::text", name):
        if not replace:
            raise name_is_taken(name)
        _require_publisher(session, name)
    rows = session.fetch(
        "SELECT c.relname::text AS name FROM pg_class AS c"
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname = $1::text AND c.relname = ANY ($2::text[])"
        " AND NOT EXISTS (SELECT FROM kanon.publication AS p"
        "  WHERE p.name = $3::text AND c.relname = ANY (p.relations))"
        # Relations that were only closed are dropped once nobody uses them.
        " AND NOT starts_with(coalesce(obj_description(c.oid, 'pg_class'), ''), $4::text)",
        published_schema(session),
        [name + suffix for suffix in suffixes],
        name,
        _CLOSED,
    )
    if rows:
        raise _is_taken(rows[0]["name"])


def enter_publication(
    staging: StagedRelations,
    publication: Publication,
    name: str,
    source: Source | None,
    *,
    metrics: Mapping[str, float],  # those that follow from the published relations
    columns: Mapping[str, Any],  # what the ledger keeps of the source's columns
    combined: CombinedReleases,  # what it tells together with others
    replace: bool,
    **ledger: Any,
) -> int:
    """Give staged relations their name, and enter them into the catalog; return the new id.

    The publication has the name of its staged relations until then. Without a source, which then is
    elsewhere, the ledger has its ``label``.
    """
    session, kind = staging.session, kind_named(publication.kind).load()
    registered = {}
    if source is not None:
        registered = {"source_id": source.source_id, "registered_at": source.registered_at}
    digested = [
        session.identifier(staging.schema, staging.name + suffix)
        for suffix in kind.digested(publication.layout)
    ]
    entry: dict[str, Any] = {
        **registered,
        "kind": publication.kind,
        "method": publication.method,
        "parameters": publication.parameters,
        "layout": publication.layout,
        "records": publication.records,
        "guarantee": publication.guarantee,
        "promise": publication.promise,
        "metrics": metrics,
        "source_metrics": publication.metrics,
        "columns": columns,
        "digest": digest_of_relations(session, digested),
        "measured": combined.described,
        "seen": combined.seen,
        **ledger,
    }
    named, quotes = dataclasses.replace(publication, name=name), ShownNames(session)
    notes, suffixes = dict(kind.all_notes(named, quotes)), [*kind.made(publication.layout)]
    if has_draws(publication):
        notes[DRAWN] = draws_note(named, quotes)
        suffixes.append(DRAWN)
    with refusal_of_owner(name):
        publication_id: int = _patiently(
            session,
            name,
            lambda: staging.publish(
                name,
                entry,
                suffixes=suffixes,
                closed=kind.closed,
                readers=publication.parameters["readers"],
                notes=notes,
                replace=replace,
            ),
        )
    return publication_id


def released_columns(source: Source, published: Sequence[str]) -> dict[str, Any]:
    """Say for the ledger which columns of a source a release shows."""
    return {
        "quasi_identifiers": list(source.quasi_identifiers),
        "sensitive": source.sensitive,
        **({"also_sensitive": list(source.also_sensitive)} if source.also_sensitive else {}),
        "published": list(published),
    }


def drop_publication(session: Session, name: str) -> None:
    """Drop a publication's relations and its catalog entry.

    Relations that something depends on lose their rows, rights and names instead, and are dropped
    when nothing depends on them any more. Nobody's reading delays it: where somebody keeps the
    publication in use, all rights on it are taken within a second or two, and rows and names when
    something is next published or dropped.
    """
    if not session.fetch("SELECT 1 FROM kanon.publication WHERE name = $1::text", name):
        raise NotFoundError(
            "there is no such publication",
            detail=f'name "{name}"',
            hint="TABLE kanon.publications lists the ones that you may read",
        )
    _require_publisher(session, name)
    with refusal_of_owner(name):
        try:
            _patiently(
                session,
                name,
                lambda: run_errand(session, "drop", name=name),
                at_most=_WITHDRAWAL_SECONDS,
            )
        except DatabaseError as error:
            if error.sqlstate != LOCK_NOT_AVAILABLE:
                raise
            # REVOKE waits for no reader.
            _patiently(session, name, lambda: run_errand(session, "close", name=name))
            session.warn(
                f'somebody keeps publication "{name}" in use: nobody may read it any more, and it'
                " is dropped when you next publish or drop anything and it is not in use"
                " (pg_locks shows who holds locks)"
            )


def _patiently(
    session: Session, name: str, work: Callable[[], Any], at_most: float = math.inf
) -> Any:
    """Do work that locks out readers, without making readers wait for each other."""
    # Everybody queues behind a session that waits for a lock. So each attempt waits for a moment
    # only, and lets readers pass before the next one.
    setting = fetch_one(
        session, "SELECT setting::int4 AS ms FROM pg_settings WHERE name = 'lock_timeout'"
    )
    limit = min(setting["ms"] / 1000 or _PATIENCE_SECONDS, at_most)
    started = time.monotonic()
    while True:
        try:
            with (
                session.savepoint(),
                settings(session, {"lock_timeout": f"{_LOCK_MILLISECONDS}ms"}),
            ):
                return work()
        except DatabaseError as error:
            if error.sqlstate != LOCK_NOT_AVAILABLE:
                raise
        if time.monotonic() - started > limit:
            raise DatabaseError(
                "the publication has been in use all the time",
                sqlstate=LOCK_NOT_AVAILABLE,
                detail=f'publication "{name}": no pause within {limit:g} seconds',
                hint="try again later: somebody reads it without a pause, or another publication of"
                " the source is being made; pg_locks shows who holds locks",
            )
        session.heartbeat()
        time.sleep(_PAUSE_SECONDS)


@contextmanager
def refusal_of_owner(name: str) -> Iterator[None]:
    """Say what a refusal of the owner of all publications means."""
    try:
        yield
    except DatabaseError as error:
        if error.sqlstate == DuplicateError.sqlstate:
            raise name_is_taken(name) from None
        if error.sqlstate == DUPLICATE_TABLE:
            raise _is_taken(name) from None
        if error.sqlstate == INSUFFICIENT_PRIVILEGE:
            raise PermissionDeniedError(error.message, detail=f'publication "{name}"') from None
        raise


def _require_publisher(session: Session, name: str) -> None:
    rows = session.fetch(
        "SELECT published_by, published_by = current_user"
        " OR (SELECT kanon.is_administrator(oid) FROM pg_roles WHERE rolname = current_user)"
        " AS allowed"
        " FROM kanon.publications WHERE name = $1::text",
        name,
    )
    if not rows:  # not for this role, or without a relation that tells whose it is
        with refusal_of_owner(name):
            run_errand(session, "batches", name=name)
    elif not rows[0]["allowed"]:
        raise PermissionDeniedError(
            "only the role that published a publication can drop or replace it",
            detail=f'publication "{name}" belongs to role "{rows[0]["published_by"]}"',
        )


def name_is_taken(name: str) -> DuplicateError:
    """Say that a publication of this name exists."""
    return DuplicateError(
        "a publication of this name exists",
        detail=f'name "{name}"',
        hint="choose another name, or pass replace => true to replace it",
    )


def _is_taken(relation: str) -> DuplicateError:
    return DuplicateError(
        "a relation of this name exists, and kanon_db may not replace it",
        detail=f'relation "{relation}" in the schema of publications',
        hint="choose another name, or drop the relation yourself",
    )


# Two loaded publications with the same source label are taken to be about the same people; nothing
# measures what they tell together.

PHASES: Final = ("reading the files", "writing", "verifying", "publishing")

_LONGEST_LABEL: Final = 1000


@dataclass(frozen=True, eq=False)
class LoadedTable:
    """A table from elsewhere."""

    columns: Mapping[str, str]  # PostgreSQL's types of its columns, as SQL, by their names
    # Returns its rows as CSV, in blocks of whole lines: texts are quoted, NULL is nothing.
    blocks: Callable[[], Iterable[bytes]]


@dataclass(frozen=True, eq=False)
class ForeignPublication:
    """A publication that was made elsewhere."""

    publication: Publication  # its source is a label, which people gave it
    tables: Mapping[str, LoadedTable]  # by their suffixes
    # What the ledger keeps of the source's columns: ``quasi_identifiers``, ``sensitive`` and
    # ``published``.
    columns: Mapping[str, Any]


def load_publication(
    session: PsycopgSession, elsewhere: ForeignPublication, request: LoadRequest
) -> Published:
    """Load a publication that was made elsewhere, verified before anybody sees it."""
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
    suffixes = [*kind.suffixes, DRAWN] if request.draws else kind.suffixes
    check_name(session, given.name, suffixes, replace=request.replace)
    roles = check_readers(session, request.readers, schema)
    staging = StagedRelations.begin(session, schema)
    for suffix in kind.told:
        _fill(session, staging, suffix, elsewhere.tables[suffix])
    session.phase("writing")
    accepted = {**given.parameters.get("accept", {}), **request.accept}
    staged = replace(
        given,
        name=staging.name,
        source=label,
        parameters={
            **given.parameters,
            "readers": list(roles),
            "accept": accepted,
            "draws": request.draws,
        },
    )
    with roomy(session):
        staged = replace(staged, layout=kind.complete(staging, staged, Allowance.of(session)))
    session.phase("verifying")
    examined = kind.examine(session, staged, is_new=True)
    require_checks(examined.checks)
    write_draws(staging, staged)
    session.phase("publishing")
    earlier = earlier_releases_elsewhere(session, label, roles)
    combined = require_alone(
        session, earlier, request.accept, "their source is not in this database"
    )
    if not combined.refused and COMBINED not in given.parameters.get("accept", {}):
        accepted.pop(COMBINED, None)
    publication_id = enter_publication(
        staging, staged, given.name, None, metrics=examined.metrics, columns=elsewhere.columns,
        combined=combined, replace=request.replace, label=label, upto=None, keeps_grants=False,
        entities=None,
    )  # fmt: skip
    return Published(
        publication_id=publication_id,
        name=given.name,
        guarantee=given.guarantee,
        records=given.records,
        metrics={**examined.metrics, **given.metrics},
        seconds=time.perf_counter() - started,
    )


def _fill(
    session: PsycopgSession, staging: StagedRelations, suffix: str, table: LoadedTable
) -> None:
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


def require_loaded_tables(kind: str, tables: Iterable[str]) -> Sequence[str]:
    """Return the suffixes of the tables that are loaded; refuse a publication that lacks one."""
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


@dataclass(frozen=True)
class Reader:
    """Somebody who can log in and read a publication."""

    name: str
    through: Sequence[str]  # Roles that it was granted to, of which they are members
    hurdle: str  # What they must do first; empty if nothing


@dataclass(frozen=True)
class Access:
    """Who can read a publication at this moment, as the server's catalog says."""

    granted: Sequence[str]  # Roles, but for the publisher; "everybody" for PUBLIC
    now: Sequence[Reader]  # Those who can log in, but for whom `besides` names
    # Who can read it without being granted it, or give themselves the right, and why
    besides: Sequence[tuple[str, str]]

    @property
    def members(self) -> dict[str, list[str]]:
        """Who can read it now as what it was granted to, for each of these roles."""
        return {
            role: [one.name for one in self.now if role in (one.name, *one.through)]
            for role in self.granted
        }


_GRANTS: Final = """
SELECT p.name, bool_or(a.grantor = c.relowner AND a.is_grantable) AS is_publisher,
       CASE WHEN a.grantee = 0 THEN '' ELSE pg_get_userbyid(a.grantee)::text END AS grantee
FROM kanon.publication AS p
JOIN kanon.setting AS s ON s.name = 'published_schema'
JOIN pg_namespace AS n ON n.nspname = s.value
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = ANY (p.relations)
CROSS JOIN LATERAL (
    SELECT t.grantee, t.grantor, t.is_grantable, t.privilege_type
    FROM aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS t
    UNION ALL
    SELECT t.grantee, t.grantor, false, t.privilege_type
    FROM pg_attribute AS b CROSS JOIN aclexplode(b.attacl) AS t WHERE b.attrelid = c.oid
) AS a
WHERE p.name = ANY ($1::text[]) AND a.privilege_type = 'SELECT' AND a.grantee <> c.relowner
GROUP BY p.name, a.grantee ORDER BY 3
"""
_LOGINS: Final = """
SELECT l.rolname::text AS name, kanon.is_administrator(l.oid) AS is_administrator,
       ARRAY(SELECT g FROM unnest($1::text[]) AS g
             WHERE g = '' OR pg_has_role(l.oid, nullif(g, ''), 'MEMBER')) AS through,
       EXISTS (SELECT FROM unnest($1::text[]) AS g
               WHERE g = '' OR pg_has_role(l.oid, nullif(g, ''), 'USAGE')) AS inherits,
       EXISTS (SELECT FROM unnest($2::text[]) AS g
               WHERE pg_has_role(l.oid, g, 'MEMBER')) AS is_publisher,
       pg_has_role(l.oid, 'pg_read_all_data', 'MEMBER')
           OR pg_has_role(l.oid, 'kanon_owner', 'MEMBER') AS reads_all,
       l.rolcreaterole OR EXISTS (
           SELECT FROM pg_auth_members AS m JOIN pg_roles AS r ON r.oid = m.roleid
           WHERE m.member = l.oid AND m.admin_option AND r.rolname = ANY ($1::text[])) AS adds,
       has_database_privilege(l.oid, current_database(), 'CONNECT') AS connects,
       EXISTS (SELECT FROM kanon.setting AS s WHERE s.name = 'published_schema'
               AND (has_schema_privilege(l.oid, s.value, 'USAGE') OR EXISTS (
                   SELECT FROM unnest($1::text[]) AS g WHERE g <> ''
                   AND pg_has_role(l.oid, nullif(g, ''), 'MEMBER')
                   AND has_schema_privilege(nullif(g, ''), s.value, 'USAGE')))) AS reaches
FROM pg_roles AS l
WHERE l.rolcanlogin AND NOT EXISTS (
    -- A worker's login for a role is that role, which counts.
    SELECT FROM pg_auth_members AS m
    WHERE m.member = l.oid AND l.rolname = 'kanon_as_' || m.roleid)
ORDER BY 1
"""


def access_to(session: Session, names: Sequence[str]) -> dict[str, Access]:
    """Say who can read publications now: through grants, memberships, or without either."""
    grants: dict[str, list[Row]] = {name: [] for name in names}
    for row in session.fetch(_GRANTS, list(names)) if names else ():
        grants[row["name"]].append(row)
    return {name: _access_by(session, rows) for name, rows in grants.items()}


def _access_by(session: Session, grants: Sequence[Row]) -> Access:
    granted = [row["grantee"] for row in grants if not row["is_publisher"]]
    publishers = [row["grantee"] for row in grants if row["is_publisher"]]
    rows = session.fetch(_LOGINS, granted, publishers)
    administrators = [row["name"] for row in rows if row["is_administrator"]]
    others = [row for row in rows if not row["is_administrator"]]
    publishing = [row["name"] for row in others if row["is_publisher"]]
    reading = [row["name"] for row in others if row["reads_all"]]
    adding = [row["name"] for row in others if row["adds"]]
    besides = [
        (publishing, "published it, or is a member of the role that did, and may grant it"),
        (administrators, "administrators of the server or of kanon_db, who may read everything"),
        (reading, "members of pg_read_all_data or kanon_owner, who may read it without a grant"),
        (adding, "may make others, and so themselves, members of roles"),
    ]
    groups = [name for name in granted if name]
    if groups:
        besides.append((groups, "every member that these roles are given from now on"))
    readers, barred = [], []
    for row in others:
        if not row["through"] or row["is_publisher"]:
            continue
        if not (row["connects"] and row["reaches"]):
            barred.append(row["name"])
            continue
        through = [name or "everybody" for name in row["through"] if name != row["name"]]
        hurdle = "" if row["inherits"] else "SET ROLE: does not inherit what the role may do"
        readers.append(Reader(row["name"], through, hurdle))
    if barred:
        besides.append((barred, "granted, but may not connect, or not use the schema"))
    return Access(
        [name or "everybody" for name in granted],
        readers,
        [(shortened(names), why) for names, why in besides if names],
    )
