"""Defines operations and their parameters, which are the fields of a request's dataclass."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, field, fields
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kanon_db.dataclasses import dataclass
from kanon_db.declaration.parameter_types import (
    ParameterType,
    decode_json,
    plain,
    read_object,
    unknown,
)
from kanon_db.errors import InvalidParameterError

if TYPE_CHECKING:
    from kanon_db.session import Session


# Each parameter is written once; SQL, Python and the command line derive from it what they accept.

_Request = TypeVar("_Request")

REQUIRED: Final = MISSING
_KEY: Final = "kanon_db"


class Parameter(NamedTuple):
    """One declared parameter.

    Attributes
    ----------
    name : str
    type : ParameterType
    help : str
        One sentence or more, shown by SQL, Python and the command line.
    default : object
        :data:`REQUIRED` if there is no default. None is NULL in SQL.
    is_positional : bool
        Whether Python and the command line accept it by position.
    follows : int
        Parameters of an SQL function are ordered by this number, and then as they are declared. A
        parameter that is added later goes to the end, so that calls by position keep their
        meaning.
    methods : tuple of str
        The methods that an option belongs to; empty if it belongs to all of them.
    is_strict : bool
        Whether other methods refuse the option. Otherwise they warn that it has no effect.
    metavar : str or None
        What the command line calls a value, if the word of its type does not fit.
    """

    name: str
    type: ParameterType
    help: str
    default: Any
    is_positional: bool = False
    follows: int = 0
    methods: tuple[str, ...] = ()
    is_strict: bool = False
    metavar: str | None = None

    @property
    def is_required(self) -> bool:
        """Tell whether callers must pass the parameter."""
        return self.default is REQUIRED

    def plain(self, given: Any) -> Any:
        """Return what the caller passed, as plain JSON."""
        return plain(decode_json(given, self.name) if self.type.is_json else given)

    def read(self, given: Any) -> Any:
        """Return the value that the operation works with.

        Raises
        ------
        InvalidParameterError
        """
        if given is None:
            if self.type.options is not None:
                return self.type.read({}, self.name)
            if self.default is None:
                return None
            raise InvalidParameterError(f"{self.name} must not be NULL")
        return self.type.read(given, self.name)


def parameter(
    type_: ParameterType,
    text: str,
    *,
    default: Any = REQUIRED,
    is_positional: bool = False,
    follows: int = 0,
    methods: tuple[str, ...] = (),
    is_strict: bool = False,
    metavar: str | None = None,
) -> Any:
    """Declare a parameter, as a field of a request."""
    declared = (type_, text, default, is_positional, follows, methods, is_strict, metavar)
    return field(metadata={_KEY: declared})


def parameters_of(request: type) -> tuple[Parameter, ...]:
    """Return the parameters of a request, in the order of the SQL function."""
    return _parameters_of(request)


@cache  # a publication in cells asks once for each cell
def _parameters_of(request: type) -> tuple[Parameter, ...]:
    parameters = [
        Parameter(item.name, *item.metadata[_KEY])
        for item in dataclasses.fields(request)
        if _KEY in item.metadata
    ]
    return tuple(sorted(parameters, key=lambda parameter: parameter.follows))


def read_request(
    request: type[_Request],
    given: Mapping[str, Any],
    *,
    what: str = "parameter",
    is_shown: bool = True,
) -> _Request:
    """Check everything that a caller passed, before anything else happens.

    Parameters
    ----------
    request : type
        A dataclass of parameters.
    given : mapping
        Values by name; parameters that are left out have their defaults.
    what : str
        What an error message calls one of the names.
    is_shown : bool
        Whether the message repeats an unknown name.

    Returns
    -------
    object
        The request. A field ``given``, if it has one, holds what was passed, as plain JSON.

    Raises
    ------
    InvalidParameterError
        For an unknown name (the hint has the most similar known one), a missing value, or a value
        that its type refuses.
    """
    declared = {parameter.name: parameter for parameter in parameters_of(request)}
    for name in given:
        if name not in declared:
            raise unknown(what, name, sorted(declared), is_shown=is_shown)
    values: dict[str, Any] = {}
    if any(item.name == "given" for item in dataclasses.fields(request)):  # type: ignore[arg-type]
        try:
            values["given"] = {name: declared[name].plain(value) for name, value in given.items()}
        except RecursionError:  # Python's objects may contain themselves
            raise InvalidParameterError("a parameter is nested too deeply") from None
    for name, parameter in declared.items():
        if name in given:
            values[name] = parameter.read(given[name])
        elif parameter.is_required:
            raise InvalidParameterError(f"{name} is missing", hint=parameter.help)
        else:
            values[name] = parameter.read(parameter.default)  # declared as a caller would pass it
    return request(**values)


def options(declared: type, what: str = "option", *, is_shown: bool = True) -> ParameterType:
    """Return the type of options: a JSON object with fields of `declared`, which have defaults.

    `what` is what an error message calls one of them, and `is_shown` whether it repeats an unknown
    one.
    """

    def read(value: Any, name: str) -> Any:
        return read_request(declared, read_object(value, name), what=what, is_shown=is_shown)

    return ParameterType("jsonb", "str | Mapping[str, Any]", read, "JSON", options=declared)


Audience = tuple[str, ...]
PUBLISHERS: Final[Audience] = ("kanon_publisher",)
EVERYBODY: Final[Audience] = ("kanon_publisher", "kanon_analyst", "kanon_user")
"""Who may ask. A user reads what names them as a reader; an analyst, what names nobody, too."""


class ResultColumn(NamedTuple):
    """A column of a result: its name, and PostgreSQL's type."""

    name: str
    sql: str


@dataclass(frozen=True)
class Operation:
    """An operation, declared once.

    Attributes
    ----------
    name : str
        The name of the SQL function and of the Python method.
    help : str
        What it does, as a sentence without a capital or a full stop. It is the comment of the SQL
        function.
    function : str
        ``module:function``, imported when it is called. It takes a session and the parameters, and
        returns a value, a row, a list of rows or nothing, as `result` says.
    result : tuple of ResultColumn
        The columns of a row. One column without a name means a single value, no columns nothing.
    request : type
        A dataclass with its parameters.
    is_many : bool
        Whether it returns any number of rows, or exactly one.
    audience : tuple of str
        Roles that may call it.
    is_stable : bool
        Whether it changes nothing; then everything in it sees the same state of the database.
    command : tuple of str
        Its words on the command line, such as ``publish buckets``; empty if it has no command.
    details : str
        More text for the command's help and the method's docstring.
    takes_request : bool
        Whether the function takes the request itself, or its values by name.
    row_class : str
        ``module:class`` of the row that an operation with a single row returns.
    """

    name: str
    help: str
    function: str
    result: tuple[ResultColumn, ...]
    request: type = field(kw_only=True)
    is_many: bool = False
    audience: Audience = PUBLISHERS
    is_stable: bool = False
    command: tuple[str, ...] = ()
    details: str = ""
    takes_request: bool = False
    row_class: str = ""

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Its parameters, in the order of the SQL function."""
        return parameters_of(self.request)

    @property
    def signature(self) -> str:
        """The types of its parameters, as PostgreSQL writes a function's signature."""
        return ", ".join(parameter.type.sql for parameter in self.parameters)

    @property
    def is_value(self) -> bool:
        """Tell whether the operation returns a single value."""
        return [column.name for column in self.result] == [""]

    @property
    def is_question(self) -> bool:
        """Tell whether it only looks at what is published, or at its parameters.

        All else is work: it changes something or reads a source, and as jobs, a role's work is done
        in the order in which it was submitted, while questions do not wait for it.
        """
        return self.audience == EVERYBODY or self.is_stable

    @property
    def sentence(self) -> str:
        """What it does, as a whole sentence."""
        return f"{self.help[0].upper()}{self.help[1:]}."

    def read(self, given: Mapping[str, Any]) -> Any:
        """Check what a caller gave; see :func:`read_request`."""
        return read_request(self.request, given)

    def perform(self, session: Session, request: Any) -> Any:
        """Run the operation.

        Raises
        ------
        KanonError
            The caller must then roll back the transaction, or the subtransaction around the call.
        """
        module, _, function = self.function.partition(":")
        called = getattr(import_module(module), function)
        with session.reporting():
            if self.takes_request:
                return called(session, request)
            return called(
                session, **{item.name: getattr(request, item.name) for item in fields(request)}
            )

    def row(self, answer: Any) -> list[Any]:
        """Return the values of a row in the order of the columns."""
        return [getattr(answer, column.name) for column in self.result]


def columns(**types: str) -> tuple[ResultColumn, ...]:
    """Declare the columns of a row, by name."""
    return tuple(ResultColumn(name, sql) for name, sql in types.items())


def value(sql: str) -> tuple[ResultColumn, ...]:
    """Declare a single value as the result."""
    return (ResultColumn("", sql),)


def describe_function(
    function: Any, operation: Operation, parameters: Sequence[Parameter], first: str
) -> None:
    """Give a function of an operation its name, signature and docstring.

    Parameters
    ----------
    function : callable
    operation : Operation
    parameters : sequence of Parameter
    first : str
        What stands before them, such as ``self``.
    """
    in_turn = sorted(parameters, key=lambda item: not item.is_positional)
    function.__name__ = operation.name
    function.__signature__ = inspect.Signature(
        [
            inspect.Parameter(first, inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *map(_python_parameter, in_turn),
        ]
    )
    described = "\n".join(f"{item.name}\n    {item.help}" for item in parameters)
    texts = [operation.sentence, operation.details, described]
    function.__doc__ = "\n\n".join(filter(None, texts))


def _python_parameter(declared: Parameter) -> inspect.Parameter:
    either, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    default = inspect.Parameter.empty if declared.is_required else declared.default
    kind = either if declared.is_positional else named
    return inspect.Parameter(declared.name, kind, default=default)
