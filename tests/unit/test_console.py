"""What a notebook shows of results."""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import kanon_db.publications.registry  # noqa: F401  # registers them
from kanon_db.errors import InfeasibleError
from kanon_db.interfaces import console
from kanon_db.interfaces.python import ResultFrame
from kanon_db.publications.registry import KINDS
from kanon_db.publications.results import Attack, Check, Published, Remark
from kanon_db.query.formulas import Estimated
from kanon_db.reporting.page import _percent, verdict
from kanon_db.session.progress import Progress, Reporter
from kanon_db.wording import for_python, for_shell


@dataclass(frozen=True)
class Result:
    name: str
    sizes: tuple[int, ...]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (True, True), (float("nan"), None), (float("inf"), None), (np.int64(3), 3),
        (np.float64("nan"), None), (np.array([1.5, np.nan]), [1.5, None]),
        (Decimal("0.10"), "0.10"), (Path("/srv"), "/srv"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (Result("b", (3, 45)), {"name": "b", "sizes": [3, 45]}),
        (pd.DataFrame({"metric": ["l"], "value": [np.nan]}), [{"metric": "l", "value": None}]),
    ],
)  # fmt: skip
def test_plain(value: object, expected: object) -> None:
    assert console.plain(value) == expected
    json.dumps(console.plain(value), allow_nan=False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""), (True, "yes"), (6366, "6,366"), (195924.0, "195,924"), (1234.5678, "1,234.6"),
        (0.000012345, "1.234e-05"), (["Sales", 3], "Sales, 3"), ({"l": 4}, '{"l": 4}'),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02 03:04 UTC"),
        (date(2026, 1, 2), "2026-01-02"),
    ],
)  # fmt: skip
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


def test_many_steps_are_ten_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of six minutes with a step in each second."""
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    with console.progress(quiet=False) as show:
        for second in range(360):
            now = float(second)
            show(Progress(1 + second // 60, 6, f"step {second}"))
    lines = capsys.readouterr().err.splitlines()
    assert 5 <= len(lines) <= 10
    assert lines[0] == "1 of 6: step 10"


def test_numbers_have_their_units() -> None:
    shown = Estimated(1178.4, 12.3456, 487, 1663)._repr_html_()
    assert '<td style="text-align: left">1,178.4 records</td>' in shown
    assert "12.35 records" in shown


def test_what_is_missing_has_no_unit() -> None:
    assert "records" not in Estimated(None, None, None, None)._repr_html_()


def test_texts_are_texts() -> None:
    """A name or a guarantee that looks like HTML is none."""
    published = Published(1, "<b>x</b>", "a < b & c", 6366, {"<i>": 0.5}, 1.5)
    shown = published._repr_html_()
    assert "&lt;b&gt;x&lt;/b&gt;" in shown
    assert "a &lt; b &amp; c" in shown
    assert "<b>" not in shown
    assert "<i>" not in shown
    assert "6,366 records" in shown
    assert "1.5 s" in shown


def test_figures_of_a_dry_run_are_tables() -> None:
    rows = [{"attack": "linking", "rate": 0.25}, {"attack": "other", "bound": None}]
    shown = Published(None, "n", "g", 5, {"figures": {"attacks": rows}}, 0.1)._repr_html_()
    assert "<th>attack</th><th>rate</th><th>bound</th>" in shown
    assert "<td>linking</td><td>0.25</td><td></td>" in shown


def test_a_frame_has_units_where_it_is_shown() -> None:
    frame = pd.DataFrame({"attack": ["<b>"], "rate": [0.5]})
    found = ResultFrame.of(frame, units={"rate": "0 to 1"}, guarantee="5-anonymity <")
    shown = found._repr_html_()
    assert shown is not None
    assert "<th>rate (0 to 1)</th>" in shown
    assert "<p>5-anonymity &lt;</p>" in shown
    assert "<b>" not in shown
    assert list(found.columns) == ["attack", "rate"]
    assert "0 to 1" not in repr(found)


def test_what_is_computed_from_it_is_a_plain_frame() -> None:
    found = ResultFrame.of(pd.DataFrame({"rate": [0.5, 0.7]}), units={"rate": "0 to 1"})
    assert type(found.head(1)) is pd.DataFrame
    assert type(found[found["rate"] > 0.6]) is pd.DataFrame


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def tracked() -> tuple[Reporter, list[Progress], Clock]:
    shown: list[Progress] = []
    clock = Clock()
    return Reporter(shown.append, clock), shown, clock


def test_phases_and_steps_are_shown_at_once() -> None:
    tracker, shown, _ = tracked()
    tracker.plan(["reading", "writing"])
    tracker.phase("reading")
    tracker.step("counting")
    tracker.phase("writing")
    tracker.phase("something else")
    assert [said.title for said in shown] == [
        "1 of 2: reading", "1 of 2: counting", "2 of 2: writing", "2 of 2: something else",
    ]  # fmt: skip
    tracker.clear()
    tracker.step("verifying")
    assert shown[-1] == Progress(0, 0, "verifying")


def test_shares_are_shown_now_and_then() -> None:
    tracker, shown, clock = tracked()
    tracker.step("writing")
    for n in range(1000):
        clock.now += 0.004
        tracker.done(n, 1000)
    # Four seconds: eight times at most, besides the step itself.
    assert 6 <= len(shown) - 1 <= 8
    assert [said.share for said in shown[1:]] == sorted(said.share or 0 for said in shown[1:])


def test_nothing_is_estimated_from_a_little() -> None:
    tracker, shown, clock = tracked()
    tracker.step("writing")
    clock.now += 60
    tracker.done(1, 100)
    assert shown[-1].share == 0.01
    assert shown[-1].seconds is None
    clock.now += 60
    tracker.done(50, 100)
    assert shown[-1].seconds == 120
    assert shown[-1].remaining == "about 120 s left"
    tracker.step("analyzing")
    assert shown[-1].seconds is shown[-1].share is None


def test_a_time_limit_is_that_of_its_phase() -> None:
    tracker, shown, clock = tracked()
    tracker.plan(["searching", "writing"])
    tracker.phase("searching")
    tracker.limit(60)
    clock.now += 10
    tracker.step("refining")
    assert shown[-1].remaining == "time limit in 50 s"
    clock.now += 10
    tracker.heartbeat()
    assert shown[-1].remaining == "time limit in 40 s"
    clock.now += 41  # a method may need a little longer
    tracker.heartbeat()
    assert shown[-1].remaining == ""
    tracker.phase("writing")
    assert shown[-1].remaining == ""


def test_steps_that_say_nothing_are_not_shown_again() -> None:
    tracker, shown, clock = tracked()
    tracker.heartbeat()
    tracker.step("sorting")
    clock.now += 9
    tracker.heartbeat()
    assert len(shown) == 1


def test_a_name_has_room_for_63_bytes() -> None:
    """PostgreSQL would cut it."""
    said = Progress(11, 12, "a" * 80, 0.5, 3600.0)
    assert len(said.short) == 63
    assert said.short.startswith("kanon_db 11/12 50% ~3600s aaa")


def test_every_kind_has_words() -> None:
    for kind in KINDS.values():
        if kind.room.startswith("kanon_db."):
            assert kind.description.published
            assert kind.description.not_covered


def test_what_was_not_measured_does_not_hold() -> None:
    """Nor does a line that no bound is on."""
    assert verdict(Check("c", "b", "0 exceed it", holds=True)) == "yes"
    assert verdict(Check("c", "b", "1 exceeds it", holds=False)) == "no"
    assert verdict(Remark("c", "b", "3 people")) == "no bound"
    assert verdict(Remark("c", "b", "not measured")) == "not measured"


@pytest.mark.parametrize(
    ("share", "shown"),
    [(None, "-"), (0.0, "0.00 %"), (1e-6, "< 0.01 %"), (0.0123, "1.23 %"), (0.5, "50.0 %"),
     (0.99999, "> 99.99 %"), (1.0, "100.0 %")],
)  # fmt: skip
def test_shares_are_rounded_but_not_to_nothing_or_all(share: float | None, shown: str) -> None:
    assert _percent(share) == shown


@pytest.mark.parametrize(
    ("rate", "bound", "people", "exceeds"),
    [(0.13, 0.1, 410, False), (0.16, 0.1, 410, True), (0.1, 0.1, 10**6, False),
     (None, 0.1, 5, False), (0.9, None, 5, False), (1.0, 0.0, 5, True)],
)  # fmt: skip
def test_more_than_chance(
    rate: float | None, bound: float | None, people: int, exceeds: bool
) -> None:
    assert Attack("a", bound, 0.1, rate, people).exceeds is exceeds


PACKAGE = Path(__file__).parents[2] / "kanon_db"
COMMANDS_ONLY = ("cluster", "installation", "cli", "demo.py", "psycopg_session.py")
"""Rooms whose hints are about commands in every language: there is no other way to do it."""


@functools.cache
def hints() -> list[tuple[Path, str]]:
    return list(_hints())


def _hints() -> Iterator[tuple[Path, str]]:
    """Every hint, warning and notice in the code, with … for what is filled in."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                named = [word.value for word in node.keywords if word.arg == "hint"]
                said = isinstance(node.func, ast.Attribute) and node.func.attr in ("warn", "tell")
                for value in [*named, *(node.args if said else [])]:
                    yield path, _text(value)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return "…"


def test_hints_are_written_once_in_sql() -> None:
    found = hints()
    assert len(found) > 200
    for path, text in found:
        if not set(path.relative_to(PACKAGE).parts) & set(COMMANDS_ONLY):
            assert not re.search(r"(^|\s)--[a-z]|kanon (register|publish|query|grant)", text), text


def test_the_shell_gets_no_sql() -> None:
    translated = [for_shell(text) for _, text in hints()]
    assert [text for text in translated if "=>" in text] == []
    # Those that the command line has no command for; the administrator's setting is a table.
    left = re.findall(r"\bkanon\.[a-z_]+", " ".join(translated))
    assert set(left) <= {"kanon.setting", "kanon.source", "kanon.estimator"}


def test_python_gets_no_sql() -> None:
    assert [text for _, text in hints() if "=>" in for_python(text)] == []


@pytest.mark.parametrize(
    ("sql", "shell", "python"),
    [
        ("refine => false", "--no-refine", "refine=False"),
        ("sensitive => ...", "--sensitive ...", "sensitive=..."),
        ("method => 'auto'.", "--method auto.", 'method="auto".'),
        (
            """accept => '{"a": "it''s"}'""",
            """--accept '{"a": "it'"'"'s"}'""",
            """accept={"a": "it's"}""",
        ),
        ("TABLE kanon.publications lists", "kanon publications lists",
         "kanon.publications() lists"),
        ("kanon.estimate_count or kanon.setting", "kanon query or kanon.setting",
         "kanon.estimate_count or kanon.setting"),
        ("kanon.publish_buckets()", "kanon publish buckets", "kanon.publish_buckets()"),
    ],
)  # fmt: skip
def test_words(sql: str, shell: str, python: str) -> None:
    assert for_shell(sql) == shell
    assert for_python(sql) == python


def test_answers_show_what_is_likely_before_what_is_certain(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where a group is called like a number."""
    names = ["lower_bound", "estimate", "std_error", "lower_bound", "upper_bound"]
    frame = pd.DataFrame(
        [["a", 5.25, 1.0, 4.0, 20.0, 4.0, 7.75], ["b", None, None, None, 9.0, None, None]],
        columns=[*names, "likely_low", "likely_high"],
    )
    console.print_answers(frame)
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == "lower_bound estimate likely range certain bounds".split()
    assert first.split() == "a 5.25 4 to 7.75 4 to 20".split()
    assert second.split() == "b at most 9".split()
