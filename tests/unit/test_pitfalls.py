"""Every known attack and every promise has a test, or a line that says why it has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.mutations import MUTATIONS, place_of
from scripts.security_tests import Marked, marked_tests, written
from tests.pitfalls import PITFALLS, Pitfall
from tests.promises import exists, is_short, promises

DURATIONS = Path(__file__).parents[1] / "durations.tsv"


def test_every_pitfall_has_a_test_or_a_reason() -> None:
    marked = {n for test in marked_tests(Path(__file__).parents[1]) for n in test.pitfalls}
    assert marked <= PITFALLS.keys()
    assert {n for n, pitfall in PITFALLS.items() if not pitfall.missing} <= marked
    assert sorted(PITFALLS) == list(PITFALLS)


def test_what_cannot_be_listed_is_refused() -> None:
    one = {1: Pitfall("Title", "Attack.")}
    with pytest.raises(ValueError, match="no test has the mark of pitfall 1"):
        written(one, [])
    assert "**Not covered:** Why." in written({1: Pitfall("Title", "Attack.", "Why.")}, [])
    test = Marked("unit/test_x.py", "test_x", "X.", (1, 2))
    with pytest.raises(ValueError, match="test_x: there is no pitfall 2"):
        written(one, [test])
    assert "* `unit/test_x.py`: `test_x`\n" in written(one, [test._replace(pitfalls=(1,))])


MARK = "@pytest.mark.pitfall"


@pytest.mark.parametrize(
    ("text", "about"),
    [
        (f'{MARK}(3)\ndef test_a() -> None:\n    """First.\n\n    Second.\n    """\n', "First."),
        (f"{MARK}(3)\n@other\ndef test_21_some_attack() -> None: ...\n", "Some attack."),
        (f"class TestOfAll:\n    {MARK}(3)\n    def test_a(self) -> None: ...\n", "A."),
    ],
)
def test_marks_are_read(tmp_path: Path, text: str, about: str) -> None:
    (tmp_path / "test_x.py").write_text(text)
    (found,) = marked_tests(tmp_path)
    assert (found.path, found.about, found.pitfalls) == ("test_x.py", about, (3,))


@pytest.mark.parametrize(
    "text",
    [
        "pytestmark = pytest.mark.pitfall(3)\n", f"{MARK}(3)\ndef helper() -> None: ...\n",
        f"{MARK}\ndef test_a() -> None: ...\n", f"{MARK}()\ndef test_a() -> None: ...\n",
        f"{MARK}(N)\ndef test_a() -> None: ...\n", f"{MARK}('3')\ndef test_a() -> None: ...\n",
        f"{MARK}(3, why='x')\ndef test_a() -> None: ...\n",
    ],
)  # fmt: skip
def test_marks_that_would_be_overlooked_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "test_x.py").write_text(text)
    with pytest.raises(ValueError, match="a mark of a pitfall"):
        marked_tests(tmp_path)


def test_every_promise_has_a_test_that_is_not_long() -> None:
    """But for those that are about Spark alone, which `make spark` keeps."""
    tests: dict[tuple[str, str], list[str]] = {}
    for promise in promises():
        assert exists(promise.test), promise
        tests.setdefault((promise.where, promise.says), []).append(promise.test)
    assert len(tests) > 150
    left = {
        says: named
        for says, named in tests.items()
        if not any(map(is_short, named)) and not all(one.startswith("spark/") for one in named)
    }
    assert left == {}


def test_faults_are_found_in_the_package_and_noticed_by_short_tests() -> None:
    for mutation in MUTATIONS:
        place_of(mutation, Path(__file__).parents[2])
        assert all(is_short(test.partition("[")[0]) for test in mutation.tests), mutation.name


def test_whoever_takes_more_than_three_seconds_says_why(request: pytest.FixtureRequest) -> None:
    """Of the tests that are collected with this one, by what `make durations` has written."""
    lines = DURATIONS.read_text(encoding="utf-8").splitlines()
    seconds = {test: float(text) for text, test in (line.split("\t") for line in lines)}
    assert sum("::" in test for test in seconds) > 100
    slow = [item for item in request.session.items if seconds.get(item.nodeid, 0) > 3]
    reasons = {item.nodeid: item.get_closest_marker("slow") for item in slow}
    assert [test for test, mark in reasons.items() if mark is None or not all(mark.args)] == []
