"""Declares the parameters of a generalized publication."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from kanon_db.dataclasses import dataclass
from kanon_db.declaration import (
    FLAG,
    SECONDS,
    SHARE,
    WEIGHTS,
    choice,
    json_object,
    options,
    pair,
    parameter,
    whole,
)
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.publish_request import AnswerableRequest, solver_parameter

if TYPE_CHECKING:
    from kanon_db.publications.generalized.class_constraints import ConstraintsOfEach


def _read_constraints(given: Mapping[str, Any]) -> ConstraintsOfEach:
    from kanon_db.publications.generalized.class_constraints import ConstraintsOfEach  # loads numpy

    constraints = ConstraintsOfEach.parse(given)
    for one in constraints.each:
        if one.l == 1 or one.entropy_l == 1:
            raise InvalidParameterError("l must be above 1: every class has at least one value")
        if one.t == 1:
            raise InvalidParameterError("t must be below 1: no class is farther from the table")
    return constraints


@dataclass(frozen=True, kw_only=True)
class GeneralizedOptions:
    """Options of the methods."""

    time_limit: float = parameter(
        SECONDS,
        "Seconds for the search, including refinement, for which they are counted in"
        " changes tried. `optimal` and `split_carry` end by the clock:"
        " the same request may then find"
        " other classes.",
        default=60.0,
    )
    s: int = parameter(
        whole(), "How many groups of k records to search at a time.", default=3,
        methods=("split_carry",),
    )  # fmt: skip
    carry: int | None = parameter(
        whole(), "How many records to carry over to the next search.", default=None,
        methods=("split_carry",),
    )  # fmt: skip
    bubble: tuple[int, int] | None = parameter(
        pair(), "[P, A]: solve P records at a time, and keep the A classes that lose least.",
        default=None, methods=("split_carry",),
    )  # fmt: skip
    sorting: Literal["alternating", "ascending"] = parameter(
        choice(
            "sorting",
            alternating="every other run of records that agree so far is descending, so that"
            " neighbors are more alike",
            ascending="as in the paper",
        ),
        "How records are sorted by each attribute but the first.",
        default="alternating",
        methods=("greedy_search", "split_carry", "initial"),
    )
    block_size: int | None = parameter(
        whole(least=2), "How many row types to search among, in sorted order; all by default.",
        default=None, methods=("greedy_search",),
    )  # fmt: skip
    left_over: Literal["least_increase", "least_result"] = parameter(
        choice(
            "left-over rule",
            least_increase="the class whose loss grows least",
            least_result="the class whose loss is least afterwards",
        ),
        "Which class a left-over record joins.",
        default="least_increase",
        methods=("greedy_search",),
    )
    cut: Literal["strict", "relaxed"] = parameter(
        choice(
            "cut",
            strict="equal values stay together",
            relaxed="equal values may be separated, so that both halves have the same size",
        ),
        "How Mondrian cuts at the median.",
        default="strict",
        methods=("mondrian",),
    )
    loss: Literal["ncp", "binary"] = parameter(
        choice(
            "loss",
            ncp="a set of c of the n values of an attribute loses (c - 1) / (n - 1)",
            binary="as if each value were an attribute of its own: c / n from two values on; not"
            " refined",
        ),
        "What a search lowers where values form sets.",
        default="ncp",
        methods=("optimal", "split_carry"),
        is_strict=True,
    )
    formulation: Literal["set_partition", "paper"] = parameter(
        choice(
            "formulation",
            set_partition="a variable for each class that may be part of the optimum",
            paper="as the paper states it, with a variable for each pair of records; for about ten"
            " records",
        ),
        "The integer program that finds the optimum.",
        default="set_partition",
        methods=("optimal",),
    )
    solver: str = solver_parameter()
    bound_time: float | None = parameter(
        SECONDS,
        "Seconds more, for a proven bound on the loss of any classes (`optimal` has its own;"
        " none where records are left out, of labels of a hierarchy, or on Spark).",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class GeneralizedRequest(AnswerableRequest):
    """Parameters of `publish_generalized`."""

    k: int = parameter(whole(least=2), "Least number of rows that share all their cells.")
    method: Literal[
        "auto", "optimal", "split_carry", "greedy_search", "k_member", "mondrian", "initial"
    ] = parameter(
        choice(
            "method",
            auto="chooses a method for the table, and says which one and why",
            optimal="the least loss of all, for tens of records; for millions, if a single"
            " quasi-identifier becomes ranges",
            split_carry="the optimum for the records of a few classes at a time",
            greedy_search="grows classes record by record, in sorted order",
            k_member="grows each class from the record that is furthest from the last one",
            mondrian="cuts the table into halves, again and again; the fastest method",
            initial="takes groups of k records in sorted order",
        ),
        "How classes are found.",
        default="auto",
    )
    weights: Mapping[str, Fraction] | None = parameter(
        WEIGHTS, "Factors by which losses count, by quasi-identifier.", default=None
    )
    options: GeneralizedOptions = parameter(
        options(GeneralizedOptions), "Options of the method, such as '{\"time_limit\": 60}'.",
        default=None,
    )  # fmt: skip
    constraints: ConstraintsOfEach | None = parameter(
        json_object(_read_constraints),
        "Constraints on the sensitive values of rows that share their cells, such as"
        " '{\"l\": 3}' or '{\"t\": 0.2}'. A missing value is none that l counts. They hold for"
        " each sensitive attribute, but those named have their own:"
        ' \'{"l": 3, "attributes": {"cost": {"t": 0.2}}}\'.',
        default=None,
    )
    max_suppressed: Fraction = parameter(
        SHARE, "Share of the records that may be left out where that lowers the loss.", default="0"
    )
    refine: bool = parameter(
        FLAG, "Keep lowering the loss of the classes until the time limit.", default=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        constraints = self.constraints
        if (
            constraints is not None
            and self.max_suppressed
            and any(one.depends_on_frequencies for one in constraints.each)
        ):
            raise InvalidParameterError(
                "constraints that depend on the table's frequencies cannot be combined with"
                " max_suppressed",
                detail="readers know only the published records, not those that were left out",
                hint="leave out max_suppressed, or t and theta",
            )
