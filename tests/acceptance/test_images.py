"""The images, as far as they can be tried without containers: their files, and what they run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
import yaml
from psycopg.conninfo import make_conninfo

from kanon_db.cluster._host import server_account
from tests.integration.parties import fetch, value
from tests.service import Jobs

DOCKER = Path(__file__).parents[2] / "docker"
ROOT = DOCKER.parent
TARGETS = ("server", "worker")


class Stage(NamedTuple):
    """A stage of a Dockerfile: what it is built from, and its instructions."""

    base: str
    steps: list[tuple[str, str]]

    def last(self, word: str) -> str:
        return [text for name, text in self.steps if name == word][-1]


def stages() -> dict[str, Stage]:
    text = re.sub(r"^\s*#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    found: dict[str, Stage] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found[name] = Stage(base, [])
        elif line:
            list(found.values())[-1].steps.append((word, rest))
    return found


def test_what_is_copied_is_there_and_not_ignored() -> None:
    kept = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    before: list[str] = []
    for name, stage in stages().items():
        assert stage.base in before or stage.base.startswith("debian:")
        for word, text in stage.steps:
            assert word in {"ENV", "RUN", "COPY", "USER", "WORKDIR", "VOLUME", "EXPOSE",
                            "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT"}, word  # fmt: skip
            if word == "COPY" and text.startswith("--from="):
                assert text.partition(" ")[0].removeprefix("--from=") in before
            elif word == "COPY":
                for source in text.split()[:-1]:
                    assert (ROOT / source).exists(), source
                    assert f"!{source}" in kept, source
        before.append(name)
    assert [line for line in kept if line[:1] == "!" and not (ROOT / line[1:]).exists()] == []
    assert list(stages())[-1] == "server"  # what is built where no target is named


@pytest.mark.parametrize("target", TARGETS)
def test_what_an_image_runs_is_in_it_and_is_no_superuser(target: str) -> None:
    stage = stages()[target]
    copied = {text.split()[-1]: text.split()[0] for word, text in stage.steps if word == "COPY"}
    assert stage.last("USER") not in ("root", "0")
    (entry,) = re.findall(r'^\["([\w-]+)"\]$', stage.last("ENTRYPOINT"))
    (health,) = re.findall(r'CMD \["([\w-]+)"', stage.last("HEALTHCHECK"))
    for command in (entry, health):
        source = copied.get(f"/usr/local/bin/{command}")
        if source is None:  # PostgreSQL's
            (folder, *_) = Path("/usr/lib/postgresql").glob("*/bin")
            assert (folder / command).exists()
            continue
        assert (ROOT / source).stat().st_mode & stat.S_IXOTH, source
        interpreter = (ROOT / source).read_text().splitlines()[0]
        assert interpreter in ("#!/usr/bin/env bash", "#!/opt/kanon_db/bin/python")
        if interpreter.endswith("bash"):
            subprocess.run(["bash", "-n", ROOT / source], check=True)


def test_the_images_have_the_extras() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    (named,) = re.findall(r'"\.\[([\w,]+)\]"', text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"models", "report", "parquet", "service"} == set(named.split(","))
    assert set(named.split(",")) <= known.keys()
    # Only the server's image has PostgreSQL: the worker's is not built from it.
    assert "postgresql" not in str((stages()["python"], stages()["worker"]))


def test_compose() -> None:
    """It names what is there, and no password."""
    text = (DOCKER / "compose.yaml").read_text()
    read = yaml.safe_load(text)
    assert read.keys() == {"services", "volumes"}
    services = read["services"]
    assert services.keys() == {"database", "worker"}
    for service in services.values():
        build = service["build"]
        assert (DOCKER / build["context"] / build["dockerfile"]).exists()
        assert build["target"] in TARGETS
        scripts = [(DOCKER / name).read_text() for name in ("entrypoint", "worker")]
        for name, given in service["environment"].items():
            assert any(name in script for script in scripts), name
            if name != "KANON_DSN":
                assert re.fullmatch(rf"\$\{{{name}:\?[^}}]+\}}", given)
        for volume in service.get("volumes", ()):
            name, _, folder = volume.partition(":")
            assert name in read["volumes"]
            assert stages()[build["target"]].last("VOLUME") == folder
    assert services["worker"]["depends_on"].keys() <= services.keys()
    assert "host=database " in services["worker"]["environment"]["KANON_DSN"]
    assert "password" not in services["worker"]["environment"]["KANON_DSN"]
    (port,) = services["database"]["ports"]
    assert port.startswith("127.0.0.1:")
    assert port.endswith(":" + stages()["server"].last("EXPOSE"))


# -- what the images run ---------------------------------------------------------------------------

KEY = "0123456789abcdef" * 4
PASSWORDS = {
    "KANON_WORKER_KEY": KEY,
    "KANON_ADMINISTRATOR_PASSWORD": 'it\'s "A" $HOME',
    "KANON_PUBLISHER_PASSWORD": "p\\ublish",
}

INSIDE = {"KANON_PASSWORD": "of postgres", "KANON_ANALYST_PASSWORD": "of analyst"}


class Container:
    """The scripts of the images, as the server's user, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])
        self.running: list[subprocess.Popen[bytes]] = []

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        account = server_account()
        is_root = os.geteuid() == 0
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [DOCKER / script, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, user=account.pw_uid if is_root else None,
                group=account.pw_gid if is_root else None, extra_groups=[] if is_root else None,
                env={
                    "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
                    "HOME": str(self.folder), "KANON_HOME": str(self.folder), **environment,
                },
            )  # fmt: skip
        self.running.append(process)
        return process

    def serve(self, **environment: str) -> subprocess.Popen[bytes]:
        """Start the server, and wait until it is healthy, as the image says."""
        server = self.run(
            "entrypoint", "-c", f"port={self.port}", "-c", f"unix_socket_directories={self.folder}",
            "-c", "fsync=off", **environment,
        )  # fmt: skip
        (ready, *_) = Path("/usr/lib/postgresql").glob("*/bin/pg_isready")
        asked = [ready, "--quiet", "--host=127.0.0.1", f"--port={self.port}", "--username=postgres"]
        until = time.monotonic() + 300
        while subprocess.run(asked).returncode:
            assert server.poll() is None, self.said()
            assert time.monotonic() < until, self.said()
            time.sleep(0.2)
        return server

    def said(self) -> str:
        return self.log.read_text()

    def dsn(self, user: str, password: str) -> str:
        return make_conninfo(
            host="127.0.0.1", port=self.port, dbname="kanon", user=user, password=password
        )

    def connect(self, user: str, password: str) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn(user, password), autocommit=True, prepare_threshold=None)

    def stop(self, process: subprocess.Popen[bytes], how: int) -> int:
        process.send_signal(how)
        return process.wait(120)


@contextlib.contextmanager
def container() -> Iterator[Container]:
    """Not below pytest's folders, which are closed to the server's user."""
    folder = Path(tempfile.gettempdir(), f"kanon-image-{uuid.uuid4().hex[:12]}")
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(folder, server_account().pw_uid, server_account().pw_gid)
    made = Container(folder)
    try:
        yield made
    finally:
        for process in reversed(made.running):
            if process.poll() is None:
                made.stop(process, signal.SIGINT)
        shutil.rmtree(folder)


def environment_of(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/environ").read_text()


@pytest.mark.long
def test_a_server_with_a_worker_and_three_users() -> None:
    """As compose.yaml has them; passwords come from the environment or from files."""
    with container() as made:
        secret = made.folder / "analyst"
        secret.write_text("from a file\n")
        secret.chmod(0o644)
        given: Mapping[str, str] = PASSWORDS | {"KANON_ANALYST_PASSWORD_FILE": str(secret)}
        server = made.serve(**given)
        worker_of = {"KANON_DSN": f"host=127.0.0.1 port={made.port} dbname=kanon"}
        health = [sys.executable, str(DOCKER / "worker-health")]
        environment = {**os.environ, **worker_of, "KANON_HOME": str(made.folder)}
        worker = made.run("worker", "--grace=5", KANON_WORKER_KEY=KEY, **worker_of)
        until = time.monotonic() + 60
        while subprocess.run(health, env=environment, capture_output=True).returncode:
            assert worker.poll() is None, made.said()
            assert time.monotonic() < until, made.said()
            time.sleep(0.5)
        # No secret stays where others see it.
        for process in (server, worker):
            assert not [text for text in PASSWORDS.values() if text in environment_of(process)]
        assert (made.folder / "worker.key").stat().st_mode & 0o077 == 0
        assert not [text for text in (*PASSWORDS.values(), "from a file") if text in made.said()]

        with made.connect("publisher", PASSWORDS["KANON_PUBLISHER_PASSWORD"]) as publisher:
            fetch(
                publisher,
                "CREATE TABLE publisher.people AS"
                " SELECT i % 30 AS age, 'ill ' || i % 4 AS sick FROM generate_series(1, 300) AS i",
            )
            own = Jobs(publisher)
            own.register("publisher.people", ["age"], "sick")
            own.publish("publisher.people", "people_b", privacy='{"l": 3}')
        with made.connect("analyst", "from a file") as analyst:
            count = "SELECT count(*) FROM people_b WHERE age < 10"
            assert Jobs(analyst).rows("estimate_count", count)[0]["estimate"] == 100
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                fetch(analyst, "TABLE publisher.people")
        password = PASSWORDS["KANON_ADMINISTRATOR_PASSWORD"]
        with made.connect("administrator", password) as administrator:
            assert not value(
                administrator, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
            )
            assert value(administrator, "SELECT count(*) FROM kanon.workers") == 1
        # Nobody is a superuser from outside.
        with pytest.raises(psycopg.OperationalError):
            made.connect("postgres", "")
        assert made.stop(worker, signal.SIGTERM) == 0
        assert subprocess.run(health, env=environment, capture_output=True).returncode == 1
        assert made.stop(server, signal.SIGINT) == 0

        # Started again: what was published is there, and a new password holds.
        made.serve(**given | {"KANON_PASSWORD": "now there is one"})
        with made.connect("postgres", "now there is one") as superuser:
            assert value(superuser, "SELECT count(*) FROM kanon.publications") == 1
        kanon = Path(sys.executable).with_name("kanon")
        found = [kanon, "doctor", "--dsn", made.dsn("administrator", password)]
        shown = subprocess.run(found, capture_output=True, text=True)
        assert shown.returncode == 0, shown.stdout


@pytest.mark.long
def test_a_server_that_runs_operations_itself() -> None:
    """As `docker run` of the image alone has it."""
    with container() as made:
        refused = made.run("entrypoint")
        assert refused.wait(60) != 0
        assert "set it to the password for the superuser postgres" in made.said()
        made.serve(**INSIDE)
        with made.connect("postgres", "of postgres") as superuser:
            assert value(superuser, "SELECT kanon.version()")
            assert not fetch(superuser, "SELECT FROM pg_roles WHERE rolname = 'publisher'")
        with made.connect("analyst", "of analyst") as analyst:
            assert fetch(analyst, "TABLE kanon.publications") == []


def test_a_worker_says_what_it_lacks() -> None:
    with container() as made:
        assert made.run("worker").wait(60) != 0
        assert made.run("worker", KANON_DSN="host=x").wait(60) != 0
        assert "set it to host=" in made.said()
        assert "set it to the key that the server has" in made.said()
