"""A private PostgreSQL cluster in a folder: ``kanon local``."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kanon_db.cluster import host
from kanon_db.cluster.local_folder import (
    CONFIGURATION,
    DATA,
    DATABASE,
    LOG,
    NEW,
    SOCKET_NAME,
    SUPERUSER,
    ClusterFolder,
    Places,
    give,
    make_private,
    replace_file,
)
from kanon_db.cluster.local_settings import configuration, settings
from kanon_db.errors import ServerError

DEFAULT_DIRECTORY = Path(".kanon")

START_TIMEOUT = 600
"""Seconds to wait for a start; long, since a start may have to recover from a crash."""

STOP_TIMEOUT = 30
"""Seconds to wait for running statements to end before the server is stopped at once."""

DATA_LOCK, SOCKET_LOCK = "postmaster.pid", f"{SOCKET_NAME}.lock"

ANSWER_TIMEOUT = 10.0
"""Seconds that a server gets to answer."""

SSL_REQUEST = bytes.fromhex("0000000804d2162f")
"""The protocol's shortest question: encryption? Any answer comes from a living server."""

ORPHAN_GRACE = 5.0
"""Seconds that backends get to notice the death of their server."""

LOG_LIMIT = 1 << 20
"""Size in bytes beyond which a start begins a new log."""


@dataclass(frozen=True)
class ClusterStatus:
    """What is known of a private cluster.

    Parameters
    ----------
    state : {"running", "stopped", "absent"}
        Whether it answers, exists, or neither.
    directory : Path
        Its folder.
    data_directory : Path or None
        PostgreSQL's data directory.
    version : str or None
        Version of the server, or only the major one if its programs are gone.
    size_bytes : int or None
        Disk space of the data directory.
    dsn : str or None
        Connection string of the superuser, while it runs.
    """

    state: Literal["running", "stopped", "absent"]
    directory: Path
    data_directory: Path | None = None
    version: str | None = None
    size_bytes: int | None = None
    dsn: str | None = None


class LocalCluster:
    """A private PostgreSQL cluster, reached through a Unix socket by its owner alone.

    The server runs as the caller or, started by root, as an unprivileged OS user; to both it is
    open without a password. It holds one database, ``kanon``.

    Parameters
    ----------
    directory : Path
        The cluster's folder, made at the first start. When root starts a cluster in a folder that
        the server's OS user cannot reach, the data live under ``/var/lib/kanon_db`` and the
        folder holds only ``cluster.json``, which says where.
    """

    def __init__(self, directory: Path = DEFAULT_DIRECTORY) -> None:
        self._folder = ClusterFolder(directory)
        # Shows in the command line of every process of the server, and so finds them again.
        self._name = f"kanon_{self._folder.digest}"

    @property
    def directory(self) -> Path:
        """The cluster's folder."""
        return self._folder.path

    def start(self) -> str:
        """Start the cluster, making it if it does not exist; a running one is left alone.

        Returns
        -------
        str
            Connection string of the superuser ``postgres`` in database ``kanon``.

        Raises
        ------
        ServerError
            PostgreSQL or its PL/Python is not installed, the folder holds something else or
            belongs to another user, or the server does not start.
        """
        if not Path("/proc/self").exists():
            raise ServerError(
                "private clusters need linux and its /proc",
                detail=f"this system is {sys.platform}",
                hint="mount /proc, or use a server of your own: --dsn or KANON_DSN",
            )
        with self._folder.locked() as lock:
            found = self._folder.find()
            if found and _answers(found):
                return found.dsn
            account = self._account(found)
            programs = host.find_programs(_major(found.data) if found else None)
            programs.require_plpython()
            if found:
                self._clear_remains(found)
            places = self._folder.prepare(account)
            chosen = settings(host.memory(), host.shared_memory(), str(places.socket))
            replace_file(places.home / CONFIGURATION, configuration(chosen))
            if not places.data.exists():
                _initialize(places.home, account, programs, lock)
            self._launch(places.home, account, programs)
            return places.dsn

    def stop(self) -> bool:
        """Stop the server; statements still running after 30 seconds are ended.

        Returns
        -------
        bool
            Whether it was running.

        Raises
        ------
        ServerError
            It cannot be stopped, or belongs to another user.
        """
        if self._folder.find() is None:
            return False
        with self._folder.locked():
            found = self._folder.find()
            return found is not None and self._halt(found, "fast")

    def status(self) -> ClusterStatus:
        """Tell whether the cluster runs, its version, places and size.

        Returns
        -------
        ClusterStatus
            As found now.

        Raises
        ------
        ServerError
            It belongs to another user.
        """
        found = self._folder.find()
        if found is None:
            return ClusterStatus("absent", self.directory)
        running = _answers(found)
        major = _major(found.data)
        try:
            version = host.find_programs(major).version() if major else None
        except ServerError:
            version = str(major)
        return ClusterStatus(
            "running" if running else "stopped",
            self.directory,
            data_directory=found.data,
            version=version,
            size_bytes=_size(found.data),
            dsn=found.dsn if running else None,
        )

    def dsn(self) -> str:
        """Give the connection string of the running cluster.

        Returns
        -------
        str
            Of the superuser ``postgres`` in database ``kanon``.

        Raises
        ------
        ServerError
            It is not running, or belongs to another user.
        """
        found = self._folder.find()
        if found is None or not _answers(found):
            raise ServerError(
                "the private cluster is not running",
                detail=f"directory {self.directory}",
                hint="kanon local start, or name another server with --dsn or KANON_DSN",
            )
        return found.dsn

    def destroy(self) -> bool:
        """Stop the server and remove the cluster with all its data.

        Whatever else lies in the folder stays; the folder goes if that leaves it empty.

        Returns
        -------
        bool
            Whether there was a cluster.

        Raises
        ------
        ServerError
            The folder holds something that is no cluster, or belongs to another user.
        """
        if self._folder.find() is None:
            self._folder.refuse_foreign()
            return False
        with self._folder.locked():
            found = self._folder.find()
            if found is None:
                return False
            self._halt(found, "immediate")
            self._folder.remove(found)
            return True

    def _account(self, found: Places | None) -> pwd.struct_passwd:
        """OS user of an existing cluster, or of one to be made."""
        if found is None or os.geteuid() != 0:
            return host.server_account()
        if account := host.find_account(found.account):
            return account
        raise ServerError(
            "the private cluster's os user no longer exists",
            detail=f"user {found.account}, directory {self.directory}",
            hint="make the user again, or remove the cluster: kanon local destroy",
        )

    def _processes(self, account: str) -> list[int]:
        """Find the processes of this cluster's server: the postmaster and its children."""
        owner = host.find_account(account)
        mark = re.compile(rf"\b{self._name}\b".encode())
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                # World-readable, unlike the links to the program and its working directory, which
                # root in a container may not read.
                command = (entry / "cmdline").read_bytes()
                user = entry.stat().st_uid
            except OSError:
                continue  # ended meanwhile
            program = os.fsdecode(command.split(b"\0")[0]).partition(":")[0]
            if (
                owner is not None
                and user == owner.pw_uid
                and Path(program).name == "postgres"
                and mark.search(command)
            ):
                found.append(int(entry.name))
        return found

    def _clear_remains(self, found: Places) -> None:
        """Remove what a crash or a reboot left."""
        # A server may still be alive, though its socket is gone: removed from /tmp, say.
        self._halt(found, "fast")
        for lock in (found.data / DATA_LOCK, found.socket / SOCKET_LOCK):
            holder = _lock_holder(lock)
            if holder is not None and Path("/proc", str(holder)).exists():
                # PostgreSQL itself overcomes the lock file of a dead process, but not one whose
                # number another process got after a reboot, or keeps while nobody reaps it.
                lock.unlink()

    def _launch(
        self, home: Path, account: pwd.struct_passwd, programs: host.ServerPrograms
    ) -> None:
        log = home / LOG
        if log.exists() and log.stat().st_size > LOG_LIMIT:
            log.unlink()
        log.touch(0o600)
        give(log, account)
        before = log.stat().st_size
        # pg_ctl hands its arguments to a shell: the data directory's name, which may hold any
        # character, travels in the environment, and the log's is relative.
        answer = host.run(
            [programs.path("pg_ctl"), "start", "--silent", "--wait", f"--timeout={START_TIMEOUT}",
             f"--log={LOG}", f"--options=-c cluster_name={self._name}"],
            account=account,
            cwd=home,
            environment={"PGDATA": str(home / DATA)},
            check=False,
        )  # fmt: skip
        if answer.returncode != 0:
            reasons = re.findall(r"FATAL:.*", log.read_bytes()[before:].decode(errors="replace"))
            raise ServerError(
                "the private cluster did not start",
                detail=reasons[-1] if reasons else answer.stderr.strip(),
                hint=f"see {log}",
            )

    def _halt(self, found: Places, mode: Literal["fast", "immediate"]) -> bool:
        """Stop the server and whatever is left of it; whether there was anything."""
        processes = self._processes(found.account)
        if _lock_holder(found.data / DATA_LOCK) in processes:
            account = self._account(found)
            programs = host.find_programs(_major(found.data))
            # A backend deep in a computation does not hear a fast shutdown; an immediate one kills
            # it, and the next start replays the log.
            if mode == "immediate" or not _pg_ctl_stop(found, account, programs, "fast"):
                _pg_ctl_stop(found, account, programs, "immediate")
        elif _answers(found):
            raise ServerError(
                "the private cluster's directory was moved while it runs",
                detail=f"directory {self.directory}",
                hint="move it back and stop the cluster first",
            )
        self._end_orphans(found.account)
        return bool(processes)

    def _end_orphans(self, account: str) -> None:
        """End backends that outlive their server, deaf in a long computation."""
        deadline = time.monotonic() + ORPHAN_GRACE
        while processes := self._processes(account):
            if time.monotonic() > deadline:
                for process in processes:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
            time.sleep(0.02)


def _initialize(
    home: Path, account: pwd.struct_passwd, programs: host.ServerPrograms, lock: int
) -> None:
    """Make the data directory under another name, so that a half-made one is never taken for it.

    Outliving a killed caller, the programs keep the lock: nobody clears the directory under them.
    """
    unfinished = home / (DATA + NEW)
    if unfinished.exists():
        shutil.rmtree(unfinished)
    make_private(unfinished, account)
    environment = {"PGDATA": str(unfinished)}
    host.run(
        [programs.path("initdb"), f"--username={SUPERUSER}", "--auth-local=trust",
         "--auth-host=reject", "--encoding=UTF8", "--locale=C.UTF-8", "--data-checksums",
         "--no-instructions"],
        account=account,
        cwd=home,
        keep_open=[lock],
        environment=environment,
    )  # fmt: skip
    host.run(
        ["/usr/bin/tee", "--append", f"{unfinished.name}/postgresql.conf"],
        account=account,
        cwd=home,
        keep_open=[lock],
        stdin=f"include '../{CONFIGURATION}'\n",
    )
    host.run(
        [programs.path("postgres"), "--single", "-c", "exit_on_error=on", "postgres"],
        account=account,
        cwd=home,
        keep_open=[lock],
        environment=environment,
        stdin=f"CREATE DATABASE {DATABASE} TEMPLATE template0\n",
    )
    unfinished.rename(home / DATA)


def _pg_ctl_stop(
    found: Places,
    account: pwd.struct_passwd,
    programs: host.ServerPrograms,
    mode: Literal["fast", "immediate"],
) -> bool:
    answer = host.run(
        [programs.path("pg_ctl"), "stop", "--silent", "--wait", f"--mode={mode}",
         f"--timeout={STOP_TIMEOUT}"],
        account=account,
        cwd=found.home,
        environment={"PGDATA": str(found.data)},
        check=mode == "immediate",
    )  # fmt: skip
    return answer.returncode == 0


def _answers(places: Places) -> bool:
    """Whether a server listens on the cluster's own socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(ANSWER_TIMEOUT)
        try:
            client.connect(str(places.socket / SOCKET_NAME))
            # The system completes connections to a server that is just dying, too: ask something.
            client.sendall(SSL_REQUEST)
            return client.recv(1) != b""
        except OSError:
            return False


def _lock_holder(lock: Path) -> int | None:
    """Process number in a server's lock file."""
    try:
        first = lock.read_text().partition("\n")[0].strip()
    except FileNotFoundError:
        return None
    return int(first) if first.isdecimal() else None


def _major(data: Path) -> int | None:
    """Major version of an existing data directory."""
    try:
        return int((data / "PG_VERSION").read_text())
    except FileNotFoundError:
        return None


def _size(data: Path) -> int:
    """Disk space of a directory, in bytes; files may come and go meanwhile."""
    total = 0
    for folder, _, names in os.walk(data):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(Path(folder, name)).st_blocks * 512
    return total
