"""A test that takes long says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.durations import read, recorded

MOST = 3.0
"""Seconds of a test without a reason, on a quiet machine."""


def test_tests_that_take_long_say_why(request: pytest.FixtureRequest) -> None:
    """`make durations` has measured them."""
    tests = {item.nodeid: item for item in request.session.items}
    silent = [
        name
        for name, seconds in recorded().items()
        if seconds > MOST and name in tests and tests[name].get_closest_marker("slow") is None
    ]
    assert silent == []


def test_a_report_is_read(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase classname="tests.unit.test_x" name="test_a[1]"'
        ' time="1.5"/><testcase classname="tests.unit.test_x.TestAll" name="test_b" time="2"/>'
        "</testsuite></testsuites>"
    )
    assert list(read(report)) == [
        ("tests/unit/test_x.py::test_a[1]", 1.5), ("tests/unit/test_x.py::TestAll::test_b", 2.0),
    ]  # fmt: skip
