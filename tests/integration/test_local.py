"""Private clusters, on real servers."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from kanon_db.cluster import _host
from kanon_db.cluster.cluster_folder import TEMPORARY
from kanon_db.cluster.local_cluster import LocalCluster
from kanon_db.errors import ServerError
from tests.clusters import cluster_folder

KANON = Path(sys.executable).with_name("kanon")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts servers as others")


def fetch(dsn: str, query: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def postmaster(cluster: LocalCluster) -> int:
    data = cluster.status().data_directory
    assert data is not None
    return int((data / "postmaster.pid").read_text().splitlines()[0])


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("waited in vain")


@pytest.fixture(scope="module")
def folders() -> Iterator[Callable[..., Path]]:
    """Folders that the server's OS user can reach, whose clusters go in the end."""
    with contextlib.ExitStack() as cleanup:
        yield lambda *below: cleanup.enter_context(cluster_folder(*below))


@pytest.fixture(scope="module")
def cluster(folders: Callable[..., Path]) -> LocalCluster:
    """One running cluster for the tests that leave it as it was."""
    cluster = LocalCluster(folders())
    cluster.start()
    return cluster


SETTINGS = {
    "listen_addresses": "", "server_encoding": "UTF8", "data_checksums": "on", "fsync": "on",
    "synchronous_commit": "on", "wal_level": "minimal", "jit": "off", "TimeZone": "UTC",
    "shared_preload_libraries": "", "log_error_verbosity": "terse",
    "log_min_error_statement": "panic", "is_superuser": "on",
}  # fmt: skip


@pytest.mark.long
def test_settings(cluster: LocalCluster) -> None:
    dsn = cluster.dsn()
    for setting, expected in SETTINGS.items():
        assert fetch(dsn, f"SELECT current_setting('{setting}')") == expected, setting
    assert fetch(dsn, "SELECT current_database() || ' ' || current_user") == "kanon postgres"
    assert fetch(dsn, "SELECT datcollate FROM pg_database WHERE datname = 'kanon'") == "C.UTF-8"
    assert Path("/proc", str(postmaster(cluster))).stat().st_uid != 0


@pytest.mark.pitfall(10)
def test_log_holds_no_data(cluster: LocalCluster) -> None:
    """Failed statements of anybody's leave no value in the log of a private cluster."""
    with psycopg.connect(cluster.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TEMP TABLE t (v text PRIMARY KEY)")
        for statement in (
            "SELECT 'canary_text'::int",
            "INSERT INTO t VALUES ('canary_row'), ('canary_row')",
            "DO $$ BEGIN RAISE EXCEPTION 'canary_raised'; END $$",
        ):
            with pytest.raises(psycopg.Error):
                connection.execute(statement)
    assert "canary" not in (cluster.directory / "server.log").read_text()


@pytest.mark.long
def test_stop_and_start_keep_data(cluster: LocalCluster, folders: Callable[..., Path]) -> None:
    other = LocalCluster(folders())
    with psycopg.connect(other.start(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        identifier = "SELECT system_identifier FROM pg_control_system()"
        assert fetch(other.dsn(), identifier) != fetch(cluster.dsn(), identifier)
        # A session in use does not keep the server from stopping.
        assert other.stop()
    assert cluster.status().state == "running"
    assert other.status().state == "stopped"
    assert not other.stop()
    with pytest.raises(ServerError) as caught:
        other.dsn()
    assert "kanon local start" in caught.value.hint
    assert fetch(other.start(), "SELECT answer FROM kept") == 42


@pytest.mark.long
def test_stop_does_not_wait_for_a_deaf_backend(
    folders: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalCluster(folders())
    dsn = cluster.start()
    monkeypatch.setattr("kanon_db.cluster._postmaster.STOP_TIMEOUT", 1)
    with contextlib.closing(psycopg.connect(dsn, autocommit=True)) as connection:
        connection.execute("CREATE EXTENSION plpython3u")
        connection.pgconn.send_query(b"DO $$ while True: pass $$ LANGUAGE plpython3u")
        assert cluster.stop()
    assert cluster.status().state == "stopped"
    assert fetch(cluster.start(), "SELECT 1") == 1


@pytest.mark.long
def test_start_after_kill_with_a_backend_that_does_not_notice(
    folders: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalCluster(folders())
    dsn = cluster.start()
    monkeypatch.setattr("kanon_db.cluster._postmaster.ORPHAN_GRACE", 0.5)
    with contextlib.closing(psycopg.connect(dsn, autocommit=True)) as connection:
        connection.execute("CREATE EXTENSION plpython3u")
        backend = connection.info.backend_pid
        connection.pgconn.send_query(b"DO $$ while True: pass $$ LANGUAGE plpython3u")
        os.kill(postmaster(cluster), signal.SIGKILL)
        assert fetch(cluster.start(), "SELECT 1") == 1
        # Gone, or not reaped yet.
        command = Path("/proc", str(backend), "cmdline")
        assert not command.exists() or not command.read_bytes()


@pytest.mark.long
def test_start_after_reboot_that_reused_the_process_number(folders: Callable[..., Path]) -> None:
    cluster = LocalCluster(folders())
    cluster.start()
    lock = cluster.directory / "data" / "postmaster.pid"
    text = lock.read_text()
    owner = lock.stat()
    cluster.stop()
    # Of the server's own OS user, whose processes PostgreSQL takes for the lock's holder.
    with subprocess.Popen(
        ["sleep", "600"], user=owner.st_uid if os.geteuid() == 0 else None
    ) as other:
        lock.write_text(f"{other.pid}\n" + text.partition("\n")[2])
        os.chown(lock, owner.st_uid, owner.st_gid)
        lock.chmod(0o600)
        try:
            assert fetch(cluster.start(), "SELECT 1") == 1
            assert other.poll() is None
        finally:
            other.kill()


@pytest.mark.long
def test_interrupted_first_start_is_repeated(folders: Callable[..., Path]) -> None:
    cluster = LocalCluster(folders())
    unfinished = cluster.directory / "data.new"
    with subprocess.Popen([KANON, "local", "start", "--dir", cluster.directory]) as starter:
        wait_until(unfinished.exists)
        starter.kill()
    assert not (cluster.directory / "data").exists()
    assert fetch(cluster.start(), "SELECT current_database()") == "kanon"
    assert not unfinished.exists()


@pytest.mark.long
def test_concurrent_starts_make_one_cluster(folders: Callable[..., Path]) -> None:
    cluster = LocalCluster(folders())
    starters = [
        subprocess.Popen(
            [KANON, "local", "start", "--dir", cluster.directory, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    said = [starter.communicate() for starter in starters]
    assert [starter.returncode for starter in starters] == [0, 0, 0], said
    assert {json.loads(answer)["dsn"] for answer, _ in said} == {cluster.dsn()}


@pytest.mark.long
def test_path_too_long_for_a_socket(folders: Callable[..., Path]) -> None:
    cluster = LocalCluster(folders("deep" * 20, "deeper" * 10))
    dsn = cluster.start()
    socket = Path(str(psycopg.conninfo.conninfo_to_dict(dsn)["host"]))
    assert socket.parent == TEMPORARY
    assert socket.stat().st_mode & 0o777 == 0o700
    cluster.stop()
    assert cluster.start() == dsn
    cluster.stop()
    shutil.rmtree(socket)  # as a reboot does
    again = cluster.start()
    assert again != dsn
    assert fetch(again, "SELECT 1") == 1
    socket = Path(str(psycopg.conninfo.conninfo_to_dict(again)["host"]))
    cluster.destroy()
    assert not socket.exists()


@pytest.mark.long
def test_socket_lost_while_running(folders: Callable[..., Path]) -> None:
    cluster = LocalCluster(folders())
    cluster.start()
    (cluster.directory / "socket" / ".s.PGSQL.5432").unlink()
    assert cluster.status().state == "stopped"
    assert fetch(cluster.start(), "SELECT 1") == 1


@pytest.mark.long
def test_hostile_folder_name(folders: Callable[..., Path]) -> None:
    cluster = LocalCluster(folders("a\"b'c,$(touch broken)`touch broken` \\ %s"))
    dsn = cluster.start()
    assert fetch(dsn, "SELECT current_setting('data_directory')") == str(cluster.directory / "data")
    assert not list(cluster.directory.parent.rglob("broken"))


def test_a_folder_name_with_a_line_break(tmp_path: Path) -> None:
    """PostgreSQL starts there, and is not found again."""
    cluster = LocalCluster(tmp_path / "a\nb")
    with pytest.raises(ServerError, match="has a line break"):
        cluster.start()
    assert not cluster.directory.exists()


@pytest.mark.long
def test_destroy_leaves_what_it_did_not_make(folders: Callable[..., Path]) -> None:
    cluster = LocalCluster(folders())
    cluster.start()
    note = cluster.directory / "note.txt"
    note.write_text("mine")
    assert cluster.destroy()
    assert [note] == list(cluster.directory.iterdir())
    assert cluster.status().state == "absent"
    note.unlink()


def refused(folder: Path, match: str) -> None:
    """Neither starting nor destroying touches what is in a folder."""
    before = {path.name: path.read_text() for path in folder.iterdir()}
    if "cluster.json" in before:
        before["lock"] = ""
    for action in (LocalCluster(folder).start, LocalCluster(folder).destroy):
        with pytest.raises(ServerError, match=match) as caught:
            action()
        assert caught.value.hint
    assert {path.name: path.read_text() for path in folder.iterdir()} == before


@pytest.mark.long
def test_folder_not_of_our_making(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    refused(tmp_path, "contains no private cluster")
    for state in (
        "not json",
        "[]",
        "{}",
        '{"home": "/etc", "socket": "socket", "account": "postgres"}',
        '{"home": ".", "socket": "/etc", "account": "postgres"}',
        '{"home": ".", "socket": "/tmp/kanon-x/../../etc", "account": "postgres"}',
    ):
        (tmp_path / "cluster.json").write_text(state)
        refused(tmp_path, "state file is malformed")


@pytest.mark.long
def test_absent_cluster(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "absent")
    assert cluster.status().state == "absent"
    assert not cluster.stop()
    assert not cluster.destroy()
    assert not cluster.directory.exists()


@pytest.mark.long
@as_root
def test_folder_that_the_server_cannot_reach(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    cluster = LocalCluster(closed / "cluster")
    try:
        dsn = cluster.start()
        data = cluster.status().data_directory
        assert data is not None
        assert data.parent.parent == Path("/var/lib/kanon_db")
        state = json.loads((cluster.directory / "cluster.json").read_text())
        assert state["home"] == str(data.parent)
        assert closed.stat().st_mode & 0o777 == 0o700
        # The cluster is known by its folder's name, even if the folder was removed by hand.
        shutil.rmtree(cluster.directory)
        assert cluster.status().state == "running"
        assert cluster.start() == dsn
    finally:
        cluster.destroy()
    assert not data.parent.exists()
    assert not cluster.directory.exists()


@pytest.mark.long
@as_root
def test_ordinary_user_runs_the_server_as_themselves(folders: Callable[..., Path]) -> None:
    nobody = pwd.getpwnam("nobody")
    if not _host.can_enter(nobody, KANON.parent):
        pytest.skip("the environment is closed to other OS users")
    home = folders()
    home.mkdir()
    os.chown(home, nobody.pw_uid, nobody.pw_gid)

    def kanon(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [KANON, "local", *arguments, "--dir", home / "cluster"],
            user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], cwd="/",
            capture_output=True, text=True,
        )  # fmt: skip

    started = kanon("start", "--json")
    assert started.returncode == 0, started.stderr
    lock = home / "cluster" / "data" / "postmaster.pid"
    process = lock.read_text().splitlines()[0]
    assert Path("/proc", process).stat().st_uid == nobody.pw_uid
    with pytest.raises(ServerError, match="belongs to another user"):
        LocalCluster(home / "cluster").stop()
    assert kanon("destroy", "--yes").returncode == 0
    assert not (home / "cluster").exists()
    os.chown(home, 0, 0)  # or else root refuses to look for a cluster there


@pytest.mark.long
def test_what_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pg_config = tmp_path / "pg_config"
    pg_config.write_text(f"#!/bin/sh\necho {tmp_path}\necho {tmp_path}\n")
    pg_config.chmod(0o755)

    def start_without_postgresql() -> None:
        monkeypatch.setattr(_host, "DEBIAN_ROOT", tmp_path)
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
        LocalCluster(tmp_path / "cluster").start()

    find = lambda: _host.find_programs(7)
    require = _host.ServerPrograms(tmp_path, 17).require_plpython
    for action, said, hint in (
        (find, "postgresql 7 is missing", "apt-get install postgresql-7 postgresql-plpython3-7"),
        (require, "pl/python is not installed", "install postgresql-17 postgresql-plpython3-17"),
        (start_without_postgresql, "postgresql is not installed", "postgresql-plpython3"),
    ):
        with pytest.raises(ServerError, match=said) as caught:
            action()
        assert hint in caught.value.hint
