"""Declares the parameters of a suppressed publication, and of listing its patterns."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

from kanon_db.dataclasses import dataclass
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
from kanon_db.publications.publish_request import AnswerableRequest, solver_parameter


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


@dataclass(frozen=True, kw_only=True)
class SuppressedOptions:
    """Options of the methods."""

    time_limit: float = parameter(
        SECONDS, "Seconds for the search, after which the best suppression found is published: the"
        " same request may then find another one.",
        default=60.0, methods=("optimal",), is_strict=True,
    )  # fmt: skip
    formulation: Literal["reduced", "paper"] = parameter(
        choice(
            "formulation",
            reduced="the paper's without what cannot matter: row types with the same choices are"
            " one",
            paper="as the paper states it, with a variable for each pair of a row type and a"
            " pattern; for hundreds of row types",
        ),
        "The integer program that finds the optimum.",
        default="reduced",
        methods=("optimal",),
    )
    solver: str = solver_parameter()
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
    order: Literal["cheapest_first", "drawn"] = parameter(
        choice(
            "order of the patterns",
            cheapest_first="those of equal cost as they are listed, or by the columns' names",
            drawn="drawn at random, so that patterns of about the same cost change places: readers"
            " who know the method then exclude fewer rows",
        ),
        "In which order patterns are tried.",
        default="cheapest_first",
        methods=("greedy",),
        is_strict=True,
    )


@dataclass(frozen=True, kw_only=True)
class SuppressedRequest(AnswerableRequest):
    """Parameters of `publish_suppressed`."""

    k: int = parameter(whole(least=2), "Least number of rows that share the values they keep.")
    patterns: tuple[str, ...] | None = patterns_parameter()
    method: Literal["greedy", "optimal", "two_anonymity"] = parameter(
        choice(
            "method",
            greedy="fast; fewer than k records may be left over",
            optimal="the least cost, with nothing left over",
            two_anonymity="the same for k = 2, in polynomial time; for at most 60 records",
        ),
        "How to choose what each row keeps.",
        default="greedy",
    )
    rules: list[Any] | None = rules_parameter()
    weights: Mapping[str, Fraction] | None = weights_parameter()
    options: SuppressedOptions = parameter(
        options(SuppressedOptions), "Options of the method, such as '{\"time_limit\": 60}'.",
        default=None,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        check_either(self.patterns, self.rules)
        if self.method == "two_anonymity" and self.k != 2:
            raise InvalidParameterError(
                "the method two_anonymity is for k = 2",
                detail="for larger k, no polynomial algorithm is known",
                hint="use the method optimal",
            )
