"""Answers corrected by the composition of buckets, against ridge regression by numpy."""

from __future__ import annotations

import random
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest

from kanon_db.answers import estimates
from kanon_db.answers.estimates import BY_BITMAPS
from kanon_db.answers.scope import open_query
from kanon_db.session.psycopg_session import PsycopgSession
from tests.expected_counts import regressed
from tests.integration.bucket_ways import as_in_the_paper, keep_bitmaps
from tests.integration.parties import Functions, Parties, create_source, failed_checks, fetch, value

N_RECORDS = 1_500
NAME = "drawn"
AGAIN = tuple(f"{NAME}_{number}" for number in range(4))
"""More publications of the same people, each with buckets of its own."""


@pytest.fixture(scope="module", autouse=True)
def published(parties: Parties) -> None:
    """Ages that decide on the illness in part; NULLs on both sides."""
    draw = random.Random(16)  # noqa: S311  # made-up data
    rows: list[tuple[Any, ...]] = []
    for _ in range(N_RECORDS):
        age = draw.randrange(20, 60)
        illness = age // 10 if draw.random() < 0.6 else draw.randrange(8)
        rows.append(
            (None if draw.random() < 0.05 else age, draw.choice("mf"),
             None if illness == 7 else illness)
        )  # fmt: skip
    kanon = create_source(parties.publisher, f"data.{NAME}", "age int, sex text, ill int", rows)
    for name in (NAME, *AGAIN):
        kanon.publish(f"data.{NAME}", name, privacy='{"default": 0.5}', assignment="random")


class Published:
    """QIT and SAT as arrays."""

    def __init__(self, parties: Parties) -> None:
        qit = fetch(parties.analyst, f"SELECT age, sex, bucket_id - 1 FROM published.{NAME}_qit")
        self.ages = np.array([np.nan if row[0] is None else row[0] for row in qit], dtype=float)
        self.women = np.array([row[1] == "f" for row in qit])
        self.buckets = np.array([row[2] for row in qit])
        sat = fetch(
            parties.analyst,
            f"SELECT bucket_id - 1, coalesce(ill, -1), count FROM published.{NAME}_sat",
        )
        self.values = np.array(sorted({row[1] for row in sat}), dtype=float)
        places = {ill: place for place, ill in enumerate(self.values)}
        self.composition = np.zeros((self.buckets.max() + 1, len(places)))
        for bucket, ill, count in sat:
            self.composition[bucket, places[ill]] += count
        self.sizes = self.composition.sum(axis=1)

    def matched(self, records: np.ndarray, asked: np.ndarray) -> tuple[float, float]:
        """The answer of a random matching, and its variance."""
        f = np.bincount(self.buckets, weights=records, minlength=self.sizes.size)
        ff = np.bincount(self.buckets, weights=records**2, minlength=self.sizes.size)
        s, ss = self.composition @ asked, self.composition @ asked**2
        spread = (ff - f * f / self.sizes) * (ss - s * s / self.sizes)
        return (f * s / self.sizes).sum(), (spread / np.maximum(self.sizes - 1, 1)).sum()

    def answer(self, records: np.ndarray, asked: np.ndarray) -> tuple[float, float]:
        estimate, variance = self.matched(records, asked)
        more, error = regressed(records, self.buckets, self.composition, asked, variance=variance)
        return estimate + more, error

    def average(
        self, x: np.ndarray, records: np.ndarray, y: np.ndarray, asked: np.ndarray
    ) -> tuple[float, float]:
        """Of x (or y) over the records that are asked for."""
        number, _ = self.matched(records, asked)
        mean = self.matched(x * records, y * asked)[0] / number
        rest, its = (x - mean) * records, asked
        if np.all(x == 1):
            rest, its = records, (y - mean) * asked
        _, variance = self.matched(rest, its)
        more, error = regressed(
            rest, self.buckets, self.composition, its, variance=variance, number=number
        )
        return mean + more, error


QUESTIONS = {
    "COUNT(*) FROM drawn WHERE age < 35 AND ill IN (2, 3)":
        lambda p: p.answer((p.ages < 35) * 1.0, np.isin(p.values, [2, 3]) * 1.0),
    "COUNT(*) FROM drawn WHERE sex = 'f' AND ill IS NULL":
        lambda p: p.answer(p.women * 1.0, (p.values == -1) * 1.0),
    "SUM(age) FROM drawn WHERE ill = 4":
        lambda p: p.answer(np.nan_to_num(p.ages), (p.values == 4) * 1.0),
    "SUM(ill) FROM drawn WHERE age > 40":
        lambda p: p.answer((p.ages > 40) * 1.0, np.maximum(p.values, 0)),
    "AVG(age) FROM drawn WHERE ill IN (2, 5)":
        lambda p: p.average(np.nan_to_num(p.ages), ~np.isnan(p.ages) * 1.0,
                            np.ones(p.values.size), np.isin(p.values, [2, 5]) * 1.0),
    "AVG(ill) FROM drawn WHERE age < 30":
        lambda p: p.average(np.ones(p.ages.size), (p.ages < 30) * 1.0,
                            np.maximum(p.values, 0), (p.values >= 0) * 1.0),
}  # fmt: skip


def test_as_by_ridge_regression(parties: Parties) -> None:
    published = Published(parties)
    estimate = "SELECT estimate, std_error, lower_bound, upper_bound FROM kanon.estimate($1::text)"
    for question, by_hand in QUESTIONS.items():
        query = f"SELECT {question}"
        truth = value(parties.publisher, query.replace(" drawn ", f" data.{NAME} "))
        # Of five draws of the buckets, whose errors may be large once in hundreds, the middle one.
        misses = []
        for name in (*AGAIN, NAME):
            asked = query.replace(f" {NAME} ", f" {name} ")
            ((found, error, lower, upper),) = fetch(parties.analyst, estimate, asked)
            assert lower <= truth <= upper
            misses.append(abs(float(truth) - found) / error)
        assert sorted(misses)[2] < 3, question
        expected, its_error = by_hand(published)
        expected = min(max(expected, float(lower)), float(upper))
        assert (found, error) == pytest.approx((expected, its_error)), question


GROUPED = [
    "SELECT sex, COUNT(*) FROM drawn WHERE ill = 3 GROUP BY sex",
    "SELECT ill, COUNT(*) FROM drawn WHERE age < 30 GROUP BY ill",
    "SELECT sex, ill, AVG(age) FROM drawn GROUP BY sex, ill",
    "SELECT ill, SUM(age) FROM drawn WHERE sex = 'f' GROUP BY ill",
    "SELECT sex, AVG(ill) FROM drawn WHERE age > 30 GROUP BY sex",
    "SELECT age, sex, COUNT(*) FROM drawn WHERE ill = 3 GROUP BY age, sex",
    "SELECT COUNT(*) FROM drawn WHERE age < 30 OR ill = 3",
]


def test_records_that_a_statement_counts(parties: Parties) -> None:
    """Without bitmaps of the quasi-identifiers, answers are the same."""
    session = PsycopgSession(parties.analyst)
    for query in (*(f"SELECT {question}" for question in QUESTIONS), *GROUPED):
        with session.transaction():
            by_bitmaps = estimates.answer(session, query).rows
            with pytest.MonkeyPatch.context() as patch:
                keep_bitmaps(patch, of_sensitive=True)
                opened = open_query(session, query)
                answered, method = estimates.answered(opened)
                found = estimates.QueryAnswer(opened.query, answered).rows
        assert method == BY_BITMAPS
        assert [row.group_key for row in found] == [row.group_key for row in by_bitmaps]
        for one, other in zip(found, by_bitmaps, strict=True):
            same = pytest.approx(astuple(other)[2:], rel=1e-9, abs=1e-9)
            assert astuple(one)[2:] == same, query


def test_groups_add_up(parties: Parties) -> None:
    """What is added to one value is taken from the others; a bound may stop some of them."""
    everybody = value(
        parties.publisher, f"SELECT count(*) FROM data.{NAME} WHERE age BETWEEN 30 AND 39"
    )
    for name in (NAME, *AGAIN):
        groups = fetch(
            parties.analyst,
            "SELECT estimate, std_error, lower_bound, upper_bound"
            " FROM kanon.estimate_counts($1::text)",
            f"SELECT ill, COUNT(*) FROM {name} WHERE age BETWEEN 30 AND 39 GROUP BY ill",
        )
        more = sum(n for n, *_ in groups) - everybody
        raised = sum(error for n, error, lower, _ in groups if n == lower)
        lowered = sum(error for n, error, _, upper in groups if n == upper)
        # What a bound takes away is an error of the estimate: the truth is within its bounds.
        assert -4 * lowered - 1e-6 <= more <= 4 * raised + 1e-6


def test_the_papers_estimator_says_what_it_misses(parties: Parties) -> None:
    where = "age BETWEEN 30 AND 39 AND ill = 3"
    kanon = Functions(parties.analyst)
    query = f"SELECT COUNT(*) FROM drawn WHERE {where}"
    own = kanon.estimate(query)
    with as_in_the_paper(parties.analyst):
        by_paper = kanon.estimate(query)
    weighted = value(parties.analyst, f"SELECT sum(weight) FROM published.{NAME} WHERE {where}")
    truth = value(parties.publisher, f"SELECT count(*) FROM data.{NAME} WHERE {where}")
    assert by_paper[0] == pytest.approx(weighted)
    assert by_paper[1] > own[1]
    assert by_paper[2:] == own[2:]
    assert abs(own[0] - truth) < abs(by_paper[0] - truth)


def test_a_composition_that_was_changed_is_noticed(parties: Parties) -> None:
    assert failed_checks(parties.admin, NAME) == []
    with parties.admin.transaction(force_rollback=True):
        fetch(parties.admin, f"UPDATE published.{NAME}_est SET hidden = '{{}}' WHERE ill = 3")
        failed = failed_checks(parties.admin, NAME)
    assert "the composition of buckets has all its directions" in failed
