"""The results of publishing and examining a publication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kanon_db.errors import VerificationError


@dataclass(frozen=True)
class Published:
    """What a `publish_*` call returns.

    Attributes
    ----------
    publication_id : int or None
        None for a dry run.
    name : str
    guarantee : str
        The privacy guarantee in words.
    records : int
    metrics : dict of str to float
        The headline metrics.
    seconds : float
        Wall-clock time of the call.
    """

    publication_id: int | None
    name: str
    guarantee: str
    records: int
    metrics: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class Check:
    """One line of a verification: what must hold, the bound, and what was measured."""

    check: str
    bound: str
    measured: str
    holds: bool


@dataclass(frozen=True)
class Examination:
    """What was found in the published relations.

    Attributes
    ----------
    checks : list of Check
    metrics : dict of str to float
        Empty if the relations are not those that were published: whatever has taken their place
        is not read, since reading it could run code with the rights of whoever verifies.
    """

    checks: list[Check]
    metrics: dict[str, float]


@dataclass(frozen=True)
class Attack:
    """One line of the attacks: what someone achieves who plays it.

    Attributes
    ----------
    attack : str
    bound : float or None
        What the guarantee allows for these guesses; None where nothing bounds them.
    base_rate : float or None
        The share of the same people for whom someone without the publication is right.
    rate : float or None
        The share of people for whom the attack is right; None if there is nobody to guess.
    people : int
        How many people were guessed.
    """

    attack: str
    bound: float | None
    base_rate: float | None
    rate: float | None
    people: int


@dataclass(frozen=True)
class Metric:
    """One line of the metrics."""

    metric: str
    value: float


def require_checks(checks: Sequence[Check]) -> None:
    """Refuse to publish unless every check holds.

    Raises
    ------
    VerificationError
    """
    failed = [check.check for check in checks if not check.holds]
    if failed:
        raise VerificationError(
            "the published relations failed their verification; nothing was published",
            detail=f"failed: {', '.join(failed)}",
            hint="this is a bug in kanon_db: please report it with the method and parameters",
        )
