"""Fixtures of the tests of documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from kanon_db.interfaces.demo import write_fair
from tests.clusters import cluster_folder


@pytest.fixture
def database(database: str, new_role: Callable[..., str]) -> str:
    """A database as readers of the pages have it: somebody reads, and no risk is accepted."""
    new_role("kanon_analyst")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DELETE FROM kanon.setting WHERE name = 'combined_releases'")
    return database


@pytest.fixture(scope="session")
def fair_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's data."""
    path = tmp_path_factory.mktemp("docs") / "fair.csv"
    write_fair(path)
    return path


@pytest.fixture(scope="module")
def private_cluster() -> Iterator[Path]:
    """A folder for it, which is made where an example starts one."""
    with cluster_folder("cluster") as folder:
        yield folder
