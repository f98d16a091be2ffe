"""How many random examples the property tests try.

``KANON_EXAMPLES=fast``, the default, is for every run; ``full`` (``make test-all``) is for a
change of an algorithm, and takes its time. So are the cases that :func:`long_but` leaves out.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

FACTORS = {"fast": 0.25, "full": 10.0}
"""Examples of each profile, as a multiple of the number that a test asks for."""


def _factor() -> float:
    name = os.environ.get("KANON_EXAMPLES", "fast")
    if name not in FACTORS:
        raise ValueError(f"KANON_EXAMPLES must be one of {', '.join(FACTORS)}")
    return FACTORS[name]


def examples(n: int) -> int:
    """Scale the number of examples that a test asks for to the profile of the run."""
    return max(10, round(n * _factor()))


def long_but(fast: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """Give cases to parametrize: those that are not named are left to `make test-all`."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if case in fast else pytest.mark.long,
        )
        for case in cases
    ]


def load() -> None:
    """Register and load the profile."""
    # Times are measured in benchmarks/, never asserted: a loaded machine fails no test.
    settings.register_profile(
        "kanon",
        deadline=None,
        derandomize="CI" in os.environ,
        max_examples=examples(100),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("kanon")
