from __future__ import annotations

from math import inf

import pytest

from kanon_db.algorithms.ground import computation as module
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def test_time_passes(clock: list[float]) -> None:
    pulse = Pulse(8.0)
    clock[0] += 2
    assert (pulse.seconds_left, pulse.spent, pulse.is_over) == (6, 0.25, False)
    clock[0] += 6
    assert (pulse.seconds_left, pulse.spent, pulse.is_over) == (0, 1, True)


def test_a_part_ends_no_later_than_the_whole(clock: list[float]) -> None:
    pulse = Pulse(8.0)
    clock[0] += 2
    assert pulse.within(3).seconds_left == 3
    assert pulse.within(7).seconds_left == 6
    assert pulse.until(0.5).seconds_left == 2
    assert pulse.until(1).seconds_left == 6
    clock[0] += 7
    late = pulse.within(1)
    assert late.is_over
    assert late.spent >= 1
    assert pulse.until(0.5).is_over


def test_without_a_limit(clock: list[float]) -> None:
    clock[0] += 1e9
    for pulse in (UNLIMITED, UNLIMITED.until(0.1), UNLIMITED.within(inf)):
        assert (pulse.seconds_left, pulse.spent, pulse.is_over) == (inf, 0, False)
    assert UNLIMITED.within(5).seconds_left == 5


def test_every_part_has_the_same_heart() -> None:
    beats = []
    pulse = Pulse(heartbeat=lambda: beats.append(1))
    pulse.beat()
    pulse.within(1).beat()
    pulse.until(0.5).beat()
    assert len(beats) == 3
    assert list(pulse.watched(range(2500))) == list(range(2500))
    assert len(beats) == 6
