"""A frame is anonymized in the private cluster, and nothing of it stays there."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psycopg
import pytest

import kanon_db
from kanon_db.cluster.local_cluster import LocalCluster
from kanon_db.errors import (
    IneligibleError,
    InfeasibleError,
    InvalidNameError,
    InvalidParameterError,
    TooFewError,
)
from tests.clusters import cluster_folder

N = 120
PEOPLE = pd.DataFrame(
    {
        "age": [20 + i * 7 % 31 for i in range(N)],
        "zip": [f"0{i % 7}" for i in range(N)],
        "height": [150 + i % 45 + 0.5 if i % 9 else None for i in range(N)],
        "born": [dt.date(1980, 1, 1) + dt.timedelta(days=i * 40) for i in range(N)],
        "ill": [f"ill {i % 4}" for i in range(N)],
        "number": range(N),
        "name": [f"person {i}" for i in range(N)],
    }
)
# Here, a column of numbers is published as it is, to find the original of a row.
pytestmark = pytest.mark.filterwarnings('ignore:insensitive column "number" is nearly unique')

MOMENT = pd.Timestamp("2020-02-03 04:05")
KNOWN = ["age", "zip", "height", "born"]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with cluster_folder("cluster") as folder:
        yield folder


def anonymize(folder: Path, frame: pd.DataFrame = PEOPLE, **given: Any) -> pd.DataFrame:
    roles: dict[str, Any] = {
        "quasi_identifiers": KNOWN,
        "sensitive": "ill",
        "insensitive": ["number"],
    }
    return kanon_db.anonymize(frame, directory=folder, **(roles | given))


def fits(cell: object, value: object) -> bool:
    if isinstance(cell, pd.Interval):
        if value is None or value != value:
            return cell.left == float("-inf")
        return (pd.Timestamp(value) if isinstance(value, dt.date) else value) in cell  # type: ignore[arg-type,operator]
    if isinstance(cell, tuple):
        return value in cell
    return cell is None or cell != cell or cell == value


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "given"),
    [("generalized", {"k": 4, "method": "mondrian", "refine": False}),
     ("freeform", {"k": 4}), ("suppressed", {"k": 4})],
)  # fmt: skip
def test_each_row_fits_its_original(folder: Path, kind: Any, given: dict[str, Any]) -> None:
    found = anonymize(folder, kind=kind, **given)
    assert len(found) == N
    assert [name for name in found if name != "pattern"] == [*KNOWN, "ill", "number"]
    assert sorted(found["number"]) == list(range(N))  # as it is, so it tells the original here
    for row in found.to_dict("records"):
        own = PEOPLE.iloc[row["number"]]
        assert row["ill"] == own["ill"]
        if kind != "freeform":  # whose rows cover k originals, not all of them its own
            assert all(fits(row[name], own[name]) for name in KNOWN), row
    if kind == "generalized":
        classes = found.groupby([found[name].map(str) for name in KNOWN]).size()
        assert classes.min() >= 4
        assert isinstance(found["zip"][0], tuple)
        assert found.attrs["guarantee"] in found._repr_html_()  # type: ignore[operator]
    assert "4" in found.attrs["guarantee"]
    assert found.attrs["metrics"]["records"] == N


@pytest.mark.long
def test_nothing_stays(folder: Path) -> None:
    anonymize(folder, kind="suppressed", k=3)
    with pytest.raises((IneligibleError, InfeasibleError, InvalidParameterError)):
        anonymize(folder, kind="suppressed", k=N + 1)
    with psycopg.connect(LocalCluster(folder).dsn()) as connection:
        for statement in (
            "SELECT count(*) FROM kanon.publications",
            "SELECT count(*) FROM kanon.source",
            "SELECT count(*) FROM pg_class WHERE relname LIKE 'frame%'",
        ):
            assert connection.execute(statement.encode()).fetchone() == (0,)


def test_types_are_those_of_the_frame(folder: Path) -> None:
    frame = PEOPLE.assign(flag=[i % 2 == 0 for i in range(N)], when=MOMENT)
    found = anonymize(
        folder, frame, kind="suppressed", k=2, quasi_identifiers=["zip"], sensitive=None,
        insensitive=["flag", "when", "height"],
    )  # fmt: skip
    assert set(found["zip"]) == set(PEOPLE["zip"])
    assert set(found["flag"]) == {True, False}
    assert found["when"].iloc[0] == MOMENT
    assert found["height"].dtype == float


def test_types_are_kept(folder: Path) -> None:
    """Of columns that are published as they are, none loses a type or a value."""
    zone = dt.timezone(dt.timedelta(hours=2))
    long_ago = dt.date(1, 1, 1)
    columns: dict[str, pd.Series[Any]] = {
        "day": pd.Series([dt.date(9999, 12, 31), long_ago, None] * 40, dtype=object),
        "moment": pd.Series([pd.Timestamp("2020-02-03 04:05:06.000007", tz="Europe/Berlin")] * N),
        "wide": pd.Series([dt.datetime(9999, 12, 31, 23, 59, tzinfo=zone), None] * 60, dtype="O"),
        "clock": pd.Series([dt.time(4, 5), dt.time(23)] * 60, dtype=object),
        "word": pd.Series(["", None, "NA", " a ", "x,\n\\.\"", "\\N"] * 20, dtype=object),
        "code": pd.Series(["007", "1.234"] * 60, dtype="string"),
        "sort": pd.Series(["b", "a", None] * 40).astype("category"),
        "whole": pd.Series([1, None, -(2**62)] * 40, dtype="Int64"),
        "large": pd.Series([2**64 - 1, 0] * 60, dtype="uint64"),
        "flag": pd.Series([True, None] * 60, dtype="boolean"),
        "exact": pd.Series([Decimal("1.10"), Decimal("1E+30")] * 60, dtype=object),
        "real": pd.Series([0.1, float("nan"), 1e300] * 40),
        "small": pd.Series([1, 2] * 60, dtype="int8"),
    }  # fmt: skip
    frame = pd.DataFrame({"number": range(N), "zip": ["a", "b"] * 60, **columns})
    before = frame.copy(deep=True)
    found = kanon_db.anonymize(
        frame, quasi_identifiers=["zip"], insensitive=["number", *columns], kind="suppressed", k=3,
        directory=folder,
    ).sort_values("number", ignore_index=True)  # fmt: skip
    pd.testing.assert_frame_equal(frame, before)
    pd.testing.assert_frame_equal(pd.DataFrame(found[list(frame)]), frame, check_freq=False)
    for name in ("day", "word", "wide"):
        assert [type(value) for value in found[name]] == [type(value) for value in frame[name]]


def test_ranges_of_the_first_and_the_last_days(folder: Path) -> None:
    days = [dt.date(9999, 12, 31), dt.date(1, 1, 1)] * 4
    found = kanon_db.anonymize(
        pd.DataFrame({"day": pd.Series(days, dtype=object)}), quasi_identifiers=["day"], k=8,
        directory=folder,
    )  # fmt: skip
    whole = pd.Interval(pd.Timestamp(min(days)), pd.Timestamp(max(days)), closed="both")
    assert set(found["day"]) == {whole}


@pytest.mark.parametrize(
    ("first", "step"),
    [(2**63 + 9, 7), (2**70 + 1, 1), (Decimal(1) / 7, Decimal(1) / 7), (Decimal("0.1"), 1)],
)
def test_ranges_contain_numbers_that_no_float_is(folder: Path, first: Any, step: Any) -> None:
    numbers = [first + i * step for i in range(8)]
    found = kanon_db.anonymize(
        pd.DataFrame({"number": pd.Series(numbers, dtype=object)}), quasi_identifiers=["number"],
        k=8, directory=folder,
    )  # fmt: skip
    (whole,) = set(found["number"])
    if isinstance(first, int):
        assert (whole.left, whole.right) == (numbers[0], numbers[-1])
    elif numbers[0] != Decimal("0.1"):  # which a float shows as it is
        assert Decimal(whole.left) <= numbers[0] < numbers[-1] <= Decimal(whole.right)
    else:
        assert (whole.left, whole.right) == (0.1, 7.1)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([1, "a"], "int, str"),
        ([dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 2)], "date, datetime"),
        ([dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)], "time zone"),
        ([pd.Timedelta(1, "s")] * 2, "timedelta64"),
        ([[1], [2]], "list"),
        (["a\0b", "c"], "NUL character"),
        (["\ud800", "c"], "valid Unicode"),
        ([pd.Timestamp("2020-01-01 00:00:00.000000001")] * 2, "nanoseconds"),
        ([np.datetime64("-0044-01-01", "s"), np.datetime64("12020-01-01", "s")], "Python"),
        ([np.longdouble("1.00000000000000000001")] * 2, "float128"),
    ],
)
def test_what_cannot_be_kept_is_refused(folder: Path, values: list[Any], reason: str) -> None:
    held: Any = object if isinstance(values[0], str) else None
    odd = pd.Series(
        np.array(values * 10) if isinstance(values[0], np.generic) else values * 10, dtype=held
    )
    frame = pd.DataFrame({"age": [20, 30] * 10, "odd": odd})
    with pytest.raises(InvalidParameterError) as refused:
        kanon_db.anonymize(
            frame, quasi_identifiers=["age"], insensitive=["odd"], k=3, directory=folder
        )
    error = refused.value
    assert 'column "odd"' in error.detail
    assert reason in f"{error.message} {error.detail}"
    assert error.hint


@pytest.mark.long
@pytest.mark.parametrize("roles", [{}, {"identifiers": ["patient"]}, {"insensitive": ["patient"]}])
def test_rows_of_few_people_do_not_pass_for_many(folder: Path, roles: dict[str, Any]) -> None:
    """Ten patients with 20 rows each are not 5-anonymous because 200 rows are."""
    frame = pd.DataFrame({"patient": [i // 20 for i in range(200)], "age": [30] * 200})
    with pytest.warns(UserWarning, match='"patient" has recurring values .* as the entity') as told:
        kanon_db.anonymize(frame, quasi_identifiers=["age"], k=5, directory=folder, **roles)
    assert len(told) == 1
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TooFewError):
            kanon_db.anonymize(
                frame, quasi_identifiers=["age"], k=11, directory=folder, entity="patient"
            )


def test_one_row_of_each_person(folder: Path) -> None:
    frame = PEOPLE.assign(person=[i // 2 for i in range(N)], day=[i * 7 % N for i in range(N)])
    found = anonymize(
        folder, frame, kind="suppressed", k=3, quasi_identifiers=["zip"], entity="person",
        keep="latest by day",
    )  # fmt: skip
    latest = frame.sort_values("day").groupby("person").last()
    assert {*found["number"]} <= {*latest["number"]}
    assert len(found) + found.attrs["metrics"]["suppressed_records"] == N // 2
    assert "one record, the latest by day" in found.attrs["guarantee"]
    with pytest.raises(InvalidParameterError, match="keep needs an entity"):
        anonymize(folder, frame, k=3, keep="latest by day")


def test_every_role(folder: Path) -> None:
    """Two sensitive columns, each with a constraint; bins of ages; names are left out."""
    rows = [(f"name {i}", 20 + i % 40, f"ill {i % 4}", 100 * (i * 7 % 5), i) for i in range(200)]
    frame = pd.DataFrame(rows, columns=["name", "age", "ill", "cost", "number"])
    found = kanon_db.anonymize(
        frame, quasi_identifiers=["age"], sensitive="ill", also_sensitive=["cost"],
        identifiers=["name"], attributes={"age": {"round": 10}}, k=5,
        constraints={"l": 3, "attributes": {"cost": {"l": 2}}}, directory=folder,
    )  # fmt: skip
    assert list(found.columns) == ["age", "ill", "cost"]
    assert {interval.left % 10 for interval in found["age"]} == {0}
    for _, rows_of_class in found.groupby("age"):
        assert rows_of_class["ill"].nunique() >= 3
        assert rows_of_class["cost"].nunique() >= 2


def test_errors_say_what_to_do_once(folder: Path) -> None:
    """Whether the frame is refused before, or by what is called on the way."""
    with pytest.raises(InvalidParameterError, match="no such column"):
        anonymize(folder, quasi_identifiers=["aeg"], k=3)
    with pytest.raises(InvalidParameterError, match="quasi_identifiers must be a list"):
        anonymize(folder, quasi_identifiers="zip", k=3)
    with pytest.raises(InvalidParameterError, match="only a frame of pandas"):
        anonymize(folder, PEOPLE.to_dict(), k=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="as rows") as refused:
        anonymize(folder, kind="buckets", k=3)
    assert refused.value.__notes__[-1].startswith("hint: one of generalized")
    with pytest.raises(TooFewError) as too_few:
        anonymize(folder, k=N + 1)
    assert len([note for note in too_few.value.__notes__ if note.startswith("detail")]) == 1


NAMES: dict[str, object] = {
    "a number": 0, "a tuple": ("age", "mean"), "empty": "", "too long": "x" * 64,
    "too many bytes": "\u00e4" * 32, "a line break": "a\nb", "NUL": "a\0b",
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_columns_whose_names_are_not_kept_are_refused(folder: Path, name: str) -> None:
    """As frames have that were read without a header, grouped, or pivoted."""
    column: Any = NAMES[name]
    frame = PEOPLE.copy()
    frame.columns = pd.Index(
        [column if old == "age" else old for old in PEOPLE], tupleize_cols=False
    )
    with pytest.raises((InvalidParameterError, InvalidNameError), match="column"):
        anonymize(folder, frame, quasi_identifiers=[column])
    anonymize(folder, frame, quasi_identifiers=["zip"], k=2, method="mondrian")
