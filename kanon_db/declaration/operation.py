"""An operation: what SQL, Python and the command line know about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kanon_db.declaration.parameters import Parameter, parameters_of, read_request

if TYPE_CHECKING:
    from kanon_db.session import Session

Audience = tuple[str, ...]
PUBLISHERS: Final[Audience] = ("kanon_publisher",)
EVERYBODY: Final[Audience] = ("kanon_publisher", "kanon_analyst")


class Column(NamedTuple):
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
    result : tuple of Column
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
    result: tuple[Column, ...]
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
        """Whether it returns a single value."""
        return [column.name for column in self.result] == [""]

    def read(self, given: Mapping[str, Any]) -> Any:
        """Check what a caller gave; see :func:`read_request`."""
        return read_request(self.request, given)

    def perform(self, session: Session, request: Any) -> Any:
        """Run it.

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

    def row(self, found: Any) -> list[Any]:
        """Return the values of a row in the order of the columns."""
        return [getattr(found, column.name) for column in self.result]


def columns(**types: str) -> tuple[Column, ...]:
    """Declare the columns of a row, by name."""
    return tuple(Column(name, sql) for name, sql in types.items())


def value(sql: str) -> tuple[Column, ...]:
    """Declare a single value as the result."""
    return (Column("", sql),)
