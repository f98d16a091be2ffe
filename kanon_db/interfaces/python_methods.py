"""Derives a method from each operation; `make generate` writes their types into the stub beside."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from kanon_db.declaration import Operation, Parameter
from kanon_db.operations import operations


class Methods:
    """A method for each operation; :meth:`perform` does the work for all of them."""

    def perform(self, name: str, given: Mapping[str, Any]) -> Any:
        """Perform an operation by its name."""
        raise NotImplementedError


def _method(operation: Operation) -> Callable[..., Any]:
    """Make the method of an operation; some of its parameters may be passed by position."""
    signature = inspect.Signature(
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
            *map(_parameter, sorted(operation.parameters, key=lambda item: not item.is_positional)),
        ]
    )

    def method(self: Methods, *arguments: Any, **named: Any) -> Any:
        known = {key: value for key, value in named.items() if key in signature.parameters}
        given = signature.bind_partial(self, *arguments, **known).arguments
        # Unknown or missing arguments are refused as everywhere, with a hint.
        return self.perform(operation.name, {key: given[key] for key in list(given)[1:]} | named)

    method.__name__ = operation.name
    method.__signature__ = signature  # type: ignore[attr-defined]
    described = "\n".join(f"{item.name}\n    {item.help}" for item in operation.parameters)
    sentence = f"{operation.help[0].upper()}{operation.help[1:]}."
    method.__doc__ = "\n\n".join(filter(None, [sentence, operation.details, described]))
    return method


def _parameter(declared: Parameter) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    if declared.is_positional:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    default = inspect.Parameter.empty if declared.is_required else declared.default
    return inspect.Parameter(declared.name, kind, default=default)


for _operation in operations().values():
    setattr(Methods, _operation.name, _method(_operation))
