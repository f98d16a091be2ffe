"""What a notebook shows of results."""

from __future__ import annotations

import pandas as pd

from kanon_db.interfaces.python import ResultFrame
from kanon_db.publications.results import Published
from kanon_db.query.formulas import Estimated


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
