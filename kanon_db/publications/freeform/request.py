"""Declares the parameters of a freeform publication."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, Literal

from kanon_db.dataclasses import dataclass
from kanon_db.declaration import FLAG, SECONDS, WEIGHTS, choice, options, parameter, whole
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.publish_request import AnswerableRequest, solver_parameter

_REFINED: Final = ("sort_greedy", "greedy", "hungarian")
_IN_PARTITIONS: Final = (*_REFINED, "min_cost_flow", "ring")


@dataclass(frozen=True, kw_only=True)
class FreeformOptions:
    """Options of the methods."""

    partition_size: int | None = parameter(
        whole(), "Least number of records in a part of the table that is searched by itself; 2,000"
        " by default.", default=None, methods=_IN_PARTITIONS, is_strict=True,
    )  # fmt: skip
    workers: int | None = parameter(
        whole(most=64),
        "How many partitions to search at the same time; by default 2, or 1 with one processor.",
        default=None, methods=_IN_PARTITIONS,
    )  # fmt: skip
    refine: bool = parameter(
        FLAG, "Lower the loss of the graph that the method finds.", default=True,
        methods=_REFINED,
    )  # fmt: skip
    symmetric: bool = parameter(
        FLAG, "Make matches mutual, for comparison: the guarantee is the same.", default=False,
        methods=("sort_greedy", "optimal"), is_strict=True,
    )  # fmt: skip
    time_limit: float = parameter(
        SECONDS,
        "Seconds for the search, after which the best matches found are published: the"
        " same request may then find others.",
        default=60.0,
        methods=("optimal",),
    )
    formulation: Literal["match_sets", "paper"] = parameter(
        choice(
            "formulation",
            match_sets="a variable for each set of originals that a row may match",
            paper="as the paper states it, with a variable for each pair of records; for about ten"
            " records",
        ),
        "The integer program that finds the optimum.",
        default="match_sets",
        methods=("optimal",),
    )
    solver: str = solver_parameter()
    allow_weaker: bool = parameter(
        FLAG, "Publish by k_concealment, which is weaker than k-anonymity.", default=False,
        methods=("k_concealment",),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FreeformRequest(AnswerableRequest):
    """Parameters of `publish_freeform`."""

    k: int = parameter(
        whole(least=2),
        "How many originals each row matches, and how many rows each original matches.",
    )
    method: Literal[
        "sort_greedy", "greedy", "hungarian", "optimal", "min_cost_flow", "ring", "k_concealment"
    ] = parameter(
        choice(
            "method",
            sort_greedy="takes the lightest matches first",
            greedy="each record takes its lightest match in turn",
            hungarian="takes the assignment with the least loss in each round",
            optimal="the least loss of all, for about ten records",
            min_cost_flow="for comparison",
            ring="for comparison: small partitions, matched in a ring",
            k_concealment="a weaker guarantee, refused unless the option allow_weaker is true",
        ),
        "How matches are found.",
        default="sort_greedy",
    )
    weights: Mapping[str, Fraction] | None = parameter(
        WEIGHTS, "Factors by which losses count, by quasi-identifier.", default=None
    )
    options: FreeformOptions = parameter(
        options(FreeformOptions), "Options of the method, such as '{\"partition_size\": 2000}'.",
        default=None,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.options.symmetric and self.options.formulation == "paper":
            raise InvalidParameterError(
                "the formulation paper cannot be combined with symmetric",
                detail="the paper's program has no constraint that matches are mutual",
                hint="leave out one of the two",
            )
        if self.method == "k_concealment" and not self.options.allow_weaker:
            raise InvalidParameterError(
                "k_concealment is a weaker guarantee than k-anonymity",
                detail="the k possible matches of a record are not equally likely",
                hint='use sort_greedy; to publish anyway, pass {"allow_weaker": true}',
            )
