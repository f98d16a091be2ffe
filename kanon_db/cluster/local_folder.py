"""The folder of a private cluster: what lies where, who may touch it, and its lock."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pwd
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo

from kanon_db.cluster import host
from kanon_db.errors import ServerError

DATABASE = "kanon"
SUPERUSER = "postgres"
PORT = 5432

SHARED_HOME = Path("/var/lib/kanon_db")
"""Where root keeps the data of clusters whose folder the server's OS user cannot reach."""

TEMPORARY = Path("/tmp")  # noqa: S108  # names come from mkdtemp; short, as $TMPDIR may not be
SOCKET_PREFIX = "kanon-"
SOCKET_NAME = f".s.PGSQL.{PORT}"
SOCKET_PATH_LIMIT = 107
"""Longest path of a Unix socket, in bytes."""

STATE, LOCK = "cluster.json", "lock"
DATA, SOCKET, LOG, CONFIGURATION = "data", "socket", "server.log", "kanon.conf"
ENVIRONMENT = "python"
"""The server's copy of the Python environment, where it cannot read the caller's."""

NEW = ".new"
"""Suffix of a file or directory that is not finished; it is renamed when it is."""


@dataclass(frozen=True)
class Places:
    """Where the parts of a cluster are, and who runs it.

    Parameters
    ----------
    home : Path
        Holds the data, the log and the configuration.
    socket : Path
        Directory of the Unix socket: inside ``home`` if its path is short and plain enough.
    account : str
        OS user that the server runs as.
    """

    home: Path
    socket: Path
    account: str

    @property
    def data(self) -> Path:
        """PostgreSQL's data directory."""
        return self.home / DATA

    @property
    def major(self) -> int | None:
        """Major version of the data directory; None if there is no data directory yet."""
        try:
            return int((self.data / "PG_VERSION").read_text())
        except FileNotFoundError:
            return None

    @property
    def dsn(self) -> str:
        """Connection string of the superuser."""
        return make_conninfo(host=str(self.socket), port=PORT, user=SUPERUSER, dbname=DATABASE)


class ClusterFolder:
    """The folder given with ``--dir`` and all that belongs to it elsewhere.

    Parameters
    ----------
    path : Path
        The folder; it need not exist.

    Notes
    -----
    When the caller is root, no file is ever written inside a directory that the server's OS user
    can write to: that user could have put a link there.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path).resolve()
        self.digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        self._shared_home = SHARED_HOME / self.digest

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Keep other processes from starting, stopping or destroying the same cluster.

        Makes the folder if it does not exist.

        Yields
        ------
        int
            File descriptor that holds the lock; a child that inherits it holds it too.

        Raises
        ------
        ServerError
            The folder holds something else, or the operating system refuses.
        """
        with self._os_errors():
            lock = self._open_lock()
            try:
                yield lock
            finally:
                os.close(lock)

    def find(self) -> Places | None:
        """Find an existing cluster through its state file.

        Returns
        -------
        Places or None
            None if there is no cluster.

        Raises
        ------
        ServerError
            The state file belongs to another user or is malformed.
        """
        with self._os_errors():
            state = self._read_state()
        if state is None:
            return None
        try:
            home = self.path / state["home"]
            places = Places(home, home / state["socket"], str(state["account"]))
        except (KeyError, TypeError):
            raise self._malformed() from None
        # destroy removes these places: accept none that this class would not have made.
        temporary = re.escape(f"{TEMPORARY}/{SOCKET_PREFIX}") + r"\w+"
        if home not in (self.path, self._shared_home) or not (
            places.socket == home / SOCKET or re.fullmatch(temporary, str(places.socket))
        ):
            raise self._malformed()
        return places

    def prepare(self, account: pwd.struct_passwd) -> Places:
        """Make what a server needs besides its data, and note in the state file where that is.

        Parameters
        ----------
        account : pwd.struct_passwd
            OS user that the server runs as.

        Returns
        -------
        Places
            Those of the existing cluster, or of the one to be made.
        """
        found = self.find()
        home = found.home if found else self._choose_home(account)
        places = Places(home, self._socket_directory(home, found, account), account.pw_name)
        state = {
            "home": str(home.relative_to(self.path) if home == self.path else home),
            "socket": SOCKET if places.socket == home / SOCKET else str(places.socket),
            "account": places.account,
        }
        replace_file(self.path / STATE, json.dumps(state, indent=2) + "\n")
        return places

    def remove(self, places: Places) -> None:
        """Remove a stopped cluster, and its folder if nothing else lies in it."""
        if _is_private(places.socket, host.find_account(places.account)):
            shutil.rmtree(places.socket)
        for name in (DATA, DATA + NEW, SOCKET, ENVIRONMENT, ENVIRONMENT + NEW):
            if (places.home / name).exists():
                shutil.rmtree(places.home / name)
        for name in (LOG, CONFIGURATION, CONFIGURATION + NEW):
            (places.home / name).unlink(missing_ok=True)
        if places.home != self.path:
            places.home.rmdir()
        # Last, so that an interrupted removal can be repeated.
        for name in (STATE + NEW, STATE, LOCK):
            (self.path / name).unlink(missing_ok=True)
        try:
            self.path.rmdir()
        except OSError as error:
            # It holds somebody else's files, is a mount point, or is not ours to remove.
            if error.errno not in (errno.ENOTEMPTY, errno.EBUSY, errno.EACCES, errno.EPERM):
                raise

    def refuse_foreign(self) -> None:
        """Refuse a folder that holds something other than a cluster.

        Raises
        ------
        ServerError
            The folder is such a folder.
        """
        if (self.path / STATE).exists() or not self.path.exists():
            return
        own = {LOCK, STATE + NEW}
        if not self.path.is_dir() or any(entry.name not in own for entry in self.path.iterdir()):
            raise ServerError(
                "the directory holds no private cluster",
                detail=f"{self.path} is not empty",
                hint="choose another directory with --dir",
            )

    def _open_lock(self) -> int:
        path = self.path / LOCK
        while True:
            if not self.path.exists():
                self.path.mkdir(parents=True, exist_ok=True)
                # The server's OS user, if it is not the caller, must be able to pass through.
                self.path.chmod(0o711 if os.geteuid() == 0 else 0o700)
            self.refuse_foreign()
            try:
                lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except FileNotFoundError:
                continue  # destroyed meanwhile
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Whoever held the lock may have destroyed the cluster, lock and all.
                if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)

    def _read_state(self) -> dict[str, Any] | None:
        path = self.path / STATE
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            # If the folder was removed by hand, its name still leads to what lies elsewhere.
            data = self._shared_home / DATA
            if os.geteuid() != 0 or not data.exists():
                return None
            return {"home": str(data.parent), "socket": SOCKET, "account": data.owner()}
        with os.fdopen(file, encoding="utf-8") as stream:
            owner = os.fstat(file).st_uid
            if owner != os.geteuid():
                raise ServerError(
                    "the private cluster belongs to another user",
                    detail=f"{path}: user id {owner}",
                    hint="run the command as that user, or choose another directory with --dir",
                )
            try:
                state = json.load(stream)
            except ValueError:
                raise self._malformed() from None
        if not isinstance(state, dict):
            raise self._malformed()
        return state

    def _choose_home(self, account: pwd.struct_passwd) -> Path:
        """Choose where the data is kept: in the folder itself, if the server can reach it there."""
        if os.geteuid() != 0:
            return self.path
        folder = self.path.stat()
        ours = folder.st_uid == 0 and not folder.st_mode & 0o002
        if ours and host.can_enter(account, self.path):
            return self.path
        for path, mode in ((SHARED_HOME, 0o755), (self._shared_home, 0o711)):
            if not path.exists():
                path.mkdir()
                path.chmod(mode)
        return self._shared_home

    def _socket_directory(
        self, home: Path, found: Places | None, account: pwd.struct_passwd
    ) -> Path:
        """Make the socket's directory: in the cluster's home, or in /tmp if that path is unfit."""
        inside = home / SOCKET
        if _fits(inside):
            if not inside.is_dir():
                make_private(inside, account)
            return inside
        if found and _is_private(found.socket, account):
            return found.socket
        # A fresh name, not the old one: somebody may have taken that after a reboot emptied /tmp.
        made = Path(tempfile.mkdtemp(prefix=SOCKET_PREFIX, dir=TEMPORARY))
        give(made, account)
        return made

    @contextlib.contextmanager
    def _os_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ServerError(
                "the private cluster's files cannot be used",
                detail=f"{error.filename or self.path}: {error.strerror}",
                hint="check the owner and the free space, or choose another directory with --dir",
            ) from error

    def _malformed(self) -> ServerError:
        return ServerError(
            "the private cluster's state file is malformed",
            detail=str(self.path / STATE),
            hint="restore the file, or remove the directory by hand",
        )


def make_private(directory: Path, account: pwd.struct_passwd) -> None:
    """Make a directory that only the server's OS user can use."""
    directory.mkdir(mode=0o700)
    give(directory, account)


def give(path: Path, account: pwd.struct_passwd) -> None:
    """Hand a path over to the server's OS user, if that is not the caller."""
    if os.geteuid() == 0:
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def replace_file(path: Path, text: str) -> None:
    """Write a file completely or not at all, so that the server's OS user can read it."""
    unfinished = path.with_name(path.name + NEW)
    unfinished.write_text(text, encoding="utf-8")
    unfinished.chmod(0o644)
    unfinished.replace(path)


def _fits(directory: Path) -> bool:
    """Whether PostgreSQL and libpq can be given the path of a Unix socket in a directory.

    Both take lists of directories, separated by commas, and limit the length.
    """
    path = str(directory / SOCKET_NAME)
    plain = re.fullmatch(r"[\w/.+@:= -]+", path, re.ASCII) is not None
    return plain and len(path) <= SOCKET_PATH_LIMIT


def _is_private(directory: Path, account: pwd.struct_passwd | None) -> bool:
    """Whether a directory exists, is not a link, and is open only to the account."""
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return False
    # 0o40700: a directory with all rights for its owner and none for others.
    return account is not None and found.st_uid == account.pw_uid and found.st_mode == 0o40700
