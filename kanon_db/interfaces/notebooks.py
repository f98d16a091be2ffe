"""Data frames that notebooks show with units."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import pandas as pd


class Result(pd.DataFrame):
    """A data frame like any other one, whose columns have units where a notebook shows it.

    ``attrs["units"]`` has them, by column, and ``attrs["guarantee"]`` what is promised of the rows.
    What is computed from it is a plain data frame.
    """

    @classmethod
    def of(cls, frame: pd.DataFrame, **attributes: Any) -> Result:
        """Make one of a frame, with attributes."""
        found = cls(frame)
        for name, value in attributes.items():
            found.attrs[name] = value
        return found

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def _repr_html_(self) -> str | None:
        units: Mapping[str, str] = self.attrs.get("units", {})
        named = {name: f"{name} ({unit})" for name, unit in units.items()}
        shown: str | None = pd.DataFrame(self).rename(columns=named)._repr_html_()  # type: ignore[operator]
        guarantee = self.attrs.get("guarantee")
        if shown is None or guarantee is None:
            return shown
        return f"{shown}<p>{html.escape(guarantee)}</p>"
