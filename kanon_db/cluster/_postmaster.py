"""Finds, starts and stops the server of a private cluster."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import socket
import time
from pathlib import Path
from subprocess import CompletedProcess
from typing import Literal

from kanon_db.cluster import _host
from kanon_db.cluster.cluster_folder import (
    LOG,
    SOCKET_NAME,
    ClusterFolder,
    Places,
    give,
    read_start,
    remove_entry,
)
from kanon_db.dataclasses import dataclass
from kanon_db.errors import ServerError

START_TIMEOUT = 600
"""Seconds to wait for a start; long, since the server may first have to recover from a crash."""

STOP_TIMEOUT = 30
"""Seconds to wait for running statements to end before the server is stopped immediately."""

DATA_LOCK, SOCKET_LOCK = "postmaster.pid", f"{SOCKET_NAME}.lock"

ANSWER_TIMEOUT = 10.0
"""Seconds that a server has to answer."""

SSL_REQUEST = bytes.fromhex("0000000804d2162f")
"""The shortest question of the protocol, about encryption; only a live server answers it."""

ORPHAN_GRACE = 5.0
"""Seconds that backends have to notice that their server has died."""

LOG_LIMIT = 1 << 20
"""Size in bytes beyond which the next start begins a new log."""


@dataclass(frozen=True)
class Postmaster:
    """The server of an existing cluster, whether it is running or not."""

    folder: ClusterFolder  # The cluster's folder
    places: Places  # Where the parts of the cluster are, and who runs it

    @property
    def name(self) -> str:
        """A name in the command line of each of the server's processes, by which we find them."""
        return f"kanon_{self.folder.digest}"

    @property
    def account(self) -> pwd.struct_passwd:
        """OS user that the server runs as.

        Raises ServerError: that user no longer exists.
        """
        if os.geteuid() != 0:
            return _host.server_account()
        if account := _host.find_account(self.places.account):
            return account
        raise ServerError(
            "the private cluster's os user no longer exists",
            detail=f"user {self.places.account}, directory {self.folder.path}",
            hint="create the user again, or remove the cluster: kanon local destroy",
        )

    @property
    def programs(self) -> _host.ServerPrograms:
        """PostgreSQL in the version of the data directory.

        Raises ServerError: that version is no longer installed.
        """
        return _host.find_programs(self.places.major)

    def answers(self) -> bool:
        """Tell whether a server listens on the cluster's own socket."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(ANSWER_TIMEOUT)
            try:
                client.connect(str(self.places.socket / SOCKET_NAME))
                # The system still accepts connections for a server that is dying, so ask it
                # something.
                client.sendall(SSL_REQUEST)
                return client.recv(1) != b""
            except OSError:
                return False

    def start(self) -> None:
        """Start the server and wait until it accepts connections.

        Raises ServerError: it does not start; the detail has the reason from the log.
        """
        home = self.places.home
        log = home / LOG
        if log.exists() and log.stat().st_size > LOG_LIMIT:
            log.unlink()
        log.touch(0o600)
        give(log, self.account)
        before = log.stat().st_size
        cluster_name = f"--options=-c cluster_name={self.name}"
        answer = self._pg_ctl("start", f"--timeout={START_TIMEOUT}", f"--log={LOG}", cluster_name)
        if answer.returncode != 0:
            reasons = re.findall(r"FATAL:.*", log.read_bytes()[before:].decode(errors="replace"))
            raise ServerError(
                "the private cluster did not start",
                detail=reasons[-1] if reasons else answer.stderr.strip(),
                hint=f"see {log}",
            )

    def stop(self, mode: Literal["fast", "immediate"]) -> bool:
        """Stop the server, and any processes that are left of it.

        Returns whether there was anything to stop. Raises ServerError if it cannot be stopped.
        """
        processes = self._processes()
        if _lock_holder(self.places.data, DATA_LOCK) in processes:
            patience = f"--timeout={STOP_TIMEOUT}"
            # A backend in a long computation does not notice a fast shutdown; an immediate one
            # kills it, and the next start replays the log.
            if mode == "immediate" or self._pg_ctl("stop", "--mode=fast", patience).returncode:
                self._pg_ctl("stop", "--mode=immediate", patience, check=True)
        elif self.answers():
            raise ServerError(
                "the private cluster's directory was moved while the server was running",
                detail=f"directory {self.folder.path}",
                hint="move it back and stop the cluster first",
            )
        self._end_orphans()
        return bool(processes)

    def clear_remains(self) -> None:
        """Remove what a crash or a reboot has left behind.

        Raises ServerError: a server that is still alive cannot be stopped.
        """
        # A server may still be alive although its socket is gone, for example removed from /tmp.
        self.stop("fast")
        for folder, name in ((self.places.data, DATA_LOCK), (self.places.socket, SOCKET_LOCK)):
            holder = _lock_holder(folder, name)
            if holder is not None and Path("/proc", str(holder)).exists():
                # PostgreSQL itself ignores the lock file of a dead process, unless another process
                # got its number after a reboot, or nobody has reaped the dead one yet.
                remove_entry(name, folder)

    def _pg_ctl(self, command: str, *options: str, check: bool = False) -> CompletedProcess[str]:
        # pg_ctl passes its options to a shell. The data directory's name may contain any character,
        # so it is passed in the environment, and the log has a relative path.
        return _host.run(
            [self.programs.path("pg_ctl"), command, "--silent", "--wait", *options],
            account=self.account,
            cwd=self.places.home,
            environment={"PGDATA": str(self.places.data)},
            check=check,
        )

    def _processes(self) -> list[int]:
        """Find the postmaster and its children."""
        owner = _host.find_account(self.places.account)
        mark = re.compile(rf"\b{self.name}\b".encode())
        processes = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                # Everyone may read these, unlike the links to the program and its working
                # directory, which even root may not read in a container.
                command = (entry / "cmdline").read_bytes()
                user = entry.stat().st_uid
            except OSError:
                continue  # it has ended in the meantime
            program = os.fsdecode(command.split(b"\0")[0]).partition(":")[0]
            if (
                owner is not None
                and user == owner.pw_uid
                and Path(program).name == "postgres"
                and mark.search(command)
            ):
                processes.append(int(entry.name))
        return processes

    def _end_orphans(self) -> None:
        """End backends that outlive their server because they do not interrupt a computation."""
        deadline = time.monotonic() + ORPHAN_GRACE
        while processes := self._processes():
            if time.monotonic() > deadline:
                for process in processes:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
            time.sleep(0.02)


def _lock_holder(directory: Path, name: str) -> int | None:
    """Return the process number in a server's lock file."""
    first = (read_start(name, directory) or "").partition("\n")[0].strip()
    return int(first) if first.isdecimal() else None
