"""The parameters of a suppressed publication, and of listing its patterns before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from kanon_db.declaration import (
    NAMES,
    RELATION,
    SECONDS,
    WEIGHTS,
    choice,
    json_list,
    options,
    parameter,
    whole,
)
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.request import PublishRequest


def _patterns() -> Any:
    return parameter(
        NAMES,
        "Pattern vectors: * suppresses, . keeps, in the order of the quasi-identifiers.",
        default=None,
    )


def _rules() -> Any:
    return parameter(
        json_list(),
        "Rules from which the patterns are made, such as"
        ' \'[{"at_most": 2}, {"never": ["age"]}, {"outliers": "suppress"}]\'.',
        default=None,
    )


def _weights() -> Any:
    return parameter(WEIGHTS, "Cost of a suppressed cell, by quasi-identifier.", default=None)


def _check_either(patterns: object, rules: object) -> None:
    if patterns is not None and rules is not None:
        raise InvalidParameterError(
            "give either patterns or rules", hint="rules make the patterns by themselves"
        )


@dataclass(frozen=True, kw_only=True)
class PatternsRequest:
    """Parameters of `suppression_patterns`."""

    source: str = parameter(RELATION, "A registered relation.", is_positional=True)
    patterns: tuple[str, ...] | None = _patterns()
    rules: list[Any] | None = _rules()
    weights: Mapping[str, Fraction] | None = _weights()

    def __post_init__(self) -> None:
        _check_either(self.patterns, self.rules)


@dataclass(frozen=True, kw_only=True)
class SuppressedOptions:
    """Options of the methods."""

    time_limit: float = parameter(
        SECONDS, "Seconds for the search, after which the best suppression found is published.",
        default=60.0, methods=("optimal",), is_strict=True,
    )  # fmt: skip
    left_over: Literal["withhold", "join", "publish"] = parameter(
        choice(
            "left-over rule",
            withhold="leaves them out, and counts them",
            join="suppresses more of some other records, so that at least k are alike",
            publish="suppresses them completely and publishes their other columns, although anyone"
            " can find out whose they are; only if the risk left_over_records is accepted",
        ),
        "What becomes of fewer than k records that match nobody else.",
        default="withhold",
        methods=("greedy",),
        is_strict=True,
    )


@dataclass(frozen=True, kw_only=True)
class SuppressedRequest(PublishRequest):
    """Parameters of `publish_suppressed`."""

    k: int = parameter(whole(least=2), "Least number of rows that share the values they keep.")
    patterns: tuple[str, ...] | None = _patterns()
    method: Literal["greedy", "optimal"] = parameter(
        choice(
            "method",
            greedy="fast; fewer than k records may be left over",
            optimal="the least cost, with nothing left over",
        ),
        "How to choose what each row keeps.",
        default="greedy",
    )
    rules: list[Any] | None = _rules()
    weights: Mapping[str, Fraction] | None = _weights()
    options: SuppressedOptions = parameter(
        options(SuppressedOptions), "Options of the method, such as '{\"time_limit\": 60}'.",
        default=None,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_either(self.patterns, self.rules)
