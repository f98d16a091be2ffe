"""The parameters of listing patterns, which those of a suppressed publication are, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from kanon_db.declaration import NAMES, RELATION, WEIGHTS, json_list, parameter
from kanon_db.errors import InvalidParameterError


def patterns_parameter() -> Any:
    """Declare the patterns that may be used."""
    return parameter(
        NAMES,
        "Pattern vectors: * suppresses, . keeps, in the order of the quasi-identifiers.",
        default=None,
    )


def rules_parameter() -> Any:
    """Declare what patterns are made from."""
    return parameter(
        json_list(),
        "Rules from which the patterns are made, such as"
        ' \'[{"at_most": 2}, {"never": ["age"]}, {"outliers": "suppress"}]\'.',
        default=None,
    )


def weights_parameter() -> Any:
    """Declare what suppressed cells cost."""
    return parameter(WEIGHTS, "Cost of a suppressed cell, by quasi-identifier.", default=None)


def check_either(patterns: object, rules: object) -> None:
    """Refuse patterns beside rules.

    Raises
    ------
    InvalidParameterError
    """
    if patterns is not None and rules is not None:
        raise InvalidParameterError(
            "give either patterns or rules", hint="rules make the patterns by themselves"
        )


@dataclass(frozen=True, kw_only=True)
class PatternsRequest:
    """Parameters of `suppression_patterns`."""

    source: str = parameter(RELATION, "A registered relation.", is_positional=True)
    patterns: tuple[str, ...] | None = patterns_parameter()
    rules: list[Any] | None = rules_parameter()
    weights: Mapping[str, Fraction] | None = weights_parameter()

    def __post_init__(self) -> None:
        check_either(self.patterns, self.rules)
