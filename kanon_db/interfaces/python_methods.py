"""Derives a method from each operation; `make generate` writes their types into the stub beside."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from kanon_db.declaration import Operation, describe_function
from kanon_db.operations import operations


class Methods:
    """A method for each operation; :meth:`perform` does the work for all of them."""

    def perform(self, name: str, given: Mapping[str, Any]) -> Any:
        """Perform an operation by its name."""
        raise NotImplementedError


def _method(operation: Operation) -> Callable[..., Any]:
    """Make the method of an operation; some of its parameters may be passed by position."""

    def method(self: Methods, *arguments: Any, **named: Any) -> Any:
        known = {key: value for key, value in named.items() if key in signature.parameters}
        given = signature.bind_partial(self, *arguments, **known).arguments
        # Unknown or missing arguments are refused as everywhere, with a hint.
        return self.perform(operation.name, {key: given[key] for key in list(given)[1:]} | named)

    describe_function(method, operation, operation.parameters, "self")
    signature = inspect.signature(method)
    return method


for _operation in operations().values():
    setattr(Methods, _operation.name, _method(_operation))
