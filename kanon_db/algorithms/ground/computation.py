"""Runs long computations: interruptible, threaded, compiled, and with a proof of optimality.

:class:`Pulse` is a heartbeat and a time limit, :func:`in_threads` divides work among threads, and
:func:`kernel` compiles loops. A :class:`Proof` holds the lower bound that a search has proven.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache, cached_property, update_wrapper
from math import inf
from pickle import UnpicklingError
from time import monotonic
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from kanon_db.dataclasses import dataclass
from kanon_db.heartbeat import no_heartbeat

if TYPE_CHECKING:
    from concurrent.futures import Future

_T = TypeVar("_T")

_ITEMS_PER_BEAT = 1000


class Pulse:
    """A heartbeat and a time limit, passed through a computation as one.

    Parameters
    ----------
    seconds : float
        From now until time is over; infinity for no limit.
    heartbeat : callable
        Called by :meth:`beat`; it raises on a cancel.
    on_done : callable, optional
        Called by :meth:`done` instead, with the progress.

    Notes
    -----
    An algorithm learns only from its pulse that time ran out. It then returns the best result
    found so far, with a :class:`Proof` that bounds how far that is from the optimum.
    """

    def __init__(
        self,
        seconds: float = inf,
        heartbeat: Callable[[], None] = no_heartbeat,
        on_done: Callable[[int, int], None] | None = None,
    ) -> None:
        self.seconds = seconds
        self._start = monotonic()
        self._heartbeat = heartbeat
        self._on_done = on_done

    def beat(self) -> None:
        """Signal progress; to be called every few milliseconds. An exception ends the work."""
        self._heartbeat()

    def done(self, n: int, of: int) -> None:
        """Beat, and report progress: ``n`` of ``of``; only from code that runs the whole step."""
        if self._on_done is None:
            self._heartbeat()
        else:
            self._on_done(n, of)

    @property
    def seconds_left(self) -> float:
        """Seconds until the end, negative after it."""
        return self._start + self.seconds - monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.seconds_left <= 0

    @property
    def spent(self) -> float:
        """Share of the time that has passed, above 1 after the end; 0 without a limit."""
        return (monotonic() - self._start) / self.seconds if self.seconds > 0 else inf

    def within(self, seconds: float) -> Self:
        """Return the same heartbeat with a limit from now on, no later than that of this one."""
        return type(self)(min(seconds, self.seconds_left), self._heartbeat, self._on_done)

    def until(self, share: float) -> Self:
        """Return the same heartbeat, limited to a fraction above 0 of the time of this one."""
        return self.within(self.seconds * share - (monotonic() - self._start))

    def of_part(self) -> Self:
        """Return the same heartbeat and limit for part of a step, where :meth:`done` only beats."""
        return type(self)(self.seconds_left, self._heartbeat)

    def watched(self, items: Iterable[_T]) -> Iterator[_T]:
        """Iterate over items of light work, with a beat every few milliseconds.

        Yields
        ------
        object
        """
        for i, item in enumerate(items):
            if i % _ITEMS_PER_BEAT == 0:
                self.beat()
            yield item


UNLIMITED: Final = Pulse()
"""No limit and no heartbeat: the default of every algorithm."""


Status: TypeAlias = Literal["optimal", "feasible"]


@dataclass(frozen=True)
class Proof:
    """The objective of a solution, and a proven lower bound on that of any.

    Attributes
    ----------
    objective : Fraction
        Value, at the solution returned, of what the method minimizes.
    lower_bound : Fraction
        At most the objective; less if time ran out before the two met.

    Examples
    --------
    >>> Proof(Fraction(10), Fraction(9)).gap
    0.1
    """

    objective: Fraction
    lower_bound: Fraction

    @classmethod
    def of(cls, objective: int, lower_bound: int, unit: Fraction = Fraction(1)) -> Self:
        """Make a proof of whole numbers of a unit.

        Parameters
        ----------
        objective, lower_bound : int
            A bound above the objective means that nothing better exists, and is lowered to it.
        unit : Fraction
            What 1 stands for.

        Returns
        -------
        Proof
        """
        return cls(objective * unit, min(lower_bound, objective) * unit)

    @property
    def is_optimal(self) -> bool:
        """Whether no solution can be better."""
        return self.objective <= self.lower_bound

    @property
    def status(self) -> Status:
        """``optimal`` if proven to be, else ``feasible``."""
        return "optimal" if self.is_optimal else "feasible"

    @property
    def gap(self) -> float:
        """Distance from the lower bound relative to the objective, in the range 0 to 1."""
        if self.is_optimal:
            return 0.0
        return float((self.objective - self.lower_bound) / self.objective)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of a publication that come from the proof."""
        return {"gap": self.gap, "lower_bound": float(self.lower_bound)}


_Argument = ParamSpec("_Argument")
_Returned = TypeVar("_Returned")
_Part = TypeVar("_Part")

_POLL_SECONDS = 0.005


def n_cores() -> int:
    """Return the default number of threads: at most two, since a server has other sessions."""
    return min(2, os.cpu_count() or 1)


_M_ARENA_MAX: Final = -8


def tune_heap(option: int, value: int) -> None:
    """Choose how glibc takes memory from the system and gives it back, by a number of `mallopt`."""
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(option, value)


class Threads:
    """Threads that end with the block; work not begun by then is dropped."""

    def __init__(self, number: int) -> None:
        from concurrent.futures import ThreadPoolExecutor  # a first estimate needs no threads

        # Of a heap of their own, glibc would keep some megabytes, also when they have ended.
        tune_heap(_M_ARENA_MAX, 1)
        self._executor = ThreadPoolExecutor(number)

    def start(
        self,
        work: Callable[_Argument, _Returned],
        *given: _Argument.args,
        **named: _Argument.kwargs,
    ) -> Future[_Returned]:
        """Run a function in a thread.

        New threads block signals, which the main thread must handle.
        """
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            return self._executor.submit(work, *given, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._executor.shutdown(cancel_futures=True)


class _StoppedError(Exception):
    """Another part of the work has failed, or the result is no longer needed."""


def in_threads(
    run: Callable[[_Part, Pulse], _Returned], parts: Sequence[_Part], workers: int, pulse: Pulse
) -> list[_Returned]:
    """Run a function for each part, in threads; none is left when it returns or raises."""
    from concurrent.futures import FIRST_EXCEPTION, wait

    stop = threading.Event()
    left = iter(enumerate(parts))
    returned: dict[int, _Returned] = {}

    def beat() -> None:
        if stop.is_set():
            raise _StoppedError

    of_threads = Pulse(pulse.seconds_left, beat)

    def run_some() -> None:
        """Run one part after the other; the threads share what is left."""
        for number, part in left:
            returned[number] = run(part, of_threads)

    with Threads(workers) as threads:
        try:
            running = [threads.start(run_some) for _ in range(min(workers, len(parts)))]
            while True:
                done, waited_for = wait(running, _POLL_SECONDS, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()  # raises what the thread raised
                if not waited_for:
                    return [returned[number] for number in range(len(parts))]
                pulse.done(len(returned), len(parts))
        finally:
            stop.set()


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
    compiler, kept = load_numba()
    dispatcher = compiler(nogil=True, no_cfunc_wrapper=True, **options)(function)
    # Each first call would look for what extends numba, among all that is installed; a kernel that
    # is compiled does so later (`load_overload`), and one that was compiled needs none.
    dispatcher._compilation_chain_init_hook = lambda: None
    # Where no folder can be written, each process compiles anew.
    with suppress(RuntimeError):
        dispatcher._cache = kept(function)
    return dispatcher


class _WithoutExtras:
    """Has this thread's imports of what numba would use where it is installed fail in a block."""

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        # scipy takes longer to load than all of numba, and the others a quarter of that: numba has
        # its own loop for convolutions. What multiplies matrices looks for scipy again.
        self._names = {"scipy", "coverage"}
        if not os.path.exists(".numba_config.yaml"):  # noqa: PTH110  # as numba looks
            self._names.add("yaml")
        sys.meta_path.insert(0, self)

    def __exit__(self, *_error: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, name: str, *_where: object) -> None:
        """Refuse the extras; others look for all else."""
        if name.partition(".")[0] in self._names and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(name)


_UNREADABLE: Final = (
    AttributeError, EOFError, ImportError, LookupError, OSError, UnpicklingError, ValueError
)  # fmt: skip


@cache
def load_numba() -> tuple[Any, Any]:
    """Load numba, and return its decorator, and what keeps its results."""
    with _WithoutExtras():
        import numba
        from numba.core.caching import FunctionCache
        from numba.core.registry import cpu_target
        from numba.core.runtime.nrt import rtsys
        from numba.extending import typeof_impl

        rtsys.initialize(cpu_target.target_context)

    class KernelCache(FunctionCache):
        """What was compiled of a kernel; nothing, where an older state of the package kept it."""

        def load_overload(self, sig: object, target_context: Any) -> object:
            """Load compiled code; only where there is none, load all that numba can compile."""
            # numba loads that first, half of its time, but compiled code needs only the runtime.
            compiled = self._load(sig, target_context)
            if compiled is None:
                with _WithoutExtras():
                    target_context.refresh()
            return compiled

        # An index names the classes of a kernel's arguments: reading one that names a class which
        # is gone would fail, before numba sees that the source has changed. So would reading a file
        # that a crash of the machine has left empty, or that another user has written, for whom
        # alone numba makes it.
        def _load(self, sig: object, target_context: object) -> object:
            try:
                return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
            except _UNREADABLE:
                self.flush()
                return None

        def save_overload(self, sig: object, data: object) -> None:
            """Keep compiled code, unless it cannot be written: the disk may be full."""
            try:
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]
            except OSError:
                # The index may name a file by now that an older state of the package has written.
                self.flush()

        def flush(self) -> None:
            """Forget what was compiled, also where the disk has no room for an empty index."""
            with suppress(OSError):
                os.unlink(self._cache_file._index_path)  # noqa: PTH108

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
