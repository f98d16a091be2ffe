"""Writes kanon_db as an extension of PostgreSQL, from the same sources as `kanon install` runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import kanon_db
from kanon_db.errors import InvalidParameterError, ServerError
from kanon_db.installation.interpreter import import_paths, package_digest, server_paths
from kanon_db.installation.service import (
    AFTER_OWNING,
    BEFORE_OWNING,
    is_superuser,
    queue_script,
)
from kanon_db.installation.sql_objects import (
    ROLES,
    WORKER_LOGIN,
    create_language,
    migration_script,
    object_scripts,
    resource_text,
    revisions,
)
from kanon_db.session import SETTINGS, fetch_one
from kanon_db.session.psycopg_session import PsycopgSession, open_connection

EXTENSION: Final = "kanon"
PUBLISHED: Final = "published"
"""The schema of publications, unless the first installation names another."""
_UNPACKAGED: Final = "unpackaged"
"""The version of an installation that was made by statements, before it becomes the extension."""

_COMMENT: Final = (
    "publishes data of people privately, and answers count queries from what was published"
)

# The schema of publications is the user's, and there before the extension is, also in a dump. That
# of our objects is made by the script: a stranger could have made one.
_CONTROL: Final = """\
comment = '{comment}'
default_version = '{version}'
schema = {published}
relocatable = false
superuser = true
trusted = false
requires = 'plpython3u'
encoding = 'UTF8'
"""

_HEADER: Final = """\
-- Written by `kanon extension` from the package kanon_db {version}.
\\echo Use "CREATE EXTENSION kanon" to load this file. \\quit
"""
_SETTLED: Final = "\n".join(
    f"SELECT pg_catalog.set_config('{name}', '{value}', true);" for name, value in SETTINGS.items()
)

_TLE: Final = """\
SELECT pgtle.install_extension('kanon', '{version}', '{comment}', $_pgtle_$
{script}
$_pgtle_$);
"""
_TLE_UPDATE: Final = """\
SELECT pgtle.install_update_path('kanon', '{earlier}', '{version}', $_pgtle_$
{script}
$_pgtle_$);
SELECT pgtle.set_default_version('kanon', '{version}');
"""

_MIGRATION: Final = """
DO $migration$
BEGIN
    IF (SELECT v.version_num FROM kanon.alembic_version AS v) = '{before}' THEN
        EXECUTE $statements${statements}$statements$;
    END IF;
END
$migration$;
"""

_ABSENT: Final = """
DO $absent$
BEGIN
    IF pg_catalog.to_regclass('kanon.setting') IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table',
            MESSAGE = 'there is no installation that could become the extension',
            HINT = 'CREATE EXTENSION kanon CASCADE';
    END IF;
END
$absent$;
"""

_SAME_STATE: Final = """
DO $same$
BEGIN
    IF NOT EXISTS (SELECT FROM kanon.setting AS s
                   WHERE s.name = 'package' AND s.value = '{digest}') THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'the database has the objects of another kanon_db than these files',
            HINT = 'kanon extension, then kanon install';
    END IF;
END
$same$;
"""


def extension_files(paths: Sequence[str], earlier: Iterable[str] = ()) -> dict[str, str]:
    """Return the files of the extension, by name.

    `paths`: from where PL/Python imports the package; `earlier`: versions to update from.
    """
    version = kanon_db.__version__
    scripts = object_scripts(paths, is_service=False, watches=True)
    roles = scripts.pop(ROLES)
    members = resource_text("extension/99_members.sql")
    objects = [*scripts.values(), members]
    made = [roles, "CREATE SCHEMA kanon;", migration_script(None), *objects]
    taken = [roles, _SAME_STATE.format(digest=package_digest()), members]
    written = {
        version: made,
        _UNPACKAGED: [_ABSENT],
        f"{_UNPACKAGED}--{version}": taken,
        **{f"{old}--{version}": [roles, *_migrations(), *objects] for old in earlier},
    }
    header = _HEADER.format(version=version) + _SETTLED
    return {
        f"{EXTENSION}.control": _CONTROL.format(
            version=version, published=PUBLISHED, comment=_COMMENT
        ),
        **{
            f"{EXTENSION}--{name}.sql": "\n".join([header, *texts])
            for name, texts in written.items()
        },
    }


def _migrations() -> list[str]:
    """Write what each migration does, where the catalog is at the state before it."""
    return [
        _MIGRATION.format(
            before=one.follows, statements=migration_script(one.follows, one.revision)
        )
        for one in reversed(revisions())
        if one.follows
    ]


def tle_registration(earlier: Sequence[str] = ()) -> str:
    """Write the calls that register the extension with pg_tle: as a service, without superusers.

    `earlier`: versions to update from. Raises ServerError where procrastinate is missing.
    """
    version, versions = kanon_db.__version__, _versions_before(earlier)
    scripts = object_scripts((), is_service=True, watches=False)
    roles, login = scripts.pop(ROLES), scripts.pop(WORKER_LOGIN)
    members = resource_text("extension/99_members.sql")
    before, after = (
        "".join(f"{statement};\n" for statement in statements)
        for statements in (BEFORE_OWNING, AFTER_OWNING)
    )
    replaced = [*scripts.values(), members, after]
    made = [roles, "CREATE SCHEMA kanon;", before, migration_script(None), login, queue_script()]
    calls = [
        _TLE.format(
            version=version, comment=_COMMENT, script="\n".join([_SETTLED, *made, *replaced])
        )
    ]
    calls += [
        _TLE_UPDATE.format(
            earlier=old,
            version=version,
            script="\n".join([_SETTLED, roles, before, *_migrations(), *replaced]),
        )
        for old in versions
    ]
    return "".join(calls)


def write_extension(
    folder: Path | None = None, *, dsn: str = "", earlier: Sequence[str] = ()
) -> list[Path]:
    """Write the extension's files, where this machine's server looks for them or into a folder.

    `earlier`: versions to update from, beside those whose files are there. Raises ServerError.
    """
    paths = import_paths()
    _versions_before(earlier)  # before anything is asked
    if folder is None:
        folder, paths = _ask_server(dsn)
    names = [re.search(r"--([^-]+)\.sql$", file.name) for file in folder.glob(f"{EXTENSION}--*")]
    files = extension_files(
        paths, _versions_before([*earlier, *(name[1] for name in names if name)])
    )
    try:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
            (folder / name).chmod(0o644)
    except OSError as error:
        raise ServerError(
            "the extension's files cannot be written",
            detail=f"{folder}: {error.strerror}",
            hint="run it as root, on the server's machine; or name another folder",
        ) from None
    return [folder / name for name in files]


def _versions_before(names: Sequence[str]) -> list[str]:
    """Return versions to update from, which become parts of file names and statements."""
    if not all(re.fullmatch(r"\w[\w.+]*", name, re.ASCII) for name in names):
        hint = "kanon extension --from 0.1.0"
        raise InvalidParameterError("versions are such as 0.1.0", hint=hint)
    return sorted(set(names) - {kanon_db.__version__, _UNPACKAGED})


def _ask_server(dsn: str) -> tuple[Path, list[str]]:
    """Ask a server where its extensions are, and what its Python can import; change nothing."""
    with open_connection(dsn) as connection:
        session = PsycopgSession(connection)
        with connection.transaction(force_rollback=True), session.transaction():
            row = fetch_one(session, "SELECT setting FROM pg_config WHERE name = 'SHAREDIR'")
            create_language(session)
            return Path(row["setting"], "extension"), server_paths(session)


def read_version(session: PsycopgSession) -> str | None:
    """Return the version of the extension in this database; None where it is none."""
    rows = session.fetch(
        "SELECT extversion AS version FROM pg_extension WHERE extname = $1::text", EXTENSION
    )
    return str(rows[0]["version"]) if rows else None


def is_available(session: PsycopgSession) -> bool:
    """Tell whether the server has the files of this package's version of the extension."""
    return bool(
        session.fetch(
            "SELECT FROM pg_available_extension_versions WHERE name = $1::text"
            " AND version = $2::text",
            EXTENSION,
            kanon_db.__version__,
        )
    )


def update_extension(session: PsycopgSession) -> list[str]:
    """Update the extension, where an earlier version is in the database; say so."""
    before, version = read_version(session), kanon_db.__version__
    if before in (None, version):
        return []
    rows = session.fetch(
        "SELECT FROM pg_extension_update_paths($1::name)"
        " WHERE source = $2::text AND target = $3::text AND path IS NOT NULL",
        EXTENSION,
        before,
        version,
    )
    if not rows:
        raise ServerError(
            "the server cannot update the extension",
            detail=f"from version {before} to {version}",
            hint=f"kanon extension --from {before}; with pg_tle, and --tle",
        )
    session.fetch(f"ALTER EXTENSION {EXTENSION} UPDATE TO {session.literal(version)}")
    return [f"extension {EXTENSION} updated to {version}, was {before}"]


def become_extension(session: PsycopgSession, published: str) -> list[str]:
    """Make the extension of an installation, where it is available; say so."""
    version = kanon_db.__version__
    if read_version(session) is None:
        if published != PUBLISHED or not is_superuser(session) or not is_available(session):
            return []
        session.fetch(f"CREATE EXTENSION {EXTENSION} VERSION {session.literal(_UNPACKAGED)}")
        session.fetch(f"ALTER EXTENSION {EXTENSION} UPDATE TO {session.literal(version)}")
    return [f"extension {EXTENSION} {version}"]
