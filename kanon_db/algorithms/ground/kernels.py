"""Compiles loops with numba when they are first called, and keeps the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property, update_wrapper
from typing import Any, TypeVar, cast, overload

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Kernel:
    """A function that is compiled when it is first called: loading numba takes longer than a count.

    Everywhere else it is numba's own dispatcher, also for kernels that call it.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, object]) -> None:
        update_wrapper(self, function)
        self._function, self._options = function, options

    @cached_property
    def dispatcher(self) -> Any:
        """What numba makes of the function."""
        return _compile(self._function, self._options)

    def __call__(self, *args: Any) -> Any:
        return self.dispatcher(*args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Whoever copies or describes objects asks for these
            raise AttributeError(name)
        return getattr(self.dispatcher, name)


@overload
def kernel(function: _Function, /) -> _Function: ...
@overload
def kernel(**options: object) -> Callable[[_Function], _Function]: ...
def kernel(
    function: _Function | None = None, /, **options: object
) -> _Function | Callable[[_Function], _Function]:
    """Compile a function when it is first called, without Python's lock, and keep the result.

    Options are those of :func:`numba.njit`.
    """
    if function is None:
        return lambda given: cast("_Function", _Kernel(given, options))
    return cast("_Function", _Kernel(function, options))


def _compile(function: Callable[..., Any], options: Mapping[str, object]) -> Any:
    compiler, kept = _compiler()
    dispatcher = compiler(cache=True, nogil=True, no_cfunc_wrapper=True, **options)(function)
    dispatcher._cache = kept(function)
    return dispatcher


@cache
def _compiler() -> tuple[Any, Any]:
    """Load numba: its decorator, and what keeps its results."""
    import numba
    from numba.core.caching import FunctionCache
    from numba.extending import typeof_impl

    class KernelCache(FunctionCache):
        """What was compiled of a kernel; nothing, where an older state of the package kept it."""

        # An index names the classes of a kernel's arguments: reading one that names a class which
        # is gone would fail, before numba sees that the source has changed.
        def load_overload(self, sig: object, target_context: object) -> object:
            try:
                return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
            except (AttributeError, ImportError):
                self.flush()  # type: ignore[no-untyped-call]
                return None

    @typeof_impl.register(_Kernel)
    def typeof_kernel(kernel: _Kernel, context: object) -> object:
        return typeof_impl(kernel.dispatcher, context)

    return numba.njit, KernelCache


def innermost(function: _Function) -> _Function:
    """Compile a function that runs millions of times without arrays of its own or Python's lock.

    Without numba's runtime, which counts references in tuples; the Python caller holds them.
    """
    return kernel(_nrt=False)(function)


def inlined(function: _Function) -> _Function:
    """Compile a function to be inlined into its callers."""
    return kernel(inline="always", _nrt=False)(function)
