"""Keeps the folder of a private cluster: its files, who may access them, and its lock.

Refuses paths that another OS user can change, and reads safely from those that one can.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import hashlib
import json
import os
import pwd
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo

from kanon_db.cluster import _host
from kanon_db.dataclasses import dataclass
from kanon_db.errors import ServerError

DATABASE = "kanon"
SUPERUSER = "postgres"
PORT = 5432

SHARED_HOME = Path("/var/lib/kanon_db")
"""Where root keeps the data of clusters whose folder the server's OS user cannot reach."""

TEMPORARY = Path("/tmp")  # noqa: S108  # names come from mkdtemp; $TMPDIR may be too long
SOCKET_PREFIX = "kanon-"
SOCKET_NAME = f".s.PGSQL.{PORT}"
SOCKET_PATH_LIMIT = 107
"""Longest path of a Unix socket, in bytes."""

STATE, LOCK = "cluster.json", "lock"
DATA, SOCKET, LOG, CONFIGURATION = "data", "socket", "server.log", "kanon.conf"
ENVIRONMENT = "python"
"""The server's copy of the Python environment, if it cannot read the caller's."""

NEW = ".new"
"""Suffix of a file or directory that is not finished yet; it is renamed afterwards."""

_MOST_LINKS = 40
"""Links that one path may lead through; the limit of Linux."""

_MOST_BYTES = 4096


@dataclass(frozen=True)
class Places:
    """The places of a cluster's parts, and the OS user who runs it."""

    home: Path  # The folder with the data, the log and the configuration
    # Directory of the Unix socket: inside ``home`` if that path is short and simple enough
    socket: Path
    account: str  # OS user that the server runs as

    @property
    def data(self) -> Path:
        """PostgreSQL's data directory."""
        return self.home / DATA

    @property
    def major(self) -> int | None:
        """Major version of the data directory; None if there is no data directory yet."""
        text = (read_start("PG_VERSION", self.data) or "").strip()
        return int(text) if text.isdecimal() else None

    @property
    def dsn(self) -> str:
        """Connection string of the superuser."""
        return make_conninfo(host=str(self.socket), port=PORT, user=SUPERUSER, dbname=DATABASE)


class ClusterFolder:
    """The folder given with ``--dir``, and everything elsewhere that belongs to it."""

    # Nobody but the caller and root can change the way to the folder, or what lies directly in it:
    # `require_trusted` refuses other folders before anything there is read or written. If the
    # caller is root, the server's OS user owns what is in the data directory and in the socket's,
    # so nothing is written there, and links in them are not followed.

    def __init__(self, path: Path) -> None:
        self._given = Path(path).absolute()
        self.path = Path(os.path.realpath(path))
        self.digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        self._shared_home = SHARED_HOME / self.digest

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Keep other processes from starting, stopping or destroying the same cluster.

        Yields the lock's descriptor: a child process that inherits it holds the lock, too.
        """
        with self._os_errors():
            lock = self._open_lock()
            try:
                yield lock
            finally:
                os.close(lock)

    def find(self) -> Places | None:
        """Find an existing cluster through its state file.

        None if there is none. Raises ServerError on a state file malformed or another user's.
        """
        with self._os_errors():
            state = self._read_state()
        if state is None:
            return None
        try:
            home = self.path / state["home"]
            places = Places(home, home / state["socket"], str(state["account"]))
        except (KeyError, TypeError):
            raise self._refuse_state() from None
        # Since destroy removes these places, accept only those that this class would create.
        temporary = re.escape(f"{TEMPORARY}/{SOCKET_PREFIX}") + r"\w+"
        if home not in (self.path, self._shared_home) or not (
            places.socket == home / SOCKET or re.fullmatch(temporary, str(places.socket))
        ):
            raise self._refuse_state()
        return places

    def prepare(self, account: pwd.struct_passwd) -> Places:
        """Create what a server needs besides its data, and write to the state file where that is.

        The places of the existing cluster, or of the one that will be created.
        """
        recorded = self.find()
        home = recorded.home if recorded else self._choose_home(account)
        places = Places(home, self._socket_directory(home, recorded, account), account.pw_name)
        state = {
            "home": str(home.relative_to(self.path) if home == self.path else home),
            "socket": SOCKET if places.socket == home / SOCKET else str(places.socket),
            "account": places.account,
        }
        replace_file(self.path / STATE, json.dumps(state, indent=2) + "\n")
        return places

    def remove(self, places: Places) -> None:
        """Remove a stopped cluster, and its folder if nothing else is in it."""
        if _is_private(places.socket, _host.find_account(places.account)):
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
            # It contains other files, is a mount point, or we may not remove it.
            if error.errno not in (errno.ENOTEMPTY, errno.EBUSY, errno.EACCES, errno.EPERM):
                raise

    def refuse_foreign(self) -> None:
        """Refuse a folder that contains something other than a cluster.

        Raises ServerError: the folder contains something else.
        """
        if (self.path / STATE).exists() or not self.path.exists():
            return
        own = {LOCK, STATE + NEW}
        if not self.path.is_dir() or any(entry.name not in own for entry in self.path.iterdir()):
            raise ServerError(
                "the directory contains no private cluster",
                detail=f"{self.path} is not empty",
                hint="choose another directory with --dir",
            )

    def _open_lock(self) -> int:
        if "\n" in str(self.path):
            # PostgreSQL writes the name into a file of lines, and would not find its server again.
            raise ServerError(
                "the name of the private cluster's directory has a line break",
                detail=f"directory {self.path}",
                hint="choose another directory with --dir",
            )
        path = self.path / LOCK
        while True:
            require_trusted(self._given)
            if not self.path.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    self.path.mkdir(mode=0o700)
                    # The server's OS user, if it is not the caller, must be able to pass through.
                    self.path.chmod(0o711 if os.geteuid() == 0 else 0o700)
                continue  # somebody else may have made it, in a directory such as /tmp
            self.refuse_foreign()
            try:
                lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except FileNotFoundError:
                continue  # destroyed in the meantime
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Whoever held the lock may have destroyed the cluster, including the lock.
                if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)

    def _read_state(self) -> dict[str, Any] | None:
        require_trusted(self._given)
        path = self.path / STATE
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            # If the folder was removed by hand, its name still leads to what is elsewhere.
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
                raise self._refuse_state() from None
        if not isinstance(state, dict):
            raise self._refuse_state()
        return state

    def _choose_home(self, account: pwd.struct_passwd) -> Path:
        """Choose where the data is kept: in the folder itself, if the server can reach it there."""
        if os.geteuid() != 0 or _host.can_enter(account, self.path):
            return self.path
        for path, mode in ((SHARED_HOME, 0o755), (self._shared_home, 0o711)):
            if not path.exists():
                path.mkdir()
                path.chmod(mode)
        return self._shared_home

    def _socket_directory(
        self, home: Path, recorded: Places | None, account: pwd.struct_passwd
    ) -> Path:
        """Create the socket's directory: inside the cluster's home, or in /tmp if that is unfit."""
        inside = home / SOCKET
        if _fits(inside):
            if not inside.is_dir():
                make_private(inside, account)
            return inside
        if recorded and _is_private(recorded.socket, account):
            return recorded.socket
        # Not the old name, which somebody may have taken after a reboot emptied /tmp.
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

    def _refuse_state(self) -> ServerError:
        return ServerError(
            "the private cluster's state file is malformed",
            detail=str(self.path / STATE),
            hint="restore the file, or remove the directory by hand",
        )


def make_private(directory: Path, account: pwd.struct_passwd) -> None:
    """Create a directory that only the server's OS user can use."""
    directory.mkdir(mode=0o700)
    give(directory, account)


def give(path: Path, account: pwd.struct_passwd) -> None:
    """Hand a path over to the server's OS user, if that is not the caller."""
    if os.geteuid() == 0:
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def replace_file(path: Path, text: str) -> None:
    """Write a file that the server's OS user can read, completely or not at all.

    Its directory must be trusted.
    """
    unfinished = path.with_name(path.name + NEW)
    unfinished.unlink(missing_ok=True)  # of a start that was interrupted
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(unfinished, flags, 0o600), "w", encoding="utf-8") as stream:
        stream.write(text)
        os.fchmod(stream.fileno(), 0o644)
    unfinished.replace(path)


def _fits(directory: Path) -> bool:
    """Return whether PostgreSQL and libpq accept the path of a Unix socket in this directory.

    Both accept lists of directories, separated by commas, and limit the length.
    """
    path = str(directory / SOCKET_NAME)
    plain = re.fullmatch(r"[\w/.+@:= -]+", path, re.ASCII) is not None
    return plain and len(path) <= SOCKET_PATH_LIMIT


def _is_private(directory: Path, account: pwd.struct_passwd | None) -> bool:
    """Return whether a directory exists, is not a link, and is accessible only to the account."""
    try:
        status = directory.lstat()
    except FileNotFoundError:
        return False
    # 0o40700: a directory with all rights for its owner and none for others.
    return account is not None and status.st_uid == account.pw_uid and status.st_mode == 0o40700


def require_trusted(path: Path) -> None:
    """Refuse a path that another OS user could lead to something else, as far as it exists."""
    # Each directory and each link on the way must belong to the caller or to root. Nobody else may
    # write in the directories, except for a sticky one on the way, such as /tmp: there, only its
    # owner can rename or remove an entry. What is trusted once stays so, because only the caller
    # and root could change it; so no other user wins a race against what follows this check.
    place = Path("/")
    waiting = [*reversed(Path(path).absolute().parts[1:])]
    n_links = 0
    _require_own(place, place.lstat(), is_last=not waiting)
    while waiting:
        name = waiting.pop()
        if name == "..":
            place = place.parent  # no part of it is a link
            continue
        entry = place / name
        try:
            status = entry.lstat()
        except FileNotFoundError:
            return
        _require_own(entry, status, is_last=not waiting)
        if not stat.S_ISLNK(status.st_mode):
            place = entry
            continue
        n_links += 1
        if n_links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = entry.readlink()
        place = Path("/") if target.is_absolute() else place
        waiting += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def read_start(name: str, directory: Path) -> str | None:
    """Read the beginning of a file in a directory in which the server's OS user may put anything.

    The parent must be trusted, or sticky. None if there is no such file, or a link, pipe or such.
    """
    try:
        with _open_directory(directory) as folder:
            # Opening a pipe would otherwise wait for somebody to write to it.
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            file = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return None
        raise
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return os.read(file, _MOST_BYTES).decode("ascii", "replace")
    finally:
        os.close(file)


def remove_entry(name: str, directory: Path) -> None:
    """Remove a file, or a link, from a directory in which the server's OS user may put anything."""
    with _open_directory(directory) as folder:
        os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _open_directory(directory: Path) -> Iterator[int]:
    """Open a directory that is not a link."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY
    folder = os.open(directory, flags)
    try:
        yield folder
    finally:
        os.close(folder)


def _require_own(entry: Path, status: os.stat_result, *, is_last: bool) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise ServerError(
            "the private cluster's directory belongs to another user",
            detail=f"{entry}: user id {status.st_uid}",
            hint="run the command as that user, or choose another directory with --dir",
        )
    if stat.S_ISLNK(status.st_mode):
        return  # its own mode means nothing
    by_others = status.st_mode & stat.S_IWOTH or (
        status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid)
    )
    if by_others and (is_last or not status.st_mode & stat.S_ISVTX):
        raise ServerError(
            "other users can change the private cluster's directory",
            detail=f"{entry}: mode {stat.S_IMODE(status.st_mode):04o}",
            hint="let only yourself write there, or choose another directory with --dir",
        )


def _is_own_group(group: int) -> bool:
    """Tell whether only the caller is in a group, as in the one that useradd makes for a user."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        entry = grp.getgrgid(group)
    except KeyError:
        return False
    return entry.gr_name == name and set(entry.gr_mem) <= {name}
