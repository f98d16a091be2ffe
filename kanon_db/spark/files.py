"""Folders and files of a target, wherever Spark can write: through Hadoop's file systems."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from kanon_db.errors import InvalidParameterError
from kanon_db.spark.environment import in_own_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class FoundFile:
    """A file in a folder.

    Attributes
    ----------
    name : str
    size : int
        Bytes.
    """

    name: str
    size: int


class Folder:
    """A folder, which need not exist.

    Parameters
    ----------
    session : SparkSession
    path : str
        As Spark reads it; without a scheme, in the default file system.
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
        """The folder that it is in.

        Raises
        ------
        InvalidParameterError
            When it is the root.
        """
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
            found = [
                FoundFile(str(one.getPath().getName()), int(one.getLen()))
                for one in self._fs.listStatus(self._path)
            ]
        return sorted(
            (one for one in found if not one.name.startswith((".", "_"))), key=lambda one: one.name
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
                found = self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)
            finally:
                stream.close()
        return bytes(found).decode()

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
        with in_own_words("a folder could not be read or written"):
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
