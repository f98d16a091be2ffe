"""What there is on the server, in its catalog and in its folders: for telling what was left."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.faults.server import Connection, Server

_COUNTED = (
    "pg_class", "pg_type", "pg_index", "pg_constraint", "pg_rewrite", "pg_trigger", "pg_policy",
    "pg_proc", "pg_depend", "pg_shdepend", "pg_description", "pg_default_acl", "pg_statistic_ext",
    "pg_prepared_xacts",
)  # fmt: skip
"""Catalogs in which nothing may be left."""

_RELATION_FILE = re.compile(r"(?:t\d+_)?(\d+)(?:_fsm|_vm|_init)?(?:\.\d+)?")
"""A file of a relation; that of a temporary one has the number of a session before it."""


@dataclass(frozen=True)
class Trace:
    """What publishing leaves, where no session is open.

    Attributes
    ----------
    publications : dict of str to int
        The number of each publication in the catalog.
    releases : set of str
        The names of those that the ledger does not say to be gone.
    relations : set of str
        Tables and views in the schemas of kanon_db and of temporary tables.
    catalog : dict of str to int
        How many entries each of PostgreSQL's catalogs has.
    files : set of str
        Temporary files, and what lies beside the data and in the temporary folder.
    """

    publications: dict[str, int]
    releases: set[str]
    relations: set[str]
    catalog: dict[str, int]
    files: set[str]

    def grown(self, without: Trace, with_one: Trace) -> Trace:
        """Add what one trace has, and another one has not."""
        return Trace(
            self.publications | with_one.publications,
            self.releases | with_one.releases,
            self.relations | (with_one.relations - without.relations),
            {
                name: n + with_one.catalog[name] - without.catalog[name]
                for name, n in self.catalog.items()
            },
            self.files | (with_one.files - without.files),
        )

    def differences(self, expected: Trace) -> list[str]:
        """Say what is here and was not expected, or the other way round; numbers may differ."""
        found = _differences("entry", set(self.publications), set(expected.publications))
        found += _differences("release", self.releases, expected.releases)
        found += _differences("relation", self.relations, expected.relations)
        found += _differences("file", self.files, expected.files)
        return found + [
            f"{name}: {n} entries instead of {expected.catalog[name]}"
            for name, n in self.catalog.items()
            if n != expected.catalog[name]
        ]


def _differences(kind: str, here: set[str], expected: set[str]) -> list[str]:
    left = [f"{kind} left: {name}" for name in sorted(here - expected)]
    return left + [f"{kind} gone: {name}" for name in sorted(expected - here)]


def read_trace(server: Server) -> Trace:
    """Look at everything; to be called when no other session is open."""
    with server.connect() as admin:
        return Trace(
            dict(admin.execute("SELECT name, publication_id FROM kanon.publication").fetchall()),
            {
                name
                for (name,) in admin.execute("SELECT name FROM kanon.release WHERE ended IS NULL")
            },
            {
                name
                for (name,) in admin.execute(
                    "SELECT n.nspname || '.' || c.relname FROM pg_class AS c"
                    " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
                    " WHERE c.relkind NOT IN ('i', 'S') AND (n.nspname IN ('kanon', 'published')"
                    r" OR n.nspname LIKE 'pg\_temp\_%')"
                )
            },
            {name: _count(admin, name) for name in (*_COUNTED, "pg_attribute")},
            {*_temporary_files(server), *_beside(server)},
        )


def _count(admin: Connection, catalog: str) -> int:
    where = "NOT attisdropped" if catalog == "pg_attribute" else "true"
    ((n,),) = admin.execute(f"SELECT count(*) FROM {catalog} WHERE {where}").fetchall()
    return int(n)


def _temporary_files(server: Server) -> list[str]:
    """Files of sorts and hash tables, which live as long as a statement."""
    return [
        str(path.relative_to(server.data))
        for folder in (server.data / "base", server.data / "pg_tblspc")
        for path in folder.rglob("pgsql_tmp*/*")
    ]


def _beside(server: Server) -> list[str]:
    """List the data directory, the cluster's folder, and the temporary folder.

    Of the last, only what belongs to the server's OS user. Folders named after kanon are clusters.
    """
    owner = server.data.stat().st_uid
    temporary = [
        path
        for path in Path(tempfile.gettempdir()).iterdir()
        if not path.name.startswith("kanon-") and _owner(path) == owner
    ]
    return [
        str(path) for path in (*server.data.iterdir(), *server.data.parent.iterdir(), *temporary)
    ]


def _owner(path: Path) -> int | None:
    try:
        return path.lstat().st_uid
    except FileNotFoundError:
        return None  # somebody else's, and gone


def orphaned_files(server: Server) -> dict[str, int]:
    """Return the files of no relation, with their sizes in bytes.

    PostgreSQL removes files of dropped relations at a checkpoint, so there is one before.
    """
    with server.connect() as admin:
        admin.execute("CHECKPOINT")
        known = {
            number
            for (number,) in admin.execute(
                "SELECT pg_relation_filenode(oid)::text FROM pg_class"
                " WHERE pg_relation_filenode(oid) IS NOT NULL"
            )
        }
        ((database,),) = admin.execute(
            "SELECT oid::text FROM pg_database WHERE datname = current_database()"
        ).fetchall()
    folders = [
        server.data / "base" / database,
        *(server.data / "pg_tblspc").glob(f"*/PG_*/{database}"),
    ]
    return {
        str(path.relative_to(server.data)): path.stat().st_size
        for folder in folders
        for path in folder.iterdir()
        if (match := _RELATION_FILE.fullmatch(path.name))
        and (path.name.startswith("t") or match.group(1) not in known)
    }
