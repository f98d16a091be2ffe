"""What the table of shares tells of cells, as SQL; see `kanon_db.publications.rows.shares`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from kanon_db.counting.writing.steps import Nested, Select, Steps


@dataclass(frozen=True, slots=True)
class Likely:
    """SQL of what the table of shares tells of one cell, NULL where it has nothing.

    Attributes
    ----------
    shares : str
        Of a set's values, an array; of all parts of the axis of ranges.
    first, last, own : str
        The parts that a range covers, and the share that either end has on its own.
    points, upto : str
        A value of each part of the axis, and the share of all records up to its end.
    """

    shares: str = ""
    first: str = ""
    last: str = ""
    own: str = ""
    points: str = ""
    upto: str = ""

    def inside(self, first: str, last: str, upto: str = "") -> str:
        """Write the share of all records from one part of the axis to another."""
        upto = upto or self.upto
        return f"({upto}[{last}] - coalesce({upto}[{first} - 1], 0))"

    @property
    def base(self) -> str:
        """The share of all records in the parts that the range covers."""
        return f"nullif({self.inside(self.first, self.last)}, 0)"

    @classmethod
    def of(cls, alias: str, place: int) -> Self:
        """Name the columns of the rows with an alias, and those of the axis."""
        return cls(
            shares=f"{alias}.shares{place}",
            first=f"{alias}.first{place}",
            last=f"{alias}.last{place}",
            own=f"{alias}.own{place}",
            points=f"(SELECT points FROM axis{place})",
            upto=f"(SELECT upto FROM axis{place})",
        )


def add_axis(steps: Steps, table: str, attribute: str, place: int, type_: str) -> None:
    """List the parts of a column's axis, and gather what statements look up in arrays.

    Parameters
    ----------
    table : str
        That of shares.
    attribute : str
        The column's name, as SQL of a text.
    place : int
        The column's number in this statement.
    type_ : str
        Of its values.
    """
    unnested = f"{table} AS s, unnest(s.points, s.shares) WITH ORDINALITY AS u (v, p, i)"
    steps.add(
        f"parts{place}",
        f"Parts of the numbers in the ranges c{place}, with the share of all records in each.",
        Select(
            {"i": "u.i", "v": f"u.v::{type_}", "p": "u.p"},
            [unnested],
            [f"s.attribute = {attribute}", "s.cell IS NULL"],
        ),
    )
    cumulated = {"v": "v", "i": "i", "upto": "sum(p) OVER (ORDER BY i)"}
    steps.add(
        f"axis{place}",
        "Their values and cumulated shares.",
        Select(
            {"points": "array_agg(v ORDER BY i)", "upto": "array_agg(upto ORDER BY i)"},
            [Nested([Select(cumulated, [f"parts{place}"])], "p")],
        ),
    )


def add_matched(steps: Steps, truth: str, alias: str, place: int) -> tuple[str, str]:
    """Cumulate the shares of the parts of an axis whose values meet a condition.

    Parameters
    ----------
    truth : str
        The condition on ``p.v``.
    alias : str
        What this condition is called.
    place : int

    Returns
    -------
    tuple of str
        Arrays like :attr:`Likely.upto`: where the condition is true, and where it is false.
    """
    tested = Select({"i": "p.i", "p": "p.p", "x": truth}, [f"parts{place} AS p"])
    cumulated = {
        column: f"coalesce(sum(p) FILTER (WHERE {x}) OVER (ORDER BY i), 0)"
        for column, x in (("t", "x"), ("f", "NOT x"))
    }
    steps.add(
        f"matched_{alias}",
        f"The share of all records up to each part where condition {alias} is true, and false.",
        Select(
            {column: f"array_agg({column} ORDER BY i)" for column in cumulated},
            [Nested([Select({"i": "i", **cumulated}, [Nested([tested], "p")])], "c")],
        ),
    )
    return f"(SELECT t FROM matched_{alias})", f"(SELECT f FROM matched_{alias})"
