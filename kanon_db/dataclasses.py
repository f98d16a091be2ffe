"""Dataclasses as Python has them, whose methods are compiled when an object is first made."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Make a class a dataclass, with the options of :func:`dataclasses.dataclass`.

        Only ``slots`` are not among them, for which Python would make another class.
        """

        # Python compiles up to six methods for each class, which takes a third of a millisecond. A
        # first estimate would wait for a hundred classes, and makes objects of a quarter of them.
        def declare(cls: type) -> type:
            def complete() -> None:
                with _completing:
                    # What stands for the methods stays until all are there: other threads wait.
                    if cls.__new__ is incomplete:
                        dataclasses.dataclass(**options)(cls)
                        cls.__match_args__ = _names(cls)
                        cls.__new__ = _new

            def incomplete(made: type, *_given: object, **_named: object) -> object:
                complete()
                return object.__new__(made)

            def fields(_owner: type) -> Any:
                complete()
                return vars(cls)["__dataclass_fields__"]

            cls.__new__ = incomplete
            cls.__dataclass_fields__, cls.__match_args__ = _Derived(fields), _Derived(_names)
            cls.__signature__ = _Derived(_signature)
            return cls

        return declare if cls is None else declare(cls)


_completing: Final = threading.RLock()


class _Derived:
    """An attribute of a class that follows from others whenever somebody asks for it."""

    def __init__(self, read: Callable[[type], Any]) -> None:
        self._read = read

    def __get__(self, _instance: object, owner: type) -> Any:
        return self._read(owner)


def _names(cls: Any) -> tuple[str, ...]:
    fields = dataclasses.fields(cls)
    return tuple(field.name for field in fields if field.init and not field.kw_only)


def _signature(cls: Any) -> Any:
    import inspect

    dataclasses.fields(cls)  # so that the method is there
    method = inspect.signature(cls.__init__)
    return method.replace(parameters=list(method.parameters.values())[1:])


def _new(made: type, *_given: object, **_named: object) -> object:
    """Make an object without content, as `object.__new__` would without arguments."""
    return object.__new__(made)
