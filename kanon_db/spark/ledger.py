"""The ledger: every release that was made in a folder of publications, replaced ones too.

It is a table of Parquet files in the folder ``releases``, a file for each release, beside the
publications. Its columns are those of ``kanon.releases`` in PostgreSQL.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from kanon_db.catalog.entries import Publication
from kanon_db.declaration.shown import plain
from kanon_db.errors import InvalidNameError
from kanon_db.spark.environment import in_own_words
from kanon_db.spark.files import Folder
from kanon_db.spark.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LEDGER: Final = "releases"


@dataclass(frozen=True)
class Release:
    """A line of the ledger.

    Attributes
    ----------
    release : str
        Names its files, and its line.
    name, kind, method, source, guarantee : str
    columns : list of str
        Those of the source that it shows.
    parameters : str
        As JSON.
    rows : int
    digest : str
        A checksum of its tables that does not depend on the order of rows. It tells copies and
        changes; it is no signature.
    released_at : str
        In UTC.
    released_by : str
    replaces : str or None
        The release whose place it took; readers may still have a copy.
    """

    release: str
    name: str
    kind: str
    method: str
    source: str
    columns: list[str]
    parameters: str
    rows: int
    guarantee: str
    digest: str
    released_at: str
    released_by: str
    replaces: str | None


class Ledger:
    """The releases of a folder.

    Parameters
    ----------
    session : SparkSession
    folder : Folder
        With publications.
    """

    def __init__(self, session: SparkSession, folder: Folder) -> None:
        self._session = session
        self._folder = folder / LEDGER

    @classmethod
    def beside(cls, session: SparkSession, target: Folder) -> Self:
        """Return the ledger of the folder that a publication is in.

        Raises
        ------
        InvalidNameError
            When the publication would take the ledger's place.
        """
        if target.name == LEDGER:
            raise InvalidNameError(
                f'a publication cannot be called "{LEDGER}"',
                detail="the ledger of all publications beside it has this name",
                hint="choose another folder",
            )
        return cls(session, target.parent)

    def enter(self, release: Release) -> None:
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
        with in_own_words("the ledger could not be read"):
            return [row.asDict() for row in frame.orderBy("released_at").collect()]

    def frame(self) -> DataFrame | None:
        """Return the table; None if there is no release yet."""
        names = [file.name for file in self._folder.files() if file.name.endswith(".parquet")]
        if not names:
            return None
        with in_own_words("the ledger could not be read"):
            return self._session.read.parquet(*((self._folder / name).path for name in names))

    def of_source(self, source: str) -> list[str]:
        """Name the publications that were made from a source."""
        return [str(one["name"]) for one in self.releases() if one["source"] == source]


def parameters_text(publication: Publication) -> str:
    """Write what the publisher asked for as JSON."""
    return json.dumps(plain(publication.parameters))


def digest(frames: Sequence[DataFrame]) -> str:
    """Return a checksum of tables that does not depend on the order of their rows."""
    from pyspark.sql import functions as f

    found = []
    for frame in frames:
        columns = [f.col(quoted(name)) for name in frame.columns]
        hashes = (f.xxhash64(*columns), f.xxhash64(f.lit(1), *columns))
        sums = [f.sum(part) for one in hashes for part in _parts(one)]
        (row,) = frame.agg(f.count("*"), *sums).collect()
        n, *of_parts = (one or 0 for one in row)
        found.append(":".join(map(str, [n, _whole(of_parts[:3]), _whole(of_parts[3:])])))
    return " ".join(found)


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

    text = dict.fromkeys(Release.__dataclass_fields__, pa.string())
    return pa.schema({**text, "columns": pa.list_(pa.string()), "rows": pa.int64()})
