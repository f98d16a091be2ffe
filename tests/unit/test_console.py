import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kanon_db.errors import InfeasibleError
from kanon_db.interfaces import console
from kanon_db.session.progress import Progress


@dataclass(frozen=True)
class Result:
    name: str
    sizes: tuple[int, ...]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (float("nan"), None),
        (float("inf"), None),
        (np.int64(3), 3),
        (np.float64("nan"), None),
        (np.array([1.5, np.nan]), [1.5, None]),
        (Decimal("0.10"), "0.10"),
        (Path("/srv"), "/srv"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (Result("b", (3, 45)), {"name": "b", "sizes": [3, 45]}),
        (pd.DataFrame({"metric": ["l"], "value": [np.nan]}), [{"metric": "l", "value": None}]),
    ],
)
def test_plain(value: object, expected: object) -> None:
    assert console.plain(value) == expected
    json.dumps(console.plain(value), allow_nan=False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        (True, "yes"),
        (6366, "6,366"),
        (195924.0, "195,924"),
        (1234.5678, "1,234.6"),
        (0.000012345, "1.234e-05"),
        (["Sales", 3], "Sales, 3"),
        ({"l": 4}, '{"l": 4}'),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02 03:04 UTC"),
        (date(2026, 1, 2), "2026-01-02"),
    ],
)
def test_cell(value: object, expected: str) -> None:
    assert console.cell(value) == expected


def test_table_prints_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(["name", "records"], [("[red]a:smile:[/red]", 1234), ("b" * 150, 5)])
    header, first, *others = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "records"]
    assert first.split() == ["[red]a:smile:[/red]", "1,234"]
    assert sum(line.count("b") for line in others) == 150  # folded rather than cut


def test_error_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_error(
        InfeasibleError("no setting", detail="50 sizes", hint="more"), as_json=False
    )
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "error: no setting\ndetail: 50 sizes\nhint: more\n"


def test_error_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_error(InfeasibleError("no setting"), as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "error": {"message": "no setting", "detail": "", "hint": "", "sqlstate": "KN002"}
    }


@pytest.mark.parametrize(
    ("quiet", "seconds", "expected"),
    [(False, 0.0, "1 of 2: reading\n2 of 2: writing\n"), (False, 9.0, ""), (True, 0.0, "")],
)
def test_without_a_terminal_steps_are_lines(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    quiet: bool,
    seconds: float,
    expected: str,
) -> None:
    """Once each, and only where the command has run for a while."""
    monkeypatch.setattr(console, "_QUIET_SECONDS", seconds)
    with console.progress(quiet=quiet) as show:
        show(Progress(1, 2, "reading"))
        show(Progress(1, 2, "reading", 0.5, 3.0))
        show(Progress(2, 2, "writing"))
    assert capsys.readouterr() == ("", expected)
