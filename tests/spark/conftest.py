"""One session of Spark for all of these tests.

``spark_master`` (session)
    What sessions connect to. ``make spark`` and ``make test-all`` start a cluster, a master and
    two workers, as they are elsewhere; ``make test`` takes threads of one Java. Tests are skipped
    where Java or the extra ``spark`` is missing.
``spark`` (session)
    A session on it.
``people`` (session)
    The path of Parquet files with some thousand records.
``published`` (session)
    A publication of them that tests only read.
``related``, ``weighted`` (session)
    The same of people of whom an age decides on the disease, for most: weights are learned.
``target`` (test)
    A folder that does not exist yet, in one of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kanon_db.spark import publish_buckets
from kanon_db.spark.environment import StandaloneCluster, spark_session, why_unavailable
from tests.spark import data

FOLLOWED = 'ignore:(insensitive column|quasi-identifier) "(id|who)" is nearly unique'
"""Tests publish who each record is about, to find it again."""

IS_ALL = os.environ.get("KANON_SPARK") == "all"

_ASKED = "SELECT count(*) FROM people_b WHERE age < 40 AND disease = 'disease 1'"
SHORT = f"test_estimates.py::test_both_sides_answer_alike[{_ASKED}]"
"""What ``make test`` runs of those that need a session of Spark: published, loaded, and asked."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to ``make spark`` what takes minutes."""
    here = Path(__file__).parent
    for item in (item for item in items if item.path.parent == here):
        item.add_marker(pytest.mark.filterwarnings(FOLLOWED))
        is_short = item.nodeid.rpartition("/")[2].startswith(SHORT)
        if "spark" in getattr(item, "fixturenames", ()) and not is_short:
            item.add_marker(pytest.mark.long)


@pytest.fixture(scope="session")
def spark_master() -> Iterator[str]:
    if reason := why_unavailable():
        pytest.skip(f"Spark cannot be run here: {reason}")
    if not IS_ALL:
        yield "local[2]"
        return
    with StandaloneCluster(workers=2, cores=1, memory="1g") as cluster:
        yield cluster.master


@pytest.fixture(scope="session")
def spark(spark_master: str) -> Iterator[Any]:
    with spark_session(spark_master, **data.SETTINGS) as session:
        yield session


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("pyarrow")
    return data.write(tmp_path_factory.mktemp("people"), 4_000, files=3)


@pytest.fixture(scope="session")
def published(spark: Any, people: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("published") / "people_b"
    publish_buckets(spark, people, str(target), source_name="people", **data.ASKED)
    return target


@pytest.fixture(scope="session")
def related(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("pyarrow")
    return data.write(tmp_path_factory.mktemp("related"), 4_000, files=3, make=data.related)


@pytest.fixture(scope="session")
def weighted(spark: Any, related: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("published") / "people_w"
    publish_buckets(spark, related, str(target), source_name="related", **data.ASKED)
    return target


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "published" / "people_b"
