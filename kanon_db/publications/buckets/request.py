"""Declares the parameters of a bucketization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from kanon_db.dataclasses import dataclass
from kanon_db.declaration import SECONDS, choice, json_object, options, parameter, whole
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.publish_request import AnswerableRequest, solver_parameter

if TYPE_CHECKING:
    from kanon_db.algorithms.bucketization.privacy import PrivacySpecification

_MAX_BUCKET_SIZE: Final = 5000


def read_privacy(given: Mapping[str, Any]) -> PrivacySpecification:
    """Read a privacy specification, importing numpy only now."""
    from kanon_db.algorithms.bucketization.privacy import PrivacySpecification

    specification = PrivacySpecification.parse(given)
    if specification.l == 1:
        raise InvalidParameterError(
            "l must be above 1", detail="with l = 1 every value may be certain"
        )
    return specification


@dataclass(frozen=True, kw_only=True)
class BucketOptions:
    """Options of the methods."""

    time_limit: float = parameter(
        SECONDS, "Seconds for the search, after which the best setting found is published: the same"
        " request may then find another one, which is another draw.",
        default=60.0, methods=("optimal",), is_strict=True,
    )  # fmt: skip
    formulation: Literal["projected", "paper"] = parameter(
        choice(
            "formulation",
            projected="a variable for each bucket size",
            paper="as the paper states it, with a variable for each pair of a sensitive value and a"
            " bucket size; for tens of values and sizes",
        ),
        "The integer program that finds the optimum.",
        default="projected",
        methods=("optimal",),
    )
    solver: str = solver_parameter()


@dataclass(frozen=True, kw_only=True)
class BucketRequest(AnswerableRequest):
    """Parameters of `publish_buckets`."""

    method: Literal["two_size", "anatomy", "multi_size", "optimal"] = parameter(
        choice(
            "method",
            two_size="the least loss among settings of one or two bucket sizes",
            anatomy="the buckets of Anatomy, for l-diversity",
            multi_size="more bucket sizes, with less loss",
            optimal="the least loss of all settings, by integer programming",
        ),
        "How the bucket setting is found.",
        default="two_size",
    )
    privacy: PrivacySpecification = parameter(
        json_object(read_privacy),
        "Bound on guessing: how sure anybody may be of a value, such as '{\"l\": 4}', one fourth,"
        ' or \'{"default": 0.3, "values": {"HIV": 0.05}}\'.',
    )
    max_bucket_size: int = parameter(
        whole(most=_MAX_BUCKET_SIZE, metavar="RECORDS"),
        "Largest size of a bucket; the method anatomy has sizes of its own.",
        default=50,
    )
    assignment: Literal["cells", "random", "m_invariant"] = parameter(
        choice(
            "assignment",
            {
                "local": "give assignment => 'cells', which also gathers similar records: whoever"
                " knows how local buckets are made finds out values of theirs"
            },
            cells="records are drawn into buckets at random, inside cells of similar records",
            random="records are drawn into buckets at random, from the whole table",
            m_invariant="records are drawn into buckets with the same values each, which they keep"
            " in each refresh, so that people may leave; for l-diversity; the method is not used",
        ),
        "How records are assigned to buckets.",
        default="cells",
    )
    options: BucketOptions = parameter(
        options(BucketOptions), "Options of the method, such as '{\"time_limit\": 60}'.",
        default=None, follows=2,
    )  # fmt: skip

    estimates: Literal["capped", "uncapped", "paper"] = parameter(
        choice(
            "estimates",
            capped="by weights that were learned from QIT and SAT, none above the threshold",
            uncapped="by such weights of any size, which are nearer: they say of some people what a"
            " learner finds out",
            paper="the paper's, without weights",
        ),
        "How counts are estimated from what is published.",
        default="capped", follows=6,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.assignment == "m_invariant" and self.method == "anatomy":
            raise InvalidParameterError(
                "the assignment m_invariant cannot be combined with the method anatomy",
                detail="m_invariant finds bucket sizes of its own, and Anatomy's are fixed",
                hint='leave out the method: {"l": ...} also holds for m_invariant buckets',
            )
        if self.assignment == "m_invariant" and not self.privacy.is_l_diversity:
            raise InvalidParameterError(
                "the assignment m_invariant is for l-diversity",
                detail="where thresholds differ, buckets with the same values each do not keep them"
                " over several releases",
                hint="give privacy => '{\"l\": 3}', and nothing else in it",
            )
