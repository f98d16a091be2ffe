"""A publication in the making: a folder beside its target, which nobody else may look into.

One run at a time makes a publication. What a killed one left behind goes when the next one begins.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kanon_db.errors import InUseError, InvalidParameterError, KanonError
from kanon_db.spark.files import Folder
from kanon_db.spark.manifest import MANIFEST, Manifest, is_release

_OWNER: Final = "owner.json"
_RENEWED_SECONDS: Final = 60.0
_ABANDONED_SECONDS: Final = 900.0
"""After which a run on another machine that has said nothing is taken for dead."""


@dataclass(frozen=True)
class Staging:
    """Where one run writes.

    Attributes
    ----------
    token : str
        Names the release.
    folder : Folder
    left_by : str or None
        The token of a run that was killed, and whose files were removed.
    """

    token: str
    folder: Folder
    left_by: str | None = None

    @property
    def snapshot(self) -> Folder:
        """The records that are published, as they were read."""
        return self.folder / "snapshot"

    @property
    def tables(self) -> Folder:
        """What is to be published."""
        return self.folder / "tables"

    def scratch(self, name: str) -> Folder:
        """Return a folder for what a kind keeps between its steps."""
        return self.folder / f"scratch-{name}"


@contextmanager
def staged(target: Folder) -> Iterator[Staging]:
    """Begin a run, and remove all that it has not published.

    Raises
    ------
    InUseError
        When another run is making the same publication.
    InvalidParameterError
        When there are other files in the target.
    """
    staging = _taken(Staging(secrets.token_hex(16), target.parent / f".kanon-{target.name}"))
    ended = threading.Event()
    renewal = threading.Thread(target=_renew, args=(staging, ended), daemon=True)
    renewal.start()
    try:
        _clear(target)
        yield staging
    finally:
        ended.set()
        staging.folder.remove()


def _taken(staging: Staging) -> Staging:
    """Make the folder, in place of what a killed run has left."""
    owner, left_by = staging.folder / _OWNER, None
    if staging.folder.exists():
        found = _read_owner(owner)
        if not _is_abandoned(found, staging.folder, owner):
            raise InUseError(
                "another run is making this publication",
                detail=f"it writes to {staging.folder}",
                hint="wait until it has ended; if there is none, remove this folder, which has"
                " records of the source",
            )
        left_by = found.get("token")
    staging.folder.remove()
    staging.folder.make(is_private=True)
    own = {"token": staging.token, "host": _host(), "process": _process(os.getpid())}
    if not owner.create(json.dumps(own)):
        raise InUseError("another run began at the same time", detail=staging.folder.path)
    return replace(staging, left_by=left_by)


def _read_owner(owner: Folder) -> dict[str, str]:
    """Read who makes the publication; nothing if it was killed while it began."""
    if not owner.exists():
        return {}
    try:
        found = json.loads(owner.read())
        return {key: str(found[key]) for key in ("token", "host", "process")}
    except (ValueError, TypeError, KeyError):
        return {}


def _is_abandoned(found: dict[str, str], folder: Folder, owner: Folder) -> bool:
    if not found:
        return folder.age() > _ABANDONED_SECONDS
    if found["host"] == _host():
        pid = found["process"].partition(" ")[0]
        return not pid.isdecimal() or _process(int(pid)) != found["process"]
    return owner.age() > _ABANDONED_SECONDS


def _renew(staging: Staging, ended: threading.Event) -> None:
    """Say now and then that the run goes on."""
    while not ended.wait(_RENEWED_SECONDS):
        try:
            (staging.folder / _OWNER).touch()
        except KanonError:
            return  # the run itself will fail, and says why


def _host() -> str:
    """Name this machine, and its start: after that, numbers of processes begin anew."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"


def _process(pid: int) -> str:
    """Name a process by its number and its start; without a start if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"{pid} "
    return f"{pid} {fields.rpartition(')')[2].split()[19]}"


def _clear(target: Folder) -> None:
    """Remove what earlier runs have left in the target; what others have put there is refused."""
    manifest = Manifest.find(target)
    known = {MANIFEST, manifest.release if manifest else MANIFEST}
    for name in target.names():
        if name in known:
            continue
        if is_release(name) or name.startswith(f".{MANIFEST}"):
            (target / name).remove()
        elif manifest is None:
            raise InvalidParameterError(
                "the target has other files",
                detail=str(target),
                hint="choose a folder of its own for each publication, which need not exist",
            )
