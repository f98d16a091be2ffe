"""Offers the operations in Python, with results as pandas frames."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, time
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import pandas as pd

from kanon_db.answers import VALUES, estimates
from kanon_db.catalog.entries import is_registered
from kanon_db.declaration import RELATION, Operation
from kanon_db.declaration.parameter_types import decode_json, read_text
from kanon_db.declaration.shown import UNITS
from kanon_db.errors import DatabaseError, PermissionDeniedError, ServerError
from kanon_db.exports import ExportReport, export
from kanon_db.figures import FIGURES
from kanon_db.interfaces.python_methods import Methods
from kanon_db.operations import operations
from kanon_db.publications.draws import DRAWS
from kanon_db.session.progress import Watcher
from kanon_db.session.protocol import fetch_one
from kanon_db.session.psycopg_session import Listener, PsycopgSession, open_connection
from kanon_db.transfer.csv_file import CsvOptions, read_hierarchy
from kanon_db.transfer.csv_table import CsvPreview, LoadReport, load_csv
from kanon_db.wording import explained


class ResultFrame(pd.DataFrame):
    """A data frame like any other one, whose columns have units where a notebook shows it.

    ``attrs["units"]`` has them, by column, ``attrs["guarantee"]`` what is promised of the rows, and
    ``attrs["notes"]`` what the numbers of an answer do not say.
    What is computed from it is a plain data frame.
    """

    @classmethod
    def of(cls, frame: pd.DataFrame, **attributes: Any) -> ResultFrame:
        """Make a result frame of a frame, with attributes."""
        copied = cls(frame)
        for name, value in attributes.items():
            copied.attrs[name] = value
        return copied

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def _repr_html_(self) -> str | None:
        units: Mapping[str, str] = self.attrs.get("units", {})
        named = {name: f"{name} ({unit})" for name, unit in units.items()}
        shown: str | None = pd.DataFrame(self).rename(columns=named)._repr_html_()  # type: ignore[operator]
        texts = [self.attrs.get("guarantee"), *self.attrs.get("notes", ())]
        if shown is None:
            return None
        return shown + "".join(f"<p>{html.escape(text)}</p>" for text in texts if text)


def with_files(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put hierarchies in the place of the names of their files, for `register_source`."""
    attributes = decode_json(given.get("attributes"), "attributes", is_exact=False)
    if not isinstance(attributes, Mapping):
        return given  # what is wrong with it is said where it is read
    named = {
        column: {**described, "hierarchy": read_hierarchy(Path(described["hierarchy"]))}
        for column, described in attributes.items()
        if isinstance(described, Mapping) and isinstance(described.get("hierarchy"), str)
    }
    return {**given, "attributes": {**attributes, **named}} if named else given


_ANSWER: Final = (
    "estimate", "std_error", "lower_bound", "upper_bound", "likely_low", "likely_high",
)  # fmt: skip
_NUMBERS: Final = ("bigint", "integer", "double precision")

_MISSING: Final = ("42703", "42883", "42P01")
"""SQLSTATEs of a column, a function or a relation that is not there."""


@explained()
def connect(
    dsn: str | None = None,
    *,
    on_progress: Watcher | None = None,
    on_warning: Listener | None = None,
    on_notice: Listener | None = None,
) -> Kanon:
    """Open a database with kanon_db installed.

    Parameters
    ----------
    dsn : str, optional
        PostgreSQL connection string; by default that of the environment, ``KANON_DSN``.
    on_progress : callable, optional
        Called with a :class:`~kanon_db.session.progress.Progress` for each step of an operation,
        and about twice a second where a step knows how far it is.
    on_warning, on_notice : callable, optional
        Called with a short text for each warning, and for what is worth knowing before an
        operation goes on, such as how much memory and disk it will need.

    Returns
    -------
    Kanon
        Close it when done, or use it in a `with` statement.

    Raises
    ------
    ServerError
        When no connection can be made.
    """
    dsn = dsn or os.environ.get("KANON_DSN")
    if dsn is None:
        raise ServerError(
            "no database is named",
            detail="neither connect(dsn) nor the environment, KANON_DSN, names one",
            hint="kanon_db.connect('postgresql://user@host/database'); `kanon local start` prints"
            " that of a private server",
        )
    return Kanon(PsycopgSession(open_connection(dsn), on_progress, on_warning, on_notice))


class Kanon(Methods):
    """An open database. Each method is one transaction: all or nothing."""

    def __init__(self, session: PsycopgSession) -> None:
        self._session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._session.connection.close()

    @explained()
    def perform(self, name: str, given: Mapping[str, Any]) -> Any:
        """Perform an operation by its name.

        Parameters
        ----------
        name : str
        given : mapping
            Its parameters; those left out have their defaults. A frame stands for a list of rows.

        Returns
        -------
        object
            A value, a row, a data frame of rows, or None.

        Raises
        ------
        KanonError
        """
        operation = operations()[name]
        given = {
            item: _rows_of(value) if isinstance(value, pd.DataFrame) else value
            for item, value in given.items()
        }
        request = operation.read(with_files(given) if name == "register_source" else given)
        relations = [item.name for item in operation.parameters if item.type is RELATION]
        found = {item: self._session.qualified(getattr(request, item)) for item in relations}
        with self._operation() as session:
            rows = operation.perform(session, replace(request, **found))
        if not operation.is_many:
            return rows
        if name == "draw":
            drawn = [json.loads(row.record) for row in rows]
            return ResultFrame.of(pd.DataFrame(drawn), guarantee=DRAWS)
        names = [column.name for column in operation.result]
        frame = pd.DataFrame([operation.row(row) for row in rows], columns=names)
        if "group_key" in names:
            frame = _with_groups(frame, rows[0].names if rows else ())
        return ResultFrame.of(frame, units=_units(operation))

    @contextmanager
    def _operation(self) -> Iterator[PsycopgSession]:
        try:
            with self._session.transaction():
                self._require_installed()
                yield self._session
        except DatabaseError as error:
            if error.sqlstate in _MISSING and not self._is_current():
                raise ServerError(
                    "the database's kanon_db is not of the same state as this one",
                    detail=error.message,
                    hint="run `kanon install` of the newer of both as the server's administrator",
                ) from None
            raise

    def _is_current(self) -> bool:
        from kanon_db.installation.interpreter import is_current

        try:
            with self._session.transaction():
                return is_current(self._session)
        except DatabaseError:  # the connection is gone, or the caller's own transaction has failed
            return True

    def _require_installed(self) -> None:
        row = fetch_one(
            self._session,
            "SELECT quote_ident(current_user) AS role, EXISTS (SELECT FROM pg_namespace"
            " WHERE nspname = 'kanon' AND NOT has_schema_privilege(oid, 'USAGE')) AS is_closed",
        )
        if row["is_closed"]:
            raise PermissionDeniedError(
                "the role may not use kanon_db",
                detail=f"role {row['role']}",
                hint=f"ask an administrator for GRANT kanon_publisher TO {row['role']}, or for"
                " kanon_analyst or kanon_user, which only ask",
            )
        if not self._session.fetch("SELECT 1 WHERE to_regclass('kanon.publications') IS NOT NULL"):
            raise ServerError(
                "kanon_db is not installed in this database",
                detail=f"database {self._session.connection.info.dbname}",
                hint="run `kanon install` as the server's administrator",
            )

    @explained()
    def load(
        self,
        path: str | Path,
        table: str,
        *,
        replace: bool = False,
        null: str | Sequence[str] = (),
        delimiter: str | None = None,
        encoding: str | None = None,
        decimal: str | None = None,
        date_format: str | None = None,
        types: str | Mapping[str, str] | None = None,
        dry_run: bool = False,
        on_found: Callable[[CsvPreview], None] | None = None,
        first_year: int | None = None,
        trim: bool = False,
        rename: str | Sequence[str] | Mapping[str, str] = (),
        anew: bool = False,
        quote: str | None = None,
        escape: str | None = None,
        skip: int | None = None,
    ) -> LoadReport:
        """Copy a CSV file into a new table; see :func:`~kanon_db.transfer.csv_table.load_csv`.

        With `replace`, a registered source stays the table that was registered, so that it can be
        refreshed. What would make another table of it is refused, unless `anew` says that it will
        be registered again.
        """
        reading = CsvOptions(
            null=null, delimiter=delimiter, encoding=encoding, decimal=decimal,
            date_format=date_format, first_year=first_year, trim=trim, rename=rename, types=types,
            quote=quote, escape=escape, skip=skip,
        )  # fmt: skip
        with self._session.transaction(), self._session.reporting():
            return load_csv(
                self._session, Path(path), table, reading, replace=replace, dry_run=dry_run,
                must_keep=None if anew else partial(is_registered, self._session),
                on_found=on_found,
            )  # fmt: skip

    @explained()
    def count(
        self,
        query: str,
        params: str | Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        figures: str | Mapping[str, Any] | None = None,
        publication: str | None = None,
    ) -> pd.DataFrame:
        """Estimate COUNT, SUM, AVG, MIN, MAX and percentiles, with or without GROUP BY.

        Parameters
        ----------
        query : str
        params : sequence or mapping, optional
            The values of its parameters: in turn for ``$1``, ``?`` and ``%s``, by name for ``:x``
            and ``%(x)s``. Each is a constant, whatever it holds; a list stands for ``IN %s``.
        figures : str or mapping, optional
            The rule by which figures are shown, such as ``{"least": 6, "round": 5}``.
        publication : str, optional
            The publication that answers it, where FROM names the publication's source.

        Returns
        -------
        DataFrame
            A row for each group, and for each aggregate if there are several: the group's values,
            then ``aggregate`` (unless the query has just one COUNT), ``estimate``, ``std_error``,
            ``lower_bound``, ``upper_bound``, ``likely_low``, ``likely_high``. Where an aggregate
            has no certain bounds, or no error, these are missing.
        """
        rule = FIGURES.read(figures or {}, "figures")
        values = None if params is None else VALUES.read(params, "params")
        query = read_text(query, "query")
        with self._operation() as session:
            answer = estimates.answer(
                session, query, figures=rule, params=values, publication=publication
            )
        shown = answer.shown
        is_one_count = answer.query.is_one_count
        names = answer.query.names
        numbers = list(_ANSWER)
        rows = []
        for group in answer.groups:
            values = json.loads(group.key)
            for place, measure in shown:
                label = [] if is_one_count else [measure.label]
                row = [*(values[name] for name in names), *label, *group.estimates[place].numbers]
                rows.append(row)
        columns = [*names, *([] if is_one_count else ["aggregate"]), *numbers]
        units = dict.fromkeys(numbers, "records") if is_one_count else {}
        frame = pd.DataFrame(rows, columns=columns)
        few = "" if answer.figures is None else answer.figures.few
        return ResultFrame.of(frame, units=units, notes=list(answer.notes), few=few)

    @explained()
    def report(
        self,
        name: str,
        *,
        population: int | str | None = None,
        figures: str | Mapping[str, Any] | None = None,
    ) -> str:
        """Make a report on a publication: one HTML page for whoever answers for the people in it.

        Parameters
        ----------
        name : str
            The publication, which this role must have published.
        population : int or str, optional
            For the journalist and the marketer risk: a relation with the quasi-identifiers of the
            people from whom the source was drawn (and ``people``, if its rows stand for several),
            or how many they are, if the source is a simple random sample.
        figures : str or mapping, optional
            A rule by which people are counted in it, beside that of the publication.

        Raises
        ------
        KanonError
            As `attack`, and where the extra ``report`` is not installed.
        """
        from kanon_db.reporting.facts import gather
        from kanon_db.reporting.page import write_page

        if isinstance(population, str):
            population = self._session.qualified(population)
        rule = FIGURES.read(figures or {}, "figures")
        with self._operation() as session, session.reporting():
            facts = gather(session, name, population, rule)
        return write_page(facts)

    def readers(self, name: str) -> dict[str, list[str]]:
        """List the roles that may read a publication, each with who can log in as it now.

        Neither administrators nor the publisher count, who read it anyway.
        """
        from kanon_db.publications.lifecycle import access_to

        with self._operation() as session:
            return access_to(session, [name])[name].members

    @explained()
    def export(
        self,
        name: str,
        path: str | Path,
        *,
        relation: str = "view",
        format: str | None = None,  # noqa: A002  # as the command's option
        replace: bool = False,
        figures: str | Mapping[str, Any] | None = None,
    ) -> ExportReport:
        """Write a publication to a CSV or Parquet file; see :func:`~kanon_db.exports.export`."""
        rule = FIGURES.read(figures or {}, "figures")
        with self._operation() as session, session.reporting():
            return export(
                session,
                name,
                Path(path),
                relation=relation,
                file_format=format,
                replace=replace,
                figures=rule,
            )

    def publications(self) -> pd.DataFrame:
        """List the publications that the role may read, one row for each."""
        columns = (
            "publication_id", "name", "kind", "source", "method", "parameters", "rows",
            "guarantee", "metrics", "layout", "published_at", "published_by", "state",
            "waiting", "waits", "promise",
        )  # fmt: skip
        with self._operation() as session:
            rows = session.fetch(
                f"SELECT {', '.join(columns)} FROM kanon.publications ORDER BY publication_id"
            )
        return ResultFrame.of(pd.DataFrame(rows, columns=list(columns)), units={"rows": "records"})


def _rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Write the rows of a frame as JSON has them; missing values are null, and times are texts."""
    plain = frame.astype(object).where(frame.notna(), None)
    return [
        {
            str(name): value.isoformat() if isinstance(value, date | time) else value
            for name, value in row.items()
        }
        for row in plain.to_dict("records")
    ]


def _with_groups(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Put the values of each group into columns of their own, before all others."""
    keys = [json.loads(key) if isinstance(key, str) else key for key in frame["group_key"]]
    new = [name for name in names if name not in frame.columns]
    groups = pd.DataFrame({name: [key[name] for key in keys] for name in new}, index=frame.index)
    return pd.concat([groups, frame], axis=1)


def _units(operation: Operation) -> dict[str, str]:
    """Return the units of the columns that are numbers; an aggregate may be of anything."""
    unknown = _ANSWER if "aggregate" in {column.name for column in operation.result} else ()
    return {
        column.name: UNITS[column.name]
        for column in operation.result
        if column.sql in _NUMBERS and column.name in UNITS and column.name not in unknown
    }
