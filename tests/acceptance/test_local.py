"""``kanon local`` as people and programs use it."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.commands import KANON, installed_kanon, kanon


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of the caller's alone, which the server's OS user may not even be able to reach."""
    yield tmp_path / "cluster"
    kanon("local", "destroy", "--yes", "--dir", tmp_path / "cluster")


def destroy_on_a_terminal(folder: Path, answer: str) -> int:
    try:
        terminal, end = pty.openpty()
    except OSError:
        pytest.skip("the system has no pseudo-terminals")
    try:
        os.write(terminal, f"{answer}\n".encode())
        arguments = [KANON, "local", "destroy", "--dir", folder]
        return subprocess.run(arguments, stdin=end, capture_output=True).returncode
    finally:
        os.close(terminal)
        os.close(end)


@pytest.mark.long
def test_life_of_a_cluster(folder: Path) -> None:
    assert kanon("local", "status", "--json", "--dir", folder).json()["state"] == "absent"

    started = kanon("local", "start", "--json", "--dir", folder)
    assert list(started.json()) == ["dsn"]
    assert started.stdout.count("\n") == 1
    dsn = started.json()["dsn"]
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert kanon("local", "start", "--json", "--dir", folder).json() == {"dsn": dsn}
    assert f'psql "{dsn}"' in kanon("local", "start", "--dir", folder).stdout

    status = kanon("local", "status", "--json", "--dir", folder).json()
    assert status["state"] == "running"
    assert status["dsn"] == dsn
    assert Path(status["data_directory"], "PG_VERSION").exists()
    assert status["size_bytes"] > 1_000_000
    assert status["version"] in kanon("local", "status", "--dir", folder).stdout

    assert kanon("local", "stop", "--json", "--dir", folder).json() == {"stopped": True}
    assert kanon("local", "stop", "--json", "--dir", folder).json() == {"stopped": False}
    status = kanon("local", "status", "--json", "--dir", folder).json()
    assert (status["state"], status["dsn"]) == ("stopped", None)

    refused = kanon("local", "destroy", "--dir", folder)
    assert refused.returncode == 1
    assert "--yes" in refused.stderr
    assert kanon("local", "destroy", "--yes", "--dir", folder).returncode == 0
    assert not folder.exists()
    assert kanon("local", "destroy", "--yes", "--dir", folder).returncode == 0


@pytest.mark.long
def test_destroy_asks(folder: Path) -> None:
    kanon("local", "start", "--dir", folder)
    assert destroy_on_a_terminal(folder, "n") == 1
    assert kanon("local", "status", "--json", "--dir", folder).json()["state"] == "running"
    assert destroy_on_a_terminal(folder, "y") == 0
    assert not folder.exists()


def test_default_folder_lies_in_the_current_one(tmp_path: Path) -> None:
    status = kanon("local", "status", "--json", cwd=tmp_path).json()
    assert status["directory"] == str(tmp_path / ".kanon")


def test_refusal_for_people_and_programs(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    refused = kanon("local", "start", "--dir", tmp_path)
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert [line.split(":")[0] for line in refused.stderr.splitlines()] == [
        "error",
        "detail",
        "hint",
    ]

    refused = kanon("local", "start", "--json", "--dir", tmp_path)
    assert refused.returncode == 1
    assert refused.stderr == ""
    error = refused.json()["error"]
    assert set(error) == {"message", "detail", "hint", "sqlstate"}
    assert error["sqlstate"] == "KN004"


@pytest.mark.parametrize(
    "arguments",
    [["local"], ["local", "sart"], ["local", "start", "--port", "1"], ["publish", "buckets", "t"]],
)
def test_wrong_usage(arguments: list[str]) -> None:
    assert kanon(*arguments).returncode == 2


def test_wrong_usage_of_the_installed_command() -> None:
    assert installed_kanon("local", "sart").returncode == 2


def test_version() -> None:
    from kanon_db import __version__

    assert __version__ in installed_kanon("--version").stdout
    assert kanon("version", "--json").json() == {"version": __version__}
