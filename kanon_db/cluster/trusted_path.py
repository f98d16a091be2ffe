"""Refuses paths that another OS user can change, and reads safely from those that one can."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from kanon_db.errors import ServerError

_MOST_LINKS = 40
"""Links that one path may lead through; the limit of Linux."""

_MOST_BYTES = 4096


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
