"""Asks the machine of a private cluster for PostgreSQL's programs, OS users and memory."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kanon_db.dataclasses import dataclass
from kanon_db.errors import ServerError

DEBIAN_ROOT = Path("/usr/lib/postgresql")
"""Where Debian keeps each major version of PostgreSQL."""

OWN_ACCOUNT = "kanon"
"""System user created for the server if root starts it and Debian's ``postgres`` is absent."""


@dataclass(frozen=True)
class ServerPrograms:
    """The programs of one installed PostgreSQL."""

    directory: Path  # Folder with ``initdb``, ``pg_ctl`` and ``postgres``
    major: int  # Major version, such as 17

    def path(self, program: str) -> str:
        """Return the full path of a program."""
        return str(self.directory / program)

    def version(self) -> str:
        """Return the full version of the server, such as ``17.6``."""
        answer = run([self.path("postgres"), "--version"])
        match = re.search(r"\d+(\.\d+|\w+)*", answer.stdout)
        return match.group() if match else str(self.major)

    def require_plpython(self) -> None:
        """Refuse a server without PL/Python.

        Raises ServerError: the package with PL/Python 3 for this version is not installed.
        """
        answer = run([self.path("pg_config"), "--pkglibdir", "--sharedir"])
        libraries, shared = (Path(line) for line in answer.stdout.splitlines())
        control = shared / "extension" / "plpython3u.control"
        if not (libraries / "plpython3.so").exists() or not control.exists():
            raise ServerError(
                "pl/python is not installed",
                detail=f"PostgreSQL {self.major} in {self.directory}",
                hint=_install_command(self.major),
            )


def find_programs(major: int | None = None) -> ServerPrograms:
    """Find the server's programs.

    By default, of the highest version, or of ``pg_config`` on the path. Raises ServerError.
    """
    folders = {
        int(initdb.parts[-3]): ServerPrograms(initdb.parent, int(initdb.parts[-3]))
        for initdb in DEBIAN_ROOT.glob("*/bin/initdb")
        if initdb.parts[-3].isdecimal()
    }
    if not folders and (pg_config := shutil.which("pg_config")):
        answer = run([pg_config, "--bindir", "--version"])
        folder, version = answer.stdout.splitlines()
        number = re.search(r"\d+", version)
        # The client's development files come with pg_config, too, but without a server.
        if number and Path(folder, "initdb").exists():
            folders[int(number.group())] = ServerPrograms(Path(folder), int(number.group()))
    wanted = major if major is not None else max(folders, default=None)
    if wanted is None or wanted not in folders:
        raise ServerError(
            "postgresql is not installed" if major is None else f"postgresql {major} is missing",
            detail=f"versions found: {', '.join(map(str, sorted(folders))) or 'none'}",
            hint=_install_command(major),
        )
    return folders[wanted]


def server_account() -> pwd.struct_passwd:
    """Choose the OS user that the server runs as, and create it if necessary.

    The caller, or if that is root, ``postgres`` or ``kanon``. Raises ServerError if there is none.
    """
    if os.geteuid() != 0:
        try:
            return pwd.getpwuid(os.geteuid())
        except KeyError:
            raise ServerError(
                "the current os user has no name",
                detail=f"user id {os.geteuid()}",
                hint="PostgreSQL needs one: add the user to /etc/passwd, or run as another user",
            ) from None
    for name in ("postgres", OWN_ACCOUNT):
        if account := find_account(name):
            return account
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if useradd is None:
        raise ServerError(
            "no unprivileged os user for the server",
            detail="PostgreSQL refuses to run as root, and useradd is absent",
            hint=f"create a system user named {OWN_ACCOUNT}, or run as an ordinary user",
        )
    run([useradd, "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent",
         "--shell", "/usr/sbin/nologin", OWN_ACCOUNT])  # fmt: skip
    return pwd.getpwnam(OWN_ACCOUNT)


def find_account(name: str) -> pwd.struct_passwd | None:
    """Look an OS user up by name."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def run(
    arguments: Sequence[str],
    *,
    account: pwd.struct_passwd | None = None,
    cwd: Path = Path("/"),
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
    keep_open: Sequence[int] = (),
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a program with a minimal environment, as the OS user `account` if the caller is root.

    `environment`: beside PATH, HOME and LC_ALL; `keep_open`: descriptors that it inherits.
    """
    name = Path(arguments[0]).name
    other = account if account is not None and os.geteuid() == 0 else None
    try:
        # Callers pass program paths and options of their own, never a user's text.
        answer = subprocess.run(  # noqa: S603
            list(arguments),
            cwd=cwd,
            # Nothing from the caller's environment, since PL/Python would obey PYTHON*.
            env={
                "PATH": os.defpath,
                "HOME": account.pw_dir if account else "/",
                "LC_ALL": "C.UTF-8",
                **(environment or {}),
            },
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            pass_fds=keep_open,
            umask=0o077,
            check=False,
            user=other.pw_uid if other else None,
            group=other.pw_gid if other else None,
            extra_groups=[] if other else None,
        )
    except OSError as error:
        raise ServerError(
            f"{name} cannot be run",
            detail=f"{arguments[0]}: {error.strerror}",
            hint="check the installation, and whether the caller may run programs as another user",
        ) from error
    if check and answer.returncode != 0:
        said = (answer.stderr.strip() or answer.stdout.strip()).splitlines()
        raise ServerError(
            f"{name} failed",
            detail=said[-1] if said else f"exit status {answer.returncode}",
            hint="see the server's requirements in the documentation",
        )
    return answer


def can_enter(account: pwd.struct_passwd, directory: Path) -> bool:
    """Return whether an OS user can reach a directory through all of its parents."""
    return (
        run(["/usr/bin/test", "-x", str(directory)], account=account, check=False).returncode == 0
    )


def memory() -> int:
    """Return the bytes of memory that the server can count on: the machine's or the cgroup's."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    return min(machine, int(text)) if text.isdecimal() else machine


def shared_memory() -> int:
    """Return the size of ``/dev/shm`` in bytes, 0 if it is absent."""
    try:
        volume = os.statvfs("/dev/shm")  # noqa: S108  # measured, not written to
    except FileNotFoundError:
        return 0
    return volume.f_frsize * volume.f_blocks


def _install_command(major: int | None) -> str:
    """Return the Debian command that installs a server with PL/Python."""
    if major is None and (apt_cache := shutil.which("apt-cache")):
        answer = run([apt_cache, "depends", "postgresql"], check=False)
        default = re.search(r"Depends: postgresql-(\d+)$", answer.stdout, re.MULTILINE)
        major = int(default.group(1)) if default else None
    if major is None:
        return (
            "install PostgreSQL and its PL/Python 3 "
            "(Debian: packages postgresql and postgresql-plpython3-<version>)"
        )
    return f"sudo apt-get install postgresql-{major} postgresql-plpython3-{major}"
