"""Servers of the tests' own, which need not survive a crash of the machine."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from kanon_db.cluster.local_cluster import LocalCluster

SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    # Plans do not depend on when a background process came by.
    "autovacuum": "off",
}
"""What the tests' clusters change in the settings of a private cluster."""


def new_folder() -> Path:
    """Name a folder that does not exist yet."""
    # Not by mkdtemp: that folder would be closed to the server's OS user.
    return Path(tempfile.gettempdir(), f"kanon-test-{uuid.uuid4().hex[:12]}")


@contextlib.contextmanager
def cluster_folder(*below: str) -> Iterator[Path]:
    """Name a folder for a cluster, and remove what is made there."""
    root = new_folder()
    path = root.joinpath(*below)
    try:
        yield path
    finally:
        LocalCluster(path).destroy()
        shutil.rmtree(root, ignore_errors=True)


def start(cluster: LocalCluster) -> str:
    """Start it with these settings; the superuser's connection string."""
    dsn = cluster.start()
    with psycopg.connect(dsn, autocommit=True) as connection:
        for setting, value in SETTINGS.items():
            connection.execute(f"ALTER SYSTEM SET {setting} = {value}".encode())
        connection.execute("SELECT pg_reload_conf()")
    return dsn


def create_database(dsn: str, name: str, template: str = "template0") -> str:
    """Copy a database that nobody uses; the copy's connection string."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        # By default, from 15 on, all that is copied goes through the server's log.
        strategy = "" if connection.info.server_version < 150000 else "STRATEGY file_copy"
        statement = f"CREATE DATABASE {{}} TEMPLATE {{}} {strategy}"
        connection.execute(
            sql.SQL(statement).format(sql.Identifier(name), sql.Identifier(template))
        )
    return make_conninfo(dsn, dbname=name)


@pytest.fixture
def dsn(new_database: Callable[..., str]) -> str:
    """Connection string of an empty database."""
    return new_database(installed=False)


@pytest.fixture
def admin(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """Its superuser's session."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@contextlib.contextmanager
def private_cluster() -> Iterator[str]:
    """Run a cluster during a block."""
    with cluster_folder() as folder:
        yield start(LocalCluster(folder))
