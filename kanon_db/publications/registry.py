"""Registers the kinds of publications. All other code finds them here by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from kanon_db.declaration import Operation
from kanon_db.errors import NotFoundError

if TYPE_CHECKING:
    from kanon_db.publications.kind import Kind
    from kanon_db.publications.publish_request import PublishRequest


class DeclaredKind(NamedTuple):
    """The declaration of a kind.

    Its parameters are imported when they are needed, and so is the code that publishes: a first
    estimate needs neither.

    Attributes
    ----------
    name : str
        Its name in the catalog, in ``publish_<name>`` (SQL) and ``publish <name>`` (command).
    request_class : str
        The dataclass of its parameters, a ``PublishRequest`` in the module ``request`` of its room.
    help : str
        The comment of the SQL function.
    details : str
        More text for the command's help.
    room : str
        A package with a module ``request``, a module ``kind``, whose ``KIND`` is a
        :class:`~kanon_db.publications.kind.Kind`, and a module ``methods`` with a function for
        each method.
    shape : {"buckets", "rows", "model"}
        How counts are answered: from QIT and SAT, from rows with cells, or not at all.
    """

    name: str
    request_class: str
    help: str
    details: str
    room: str
    shape: Literal["buckets", "rows", "model"] = "rows"

    @property
    def request(self) -> type[PublishRequest]:
        """The dataclass of its parameters."""
        declared = getattr(import_module(f"{self.room}.request"), self.request_class)
        return cast("type[PublishRequest]", declared)

    @property
    def operation(self) -> Operation:
        """The operation that publishes this kind."""
        from kanon_db.publications.publish_request import RESULT  # with the parameters, when needed

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
        """Import the code that publishes and examines it."""
        return cast("Kind", import_module(f"{self.room}.kind").KIND)


KINDS: dict[str, DeclaredKind] = {}
"""The kinds by name, in the order of their registration."""


def register_kind(kind: DeclaredKind) -> None:
    """Make a kind known to SQL, Python and the command line."""
    KINDS[kind.name] = kind


def kind_named(name: str) -> DeclaredKind:
    """Return the kind of a publication."""
    if name not in KINDS:
        raise NotFoundError(
            "the publication is of a kind that this kanon_db does not have",
            detail=f'kind "{name}"',
            hint="upgrade kanon_db, or install the package that brings this kind",
        )
    return KINDS[name]


def kind_of(request: PublishRequest) -> DeclaredKind:
    """Return the kind that a request belongs to."""
    return next(kind for kind in KINDS.values() if type(request) is kind.request)


register_kind(
    DeclaredKind(
        name="buckets",
        request_class="BucketRequest",
        help="publish a registered source as buckets, with a bound on guessing (F'-privacy)",
        details="Creates the tables NAME_qit and NAME_sat, and the view NAME, which joins them.",
        room="kanon_db.publications.buckets",
        shape="buckets",
    )
)
register_kind(
    DeclaredKind(
        name="generalized",
        request_class="GeneralizedRequest",
        help="publish a registered source k-anonymously, with ranges and sets that rows share",
        details="Creates the materialized view NAME.",
        room="kanon_db.publications.generalized",
    )
)
register_kind(
    DeclaredKind(
        name="freeform",
        request_class="FreeformRequest",
        help="publish a registered source k-anonymously, each row with ranges and sets of its own",
        details="Creates the materialized view NAME.",
        room="kanon_db.publications.freeform",
    )
)
register_kind(
    DeclaredKind(
        name="suppressed",
        request_class="SuppressedRequest",
        help="publish a registered source k-anonymously, with suppressed cells",
        details="Creates the materialized view NAME. Without patterns or rules, any cells may be"
        " suppressed; `kanon patterns` shows which combinations they allow.",
        room="kanon_db.publications.suppressed",
    )
)
register_kind(
    DeclaredKind(
        name="model",
        request_class="ModelRequest",
        help="publish a model of a registered source, which readers ask and cannot read",
        details="Creates the table NAME, which says what to ask, and NAME_net, which no reader may"
        " read. `kanon classify` asks it. Training needs the extra models.",
        room="kanon_db.models",
        shape="model",
    )
)
