"""The parameters that all kinds of publications share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from kanon_db.catalog.names import PUBLICATION
from kanon_db.declaration import (
    FLAG,
    NAMES,
    RELATION,
    Column,
    Parameter,
    columns,
    parameter,
    parameters_of,
    unknown,
)
from kanon_db.publications.risks import ACCEPTED

RESULT: tuple[Column, ...] = columns(
    publication_id="bigint", name="text", guarantee="text", records="bigint", metrics="jsonb",
    seconds="double precision",
)  # fmt: skip
"""What every `publish_*` returns: one row."""


@dataclass(frozen=True, kw_only=True)
class PublishRequest:
    """Parameters of all kinds; the request of each kind adds its own.

    A kind's request has ``method``, and ``options`` if its methods have any.
    """

    NOT_RECORDED: ClassVar = (
        "source", "publication", "method", "readers", "accept", "replace", "dry_run",
    )  # fmt: skip
    """Parameters that the catalog keeps elsewhere or in another form, or does not need."""

    NOT_DRAWN: ClassVar[tuple[str, ...]] = (
        "source", "publication", "readers", "accept", "replace", "dry_run",
    )  # fmt: skip
    """Parameters that decide nothing about what is drawn, or only by what a search finds, with
    which the kind then goes on to draw (:meth:`.SeededRandom.absorb`)."""

    ROLES_DRAWN: ClassVar[tuple[str, ...]] = (
        "quasi_identifiers", "sensitive", "insensitive", "entity", "arrival", "attributes",
    )  # fmt: skip
    """What a source was registered with that may change what is drawn."""

    source: str = parameter(
        RELATION, "A registered relation, such as 'public.census'.", is_positional=True
    )
    publication: str = parameter(
        PUBLICATION, "Name of the publication.", is_positional=True, metavar="NAME"
    )
    readers: tuple[str, ...] | None = parameter(
        NAMES, "Roles that may read it; kanon_analyst by default.", default=None, follows=1
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
    given: Mapping[str, Any] = field(default_factory=dict)
    is_tried: bool = False
    """Whether nothing will ever be published of it, so that it is drawn anew each time."""
    if TYPE_CHECKING:
        # Each kind declares this parameter itself, with its methods.
        method: str

    def __post_init__(self) -> None:
        for option in self.unused_options:
            if option.is_strict:
                raise unknown("option", option.name, self.options_of_method)

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
