"""Parameters, declared as the fields of a dataclass: the request that an operation gets.

An operation's parameters are written once, here: name, type, default, bounds, help, and the methods
that they belong to. What SQL, Python and the command line take is derived from that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, Final, TypeVar

from kanon_db.declaration.types import Type, decoded, plain, read_object, unknown
from kanon_db.errors import InvalidParameterError

_Request = TypeVar("_Request")

REQUIRED: Final = MISSING
_KEY: Final = "kanon_db"


@dataclass(frozen=True)
class Parameter:
    """One declared parameter.

    Attributes
    ----------
    name : str
    type : Type
    help : str
        One sentence or more, for all ways in.
    default : object
        :data:`REQUIRED` where there is none. None is NULL in SQL.
    is_positional : bool
        Whether Python and the command line take it by position.
    follows : int
        Parameters of an SQL function come in the order of this number, then in that of their
        declaration: one that is added to a function later comes last, so that calls by position
        keep their meaning.
    methods : tuple of str
        Those that an option belongs to; empty for all.
    is_strict : bool
        Whether other methods refuse the option. If not, a warning says that they do not use it.
    metavar : str or None
        What the command line calls a value, where its type's word does not fit.
    """

    name: str
    type: Type
    help: str
    default: Any
    is_positional: bool = False
    follows: int = 0
    methods: tuple[str, ...] = ()
    is_strict: bool = False
    metavar: str | None = None

    @property
    def is_required(self) -> bool:
        """Whether callers must give it."""
        return self.default is REQUIRED

    def plain(self, given: Any) -> Any:
        """Return what was given as plain JSON."""
        return plain(decoded(given, self.name) if self.type.is_json else given)

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
    type_: Type,
    text: str,
    *,
    default: Any = REQUIRED,
    is_positional: bool = False,
    follows: int = 0,
    methods: tuple[str, ...] = (),
    is_strict: bool = False,
    metavar: str | None = None,
) -> Any:
    """Declare a parameter: the field of a request."""
    declared = (type_, text, default, is_positional, follows, methods, is_strict, metavar)
    return field(metadata={_KEY: declared})


def parameters_of(request: type) -> list[Parameter]:
    """Return the parameters of a request, in the order of the SQL function."""
    found = [
        Parameter(item.name, *item.metadata[_KEY])
        for item in dataclasses.fields(request)
        if _KEY in item.metadata
    ]
    return sorted(found, key=lambda parameter: parameter.follows)


def read_request(
    request: type[_Request], given: Mapping[str, Any], *, what: str = "parameter"
) -> _Request:
    """Check all that a caller gave, before anything else happens.

    Parameters
    ----------
    request : type
        A dataclass of parameters.
    given : mapping
        Values by name; those that are left out have their defaults.
    what : str
        What one of the names is called in a refusal.

    Returns
    -------
    object
        The request. If it has a field ``given``, that holds what was given, as plain JSON.

    Raises
    ------
    InvalidParameterError
        For a name that is not known (with the nearest one that is), a missing value, or one that
        its type refuses.
    """
    declared = {parameter.name: parameter for parameter in parameters_of(request)}
    for name in given:
        if name not in declared:
            raise unknown(what, name, sorted(declared))
    values: dict[str, Any] = {}
    if any(item.name == "given" for item in dataclasses.fields(request)):  # type: ignore[arg-type]
        values["given"] = {name: declared[name].plain(value) for name, value in given.items()}
    for name, parameter in declared.items():
        if name in given:
            values[name] = parameter.read(given[name])
        elif parameter.is_required:
            raise InvalidParameterError(f"{name} is missing", hint=parameter.help)
        else:
            values[name] = parameter.read(parameter.default)  # written as a caller would
    return request(**values)


def options(declared: type, what: str = "option") -> Type:
    """Return the type of options: a JSON object of the fields of `declared`, all with defaults.

    `what` one of them is called in a refusal.
    """

    def read(value: Any, name: str) -> Any:
        return read_request(declared, read_object(value, name), what=what)

    return Type("jsonb", "str | Mapping[str, Any]", read, "JSON", options=declared)
