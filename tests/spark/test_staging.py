"""Nobody sees a publication before it is whole, and whoever is killed leaves nothing for long."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kanon_db import spark as on_spark
from kanon_db.errors import InUseError, ServerError, VerificationError
from kanon_db.spark import environment, publishing
from tests.spark import data

PUBLISH = """
import sys
from kanon_db import spark
from kanon_db.spark.environment import spark_session
from tests.spark import data
master, people, target = sys.argv[1:]
with spark_session(master, **data.SETTINGS) as session:
    spark.publish_buckets(
        session, people, target, on_progress=lambda said: print(said.step, flush=True), **data.ASKED
    )
"""
"""A driver that can be killed."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_failed_check_leaves_nothing(
    spark: Any, people: str, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release with a bug in it, here a lost record, is not published."""
    whole = publishing.take_spark_snapshot

    def without_one(*given: Any) -> Any:
        found = whole(*given)
        object.__setattr__(found, "frame", found.frame.where("record <> 0"))
        return found

    monkeypatch.setattr(publishing, "take_spark_snapshot", without_one)
    with pytest.raises(VerificationError, match="nothing was published"):
        on_spark.publish_buckets(spark, people, str(target), **data.ASKED)
    assert names(target.parent) == []


def test_a_failure_at_the_end_leaves_nothing(
    spark: Any, people: str, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: Any) -> None:
        raise ServerError("the disk is full")

    monkeypatch.setattr(publishing.Manifest, "write", fail)
    with pytest.raises(ServerError, match="disk"):
        on_spark.publish_buckets(spark, people, str(target), **data.ASKED)
    assert names(target.parent) == ["releases"]
    assert on_spark.releases(spark, str(target.parent)) == []


def test_a_target_that_cannot_be_written(spark: Any, people: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ServerError, match="could not be read or written"):
        on_spark.publish_buckets(spark, people, str(tmp_path / "file" / "people_b"), **data.ASKED)
    assert names(tmp_path) == ["file"]


def test_a_killed_driver(spark: Any, people: str, target: Path) -> None:
    """While it runs, nobody else can publish there; what it left goes when the next one begins."""
    driver = subprocess.Popen(
        [sys.executable, "-c", PUBLISH, "local[1]", people, str(target)], text=True,
        stdout=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    try:
        assert driver.stdout is not None
        said = driver.stdout.readline()
        while said and "quasi-identifier table" not in said:
            said = driver.stdout.readline()
        with pytest.raises(InUseError, match="another run"):
            on_spark.publish_buckets(spark, people, str(target), **data.ASKED)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
    assert names(target.parent) == [".kanon-people_b"]
    found = on_spark.publish_buckets(spark, people, str(target), **data.ASKED)
    assert found.records == 4_000
    assert names(target.parent) == ["people_b", "releases"]


def test_what_was_left_in_the_target_goes(spark: Any, people: str, target: Path) -> None:
    """A run that was killed after it moved its files, and before it wrote the manifest.

    Of the next one, nobody sees what is not yet published.
    """
    left = target / "release-0123"
    left.mkdir(parents=True)
    (left / "part").write_text("rows")
    staging = target.parent / ".kanon-people_b"
    staging.mkdir()
    gone = {"token": "0123", "host": "elsewhere", "process": "1 1"}
    (staging / "owner.json").write_text(json.dumps(gone))
    with pytest.raises(InUseError, match="another run"):
        on_spark.publish_buckets(spark, people, str(target), **data.ASKED)
    long_ago = time.time() - 3600
    os.utime(staging / "owner.json", (long_ago, long_ago))
    seen: dict[str, Any] = {}

    def look(said: Any) -> None:
        for path in target.parent.glob(".kanon-*"):
            seen[said.step] = (stat.S_IMODE(path.stat().st_mode), names(target))

    on_spark.publish_buckets(spark, people, str(target), on_progress=look, **data.ASKED)
    steps = ("writing the sensitive table", "verifying", "publishing")
    assert [seen[step] for step in steps] == [(0o700, [])] * 3
    assert not left.exists()
    assert names(target.parent) == ["people_b", "releases"]
    assert [name[:8] for name in names(target)] == ["manifest", "release-"]


def test_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "Java" in (environment.why_unavailable() or "")
    with pytest.raises(ServerError, match="cannot be run here"):
        environment.require_spark()


def test_pyspark_is_not_imported_before_it_is_used() -> None:
    text = "import sys, kanon_db.spark, kanon_db.interfaces.cli; print('pyspark' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
