"""The guarantee of a publication and a batch of new people together, in words."""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")


def of_both(one: str, other: str) -> str:
    """Put two guarantees of the same request together.

    What follows a semicolon is about some people of a batch, such as ``3 records are left out``:
    numbers of people add up, of shares the larger one counts, and what one of them says holds for
    both.

    Examples
    --------
    >>> of_both("2-anonymity; 3 records are left out", "2-anonymity; 4 records are left out")
    '2-anonymity; 7 records are left out'
    >>> of_both("l 3; the threshold is 1 for 2.5% of the records", "l 3; 1 people are certain")
    'l 3; the threshold is 1 for 2.5% of the records; 1 people are certain'
    """
    head, *clauses = one.split("; ")
    _, *more = other.split("; ")
    found = {_NUMBER.sub("#", clause): clause for clause in clauses}
    for clause in more:
        key = _NUMBER.sub("#", clause)
        found[key] = _added(found[key], clause) if key in found else clause
    return "; ".join([head, *found.values()])


def _added(one: str, other: str) -> str:
    numbers = iter(_NUMBER.findall(other))

    def add(match: re.Match[str]) -> str:
        mine, theirs = str(match.group()), str(next(numbers))
        if one[match.end() : match.end() + 1] == "%":
            return max(mine, theirs, key=float)
        # A word such as "1/3" or a threshold is no number of people, and is the same in both.
        is_threshold = mine == theirs and one[: match.start()].endswith(("threshold is ", "above "))
        return mine if is_threshold else str(int(mine) + int(theirs))

    return _NUMBER.sub(add, one)
