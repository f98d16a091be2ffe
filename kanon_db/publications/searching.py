"""Calling the method that a request asks for."""

from __future__ import annotations

from math import inf
from types import ModuleType
from typing import Any, Protocol

from kanon_db.algorithms.ground.pulse import Pulse
from kanon_db.publications.kind import Found


class Searching(Protocol):
    """What calling a method needs of a job."""

    @property
    def request(self) -> Any:
        """What was asked for."""

    def pulse(self, seconds: float = inf) -> Pulse:
        """Return a heartbeat, with a time limit that starts now."""

    def limit(self, seconds: float) -> None:
        """Say that the search has a time limit, from now on."""


def run_method(
    methods: ModuleType, job: Searching, data: Any, pulse: Pulse | None = None, method: str = ""
) -> Found:
    """Call the function of the method that is asked for.

    Parameters
    ----------
    methods : module
        It has a function named like each method: ``method(data, request, pulse) -> Found``.
    data : object
        What the methods of this kind search in.
    pulse : Pulse, optional
        Given if the kind has one time limit for all of its methods.
    method : str
        The method to call instead of the request's.
    """
    request, pulse = job.request, pulse or job.pulse()
    has_limit = "time_limit" in request.options_of_method
    seconds = min(pulse.seconds_left, request.options.time_limit if has_limit else inf)
    if seconds < inf:
        job.limit(seconds)
    search = getattr(methods, method or request.method)
    found: Found = search(data, request, pulse)
    return found
