"""Comparisons of two columns of ranges: what is certain follows from the ends alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kanon_db.counting import expressions as ex
from kanon_db.counting.layout import Cell
from kanon_db.counting.writing.cell_values import is_endless
from kanon_db.counting.writing.intervals import on_axis
from kanon_db.counting.writing.truth import Likelihood, of_known

_POSSIBLE = {
    "<": "{a}.low < {b}.high", "<=": "{a}.low <= {b}.high",
    ">": "{a}.high > {b}.low", ">=": "{a}.high >= {b}.low",
    "=": "{a}.low <= {b}.high AND {b}.low <= {a}.high",
    "<>": "NOT ({a}.low = {b}.high AND {b}.low = {a}.high)",
}  # fmt: skip
OTHERWISE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}


def compares_ranges(leaf: ex.Expression, cells: Mapping[str, Cell]) -> bool:
    """Whether a condition compares two columns of ranges that stand on one axis."""
    match leaf:
        case ex.Comparison(_, ex.Column(lookup=None) as a, ex.Column(lookup=None) as b):
            left, right = cells[a.name], cells[b.name]
        case _:
            return False
    if any(cell.kind != "range" or cell.mark is not None for cell in (left, right)):
        return False
    types = left.column.type, right.column.type
    if any(type_.category == "moment" for type_ in types):
        return types[0].name == types[1].name
    is_float = [type_.category == "float" for type_ in types]
    # A number is rounded to compare it with one of floating point.
    return is_float[0] == is_float[1]


def of_ranges(
    leaf: ex.Expression, cells: Mapping[str, Cell], sql: Mapping[str, str], truth: str
) -> Likelihood:
    """Write how likely such a comparison holds.

    Parameters
    ----------
    leaf : Expression
        For which :func:`compares_ranges` holds.
    cells : mapping of str to Cell
    sql : mapping of str to str
        The cells of columns.
    truth : str
        Whether it is true for the values of a row.
    """
    if not (
        isinstance(leaf, ex.Comparison)
        and isinstance(leaf.left, ex.Column)
        and isinstance(leaf.right, ex.Column)
    ):
        raise TypeError("two columns are compared")
    names = leaf.left.name, leaf.right.name
    sqls = [sql[name] for name in names]
    ends = [on_axis(cells[name], one) for name, one in zip(names, sqls, strict=True)]
    anything = " OR ".join(map(is_endless, sqls))
    known = " AND ".join(f"{one} IS NOT NULL" for one in sqls)

    def possibly(operator: str) -> str:
        compared = _POSSIBLE[operator].format(a="{0}", b="{1}")
        for alias, range_ in zip(("{0}", "{1}"), ends, strict=True):
            compared = compared.replace(f"{alias}.low", f"lower({range_})")
            compared = compared.replace(f"{alias}.high", f"upper({range_})")
        return f"({known} AND ({anything} OR coalesce({compared}, false)))"

    possible, otherwise = possibly(leaf.operator), possibly(OTHERWISE[leaf.operator])
    likely = of_known(truth)
    return Likelihood(
        likely.true, likely.false,
        f"({known} AND NOT {otherwise})", possible, f"({known} AND NOT {possible})", otherwise,
    )  # fmt: skip
