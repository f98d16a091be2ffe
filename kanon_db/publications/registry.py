"""The kinds of publications. Everything above a kind finds it here, and branches on none."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal, cast

from kanon_db.declaration import Operation
from kanon_db.errors import NotFoundError
from kanon_db.publications.request import RESULT, PublishRequest

if TYPE_CHECKING:
    from kanon_db.publications.kind import Kind


@dataclass(frozen=True)
class DeclaredKind:
    """A kind, as it is declared: without what it takes to publish, which is imported when needed.

    Attributes
    ----------
    name : str
        In the catalog, the SQL function ``publish_<name>`` and the command ``publish <name>``.
    request : type of PublishRequest
    help : str
        Of the SQL function's comment.
    details : str
        More, for the command's help.
    room : str
        Package with a module ``kind`` that has ``KIND``, a
        :class:`~kanon_db.publications.kind.Kind`; and ``methods``, with a function for each
        method.
    shape : {"buckets", "rows"}
        How counts are answered: from QIT and SAT, or from rows with cells.
    """

    name: str
    request: type[PublishRequest]
    help: str
    details: str
    room: str
    shape: Literal["buckets", "rows"] = "rows"

    @property
    def operation(self) -> Operation:
        """The operation that publishes this kind."""
        return Operation(
            name=f"publish_{self.name}",
            request=self.request,
            help=self.help,
            details=self.details,
            function="kanon_db.publications.pipeline:publish",
            result=RESULT,
            command=("publish", self.name),
            takes_request=True,
            row_class="kanon_db.publications.results:Published",
        )

    def load(self) -> Kind:
        """Import what it takes to publish and examine."""
        return cast("Kind", import_module(f"{self.room}.kind").KIND)


KINDS: dict[str, DeclaredKind] = {}
"""By name, in the order of their registration."""


def register_kind(kind: DeclaredKind) -> None:
    """Make a kind known to every way in."""
    KINDS[kind.name] = kind


def kind_named(name: str) -> DeclaredKind:
    """Return the kind of a publication.

    Raises
    ------
    NotFoundError
        When it is not registered here.
    """
    if name not in KINDS:
        raise NotFoundError(
            "the publication is of a kind that this kanon_db does not have",
            detail=f'kind "{name}"',
            hint="upgrade kanon_db, or install the package that brings this kind",
        )
    return KINDS[name]


def kind_of(request: PublishRequest) -> DeclaredKind:
    """Return the kind that a request asks for."""
    return next(kind for kind in KINDS.values() if type(request) is kind.request)
