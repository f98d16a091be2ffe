"""How a count query is refused: what, where, and what is allowed instead."""

from __future__ import annotations

from typing import Final

from kanon_db.errors import UnsupportedQueryError

ALLOWED: Final = (
    "ask SELECT COUNT(*) FROM <publication> [JOIN <lookup table> ON ...] WHERE ... [GROUP BY ...];"
    " COUNT(DISTINCT x), SUM, AVG, MIN, MAX and percentile_cont may stand beside it;"
    " conditions are made of columns and constants by =, <>, <, <=, >, >=, IN, BETWEEN, LIKE,"
    " IS NULL, IS DISTINCT FROM, AND, OR, NOT, arithmetic, EXTRACT (also of AGE), date_trunc, CASE,"
    " COALESCE, NULLIF and casts"
)


def refusal(
    what: str, position: int | None = None, hint: str = ALLOWED, *, detail: str = ""
) -> UnsupportedQueryError:
    """Make the error for a query that is not answered.

    Parameters
    ----------
    what : str
        The construct, in words of ours: text of the query may hold values.
    position : int, optional
        Where it starts in the query, counted in characters from 1.
    hint : str
        What to write instead.
    detail : str
        What there is to say beside the position.
    """
    if position is not None:
        detail = f"at character {position} of the query"
    return UnsupportedQueryError(what, detail=detail, hint=hint)
