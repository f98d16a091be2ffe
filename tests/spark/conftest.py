"""One cluster of Spark for all of these tests: a master and two workers, as they are elsewhere.

``spark_cluster`` (session)
    The cluster. Tests are skipped where Java or the extra ``spark`` is missing.
``spark`` (session)
    A session on it.
``people`` (session)
    The path of Parquet files with some thousand records.
``target`` (test)
    A folder that does not exist yet, in one of its own.

``make spark`` and ``make test-all`` run all of them, ``make test`` those of :data:`SHORT`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kanon_db.spark.environment import StandaloneCluster, spark_session, why_unavailable
from tests.spark import data

FOLLOWED = 'ignore:(insensitive column|quasi-identifier) "(id|who)" is nearly unique'
"""Tests publish who each record is about, to find it again."""

SHORT = ("test_publishing.py", "test_staging.py", "test_attacks.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, unless it was asked for."""
    here = Path(__file__).parent
    for item in (item for item in items if item.path.parent == here):
        item.add_marker(pytest.mark.filterwarnings(FOLLOWED))
        if item.path.name not in SHORT and os.environ.get("KANON_SPARK") != "all":
            item.add_marker(pytest.mark.skip(reason="make spark runs it: it takes minutes"))


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[StandaloneCluster]:
    if reason := why_unavailable():
        pytest.skip(f"Spark cannot be run here: {reason}")
    with StandaloneCluster(workers=2, cores=1, memory="1g") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark(spark_cluster: StandaloneCluster) -> Iterator[Any]:
    settings = {
        "spark__executor__memory": "700m",
        "spark__driver__memory": "700m",
        "spark__sql__shuffle__partitions": "2",
        "spark__default__parallelism": "2",
    }
    with spark_session(spark_cluster.master, **settings) as session:
        yield session


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("pyarrow")
    return data.write(tmp_path_factory.mktemp("people"), 4_000, files=3)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "published" / "people_b"
