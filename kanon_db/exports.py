"""Writes published relations to files, as CSV or Parquet, for whoever may read them."""

from __future__ import annotations

import csv
import gzip
import io
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, Protocol

from kanon_db.catalog.entries import (
    Publication,
    find_publication,
    published_schema,
    require_whole,
)
from kanon_db.dataclasses import dataclass
from kanon_db.declaration.shown import FORMULA, NUMBER, unrun
from kanon_db.errors import (
    DuplicateError,
    InvalidParameterError,
    NotFoundError,
    ReplacedError,
    ServerError,
)
from kanon_db.figures import FigureRule, stricter
from kanon_db.publications.registry import kind_named
from kanon_db.query.layout import DRAWN, LIKELY, QIT, SAT
from kanon_db.session.protocol import Row, Session, fetch_one, settings
from kanon_db.transfer.columns import ColumnType, column_types

if TYPE_CHECKING:
    from kanon_db.session.psycopg_session import PsycopgSession

FORMATS: Final = ("csv", "parquet")

RELATIONS: Final[Mapping[str, str]] = {
    "view": "",
    **{suffix.removeprefix("_"): suffix for suffix in (QIT, SAT, LIKELY, DRAWN)},
}
"""What readers may want of a publication, and how its name ends there; rows are a view only."""

_WITH_FIGURES: Final = ("view", "sat", LIKELY.removeprefix("_"))
"""Relations of buckets with counts of values, or with weights, which are shares by them."""

_BYTES_AT_ONCE: Final = 8 << 20
"""What is read before it is written; of Parquet, it becomes a group of rows."""

_TEXTS: Final = {"timezone": "UTC", "intervalstyle": "iso_8601", "bytea_output": "hex"}
"""Settings for texts, so that everybody gets the same file."""


@dataclass(frozen=True)
class ExportReport:
    """What was written."""

    file: str
    format: str
    publication: str
    relation: str  # one of `RELATIONS`
    guarantee: str
    columns: Mapping[str, str]  # their types in the file, by name
    rows: int
    bytes: int
    seconds: float


def export(
    session: PsycopgSession,
    name: str,
    path: Path,
    *,
    relation: str = "view",
    file_format: str | None = None,
    replace: bool = False,
    figures: FigureRule | None = None,
) -> ExportReport:
    """Write a relation of a publication to a file, which is there once it is whole, or not at all.

    `figures`: a rule beside that of the publication: counts and weights of buckets are figures.
    """
    # Rows are sorted by their own columns, so that their order tells nothing that they do not.
    # Memory is bounded, however many there are.
    started = time.perf_counter()
    path = Path(os.path.realpath(path))
    chosen = _format_of(path, file_format)
    is_parquet = chosen == "parquet"
    _require_place(path, replace=replace)
    if is_parquet:
        _require_pyarrow()
    session.step("looking at the publication")
    publication = find_publication(session, name)
    oid = _readable(session, publication, relation)
    has_figures = kind_named(publication.kind).shape == "buckets" and relation in _WITH_FIGURES
    if has_figures and stricter(publication.figures, figures) is not None:
        raise InvalidParameterError(
            "how often a bucket has a value is not shown, by the rule of figures",
            hint="export qit, which has no such numbers, or draws, which are made up; or ask"
            " kanon.estimate",
        )
    table = session.identifier(published_schema(session), name + RELATIONS[relation])
    columns = [_FileColumn.of(session, column) for column in column_types(session, oid).values()]
    asked = [item for i, column in enumerate(columns) for item in column.survey(i) if is_parquet]
    shown = [
        f"{item.value if is_parquet else item.unrun(session)} AS {item.quoted}" for item in columns
    ]
    texts = ", ".join(item.quoted for item in columns if not item.is_plain)
    with settings(session, _TEXTS):
        survey = fetch_one(session, f"SELECT {', '.join(['count(*) AS n', *asked])} FROM {table}")
        total, rows = int(survey["n"]), 0
        session.step(f"writing {total:,} rows")
        with _appearing(path, replace=replace) as file:
            written: _Format
            if is_parquet:
                written = _Parquet(file, columns, survey)
            else:
                written = _Csv(file, columns, is_compressed=path.suffix.lower() == ".gz")
            copied = session.copied(
                f"COPY (SELECT {', '.join(shown)} FROM {table}"
                f" ORDER BY {', '.join(item.order for item in columns)}) TO STDOUT"
                f" (FORMAT csv{f', FORCE_QUOTE ({texts})' if texts else ''})"
            )
            for n, block in _blocks(copied):
                written.write(block)
                rows += n
                session.done(rows, total)
            written.close()
            if rows != total:
                raise ReplacedError("the publication was changed just now", hint="export it again")
    return ExportReport(
        file=str(path), format=chosen, publication=name, relation=relation,
        guarantee=publication.guarantee, columns=written.types, rows=rows,
        bytes=path.stat().st_size, seconds=time.perf_counter() - started,
    )  # fmt: skip


def _format_of(path: Path, given: str | None) -> str:
    """Return what the file is to be."""
    name = path.name.lower()
    named = [item for item in FORMATS if name.removesuffix(".gz").endswith(f".{item}")]
    found = given if given is not None else "".join(named)
    if found not in FORMATS:
        raise InvalidParameterError(
            "the format of the file is not known",
            detail="its name does not end in .csv, .csv.gz or .parquet"
            if given is None
            else "it is neither csv nor parquet",
            hint="format => 'csv' or format => 'parquet'",
        )
    if found == "parquet" and name.endswith(".gz"):
        raise InvalidParameterError(
            "Parquet is compressed by itself", hint="leave .gz out of the file's name"
        )
    return found


def _require_place(path: Path, *, replace: bool) -> None:
    """Refuse a file that cannot be there, before anything is read."""
    if not path.parent.is_dir():
        raise NotFoundError("there is no such folder for the file", hint="make it, or name another")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InvalidParameterError(
            "what has the file's name is a folder, a device, or a link that ends nowhere",
            hint="name another file",
        )
    if path.exists() and not replace:
        raise DuplicateError(
            "the file exists already", hint="name another, or overwrite it with replace => true"
        )


def _require_pyarrow() -> None:
    try:
        import pyarrow as pa  # noqa: F401
    except ModuleNotFoundError:
        raise ServerError(
            "Parquet needs pyarrow", hint="pip install 'kanon_db[parquet]', or write CSV"
        ) from None


_RELATION: Final = """
SELECT c.oid::text AS oid
FROM kanon.publications AS p
JOIN pg_namespace AS n ON n.nspname = $2::text
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = $3::text
    AND starts_with(obj_description(c.oid, 'pg_class'), kanon.mark(p.publication_id))
WHERE p.name = $1::text
"""


def _readable(session: Session, publication: Publication, relation: str) -> str:
    """Find a relation of a publication; whether the role may read it, the server says."""
    name = publication.name
    if kind_named(publication.kind).shape == "model":
        raise InvalidParameterError(
            "a model has no rows that could be exported",
            detail=f'publication "{name}"',
            hint="ask it with kanon.classify",
        )
    require_whole(publication)
    if relation not in RELATIONS:
        raise InvalidParameterError(
            "publications have no such relation", hint=f"name one of {', '.join(RELATIONS)}"
        )
    schema = published_schema(session)
    found = session.fetch(_RELATION, name, schema, name + RELATIONS[relation])
    if not found:
        raise NotFoundError(
            "the publication has no such relation",
            detail=f'publication "{name}", relation {relation}',
            hint="rows are a view only; buckets have wgt unless estimates => 'paper', and all kinds"
            " draws after draws => true",
        )
    return str(found[0]["oid"])


_YEARS: Final = "BETWEEN '0001-01-01' AND '9999-12-31 23:59:59.999999'"

_PLAIN: Final[Mapping[str, tuple[str, str]]] = {
    "boolean": ("bool", ""),
    "smallint": ("int16", ""),
    "integer": ("int32", ""),
    "bigint": ("int64", ""),
    "real": ("float", ""),
    "double precision": ("double", ""),
    "numeric": ("decimal", "NOT IN ('NaN', 'Infinity', '-Infinity')"),
    "date": ("date32", _YEARS),
    "time without time zone": ("time64[us]", "< '24:00'"),
    "timestamp without time zone": ("timestamp[us]", _YEARS),
    "timestamp with time zone": ("timestamp[us, UTC]", _YEARS),
}
"""Types that Parquet has, too, with their names there, and what must hold of all values.

No spreadsheet runs their texts.
"""

_DIGITS: Final = 38
"""Digits of the numbers that every reader of Parquet knows."""


@dataclass(frozen=True)
class _FileColumn:
    """A column, and SQL with which it is read."""

    name: str
    quoted: str
    type_name: str
    is_plain: bool  # whether its type is one of `_PLAIN`; otherwise `value` is a text
    value: str
    order: str  # SQL for what rows are sorted by

    @classmethod
    def of(cls, session: Session, column: ColumnType) -> _FileColumn:
        """Describe a column."""
        read, is_own = column.read(session), column.operator_schema is None
        is_plain = is_own and column.type_name in _PLAIN
        value = read if is_plain else f'({read})::text COLLATE pg_catalog."C"'
        is_range = is_own and column.type_category == "R"
        return cls(
            column.name, session.identifier(column.name), column.type_name, is_plain, value,
            order=read if is_range else value,
        )  # fmt: skip

    def unrun(self, session: Session) -> str:
        """Write SQL for a value that no spreadsheet runs; see `shown.unrun`."""
        if self.is_plain:  # true and false, which more programs read than t and f
            return f"{self.value}::text" if self.type_name == "boolean" else self.value
        formula, number = session.literal(FORMULA), session.literal(NUMBER)
        return (
            f"CASE WHEN {self.value} ~ {formula} AND {self.value} !~ {number}"
            f" THEN concat('''', {self.value}) ELSE {self.value} END"
        )

    def survey(self, number: int) -> list[str]:
        """Write what must be known of all values to choose a type of Parquet's."""
        condition = _PLAIN[self.type_name][1] if self.is_plain else ""
        if not condition:
            return []
        asked = [f"coalesce(bool_and({self.value} {condition}), true) AS fits_{number}"]
        if self.type_name == "numeric":
            asked += [
                f"coalesce(max(scale({self.value})), 0) AS scale_{number}",
                f"coalesce(max(length(trunc(abs({self.value}))::text)), 1) AS digits_{number}",
            ]
        return asked


class _Format(Protocol):
    """A file that is written."""

    types: Mapping[str, str]

    def write(self, block: bytes) -> None:
        """Write rows, which come as CSV without a header."""

    def close(self) -> None:
        """Write what comes at the end."""


class _Csv:
    """Comma-separated values in UTF-8; texts are in quotes, and NULL is nothing at all."""

    def __init__(
        self, file: IO[bytes], columns: Sequence[_FileColumn], *, is_compressed: bool
    ) -> None:
        self.types: Mapping[str, str] = {column.name: column.type_name for column in columns}
        self._zipped = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if is_compressed else None
        self._file = self._zipped or file
        names = [unrun(column.name) for column in columns]
        # Some spreadsheets divide lines at semicolons.
        divides = any(";" in name for name in names)
        quoting: Literal[0, 1] = csv.QUOTE_ALL if divides else csv.QUOTE_MINIMAL
        header = io.StringIO()
        csv.writer(header, lineterminator="\n", quoting=quoting).writerow(names)
        self.write(header.getvalue().encode())

    def write(self, block: bytes) -> None:
        """Write rows as they are."""
        self._file.write(block)

    def close(self) -> None:
        """Write the end of a compressed file."""
        if self._zipped is not None:
            self._zipped.close()


class _Parquet:
    """Parquet, whose columns have the types of the publication where it has them, too."""

    def __init__(self, file: IO[bytes], columns: Sequence[_FileColumn], survey: Row) -> None:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv
        from pyarrow import parquet

        types = [_arrow_type(pa, column, i, survey) for i, column in enumerate(columns)]
        names = [column.name for column in columns]
        self.types: Mapping[str, str] = dict(zip(names, map(str, types), strict=True))
        self._schema = pa.schema(list(zip(names, types, strict=True)))
        self._options = partial(arrow_csv.ReadOptions, column_names=names, use_threads=False)
        self._read = partial(
            arrow_csv.read_csv,
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=arrow_csv.ConvertOptions(
                column_types=self._schema, null_values=[""], strings_can_be_null=True,
                quoted_strings_can_be_null=False, true_values=["t"], false_values=["f"],
            ),
        )  # fmt: skip
        self._refused = pa.ArrowInvalid
        self._reader = pa.BufferReader
        self._writer = parquet.ParquetWriter(file, self._schema)

    def write(self, block: bytes) -> None:
        """Write rows as a group."""
        try:
            # In one piece: a row may be longer than what is read at once.
            options = self._options(block_size=len(block) + 1)
            table = self._read(self._reader(block), read_options=options)
        except self._refused:  # whose text quotes a value
            raise ServerError("a value cannot be written as Parquet", hint="write CSV") from None
        self._writer.write_table(table)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()


def _arrow_type(pa: Any, column: _FileColumn, number: int, survey: Row) -> Any:
    """Return a column's type in Parquet, if all values have it, and otherwise that of texts."""
    if not column.is_plain or not survey.get(f"fits_{number}", True):
        return pa.string()
    if column.type_name == "numeric":
        scale, digits = (int(survey[f"{what}_{number}"]) for what in ("scale", "digits"))
        return pa.decimal128(_DIGITS, scale) if scale + digits <= _DIGITS else pa.string()
    if column.type_name == "timestamp with time zone":
        return pa.timestamp("us", "UTC")
    return pa.type_for_alias(_PLAIN[column.type_name][0])


def _blocks(rows: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Put rows together; yield how many, and their bytes."""
    block, n = bytearray(), 0
    for row in rows:
        block += row
        n += 1
        if len(block) >= _BYTES_AT_ONCE:
            yield n, bytes(block)
            block, n = bytearray(), 0
    if n:
        yield n, bytes(block)


@contextmanager
def _appearing(path: Path, *, replace: bool) -> Iterator[IO[bytes]]:
    """Write a file that has its name only once it is whole."""
    part = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _require_place(path, replace=replace)
        part.replace(path)
    except OSError as error:
        raise ServerError("the file cannot be written", detail=str(error.strerror)) from None
    finally:
        part.unlink(missing_ok=True)
