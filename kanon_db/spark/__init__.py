"""Makes the same publications on Spark: from Parquet, or PostgreSQL, to Parquet with a manifest.

It needs the extra ``spark`` and Java; nothing of these is imported before it is used. Functions and
commands are derived from the declared operations: `SPARK_OPERATIONS` says what Spark adds to them.
Whatever needs no cluster is the code of PostgreSQL's publications, which reads files through
``_tables``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kanon_db.dataclasses import dataclass
from kanon_db.declaration import (
    REQUIRED,
    TEXT,
    Operation,
    Parameter,
    ParameterType,
    choice,
    describe_function,
    parameters_of,
    unknown,
)
from kanon_db.operations import NoParameters, RegisterRequest, operations
from kanon_db.publications import KINDS
from kanon_db.publications.publish_request import LoadRequest
from kanon_db.spark.environment import PostgresTable
from kanon_db.wording import explained

if TYPE_CHECKING:
    from kanon_db.publications.registry import DeclaredKind


@dataclass(frozen=True, kw_only=True)
class SparkOperation:
    """An operation on Spark: one that is declared, and what Spark adds to it.

    Attributes
    ----------
    declared : Operation
        Its words and its parameters.
    function : str
        ``module:function`` of this package. It takes a session, and the parameters by their names.
    adds : tuple of Parameter
        What PostgreSQL has in its catalog, or in a setting.
    without : collection of str
        Declared parameters that make no sense here.
    hears : tuple of str
        Those of `LISTENERS` that it calls.
    command : tuple of str
        The words after ``kanon spark``; empty if it has no command.
    fixed : mapping
        Arguments that callers do not pass.
    """

    declared: Operation
    function: str
    adds: tuple[Parameter, ...]
    without: Collection[str] = ("name",)
    hears: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> Sequence[Parameter]:
        """What Spark adds, and then what is declared."""
        declared = (item for item in self.declared.parameters if item.name not in self.without)
        return (*self.adds, *declared)

    @explained()
    def perform(self, session: Any, *arguments: Any, **given: Any) -> Any:
        """Run it, if all parameters are known; it raises what `_RAISES` says."""
        known = sorted({item.name for item in self.parameters} | {*self.hears})
        for name in given:
            if name not in known:
                raise unknown("parameter", name, known)
        module, _, name = self.function.partition(":")
        called = getattr(import_module(f"{__name__}.{module}"), name)
        return called(session, *arguments, **self.fixed, **given)

    def as_function(self) -> Callable[..., Any]:
        """Return the function that callers see; what it needs may be passed by position."""

        def function(session: Any, *arguments: Any, **given: Any) -> Any:
            return self.perform(session, *arguments, **given)

        added = [
            item._replace(is_positional=item.is_required and item not in _ROLES)
            for item in self.adds
        ]
        remaining = self.parameters[len(added) :]
        listeners = [LISTENERS[name] for name in self.hears]
        describe_function(function, self.declared, [*added, *remaining, *listeners], "session")
        function.__qualname__ = function.__name__
        function.__doc__ = f"{function.__doc__}\n\n{_RAISES}"
        return function


_RAISES: Final = """Raises
------
KanonError
    As in PostgreSQL; `ServerError` where Spark or Java is missing, or Spark fails;
    `UnsupportedQueryError` for questions that only PostgreSQL answers; `VerificationError` where
    files are not those that were published.
"""


def _as_it_is(value: Any, _name: str) -> Any:
    return value


SOURCE_TYPE: Final = ParameterType(
    "", "str | os.PathLike[str] | DataFrame | PostgresTable", _as_it_is, "PATH|JDBC"
)
CONNECTION_TYPE: Final = ParameterType("", "str | psycopg.Connection", _as_it_is)
_LISTENER: Final = ParameterType("", "Callable[[Any], None]", _as_it_is)

LISTENERS: Final = {
    "on_progress": Parameter(
        "on_progress", _LISTENER, "Called with a `Progress` for each step.", None
    ),
    "on_warning": Parameter(
        "on_warning", _LISTENER, "Called with each warning, in place of Python's own.", None
    ),
}
_BOTH: Final = ("on_progress", "on_warning")

_SOURCE: Final = Parameter(
    "source", SOURCE_TYPE,
    "What is published, or was: Parquet, a table of PostgreSQL over JDBC, or, in Python, a data"
    " frame.",
    REQUIRED,
)  # fmt: skip
_TARGET: Final = Parameter(
    "target", TEXT, "The folder of the publication.", REQUIRED, is_positional=True
)
_NEW_TARGET: Final = Parameter(
    "target", TEXT,
    "Where to publish it: a folder for this publication alone, whose last part is its name.",
    REQUIRED, metavar="PATH",
)  # fmt: skip
_SOURCE_NAME: Final = Parameter(
    "source_name", TEXT,
    "What the ledger calls the source, by default its path: the same for all that is about the same"
    " people; a data frame needs it.",
    None, metavar="NAME",
)  # fmt: skip
_CONNECTION: Final = Parameter(
    "connection", CONNECTION_TYPE,
    "A connection string, or a connection in autocommit mode, of a role that may publish there.",
    REQUIRED,
)  # fmt: skip
_ROLES: Final = tuple(
    item
    for item in parameters_of(RegisterRequest)
    if item.name not in ("source", "arrival", "keep")
)
_ESTIMATOR: Final = Parameter(
    "estimator",
    choice(
        "estimator", published="corrected by what the publication implies", paper="the paper's"
    ),
    "As the setting kanon.estimator in PostgreSQL.", "published", metavar="NAME",
)  # fmt: skip


def _publishing(kind: DeclaredKind) -> SparkOperation:
    return SparkOperation(
        declared=replace(kind.operation, details=""), function="publishing:publish", hears=_BOTH,
        adds=(_SOURCE, _NEW_TARGET, _SOURCE_NAME, *_ROLES),
        without=("source", "publication", "readers", "draws"),  # draws are made by load
        command=("publish", kind.name), fixed={"kind": kind.name},
    )  # fmt: skip


def _from_files(
    name: str, module: str, *adds: Parameter, details: str = "", **described: Any
) -> SparkOperation:
    return SparkOperation(
        declared=replace(operations()[name], details=details), function=f"{module}:{name}",
        adds=(_TARGET, *adds), **described,
    )  # fmt: skip


_ANSWERS: Final = "estimates_from_files"
_ITS_OWN: Final = ("name", "publication")  # The folder tells which

# A table, as in `kanon_db.operations`; what has no counterpart there is declared here.
# fmt: off
SPARK_OPERATIONS: Final = (
    *(_publishing(kind) for kind in KINDS.values() if kind.shape != "model"),
    SparkOperation(
        declared=Operation(
            "load", "load a publication into PostgreSQL, where SQL answers from it", "", (),
            request=LoadRequest, command=("publish",),
            details="Workers write the rows, and this machine passes them on to COPY, a block at a"
            " time. What follows from them is written there, by the code that publishing uses, and"
            " all is verified there before anybody sees it, in one transaction: of a load that"
            " fails, nothing is left.",
        ),
        function="publishing:load", hears=_BOTH, command=("load",),
        adds=(_TARGET, _CONNECTION),
    ),
    _from_files("verify", "_spark_kind", command=("verify",)),
    _from_files("metrics", "_spark_kind", command=("metrics",)),
    SparkOperation(
        declared=Operation(
            "releases", "list what was released in a folder of publications", "", (),
            request=NoParameters, command=("releases",),
        ),
        function="_publication_folder:releases", command=("releases",),
        adds=(Parameter("folder", TEXT, "The folder.", REQUIRED, is_positional=True),),
    ),
    _from_files(
        "estimate", _ANSWERS, _ESTIMATOR, hears=("on_warning",), command=("estimate",),
        without=_ITS_OWN,
    ),
    _from_files("estimate_count", _ANSWERS, _ESTIMATOR, hears=("on_warning",), without=_ITS_OWN),
    _from_files("estimate_counts", _ANSWERS, _ESTIMATOR, hears=("on_warning",), without=_ITS_OWN),
    _from_files(
        "rewrite_count", _ANSWERS, without=_ITS_OWN,
        details="They are the paper's, since the view has the shares of buckets.",
    ),
    _from_files(
        "attack", "_spark_kind", _SOURCE, hears=_BOTH, command=("attack",),
        details="They are played on the driver, with codes of all records: of more than five"
        " million, they are refused. Learners learn from a random sample of large buckets, and a"
        " random sample of people is looked up in rows, with a warning.",
    ),
    _from_files(
        "evaluate_counts", "_spark_kind", _SOURCE, hears=_BOTH, command=("evaluate-counts",),
        details="Rows are compared, too, on the driver; see attack.",
    ),
    SparkOperation(
        declared=Operation(
            "weighted_view",
            "join the tables of a bucketization to one, a data frame in which sum(weight) counts",
            "", (), request=NoParameters,
            details="With view.createOrReplaceTempView(name), view.sparkSession.sql runs what"
            " rewrite_count returns: the view belongs to a session of its own, whose settings do"
            " not change what values mean.",
        ),
        function="kinds.bucket_kind:weighted_view", adds=(_TARGET,),
    ),
)
# fmt: on

__all__ = ["SPARK_OPERATIONS", "PostgresTable", "SparkOperation"]
for _operation in SPARK_OPERATIONS:
    globals()[_operation.declared.name] = _operation.as_function()
    __all__ += [_operation.declared.name]  # noqa: PLE0604

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Any]: ...
