"""How close to the optimum a result is known to be."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Self, TypeAlias

Status: TypeAlias = Literal["optimal", "feasible"]


@dataclass(frozen=True)
class Proof:
    """The objective of a solution, and a proven lower bound on that of any.

    Attributes
    ----------
    objective : Fraction
        What the method minimizes, of the solution returned.
    lower_bound : Fraction
        At most the objective. Less, if time ran out before the two met.

    Examples
    --------
    >>> Proof(Fraction(10), Fraction(9)).gap
    0.1
    """

    objective: Fraction
    lower_bound: Fraction

    @classmethod
    def of(cls, objective: int, lower_bound: int, unit: Fraction = Fraction(1)) -> Self:
        """Make a proof of whole numbers of a unit.

        Parameters
        ----------
        objective, lower_bound : int
            A bound above the objective means that nothing better exists, and is lowered to it.
        unit : Fraction
            What 1 stands for.

        Returns
        -------
        Proof
        """
        return cls(objective * unit, min(lower_bound, objective) * unit)

    @property
    def is_optimal(self) -> bool:
        """Whether no solution can be better."""
        return self.objective <= self.lower_bound

    @property
    def status(self) -> Status:
        """``optimal`` if proven to be, else ``feasible``."""
        return "optimal" if self.is_optimal else "feasible"

    @property
    def gap(self) -> float:
        """Distance from the lower bound relative to the objective, in the range 0 to 1."""
        if self.is_optimal:
            return 0.0
        return float((self.objective - self.lower_bound) / self.objective)
