"""Declares the parameters that all kinds of publications share, and the known risks.

A publication that takes a known risk is refused until the publisher accepts it by name. SQL, Python
and the command line read this module, so it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kanon_db.catalog.names import PUBLICATION
from kanon_db.dataclasses import dataclass
from kanon_db.declaration import (
    FLAG,
    NAMES,
    RELATION,
    TEXT,
    Parameter,
    ParameterType,
    ResultColumn,
    columns,
    json_object,
    parameter,
    parameters_of,
    unknown,
)
from kanon_db.errors import InvalidParameterError, RiskError
from kanon_db.figures import FIGURES, FigureRule

COMBINED: Final = "combined_releases"
RISKS: Final[Mapping[str, str]] = {
    "uninformed_reader": "the bound holds only against readers who do not know how records were"
    " put into buckets",
    "uncapped_estimates": "estimates show of some people what a learner finds out from QIT and SAT,"
    " also where that is surer than their value's threshold",
    "left_over_records": "fewer than k records that match nobody else are published: anyone who"
    " knows the quasi-identifiers finds out whose they are",
    "free_text": "texts that no other record has are published as they are: what was written freely"
    " can name people",
    "model_without_budget": "nothing bounds what a model tells about the people it was trained on:"
    " readers may find out who was in the source, and their values",
    "pooled_values": "the published value of each person is calculated from all of their records:"
    " whoever knows how many these are can be surer of it than its bound",
    COMBINED: "readers can set releases of the same people against each other, which"
    " can tell more than each of them allows",
}
"""The meaning of each risk."""


_LONGEST: Final = 1000


def _is_reason(text: str) -> bool:
    """Readers see it in their terminal: nothing that is invisible or moves the cursor."""
    return len(text) <= _LONGEST and text.isprintable() and any(map(str.isalnum, text))


def _read_accepted(given: Mapping[str, Any]) -> dict[str, str]:
    for name, reason in given.items():
        if name not in RISKS:
            raise unknown("risk", name, list(RISKS))
        if not (isinstance(reason, str) and _is_reason(reason)):
            raise InvalidParameterError(
                "a risk is accepted with a reason", detail=f'risk "{name}"',
                hint=f'write {{"{name}": "why this is acceptable here"}}: one line of at most'
                f" {_LONGEST:,} characters",
            )  # fmt: skip
    return dict(given)


ACCEPTED: Final = json_object(_read_accepted)
"""The type of a parameter that accepts risks, each with a reason."""


def _read_solver(value: Any, name: str) -> str:
    solver = str(TEXT.read(value, name))
    if solver != _HIGHS:  # PuLP is loaded where it is needed
        from kanon_db.algorithms.ground.solver import check_solver

        check_solver(solver)
    return solver


_HIGHS: Final = "HiGHS"


def solver_parameter() -> Any:
    """Declare the option of a kind whose method `optimal` can solve a program stated in PuLP."""
    return parameter(
        ParameterType("text", "str", _read_solver, "SOLVER"),
        "The solver of the formulation `paper`: HiGHS, or another that PuLP finds where kanon_db"
        " runs, by PuLP's name for it, such as PULP_CBC_CMD.",
        default=_HIGHS,
        methods=("optimal",),
        is_strict=True,
    )


def accepted_risks(
    accepted: Mapping[str, str], taken: Sequence[str], where: str = ""
) -> dict[str, str]:
    """Return the reasons for the risks that a publication takes, `where` it does."""
    for name in taken:
        if name not in accepted:
            raise RiskError(
                f"a known risk is not accepted: {name}",
                detail=RISKS[name] + where,
                hint="to publish all the same, say why: accept =>"
                f""" '{{"{name}": "why this is acceptable"}}'""",
            )
    return {name: accepted[name] for name in taken}


RESULT: tuple[ResultColumn, ...] = columns(
    publication_id="bigint", name="text", guarantee="text", records="bigint", metrics="jsonb",
    seconds="double precision",
)  # fmt: skip
"""Columns of the row that every `publish_*` returns."""


@dataclass(frozen=True, kw_only=True)
class PublishRequest:
    """Parameters of all kinds; the request of each kind adds its own.

    A kind's request has ``method``, and ``options`` if its methods have any.
    """

    NOT_RECORDED: ClassVar = (
        "source", "publication", "method", "readers", "accept", "replace", "dry_run",
    )  # fmt: skip
    """Parameters that the catalog keeps elsewhere or in another form, or does not need."""

    source: str = parameter(
        RELATION, "A registered relation, such as 'public.census'.", is_positional=True
    )
    publication: str = parameter(
        PUBLICATION, "Name of the publication.", is_positional=True, metavar="NAME"
    )
    readers: tuple[str, ...] | None = parameter(
        NAMES,
        "Roles that may read it, such as one in kanon_user; kanon_analyst by default.",
        default=None,
        follows=1,
    )
    replace: bool = parameter(
        FLAG, "Replace the publication if it exists, in the same transaction.", default=False,
        follows=1,
    )  # fmt: skip
    accept: Mapping[str, str] = parameter(
        ACCEPTED,
        "Known risks that are accepted, each with a reason that is kept with the publication, such"
        ' as \'{"uninformed_reader": "only for our own staff"}\'.',
        default="{}", follows=3,
    )  # fmt: skip
    dry_run: bool = parameter(
        FLAG,
        "Compute and verify the publication, return the same row, whose metrics then also have"
        " figures of accuracy, attacks and risks, and keep nothing.",
        default=False, follows=3,
    )  # fmt: skip
    draws: bool = parameter(
        FLAG,
        "Also publish NAME_draws, a table of made-up records that were drawn once from the"
        " publication, for tools that send count(*), avg and sum.",
        default=False, follows=8,
    )  # fmt: skip
    given: Mapping[str, Any] = field(default_factory=dict)
    is_tried: bool = False
    """Whether the draft is never published, so that it is drawn anew each time."""
    if TYPE_CHECKING:
        # Each kind declares this parameter itself, with its methods.
        method: str

    def __post_init__(self) -> None:
        for option in self.unused_options:
            if option.is_strict:
                raise unknown("option", option.name, self.options_of_method)
        given = self.given.get("options") or {}
        if given.get("solver", _HIGHS) != _HIGHS and given.get("formulation") != "paper":
            raise InvalidParameterError(
                "a solver is named for the formulation paper, which is stated in PuLP",
                detail=f"the others are arrays, which {_HIGHS} takes as they are",
                hint='add "formulation": "paper" to the options, or leave out "solver"',
            )

    @property
    def recorded(self) -> dict[str, Any]:
        """What was asked for, as plain JSON for the catalog, with the defaults filled in."""
        recorded = {}
        for item in parameters_of(type(self)):
            if item.name not in self.NOT_RECORDED:
                given = self.given.get(item.name)
                default = {} if item.type.options else item.default
                recorded[item.name] = default if given is None else given
        return recorded

    @property
    def unused_options(self) -> list[Parameter]:
        """The given options that belong only to other methods than the one asked for."""
        return [
            option
            for option in self._declared_options
            if option.name in (self.given.get("options") or {}) and not self._uses(option)
        ]

    @property
    def options_of_method(self) -> list[str]:
        """The names of the options that the method uses."""
        return sorted(option.name for option in self._declared_options if self._uses(option))

    @property
    def _declared_options(self) -> Sequence[Parameter]:
        declared = next((p.type.options for p in parameters_of(type(self)) if p.type.options), None)
        return () if declared is None else parameters_of(declared)

    def _uses(self, option: Parameter) -> bool:
        return not option.methods or self.method in (*option.methods, "auto")


@dataclass(frozen=True, kw_only=True)
class AnswerableRequest(PublishRequest):
    """Parameters of the kinds that answer queries."""

    figures: FigureRule | None = parameter(
        FIGURES,
        'The rule by which figures are shown, such as \'{"least": 6, "round": 5}\': counts are 0 or'
        " at least 6, rounded to 5, and there are no sums of fewer people.",
        default=None, follows=7,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """The parameters of loading a publication that was made elsewhere."""

    publication: str | None = parameter(
        PUBLICATION, "Name of the publication here; by default as it is called there.",
        default=None, metavar="NAME",
    )  # fmt: skip
    source_name: str | None = parameter(
        TEXT, "What the catalog calls the source: the same for all that is about the same people.",
        default=None,
    )  # fmt: skip
    readers: tuple[str, ...] | None = parameter(
        NAMES,
        "Roles that may read it, such as one in kanon_user; kanon_analyst by default.",
        default=None,
    )
    accept: Mapping[str, str] = parameter(
        ACCEPTED, "Known risks that are accepted here, each with a reason.", default="{}"
    )
    replace: bool = parameter(
        FLAG, "Replace the publication if it exists, in the same transaction.", default=False
    )
    draws: bool = parameter(
        FLAG, "Also write NAME_draws, records that were drawn once from it.", default=False
    )
