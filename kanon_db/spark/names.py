"""Names of columns as Spark reads them."""

from __future__ import annotations


def quoted(name: str) -> str:
    """Quote a name, which may have dots and backticks.

    Examples
    --------
    >>> quoted("a.b`c")
    '`a.b``c`'
    """
    return "`" + name.replace("`", "``") + "`"
