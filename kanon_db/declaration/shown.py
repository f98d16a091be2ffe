"""Formats results for people: numbers, units, tables in notebooks, cells of spreadsheets."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

FORMULA: Final = r"^[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-]"
"""Beginnings of cells that spreadsheets would run as formulas: CWE-1236.

Python and PostgreSQL read it alike, and the next one.
"""

NUMBER: Final = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
"""Numbers, which begin as formulas do."""

UNITS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("records", "added", "waiting", "withdrawn", "left_out", "corrected", "tried_on", "rows"),
        "records",
    ),
    **dict.fromkeys(("people", "certain", "certain_people"), "people"),
    **dict.fromkeys(("n_queries", "undefined"), "queries"),
    **dict.fromkeys(
        ("estimate", "std_error", "lower_bound", "upper_bound", "likely_low", "likely_high"),
        "records",
    ),
    **dict.fromkeys(
        ("share", "bound", "base_rate", "rate", "attack_rate", "loss", "expected_selectivity"),
        "0 to 1",
    ),
    **dict.fromkeys(
        ("mean_relative_error", "median_relative_error", "count_error"), "of the true count"
    ),
    "seconds": "s",
}
"""The units of numbers, by the names that they have in all results."""


def unrun(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would take for a formula.

    >>> assert (unrun("=1+1"), unrun("-5"), unrun("Sales")) == ("'=1+1", "-5", "Sales")
    """
    is_formula = re.match(FORMULA, text) and not re.fullmatch(NUMBER, text)
    return f"'{text}" if is_formula else text


def plain(value: Any) -> Any:
    """Reduce a result to what JSON can express.

    Data frames become lists of objects; numbers that JSON lacks (NaN, infinities) become null.

    Examples
    --------
    >>> plain({"loss": float("nan"), "sizes": (3, 45)})
    {'loss': None, 'sizes': [3, 45]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, date):
        return value.isoformat()
    if hasattr(value, "to_dict"):  # a data frame, without importing pandas
        return plain(value.to_dict("records"))
    if hasattr(value, "tolist"):  # a numpy array or scalar
        return plain(value.tolist())
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return str(value)


def cell(value: Any) -> str:
    """Format one value for people to read.

    Examples
    --------
    >>> cell(195924), cell(10.2539), cell(0.123456), cell(True), cell(None)
    ('195,924', '10.25', '0.1235', 'yes', '')
    >>> cell(6366.4999)
    '6,366.5'
    """
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M %Z}".rstrip()
    value = plain(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if value.is_integer():
            return f"{value:,.0f}"
        return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(cell(item) for item in value)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


class ShownResult:
    """A row of a result, a dataclass, which notebooks show as a table with units."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return _html(plain(self))


def _html(value: Any) -> str:
    """Write a value as HTML: a table of names and values, or a table of rows."""
    import html  # for which a session's first estimate would wait

    if isinstance(value, dict):
        rows = "".join(
            f'<tr><th style="text-align: left">{html.escape(name)}</th>'
            f'<td style="text-align: left">{_html(item)}{_unit(name, item)}</td></tr>'
            for name, item in value.items()
        )
        return f"<table><tbody>{rows}</tbody></table>"
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        names = list(dict.fromkeys(name for row in value for name in row))
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        rows = "".join(
            f"<tr>{''.join(f'<td>{_html(row.get(name))}</td>' for name in names)}</tr>"
            for row in value
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return html.escape(cell(value))


def _unit(name: str, value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f" {UNITS[name]}" if is_number and name in UNITS else ""
