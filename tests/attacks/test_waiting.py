"""What it tells that people waited, or that publishing was refused, because of their values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.releases.m_invariance import NEW, renew
from kanon_db.publications.results import WAITING_CLAUSE, WAITING_NOT_COVERED, WAITING_WARNING
from tests.attacks.posterior import REFUSED, Table, posteriors, worst_excess
from tests.attacks.publishers import ASSIGNMENTS, TRANSPARENT, People, in_buckets
from tests.integration.parties import Functions, Parties, create_source, fetch, hearing

HALF = Fraction(1, 2)
FOUR: People = ((70,), (80,), (90,), (95,))
HISTOGRAM = (2, 1, 1)
"""How often each value occurs among them; the bound is 1/2."""


def worst_after(assignment: str, n_first: int) -> Fraction:
    """By how much the bound is exceeded for who knows that the first ones were refused alone."""
    thresholds = (HALF,) * len(HISTOGRAM)
    alone = in_buckets(FOUR[:n_first], thresholds, ASSIGNMENTS[assignment], "two_size")
    together = in_buckets(FOUR, thresholds, ASSIGNMENTS[assignment], "two_size")

    def publish(table: Table, random: Any) -> Hashable:
        first = np.bincount(table[:n_first])
        # A batch is published as soon as no value is too frequent in it.
        if 2 * first.max() <= n_first:
            alone(table[:n_first], random)
            return REFUSED
        return together(table, random)

    return worst_excess(posteriors(publish, HISTOGRAM), (HALF,) * len(HISTOGRAM))


@pytest.mark.pitfall(44)
@pytest.mark.parametrize("assignment", TRANSPARENT)
def test_who_waited_with_somebody_is_certain_once_they_are_published(assignment: str) -> None:
    """Two arrivals have a rare value and wait, or are a whole table that is refused; two more come.
    The guarantee says that this is not covered."""
    assert worst_after(assignment, 2) == HALF


@pytest.mark.pitfall(44)
@pytest.mark.parametrize("assignment", TRANSPARENT)
def test_who_had_to_wait_whatever_their_values_tells_nothing(assignment: str) -> None:
    """One person is too few for two different values, which depends on nobody's value."""
    assert worst_after(assignment, 1) <= 0


@pytest.mark.long
@pytest.mark.pitfall(44)
def test_the_guarantee_and_verify_name_people_who_wait(parties: Parties) -> None:
    people = [(1, 30, "flu"), (2, 40, "gout"), (3, 50, "asthma"), (4, 60, "flu")]
    columns = "id int, age int, ill text"
    kanon = create_source(
        parties.publisher, "data.waits", columns, people, ["age"], "ill", entity="id"
    )
    row = "not covered: " + WAITING_NOT_COVERED

    def told() -> list[tuple[Any, ...]]:
        return [line for line in Functions(parties.analyst).verify("waits_b") if line[0] == row]

    published = kanon.call("publish_buckets", "data.waits", "waits_b", privacy='{"l": 2}')
    assert published["guarantee"].endswith(WAITING_CLAUSE)
    assert told() == [(row, "readers do not know of it", "published once", True)]
    fetch(parties.publisher, "INSERT INTO data.waits VALUES (5, 70, 'HIV'), (6, 80, 'HIV')")
    with hearing(parties.publisher) as warnings:
        waited = kanon.call("refresh", "waits_b")
    assert (waited["added"], waited["waiting"]) == (0, 2)
    assert WAITING_WARNING in warnings
    # Nothing that readers see says that somebody waited.
    assert told() == [(row, "readers do not know of it", "published once", True)]
    fetch(parties.publisher, "INSERT INTO data.waits VALUES (7, 90, 'flu'), (8, 95, 'gout')")
    refreshed = kanon.call("refresh", "waits_b")
    assert refreshed["added"] == 4
    assert refreshed["guarantee"] == published["guarantee"]
    assert [line[2] for line in told()] == ["published 1 times more since the first"]
    accept = '{"combined_releases": "it is a test"}'
    rows = {"k": 2, "accept": accept, "constraints": '{"l": 2}'}
    constrained = kanon.call("publish_generalized", "data.waits", "waits_r", **rows)
    assert constrained["guarantee"].endswith(WAITING_CLAUSE)
    assert row in [line[0] for line in Functions(parties.analyst).verify("waits_r")]
    for name in ("waits_b", "waits_r"):
        kanon.drop(name)


@pytest.mark.pitfall(45)
def test_who_is_left_out_tells_the_values_of_all_who_left() -> None:
    """In m-invariant buckets, as many stay with each value as with the one that lost most: if as
    many are left out as have left, all who left had the same value. So one of them who is known
    tells all others, which the guarantee says; each is still as likely to have either value."""
    n, leavers = 24, [0, 2, 4]
    others_of = defaultdict(set)
    for theirs in product((0, 1), repeat=len(leavers)):
        values = np.array([0, 1] * (n // 2))
        for person, value in zip(leavers, theirs, strict=True):
            values[[person, person + 1]] = value, 1 - value
        stay = np.delete(np.arange(n), leavers)
        first = renew(values, np.full(n, NEW), (), 2, np.random.default_rng(1))
        second = renew(
            values[stay], np.zeros(stay.size, dtype=int), first.signatures, 2,
            np.random.default_rng(1),
        )  # fmt: skip
        others_of[int(second.waits.sum())].add(theirs)
    assert others_of[3] == {(0, 0, 0), (1, 1, 1)}


@pytest.mark.pitfall(45)
def test_the_guarantee_of_m_invariant_buckets_names_who_left(parties: Parties) -> None:
    people = [(i, i, f"ill {i % 4}") for i in range(80)]
    columns = "id int, age int, ill text"
    kanon = create_source(
        parties.publisher, "data.leave", columns, people, ["age"], "ill", entity="id"
    )
    published = kanon.call(
        "publish_buckets", "data.leave", "leave_b", privacy='{"l": 2}', assignment="m_invariant"
    )
    said = "whoever knows one person's value can learn those of many who left"
    assert said in published["guarantee"]
    kanon.drop("leave_b")
