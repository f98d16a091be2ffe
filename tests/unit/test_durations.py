"""What is written down of how long tests take."""

from __future__ import annotations

from pathlib import Path

from scripts.durations import read


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
