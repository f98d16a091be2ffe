"""Machines and disks that fail while records are published: the job ends right or leaves nothing.

Each record is counted against the source: nobody is lost, and nobody is there twice. `python -m
benchmarks spark_faults` breaks more, at more moments.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kanon_db import spark as on_spark
from kanon_db.errors import ServerError
from kanon_db.spark.environment import StandaloneCluster, why_unavailable
from tests.spark import data, faulty

N = 4_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[StandaloneCluster]:
    """A cluster whose workers may die."""
    if reason := why_unavailable():
        pytest.skip(f"Spark cannot be run here: {reason}")
    with StandaloneCluster(workers=2, cores=1, memory="800m") as found:
        yield found


def run(
    cluster: StandaloneCluster, people: str, target: Path, *more: str, at: Callable[[str], None]
) -> int:
    """Publish in a process of its own, and return how many stages were run again.

    Parameters
    ----------
    at : callable
        Called with each step, while it begins.
    """
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.faulty", cluster.master, people, str(target), *more],
        text=True, stdout=subprocess.PIPE, start_new_session=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    said = ""
    with driver:
        try:
            assert driver.stdout is not None
            for line in driver.stdout:
                said = line.strip()
                at(said)
            if driver.wait():
                raise ChildProcessError("the driver has failed")
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
    return int(said.removeprefix("again "))


def is_whole(target: Path, source: Any = None) -> None:
    """Each record is there once, with its own quasi-identifiers, in the bucket with its value."""
    source = data.table(N) if source is None else source
    names = faulty.ASKED["quasi_identifiers"]
    qit, sat = data.read(target, "qit"), data.read(target, "sat")
    assert sorted(map(str, qit.select(names).to_pylist())) == sorted(
        map(str, source.select(names).to_pylist())
    )
    of = source["disease"].to_pylist()
    assert Counter((row["bucket_id"], of[row["id"]]) for row in qit.to_pylist()) == {
        (row["bucket_id"], row["disease"]): row["count"] for row in sat.to_pylist()
    }
    assert [path.name for path in sorted(target.parent.iterdir())] == ["people_b", "releases"]
    assert [path.name[:8] for path in sorted(target.iterdir())] == ["manifest", "release-"]


@pytest.mark.long
def test_workers_are_killed(cluster: StandaloneCluster, people: str, target: Path) -> None:
    """Of two workers, one after the other dies while the steps begin; a new one takes its place."""
    moments = [
        "counting combinations of quasi-identifiers", "assigning records to buckets in cells",
        "writing the sensitive table", "verifying",
    ]  # fmt: skip
    left = list(moments)

    def kill(step: str) -> None:
        if left and step == left[0]:
            left.pop(0)
            os.killpg(cluster.workers[-2].pid, signal.SIGKILL)
            cluster.add_worker()

    run(cluster, people, target, at=kill)
    assert left == []
    is_whole(target)


def test_a_worker_is_killed_while_values_are_weighed(
    cluster: StandaloneCluster, spark: Any, related: str, target: Path
) -> None:
    """Levels add up in each bucket all the same."""
    left = ["learning how likely values are", "weighing values for each record"]

    def kill(step: str) -> None:
        if left and step == left[0]:
            left.pop(0)
            os.killpg(cluster.workers[-2].pid, signal.SIGKILL)
            cluster.add_worker()

    run(cluster, related, target, at=kill)
    assert left == []
    is_whole(target, data.related(N))
    checks = on_spark.verify(spark, str(target))
    assert any("weights of values" in check.check for check in checks)
    assert all(check.holds for check in checks)


@pytest.mark.long
def test_shuffle_files_are_deleted(
    cluster: StandaloneCluster, people: str, target: Path, tmp_path: Path
) -> None:
    """Records that were sent to a part are lost on the way, while other parts are dealt."""
    again = run(cluster, people, target, str(cluster.folder), at=str)
    assert (cluster.folder / "deleted").exists()
    assert again > 0
    is_whole(target)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """Mount a file system of some bytes."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        found = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if found.returncode:
        pytest.skip(f"no file system can be mounted here, which takes root: {found.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize(
    "moment", ["reading the source", "writing the sensitive table", "publishing"]
)
def test_a_full_target(spark: Any, people: str, tmp_path: Path, moment: str) -> None:
    """Whatever there is no room for any more, nothing remains."""
    disk = tmp_path / "disk"

    def fill(said: Any) -> None:
        if said.step == moment:
            with suppress(OSError), (disk / "filler").open("ab", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass

    with small_disk(disk, 8 << 20):
        with pytest.raises(ServerError, match="Spark has failed") as caught:
            on_spark.publish_buckets(
                spark, people, str(disk / "folder" / "people_b"), on_progress=fill, **data.ASKED
            )
        assert "disease" not in str(caught.value)
        assert [path for path in disk.rglob("*") if path.is_file()] == [disk / "filler"]
        assert sorted(path.name for path in disk.rglob("*") if path.is_dir()) in (
            ["folder"],
            ["folder", "releases"],
        )
