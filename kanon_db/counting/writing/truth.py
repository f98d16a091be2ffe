"""How likely a condition holds for a record whose values are not known exactly, as SQL.

Conditions on different columns are taken as independent within a record; what surely or possibly
holds follows from three-valued logic only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from kanon_db.counting import expressions as ex
from kanon_db.counting.chains import by_attribute
from kanon_db.counting.refusals import refusal

T = TypeVar("T")

MOST_LEAVES: Final = 1_000
"""The most leaves of a condition: planning takes the server 0.1 MB for each."""

MOST_VAGUE: Final = 40
"""The most leaves on cells that stand for several values: 3 MB for each."""


@dataclass(frozen=True, slots=True)
class Likelihood:
    """SQL of what is known of a condition's truth.

    Attributes
    ----------
    true, false : str
        Probabilities; what is missing to 1 is unknown.
    surely, possibly : str
        Whether it is true whatever the values are, and whether it is for some.
    surely_false, possibly_false : str
        The same of being false.
    """

    true: str
    false: str
    surely: str
    possibly: str
    surely_false: str
    possibly_false: str


COLUMNS = ("t", "f", "st", "pt", "sf", "pf")
"""The names of these columns in a subquery."""


def of_subquery(alias: str) -> Likelihood:
    """Return the columns of a subquery."""
    return Likelihood(*(f"{alias}.{column}" for column in COLUMNS))


def of_known(truth: str) -> Likelihood:
    """Return the likelihood of a condition on known values, which is true, false or NULL."""
    true, false = f"({truth} IS TRUE)", f"({truth} IS FALSE)"
    return Likelihood(f"{true}::int::float8", f"{false}::int::float8", true, true, false, false)


CERTAIN = Likelihood("1", "0", "true", "true", "false", "false")
"""No condition at all."""


def is_leaf(condition: ex.Expression) -> bool:
    """Whether a condition is evaluated as a whole: on one column, or not made of conditions."""
    return len(ex.attributes(condition)) <= 1 or not isinstance(
        condition, ex.And | ex.Or | ex.Not | ex.TruthTest
    )


def leaves(condition: ex.Expression | None) -> list[ex.Expression]:
    """Return the leaves of a condition in their order; one that occurs twice, twice."""
    if condition is None:
        return []
    if is_leaf(condition):
        return [condition]
    parts = ex.children(by_attribute(condition))
    return [leaf for part in parts for leaf in leaves(part)]


def require_few(n_leaves: int, n_vague: int = 0) -> None:
    """Refuse a condition with more leaves than the server can plan in the memory of a query.

    Parameters
    ----------
    n_leaves, n_vague : int
        All leaves, and those on cells that stand for several values.

    Raises
    ------
    UnsupportedQueryError
    """
    if n_leaves > MOST_LEAVES or n_vague > MOST_VAGUE:
        raise refusal(
            "the query has too many conditions that must be counted apart",
            hint="use IN or BETWEEN for conditions on one column, or ask several queries",
            detail=f"{n_leaves}, of {MOST_LEAVES} that are allowed; {n_vague} of them on cells that"
            f" stand for several values, of {MOST_VAGUE}",
        )


class Algebra(Protocol[T]):
    """How what is known of the parts of a condition tells of the whole."""

    certain: T
    """No condition at all."""

    def every(self, parts: Sequence[T]) -> T:
        """Combine parts of which all must hold."""

    def opposite(self, part: T) -> T:
        """Swap true and false."""

    def told(self, part: T) -> T:
        """Return whether it is true: this is never unknown."""

    def unknown(self, part: T) -> T:
        """Return whether it is unknown, which itself never is."""


def combined(
    condition: ex.Expression | None, of_leaf: Callable[[ex.Expression], T], algebra: Algebra[T]
) -> T:
    """Combine what is known of a condition's leaves."""

    def inner(part: ex.Expression) -> T:
        return combined(part, of_leaf, algebra)

    if condition is None:
        return algebra.certain
    if is_leaf(condition):
        return of_leaf(condition)
    match by_attribute(condition):
        case ex.And(parts):
            return algebra.every([inner(part) for part in parts])
        case ex.Or(parts):
            return algebra.opposite(
                algebra.every([algebra.opposite(inner(part)) for part in parts])
            )
        case ex.Not(part):
            return algebra.opposite(inner(part))
        case ex.TruthTest(part, wanted, negated):
            found = inner(part)
            if wanted == "false":
                found = algebra.opposite(found)
            found = (algebra.unknown if wanted == "unknown" else algebra.told)(found)
            return algebra.opposite(found) if negated else found
    raise TypeError(f"{type(condition).__name__} has no leaves")


class _Written:
    """The algebra of SQL."""

    certain = CERTAIN

    def every(self, parts: Sequence[Likelihood]) -> Likelihood:
        return Likelihood(
            f"({' * '.join(part.true for part in parts)})",
            f"(1 - {' * '.join(f'(1 - {part.false})' for part in parts)})",
            f"({' AND '.join(part.surely for part in parts)})",
            f"({' AND '.join(part.possibly for part in parts)})",
            f"({' OR '.join(part.surely_false for part in parts)})",
            f"({' OR '.join(part.possibly_false for part in parts)})",
        )

    def opposite(self, part: Likelihood) -> Likelihood:
        return Likelihood(
            part.false, part.true,
            part.surely_false, part.possibly_false, part.surely, part.possibly,
        )  # fmt: skip

    def told(self, part: Likelihood) -> Likelihood:
        return Likelihood(
            part.true, f"(1 - {part.true})", part.surely, part.possibly,
            f"(NOT {part.possibly})", f"(NOT {part.surely})",
        )  # fmt: skip

    def unknown(self, part: Likelihood) -> Likelihood:
        return self.told(
            replace(
                part,
                true=f"(1 - {part.true} - {part.false})",
                surely=f"(NOT ({part.possibly} OR {part.possibly_false}))",
                possibly=f"(NOT ({part.surely} OR {part.surely_false}))",
            )
        )


def likelihood(
    condition: ex.Expression | None, of_leaf: Callable[[ex.Expression], Likelihood]
) -> Likelihood:
    """Write how the likelihoods of a condition's leaves combine."""
    return combined(condition, of_leaf, _Written())
