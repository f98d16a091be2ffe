"""What an operation says of how far it is, and when that is shown."""

from __future__ import annotations

from kanon_db.session.progress import Progress, Reporter


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def tracked() -> tuple[Reporter, list[Progress], Clock]:
    shown: list[Progress] = []
    clock = Clock()
    return Reporter(shown.append, clock), shown, clock


def test_phases_and_steps_are_shown_at_once() -> None:
    tracker, shown, _ = tracked()
    tracker.plan(["reading", "writing"])
    tracker.phase("reading")
    tracker.step("counting")
    tracker.phase("writing")
    tracker.phase("something else")
    assert [said.title for said in shown] == [
        "1 of 2: reading", "1 of 2: counting", "2 of 2: writing", "2 of 2: something else",
    ]  # fmt: skip
    tracker.clear()
    tracker.step("verifying")
    assert shown[-1] == Progress(0, 0, "verifying")


def test_shares_are_shown_now_and_then() -> None:
    tracker, shown, clock = tracked()
    tracker.step("writing")
    for n in range(1000):
        clock.now += 0.004
        tracker.done(n, 1000)
    # Four seconds: eight times at most, besides the step itself.
    assert 6 <= len(shown) - 1 <= 8
    assert [said.share for said in shown[1:]] == sorted(said.share or 0 for said in shown[1:])


def test_nothing_is_estimated_from_a_little() -> None:
    tracker, shown, clock = tracked()
    tracker.step("writing")
    clock.now += 60
    tracker.done(1, 100)
    assert shown[-1].share == 0.01
    assert shown[-1].seconds is None
    clock.now += 60
    tracker.done(50, 100)
    assert shown[-1].seconds == 120
    assert shown[-1].remaining == "about 120 s left"
    tracker.step("analyzing")
    assert shown[-1].seconds is shown[-1].share is None


def test_a_time_limit_is_that_of_its_phase() -> None:
    tracker, shown, clock = tracked()
    tracker.plan(["searching", "writing"])
    tracker.phase("searching")
    tracker.limit(60)
    clock.now += 10
    tracker.step("refining")
    assert shown[-1].remaining == "time limit in 50 s"
    clock.now += 10
    tracker.heartbeat()
    assert shown[-1].remaining == "time limit in 40 s"
    clock.now += 41  # a method may need a little longer
    tracker.heartbeat()
    assert shown[-1].remaining == ""
    tracker.phase("writing")
    assert shown[-1].remaining == ""


def test_steps_that_say_nothing_are_not_shown_again() -> None:
    tracker, shown, clock = tracked()
    tracker.heartbeat()
    tracker.step("sorting")
    clock.now += 9
    tracker.heartbeat()
    assert len(shown) == 1


def test_a_name_has_room_for_63_bytes() -> None:
    """PostgreSQL would cut it."""
    said = Progress(11, 12, "a" * 80, 0.5, 3600.0)
    assert len(said.short) == 63
    assert said.short.startswith("kanon_db 11/12 50% ~3600s aaa")
