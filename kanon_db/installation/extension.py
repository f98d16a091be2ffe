"""Writes kanon_db as an extension of PostgreSQL, from the same sources as `kanon install` runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import kanon_db
from kanon_db.errors import ServerError
from kanon_db.installation.interpreter import import_paths, package_digest, server_paths
from kanon_db.installation.service import is_superuser
from kanon_db.installation.sql_objects import (
    ROLES,
    create_language,
    migration_script,
    object_scripts,
    resource_text,
    revisions,
)
from kanon_db.session import fetch_one
from kanon_db.session.psycopg_session import PsycopgSession, open_connection

EXTENSION: Final = "kanon"
PUBLISHED: Final = "published"
"""The schema of publications, unless the first installation names another."""
_UNPACKAGED: Final = "unpackaged"
"""The version of an installation that was made by statements, before it becomes the extension."""

# The schema of publications is the user's, and there before the extension is, also in a dump. That
# of our objects is made by the script: a stranger could have made one.
_CONTROL: Final = """\
comment = 'publishes data of people privately, and answers count queries from what was published'
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
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
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
    moved = [
        _MIGRATION.format(
            before=one.follows, statements=migration_script(one.follows, one.revision)
        )
        for one in reversed(revisions())
        if one.follows
    ]
    taken = [roles, _SAME_STATE.format(digest=package_digest()), members]
    written = {
        version: made,
        _UNPACKAGED: [_ABSENT],
        f"{_UNPACKAGED}--{version}": taken,
        **{f"{old}--{version}": [roles, *moved, *objects] for old in earlier},
    }
    header = _HEADER.format(version=version)
    return {
        f"{EXTENSION}.control": _CONTROL.format(version=version, published=PUBLISHED),
        **{
            f"{EXTENSION}--{name}.sql": "\n".join([header, *texts])
            for name, texts in written.items()
        },
    }


def write_extension(
    folder: Path | None = None, *, dsn: str = "", earlier: Sequence[str] = ()
) -> list[Path]:
    """Write the extension's files, where this machine's server looks for them or into a folder.

    `earlier`: versions to update from, beside those whose files are there. Raises ServerError.
    """
    paths = import_paths()
    if folder is None:
        folder, paths = _ask_server(dsn)
    version = kanon_db.__version__
    names = [re.search(r"--([^-]+)\.sql$", file.name) for file in folder.glob(f"{EXTENSION}--*")]
    before = {name[1] for name in names if name} | set(earlier)
    files = extension_files(paths, sorted(before - {version, _UNPACKAGED}))
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
            hint=f"kanon extension --from {before}",
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
