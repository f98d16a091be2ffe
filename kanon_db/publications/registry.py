"""Registers the kinds of publications. All other code finds them here by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from kanon_db.declaration import Operation
from kanon_db.errors import NotFoundError
from kanon_db.publications.results import WAITING_NOT_COVERED

if TYPE_CHECKING:
    from kanon_db.publications.kind import Kind
    from kanon_db.publications.publish_request import PublishRequest


class KindDescription(NamedTuple):
    """What reports and tools say of a kind, which need not know its name."""

    # What is published; "{row}" says what a row is, "{who}" whether people or records are counted.
    published: str = ""
    cells: str = "as published"  # How readers see a quasi-identifier
    sensitive: str = "as it is"  # Likewise
    insensitive: str = "as it is"
    linking: str = "Classes are rows with the same ranges and sets."  # What is linked
    not_covered: tuple[str, ...] = ()  # By its guarantee, besides what no kind covers
    hides_membership: bool = False  # Whether it says who is in the table
    draws: bool = True  # Whether records can be drawn from it


_SHOWN: Final = (
    "columns that are published as they are, the sensitive one among them: whoever finds a"
    " person's row reads them there"
)


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
    description : KindDescription
    """

    name: str
    request_class: str
    help: str
    details: str
    room: str
    shape: Literal["buckets", "rows", "model"] = "rows"
    description: KindDescription = KindDescription()

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
        description=KindDescription(
            published="Two tables. One has the quasi-identifiers as they are and the number of a"
            " bucket: {row}. The other says how often each sensitive value occurs in each bucket."
            " Which row of a bucket has which value is in neither.",
            cells="as it is",
            sensitive="in a table of its own, by bucket",
            insensitive="not published",
            linking="Buckets hide no quasi-identifiers, so a person's row is found as surely as in"
            " the original: the row tells that the person is in the table, and the bucket, but no"
            " value. How surely the value is inferred is bounded by the promise above.",
            not_covered=(
                (
                    "quasi-identifiers: they are published as they are, so whoever knows a person's"
                    " finds their row, and learns the bucket"
                ),
                (
                    f"{WAITING_NOT_COVERED}: whoever knows that can be surer of a value than its"
                    " bound says"
                ),
            ),
        ),
    )
)
register_kind(
    DeclaredKind(
        name="generalized",
        request_class="GeneralizedRequest",
        help="publish a registered source k-anonymously, with ranges and sets that rows share",
        details="Creates the materialized view NAME.",
        room="kanon_db.publications.generalized",
        description=KindDescription(
            published="A table: {row}. Quasi-identifiers are ranges or sets of values; rows with"
            " the same ranges and sets are a class.",
            cells="as a range, or a set of values",
            not_covered=(
                (
                    "the sensitive value, unless the guarantee names a constraint on it: if all"
                    " people of a class have the same value, it is certain for each of them"
                ),
                _SHOWN,
            ),
        ),
    )
)
register_kind(
    DeclaredKind(
        name="freeform",
        request_class="FreeformRequest",
        help="publish a registered source k-anonymously, each row with ranges and sets of its own",
        details="Creates the materialized view NAME.",
        room="kanon_db.publications.freeform",
        description=KindDescription(
            published="A table: {row}. Quasi-identifiers are ranges or sets of values; each row has"
            " ranges and sets of its own, which fit several {who}.",
            cells="as a range, or a set of values",
            linking="Freeform rows make no classes: each person fits several rows, and each row"
            " several people. The table of attacks says how often a row is linked rightly.",
            not_covered=(
                (
                    "the sensitive value: if all rows that fit a person have the same value, it is"
                    " certain"
                ),
                "rows of others: whoever knows which row is somebody's can be certain of another's",
                _SHOWN,
            ),
        ),
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
        description=KindDescription(
            published="A table: {row}. Some cells of quasi-identifiers are empty; the others are as"
            " they were.",
            cells="as it is, or suppressed",
            linking="Classes are rows with the same cells, the empty ones included. Somebody may"
            " fit further rows, with other cells empty, so these figures are upper ones.",
            not_covered=(
                (
                    "the sensitive value: if all rows that look like a person's have the same"
                    " value, it is certain"
                ),
                _SHOWN,
            ),
        ),
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
        description=KindDescription(
            published="Small networks that were trained on the rows. Readers see neither rows nor"
            " networks: they ask about a row of their own, and are told a label, and the share of"
            " networks that agree.",
            cells="nothing of it, but what answers tell",
            sensitive="nothing of it, but what answers tell",
            insensitive="not published",
            linking="A model publishes no rows that could be linked. Whether a person was in the"
            " source can be asked of it: the table of attacks says how often that is told rightly.",
            not_covered=(
                (
                    "what the model learned of everybody: it also tells the label of people who"
                    " were never in the source, as well as it can"
                ),
                (
                    "readers of several roles, and several people of one role, who put their"
                    " answers together: of several roles, budgets add up"
                ),
                (
                    "inputs that were made to be answered wrongly: noise and votes make them rarer,"
                    " no more"
                ),
            ),
            hides_membership=True,
            draws=False,
        ),
    )
)
