"""A frame is anonymized in the private cluster, and nothing of it stays there."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psycopg
import pytest

import kanon_db
from kanon_db.cluster.local_cluster import LocalCluster
from kanon_db.errors import IneligibleError, InfeasibleError, InvalidParameterError, TooFewError

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
MOMENT = pd.Timestamp("2020-02-03 04:05")
KNOWN = ["age", "zip", "height", "born"]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    root = Path(tempfile.gettempdir(), f"kanon-test-{uuid.uuid4().hex[:12]}")
    yield root / "cluster"
    LocalCluster(root / "cluster").destroy()
    shutil.rmtree(root, ignore_errors=True)


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
    with pytest.raises(InvalidParameterError, match="as rows") as refused:
        anonymize(folder, kind="buckets", k=3)
    assert refused.value.__notes__[-1].startswith("hint: one of generalized")
    with pytest.raises(TooFewError) as too_few:
        anonymize(folder, k=N + 1)
    assert len([note for note in too_few.value.__notes__ if note.startswith("detail")]) == 1
