"""Keeps publications in folders: their files, manifest, ledger, and what is still being made.

The manifest is written last, in one step: without it there is no publication. The ledger has every
release that was made in a folder of publications, replaced ones too.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast
from urllib.parse import urlsplit

from kanon_db.catalog.entries import Publication, find_flaw
from kanon_db.dataclasses import dataclass
from kanon_db.declaration.shown import plain
from kanon_db.errors import (
    InUseError,
    InvalidNameError,
    InvalidParameterError,
    KanonError,
    NotFoundError,
    VerificationError,
)
from kanon_db.spark.environment import failures_as_errors, own_session, quote_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True)
class FoundFile:
    """A file in a folder."""

    name: str
    size: int  # Bytes


class Folder:
    """A folder, which need not exist.

    `path`: as Spark reads it; without a scheme, in the default file system.
    """

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        self._jvm = cast("Any", session._jvm)
        with self._reaching():
            given = self._jvm.org.apache.hadoop.fs.Path(path)
            self._fs = given.getFileSystem(session._jsc.hadoopConfiguration())
            self._path = self._fs.makeQualified(given)
            self.path: str = self._path.toString()

    def __truediv__(self, name: str) -> Folder:
        return Folder(self._session, f"{self.path}/{name}")

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """The last part of its path."""
        return str(self._path.getName())

    @property
    def parent(self) -> Folder:
        """The folder that it is in."""
        above = self._path.getParent()
        if above is None:
            raise InvalidParameterError("a target must be a folder of its own", detail=self.path)
        return Folder(self._session, above.toString())

    def exists(self) -> bool:
        """Whether there is such a folder or file."""
        with self._reaching():
            return bool(self._fs.exists(self._path))

    def age(self) -> float:
        """Return the seconds since it was changed."""
        with self._reaching():
            changed = self._fs.getFileStatus(self._path).getModificationTime()
            now = self._jvm.java.lang.System.currentTimeMillis()
        return float(now - changed) / 1000

    def names(self) -> list[str]:
        """Name what is in it, in order; nothing if it does not exist."""
        if not self.exists():
            return []
        with self._reaching():
            return sorted(str(one.getPath().getName()) for one in self._fs.listStatus(self._path))

    def files(self) -> list[FoundFile]:
        """List the files in it by their names, without those that file systems keep for themselves.

        Checksums begin with a dot; Hadoop's marks of success with an underscore.
        """
        if not self.exists():
            return []
        with self._reaching():
            entries = [
                FoundFile(str(one.getPath().getName()), int(one.getLen()))
                for one in self._fs.listStatus(self._path)
            ]
        return sorted(
            (one for one in entries if not one.name.startswith((".", "_"))),
            key=lambda one: one.name,
        )

    def make(self, *, is_private: bool = False) -> None:
        """Make it; only its owner may look into a private one, where the file system has owners."""
        with self._reaching():
            if is_private:
                above = self._path.getParent()
                self._fs.mkdirs(above)
                permission = self._jvm.org.apache.hadoop.fs.permission.FsPermission("700")
                self._fs.mkdirs(self._path, permission)
            else:
                self._fs.mkdirs(self._path)

    def remove(self) -> None:
        """Remove it with everything in it, if it exists."""
        with self._reaching():
            if self._fs.exists(self._path):
                self._fs.delete(self._path, True)

    def move(self, to: Folder) -> None:
        """Give it another name in the same file system."""
        with self._reaching():
            is_moved = self._fs.rename(self._path, to._path)
        if not is_moved or not to.exists():
            raise InvalidParameterError(
                "files cannot be moved to the target", detail=to.path,
                hint="check that it can be written, and that nothing else is there",
            )  # fmt: skip

    def read(self) -> str:
        """Read a file as text."""
        with self._reaching():
            stream = self._fs.open(self._path)
            try:
                content = self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)
            finally:
                stream.close()
        return bytes(content).decode()

    def create(self, content: str | bytes) -> bool:
        """Write a new file; False if there is one of this name."""
        data = content.encode() if isinstance(content, str) else content
        if self.exists():
            return False
        with self._reaching():
            stream = self._fs.create(self._path, False)
            try:
                stream.write(bytearray(data))
            finally:
                stream.close()
        return True

    def touch(self) -> None:
        """Say that it is still needed; see :meth:`age`."""
        with self._reaching():
            now = self._jvm.java.lang.System.currentTimeMillis()
            self._fs.setTimes(self._path, now, -1)

    def put(self, text: str) -> None:
        """Write a file, in one step for whoever reads it: the old text, if any, or the new one."""
        draft = self.parent / f".{self.name}.{secrets.token_hex(8)}"
        if urlsplit(self.path).scheme == "file":
            # Hadoop's own local file systems remove the old file first.
            put_locally(Path(urlsplit(self.path).path), Path(urlsplit(draft.path).path), text)
            return
        draft.create(text)
        with self._reaching():
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                self._path.toUri(), self._session._jsc.hadoopConfiguration()
            )
            context.rename(draft._path, self._path, self._overwriting())

    def _overwriting(self) -> Any:
        rename = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        gateway: Any = self._session.sparkContext._gateway
        array = gateway.new_array(rename, 1)
        array[0] = rename.valueOf("OVERWRITE")
        return array

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        with failures_as_errors("a folder could not be read or written"):
            yield


def put_locally(path: Path, draft: Path, text: str) -> None:
    """Write a file on this machine through a draft beside it, which takes its name when whole."""
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1
_RELEASE: Final = "release-"


def release_named(token: str) -> str:
    """Name the folder of a release."""
    return f"{_RELEASE}{token}"


def is_release(name: str) -> bool:
    """Whether a folder of a target has the files of a release."""
    return name.startswith(_RELEASE)


@dataclass(frozen=True)
class TableFiles:
    """A published table."""

    schema: str  # Its columns as Spark writes them, as JSON
    files: tuple[FoundFile, ...]


@dataclass(frozen=True)
class Manifest:
    """A publication with its files."""

    publication: Publication
    release: str  # The folder with its tables, in the target
    # By their suffixes, such as ``_qit``; each is a folder of this name, without the underscore
    tables: Mapping[str, TableFiles]
    published_at: str  # In UTC

    def write(self, target: Folder) -> None:
        """Make it the publication of a target, in place of another one."""
        described = asdict(replace(self.publication, is_whole=True))
        del described["is_whole"]
        text = json.dumps(
            plain(
                {
                    "format": _FORMAT,
                    **described,
                    "release": self.release,
                    "published_at": self.published_at,
                    "tables": {suffix: asdict(table) for suffix, table in self.tables.items()},
                }
            ),
            indent=1,
        )
        (target / MANIFEST).put(text)

    @classmethod
    def find(cls, target: Folder) -> Self | None:
        """Read the manifest of a target; None if there is none."""
        file = target / MANIFEST
        if not file.exists():
            return None
        try:
            manifest = json.loads(file.read())
            if manifest.pop("format") != _FORMAT:
                raise ValueError  # noqa: TRY301  # all that is amiss is said below
            release, published_at = str(manifest.pop("release")), str(manifest.pop("published_at"))
            tables = {
                str(suffix): TableFiles(
                    str(table["schema"]),
                    tuple(FoundFile(str(f["name"]), int(f["size"])) for f in table["files"]),
                )
                for suffix, table in manifest.pop("tables").items()
            }
            suffixes = filter(None, tables)
            names = (file.name for table in tables.values() for file in table.files)
            _require_inside([release, *suffixes, *names])
            publication = Publication(**manifest)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _unreadable(str(file)) from None
        if flaw := find_flaw(publication, in_files=True):
            raise _unreadable(f"{file}: {flaw} is not as kanon_db writes it")
        return cls(publication, release, tables, published_at)

    @classmethod
    def of(cls, target: Folder) -> Self:
        """Read the manifest of a target."""
        manifest = cls.find(target)
        if manifest is None:
            raise NotFoundError(
                "there is no publication",
                detail=str(target),
                hint="it is there when its manifest is: check the path",
            )
        return manifest


def _unreadable(detail: str) -> VerificationError:
    return VerificationError(
        "the manifest of a publication cannot be read",
        detail=detail,
        hint="it was changed, or written by another version of kanon_db: remove the folder of the"
        " publication, and publish again",
    )


def _require_inside(names: Sequence[str]) -> None:
    """Refuse names that lead out of the folder."""
    if any("/" in name or name in ("", ".", "..") for name in names):
        raise ValueError


# A publication in the making: a folder beside its target, which nobody else may look into.
#
# One run at a time makes a publication. What a killed one left behind goes when the next one
# begins.


_OWNER: Final = "owner.json"
_RENEWED_SECONDS: Final = 60.0
_ABANDONED_SECONDS: Final = 900.0
"""After which a run on another machine that has said nothing is taken for dead."""


@dataclass(frozen=True)
class StagingFolder:
    """Where one run writes."""

    token: str  # Names the release
    folder: Folder
    left_by: str | None = None  # The token of a run that was killed, and whose files were removed

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
def staging_folder(target: Folder) -> Iterator[StagingFolder]:
    """Begin a run, and remove all that it has not published."""
    staging = _take_folder(
        StagingFolder(secrets.token_hex(16), target.parent / f".kanon-{target.name}")
    )
    ended = threading.Event()
    renewal = threading.Thread(target=_renew, args=(staging, ended), daemon=True)
    renewal.start()
    try:
        _clear(target)
        yield staging
    finally:
        ended.set()
        staging.folder.remove()


def _take_folder(staging: StagingFolder) -> StagingFolder:
    """Make the folder, in place of what a killed run has left."""
    owner, left_by = staging.folder / _OWNER, None
    if staging.folder.exists():
        holder = _read_owner(owner)
        if not _is_abandoned(holder, staging.folder, owner):
            raise InUseError(
                "another run is making this publication",
                detail=f"it writes to {staging.folder}",
                hint="wait until it has ended; if there is none, remove this folder, which has"
                " records of the source",
            )
        left_by = holder.get("token")
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
        holder = json.loads(owner.read())
        return {key: str(holder[key]) for key in ("token", "host", "process")}
    except (ValueError, TypeError, KeyError):
        return {}


def _is_abandoned(holder: dict[str, str], folder: Folder, owner: Folder) -> bool:
    if not holder:
        return folder.age() > _ABANDONED_SECONDS
    if holder["host"] == _host():
        pid = holder["process"].partition(" ")[0]
        return not pid.isdecimal() or _process(int(pid)) != holder["process"]
    return owner.age() > _ABANDONED_SECONDS


def _renew(staging: StagingFolder, ended: threading.Event) -> None:
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


# The ledger: every release that was made in a folder of publications, replaced ones too.
#
# It is a table of Parquet files in the folder ``releases``, a file for each release, beside the
# publications. Its columns are those of ``kanon.releases`` in PostgreSQL.


LEDGER: Final = "releases"


@dataclass(frozen=True)
class LedgerRelease:
    """A line of the ledger."""

    release: str  # Names its files, and its line
    name: str
    kind: str
    method: str
    source: str
    columns: list[str]  # Those of the source that it shows
    parameters: str  # As JSON
    rows: int
    guarantee: str
    # A checksum of its tables that does not depend on the order of rows. It tells copies and
    # changes; it is no signature.
    digest: str
    released_at: str  # In UTC
    released_by: str
    replaces: str | None  # The release whose place it took; readers may still have a copy


class FolderLedger:
    """The releases of a folder.

    `folder`: with publications.
    """

    def __init__(self, session: SparkSession, folder: Folder) -> None:
        self._session = session
        self._folder = folder / LEDGER

    @classmethod
    def beside(cls, session: SparkSession, target: Folder) -> Self:
        """Return the ledger of the folder that a publication is in."""
        if target.name == LEDGER:
            raise InvalidNameError(
                f'a publication cannot be called "{LEDGER}"',
                detail="the ledger of all publications beside it has this name",
                hint="choose another folder",
            )
        return cls(session, target.parent)

    def enter(self, release: LedgerRelease) -> None:
        """Add a line."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._folder.make()
        written = io.BytesIO()
        table = pa.Table.from_pylist([vars(release)], schema=_schema())
        pq.write_table(table, written)
        (self._folder / _file(release.release)).create(written.getvalue())

    def forget(self, release: str) -> None:
        """Take back the line of a release that was not published after all."""
        (self._folder / _file(release)).remove()

    def releases(self) -> list[Mapping[str, Any]]:
        """Return all lines, by the time of release."""
        frame = self.frame()
        if frame is None:
            return []
        with failures_as_errors("the ledger could not be read"):
            return [row.asDict() for row in frame.orderBy("released_at").collect()]

    def frame(self) -> DataFrame | None:
        """Return the table; None if there is no release yet."""
        names = [file.name for file in self._folder.files() if file.name.endswith(".parquet")]
        if not names:
            return None
        with failures_as_errors("the ledger could not be read"):
            return self._session.read.parquet(*((self._folder / name).path for name in names))

    def of_source(self, source: str) -> list[str]:
        """Name the publications that were made from a source."""
        return [str(one["name"]) for one in self.releases() if one["source"] == source]


def releases(session: SparkSession, folder: str) -> list[Mapping[str, Any]]:
    """Return the ledger of a folder of publications."""
    own = own_session(session)
    return FolderLedger(own, Folder(own, folder)).releases()


def parameters_text(publication: Publication) -> str:
    """Write what the publisher asked for as JSON."""
    return json.dumps(plain(publication.parameters))


def digest_of_table(frames: Sequence[DataFrame]) -> str:
    """Return a checksum of tables that does not depend on the order of their rows."""
    from pyspark.sql import functions as f

    digests = []
    for frame in frames:
        columns = [f.col(quote_column(name)) for name in frame.columns]
        hashes = (f.xxhash64(*columns), f.xxhash64(f.lit(1), *columns))
        sums = [f.sum(part) for one in hashes for part in _parts(one)]
        (row,) = frame.agg(f.count("*"), *sums).collect()
        n, *of_parts = (one or 0 for one in row)
        digests.append(":".join(map(str, [n, _whole(of_parts[:3]), _whole(of_parts[3:])])))
    return " ".join(digests)


_PART_BITS: Final = 22
"""The sums of so many bits of hashes are whole numbers of 64 bits, which are added fast."""


def _parts(number: Column) -> list[Column]:
    """Divide a number of 64 bits into three, whose sums stay below 2**63 for 2**41 rows."""
    from pyspark.sql import functions as f

    lower = f.lit(2**_PART_BITS - 1)
    return [
        f.shiftright(number, 2 * _PART_BITS),
        f.shiftright(number, _PART_BITS).bitwiseAND(lower),
        number.bitwiseAND(lower),
    ]


def _whole(parts: Sequence[int]) -> int:
    """Return the sum of numbers from those of their three parts."""
    return sum(part << _PART_BITS * place for place, part in enumerate(reversed(parts)))


def _file(release: str) -> str:
    return f"{release}.parquet"


def _schema() -> Any:
    import pyarrow as pa

    text = dict.fromkeys(LedgerRelease.__dataclass_fields__, pa.string())
    return pa.schema({**text, "columns": pa.list_(pa.string()), "rows": pa.int64()})
