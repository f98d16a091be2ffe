"""The commands ``kanon spark``, as a script runs them.

They run in a process of their own, one after the other: each opens and ends a session of Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kanon_db.spark.environment import why_unavailable
from tests.acceptance.commands import kanon
from tests.spark import data

ROLES = ["--quasi-identifiers", "age,sex", "--sensitive", "disease", "--assignment", "random"]
SEVERAL = """
import dataclasses, json, sys
from tests.acceptance.commands import kanon
answers = [dataclasses.asdict(kanon(*command)) for command in json.loads(sys.argv[1])]
print("answers: " + json.dumps(answers))
"""


def run(*commands: list[str]) -> list[dict[str, Any]]:
    """Run several commands in one process; what each printed, and its exit code."""
    master = ["--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=1"]
    given = json.dumps([["spark", *command, *master] for command in commands])
    done = subprocess.run(  # our own Python
        [sys.executable, "-c", SEVERAL, given],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("answers: ")]
    found: list[dict[str, Any]] = json.loads(line.removeprefix("answers: "))
    return found


@pytest.mark.long
def test_from_parquet_to_answers(tmp_path: Path, module_database: str) -> None:
    if reason := why_unavailable():
        pytest.skip(f"Spark cannot be run here: {reason}")
    people = tmp_path / "people"
    people.mkdir()
    data.write(people, 400)
    target = str(tmp_path / "published" / "people_b")
    publish = ["publish", "buckets", "--source", str(people), "--target", target, *ROLES]
    privacy = ["--privacy", json.dumps(data.THETA)]
    published, again, verified, measured, counted, refused, listed, loaded, played, compared = run(
        [*publish, *privacy, "--json"],
        [*publish, *privacy],
        ["verify", target],
        ["metrics", target, "--json"],
        ["estimate", target, "SELECT count(*) FROM people_b WHERE age < 40", "--json"],
        ["estimate", target, "SELECT age FROM people_b", "--json"],
        ["releases", str(tmp_path / "published"), "--json"],
        ["load", target, "--dsn", module_database, "--source-name", "people", "--json"],
        ["attack", target, "--source", str(people), "--json"],
        ["evaluate-counts", target, "--source", str(people), "--queries", "50", "--json"],
    )
    assert json.loads(published["stdout"])["records"] == 400, published
    assert again["returncode"] == 1
    assert "a publication of this name exists" in again["stderr"]
    assert verified["returncode"] == 0
    assert "yes" in verified["stdout"] or "True" in verified["stdout"]
    assert json.loads(measured["stdout"])["metrics"]["records"] == 400
    (row,) = json.loads(counted["stdout"])["rows"]
    ages = data.table(400)["age"].to_pylist()
    assert row["estimate"] == row["lower_bound"] == sum(age < 40 for age in ages)
    assert refused["returncode"] == 1
    assert json.loads(refused["stdout"])["error"]["sqlstate"]
    (release,) = json.loads(listed["stdout"])["releases"]
    assert release["name"] == "people_b"
    assert json.loads(loaded["stdout"])["name"] == "people_b", loaded
    assert kanon("verify", "people_b", "--dsn", module_database).returncode == 0
    attacks = {one["attack"]: one for one in json.loads(played["stdout"])["attacks"]}
    assert attacks["homogeneity"]["people"] == 400
    assert json.loads(compared["stdout"])["accuracy"][-1]["n_queries"] == 50


@pytest.mark.long
def test_rows_are_attacked_and_evaluated(tmp_path: Path) -> None:
    if reason := why_unavailable():
        pytest.skip(f"Spark cannot be run here: {reason}")
    people = tmp_path / "people"
    people.mkdir()
    data.write(people, 400)
    target = str(tmp_path / "published" / "people_s")
    source = ["--source", str(people)]
    published, played, compared = run(
        ["publish", "suppressed", *source, "--target", target, "--quasi-identifiers", "age,sex",
         "--sensitive", "disease", "--k", "5", "--json"],
        ["attack", target, *source, "--json"],
        ["evaluate-counts", target, *source, "--queries", "50", "--seed", "1", "--json"],
    )  # fmt: skip
    assert published["returncode"] == 0, published
    attacks = {one["attack"]: one for one in json.loads(played["stdout"])["attacks"]}
    assert attacks["linking a row"]["people"] == 400
    assert attacks["linking a row"]["rate"] <= attacks["linking a row"]["bound"] == 1 / 5
    assert json.loads(compared["stdout"])["accuracy"][-1]["n_queries"] == 50


def test_without_java_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = kanon("spark", "verify", str(tmp_path / "x"))
    assert answer.returncode == 1
    assert "Spark cannot be run here" in answer.stderr
    assert "kanon_db[spark]" in answer.stderr


def test_what_the_command_line_refuses(tmp_path: Path) -> None:
    assert kanon("spark", "attack", "x", "--source", "jdbc:postgresql://h/d").returncode == 2
    assert kanon("spark", "verify", "x", "--conf", "spark.ui.enabled").returncode == 2
    unknown = kanon("spark", "publish", "buckets", "--target", "x", "--source", "y")
    assert unknown.returncode == 2
    assert "--quasi-identifiers" in unknown.stderr
