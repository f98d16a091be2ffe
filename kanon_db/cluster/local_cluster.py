"""Creates, starts, stops and destroys a private cluster: ``kanon local``."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shlex
import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from kanon_db.cluster import _host
from kanon_db.cluster._postmaster import Postmaster
from kanon_db.cluster.cluster_folder import (
    CONFIGURATION,
    DATA,
    DATABASE,
    NEW,
    SHARED_HOME,
    SUPERUSER,
    ClusterFolder,
    make_private,
    replace_file,
    require_trusted,
)
from kanon_db.dataclasses import dataclass
from kanon_db.errors import ServerError

MEGABYTE = 1 << 20


def cluster_settings(memory: int, shared_memory: int, socket: str) -> dict[str, str]:
    """Choose the settings of a private cluster; `memory`, which the server can count on, in bytes.

    `shared_memory`: bytes of the system's file system for it; `socket`: the folder of the socket.
    """
    chosen = {
        "listen_addresses": "",
        "unix_socket_directories": socket,
        "unix_socket_permissions": "0700",
        "port": "5432",
        # Tables are read from the system's cache about as fast, which no backend counts as its own.
        "shared_buffers": "128MB",
        "effective_cache_size": _megabytes(memory // 2),
        "work_mem": "64MB",
        "maintenance_work_mem": "256MB",
        # Nobody replicates a private cluster, so bulk loads need no write-ahead log.
        "wal_level": "minimal",
        "max_wal_senders": "0",
        "max_wal_size": "4GB",
        "fsync": "on",
        "synchronous_commit": "on",
        # Compiling costs more than it saves on sums over one publication.
        "jit": "off",
        # No data in the log: an error's message, its detail and its statement may quote rows.
        "log_min_messages": "log",
        "log_min_error_statement": "panic",
        "log_error_verbosity": "terse",
        "log_statement": "none",
        "log_min_duration_statement": "-1",
        "log_checkpoints": "off",
        "logging_collector": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }
    if shared_memory < 1024 * MEGABYTE:
        # Containers give /dev/shm 64 MB, which one parallel hash join exhausts.
        chosen["dynamic_shared_memory_type"] = "mmap"
    return chosen


def configuration(chosen: Mapping[str, str]) -> str:
    """Write settings as the text of a configuration file.

    Examples
    --------
    >>> print(configuration({"timezone": "UTC"}), end="")
    # Written at every start of the private cluster; use ALTER SYSTEM for your own settings.
    timezone = 'UTC'
    """
    lines = [
        "# Written at every start of the private cluster; use ALTER SYSTEM for your own settings."
    ]
    for name, value in chosen.items():
        quoted = value.replace("'", "''")
        lines.append(f"{name} = '{quoted}'")
    return "\n".join(lines) + "\n"


def _megabytes(size: int) -> str:
    return f"{size // MEGABYTE}MB"


_DEFAULT_DIRECTORY = Path(".kanon")


def default_directory() -> Path:
    """Return the folder of the private cluster where none is named: ``.kanon``.

    For root, if another user can change what lies there (as in a checkout that is mounted into a
    container), a folder below ``/var/lib/kanon_db`` that belongs to the working directory.
    """
    if os.geteuid() == 0:
        try:
            require_trusted(_DEFAULT_DIRECTORY)
        except ServerError:
            here = hashlib.sha256(os.fsencode(Path.cwd())).hexdigest()[:16]
            return SHARED_HOME / f"of-{here}"
    return _DEFAULT_DIRECTORY


@dataclass(frozen=True)
class ClusterStatus:
    """The state of a private cluster.

    Parameters
    ----------
    state : {"running", "stopped", "absent"}
        Whether it answers, only exists, or neither.
    directory : Path
        Its folder.
    data_directory : Path or None
        PostgreSQL's data directory.
    version : str or None
        Version of the server, or only its major version if its programs are gone.
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
    """A private PostgreSQL cluster, which only its owner can reach, through a Unix socket.

    The server runs as the caller or, when root starts it, as an unprivileged OS user; root and
    that user connect without a password. It holds one database, ``kanon``.

    Parameters
    ----------
    directory : Path
        The cluster's folder, created at the first start. If root starts a cluster in a folder that
        the server's OS user cannot reach, the data is kept under ``/var/lib/kanon_db``, and the
        folder only contains ``cluster.json``, which says where.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = ClusterFolder(directory)

    @property
    def directory(self) -> Path:
        """The cluster's folder."""
        return self._folder.path

    def start(self) -> str:
        """Start the cluster unless it is running already, and create it first if necessary.

        Returns
        -------
        str
            Connection string of the superuser ``postgres`` in database ``kanon``.

        Raises
        ------
        ServerError
            PostgreSQL or its PL/Python is not installed, the folder contains something else or
            belongs to another user, or the server does not start.
        """
        if not Path("/proc/self").exists():
            raise ServerError(
                "private clusters need linux and its /proc",
                detail=f"this system is {sys.platform}",
                hint="mount /proc, or use a server of your own: --dsn or KANON_DSN",
            )
        with self._folder.locked() as lock:
            server = self._server()
            if server and server.answers():
                return server.places.dsn
            account = server.account if server else _host.server_account()
            programs = server.programs if server else _host.find_programs()
            programs.require_plpython()
            if server:
                server.clear_remains()
            places = self._folder.prepare(account)
            chosen = cluster_settings(_host.memory(), _host.shared_memory(), str(places.socket))
            replace_file(places.home / CONFIGURATION, configuration(chosen))
            if not places.data.exists():
                _initialize(places.home, account, programs, lock)
            Postmaster(self._folder, places).start()
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
        if self._server() is None:
            return False
        with self._folder.locked():
            server = self._server()
            return server is not None and server.stop("fast")

    def status(self) -> ClusterStatus:
        """Tell whether the cluster is running, its version, where its files are, and their size.

        Returns
        -------
        ClusterStatus
            The current state.

        Raises
        ------
        ServerError
            It belongs to another user.
        """
        server = self._server()
        if server is None:
            return ClusterStatus("absent", self.directory)
        places, running = server.places, server.answers()
        try:
            version = server.programs.version() if places.major else None
        except ServerError:
            version = str(places.major)
        return ClusterStatus(
            "running" if running else "stopped",
            self.directory,
            data_directory=places.data,
            version=version,
            size_bytes=_size(places.data),
            dsn=places.dsn if running else None,
        )

    def dsn(self) -> str:
        """Return the connection string of the running cluster.

        Returns
        -------
        str
            Connection string of the superuser ``postgres`` in database ``kanon``.

        Raises
        ------
        ServerError
            It is not running, or belongs to another user.
        """
        server = self._server()
        if server is None or not server.answers():
            raise ServerError(
                "the private cluster is not running",
                detail=f"directory {self.directory}",
                hint=f"kanon local start{self._option}, or name another server with --dsn or"
                " KANON_DSN",
            )
        return server.places.dsn

    def destroy(self) -> bool:
        """Stop the server, and remove the cluster with all its data.

        Other files in the folder are kept; if there are none, the folder is removed, too.

        Returns
        -------
        bool
            Whether there was a cluster.

        Raises
        ------
        ServerError
            The folder contains something other than a cluster, or belongs to another user.
        """
        if self._server() is None:
            self._folder.refuse_foreign()
            return False
        with self._folder.locked():
            server = self._server()
            if server is None:
                return False
            server.stop("immediate")
            self._folder.remove(server.places)
            return True

    @property
    def _option(self) -> str:
        """Return the options with which commands find the cluster."""
        is_default = self.directory == ClusterFolder(default_directory()).path
        return "" if is_default else f" --dir {shlex.quote(str(self.directory))}"

    def _server(self) -> Postmaster | None:
        """Return the server of the cluster, if the cluster exists."""
        places = self._folder.find()
        return Postmaster(self._folder, places) if places else None


def _initialize(
    home: Path, account: pwd.struct_passwd, programs: _host.ServerPrograms, lock: int
) -> None:
    """Create the data directory under another name, so that an unfinished one is never used."""
    # The programs inherit the lock: nobody clears the directory while they are working, even if the
    # caller is killed.
    unfinished = home / (DATA + NEW)
    if unfinished.exists():
        shutil.rmtree(unfinished)
    make_private(unfinished, account)
    environment = {"PGDATA": str(unfinished)}
    run = partial(_host.run, account=account, cwd=home, keep_open=[lock])
    run(
        [programs.path("initdb"), f"--username={SUPERUSER}", "--auth-local=trust",
         "--auth-host=reject", "--encoding=UTF8", "--locale=C.UTF-8", "--data-checksums",
         "--no-instructions"],
        environment=environment,
    )  # fmt: skip
    run(
        ["/usr/bin/tee", "--append", f"{unfinished.name}/postgresql.conf"],
        stdin=f"include '../{CONFIGURATION}'\n",
    )
    run(
        [programs.path("postgres"), "--single", "-c", "exit_on_error=on", "postgres"],
        environment=environment,
        stdin=f"CREATE DATABASE {DATABASE} TEMPLATE template0\n",
    )
    unfinished.rename(home / DATA)


def _size(data: Path) -> int:
    """Return the disk space of a directory in bytes; files in it may come and go meanwhile."""
    total = 0
    for folder, _, names in os.walk(data):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(Path(folder, name)).st_blocks * 512
    return total
