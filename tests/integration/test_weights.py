"""Answers by the weights of sensitive values, against sums of them by numpy; and their cap."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import kanon_db
from kanon_db.algorithms.bucketization.buckets import BucketedRecords
from kanon_db.algorithms.bucketization.value_model import learn_levels
from kanon_db.answers.buckets import bucket_evidence
from kanon_db.answers.estimates import estimate
from kanon_db.publications.buckets import bucket_relations
from kanon_db.session.psycopg_session import PsycopgSession
from tests.expected_counts import Weighted
from tests.integration.bucket_ways import as_in_the_paper
from tests.integration.frozen import N_DRAWN, PRIVACY, RELATED, draw_related, parties
from tests.integration.parties import (
    Functions,
    Parties,
    create_source,
    failed_checks,
    fetch,
    sqlstate_of,
    value,
)
from tests.profiles import long_but
from tests.rewritten import compared

__all__ = ["parties"]

NAME = "drawn"
UNCAPPED = json.dumps({"uncapped_estimates": "it is a test"})


def weighted(parties: Parties, name: str) -> list[str]:
    found: list[str] = value(
        parties.admin, "SELECT layout -> 'weighted' FROM kanon.publications WHERE name = $1", name
    )
    return found


@pytest.fixture(scope="module")
def published(parties: Parties) -> Weighted:
    assert weighted(parties, NAME) == ["ill"]
    return Weighted.read(parties.analyst, NAME, "ill")


def test_the_weights_are_of_the_published_records(parties: Parties, published: Weighted) -> None:
    """Bitmaps and QIT are the same records; each value of a bucket has its number exactly."""
    rows = fetch(parties.analyst, f"SELECT age, sex, bucket_id - 1 FROM published.{NAME}_qit")
    own = zip(*published.columns.values(), published.bucket.tolist(), strict=True)
    assert sorted(map(str, own)) == sorted(map(str, rows))
    of_buckets = np.zeros_like(published.counts)
    np.add.at(of_buckets, published.bucket, published.levels)
    assert (of_buckets == published.counts * published.parts).all()


QUESTIONS = {
    "age < 35 AND ill IN (2, 3)":
        lambda p: (p.where("age", lambda a: a < 35), p.which(lambda v: v in (2, 3))),
    "sex = 'f' AND ill IS NULL":
        lambda p: (p.where("sex", lambda s: s == "f"), p.which(lambda v: v is None)),
    "sex = 'f' AND age > 30 AND ill = 5":
        lambda p: (p.where("sex", lambda s: s == "f") & p.where("age", lambda a: a > 30),
                   p.which(lambda v: v == 5)),
    "age IS NULL AND ill <> 4":
        lambda p: (np.array([a is None for a in p.columns["age"]]),
                   p.which(lambda v: v not in (None, 4))),
    "age < 30 AND ill <> 2":
        lambda p: (p.where("age", lambda a: a < 30), p.which(lambda v: v not in (None, 2))),
}  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_counts(parties: Parties, published: Weighted, question: str) -> None:
    query = f"SELECT COUNT(*) FROM {NAME} WHERE {question}"
    expected = published.answer(*QUESTIONS[question](published), question)
    kanon = Functions(parties.analyst)
    assert kanon.estimate(query) == pytest.approx(expected), question
    truth = value(parties.publisher, query.replace(f" {NAME} ", f" frozen.{NAME} "))
    assert expected[2] <= truth <= expected[3]
    with as_in_the_paper(parties.analyst):
        by_paper = published.answer(*QUESTIONS[question](published), question, is_paper=True)
        assert kanon.estimate(query) == pytest.approx(by_paper)
    weight = f"SELECT coalesce(sum(weight), 0) FROM published.{NAME} WHERE {question}"
    assert value(parties.analyst, weight) == pytest.approx(by_paper[0])


@pytest.mark.parametrize("rest", ["", " WHERE sex = 'm' AND {0} IS NOT NULL", " GROUP BY sex"])
@pytest.mark.parametrize("column", ["age", "ill"])
def test_codes_of_many_values_are_ranks(
    parties: Parties,
    published: Weighted,
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    rest: str,
) -> None:
    """Then the server is asked for the numbers of MIN, MAX and percentiles alone."""
    if column == "ill":  # all of it on one side
        rest = rest.replace("sex = 'm'", "ill <> 3").replace("GROUP BY sex", "GROUP BY ill")
    session, listed = PsycopgSession(parties.analyst), "MIN({0}), MAX({0})"
    for kind in ("disc", "cont"):
        listed += f", percentile_{kind}(0.37) WITHIN GROUP (ORDER BY {{0}})"
    question = f"SELECT {listed} FROM {NAME}{rest}".format(column)
    with session.transaction():
        by_numbers = estimate(session, question)
        assert all(row.std_error == 0 for row in by_numbers if row.estimate is not None)
        monkeypatch.setattr(bucket_evidence, "_MANY_VALUES", 0)
        assert estimate(session, question) == by_numbers


def test_either_side(parties: Parties, published: Weighted) -> None:
    """OR: everybody but those who meet neither condition."""
    query = f"SELECT COUNT(*) FROM {NAME} WHERE age < 30 OR ill = 3"
    records = ~published.where("age", lambda a: a < 30)
    estimate, error, low, high = published.answer(records, published.which(lambda v: v != 3), query)
    expected = (N_DRAWN - estimate, error, N_DRAWN - high, N_DRAWN - low)
    assert Functions(parties.analyst).estimate(query) == pytest.approx(expected)


STATEMENTS = (
    *(f"SELECT COUNT(*) FROM {{}} WHERE {question}" for question in QUESTIONS),
    "SELECT COUNT(*) FROM {} WHERE age < 30 OR ill = 3",
    "SELECT COUNT(*) FROM {} WHERE sex = 'f' OR ill <> 3",
    "SELECT COUNT(*) FROM {} WHERE age > 30 AND ill < age / 10",
    "SELECT COUNT(*) FROM {} WHERE age = 33 AND ill >= 2",
    "SELECT COUNT(ill) FROM {} WHERE age < 40",
    "SELECT COUNT(age) FILTER (WHERE ill = 2), COUNT(*) FROM {} WHERE sex = 'm'",
    "SELECT SUM(age) FROM {} WHERE ill IN (2, 3)",
    "SELECT SUM(age), AVG(age) FROM {} WHERE ill <> 3",
    "SELECT SUM(ill), AVG(ill) FROM {} WHERE age < 40",
    "SELECT AVG((ill > 2)::int) FROM {} WHERE age BETWEEN 30 AND 39",
    "SELECT AVG(ill) FROM {} WHERE age = 33 AND ill = 5",
    "SELECT SUM(age - 40) FROM {} WHERE ill = 4 AND sex = 'f'",
    "SELECT sex, COUNT(*) FROM {} WHERE ill = 3 GROUP BY sex",
    "SELECT ill, COUNT(*) FROM {} WHERE age < 50 GROUP BY ill",
    "SELECT ill > 1 AS is_high, COUNT(*) FROM {} WHERE age < 50 GROUP BY ill > 1",
    "SELECT sex, ill = 3 AS has, COUNT(*), AVG(age) FROM {} GROUP BY sex, ill = 3",
    "SELECT age, ill, COUNT(*) FROM {} GROUP BY age, ill ORDER BY 3 DESC, 1, 2 LIMIT 20",
    "SELECT age, AVG(ill) FROM {} GROUP BY age",
    "SELECT age, SUM(ill) FROM {} GROUP BY age HAVING SUM(ill) > 100 ORDER BY 2",
    "SELECT ill, AVG(age) FROM {} GROUP BY ill HAVING COUNT(*) > 100",
    "SELECT sex, COUNT(*), COUNT(*) FILTER (WHERE ill = 2 AND age < 30) FROM {} GROUP BY sex",
    "SELECT sex, ROUND(100.0 * COUNT(*) FILTER (WHERE ill <> 2) / COUNT(*), 1) FROM {} GROUP BY 1",
    "SELECT ill, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () FROM {} WHERE age < 30 GROUP BY ill",
    "SELECT sex, ill, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER (PARTITION BY sex) FROM {} GROUP BY 1, 2",
    "SELECT 100.0 * COUNT(*) / (SELECT COUNT(*) FROM {0}) FROM {0} WHERE age < 30 AND ill = 2",
)


@pytest.mark.parametrize("question", STATEMENTS)
def test_a_rewritten_statement_gives_the_estimate(
    parties: Parties, published: Weighted, question: str
) -> None:
    for estimator in ("published", "paper"):
        found = compared(parties.analyst, question.format(NAME), estimator=estimator)
        # Only by weights, a total of all records is part of the statement.
        has_total = estimator == "paper" and "/ (SELECT" in question
        assert found == ("no statement" if has_total else "equal")


GROUPED = ["ill", "sex", "sex, ill", "age, ill"]


@pytest.mark.parametrize("keys", GROUPED)
def test_groups(parties: Parties, published: Weighted, keys: str) -> None:
    """On either side, and on both."""
    names = keys.split(", ")
    where = "age < 50" if "ill" in names else "ill IN (2, 4)"
    rows = fetch(
        parties.analyst,
        "SELECT group_key, estimate, std_error, lower_bound, upper_bound"
        " FROM kanon.estimate_counts($1::text)",
        f"SELECT {keys}, COUNT(*) FROM {NAME} WHERE {where} GROUP BY {keys}",
    )
    assert rows
    for group, *answer in rows:
        key = group if isinstance(group, dict) else json.loads(group)
        records = np.ones(published.bucket.size, dtype=bool)
        values = published.which(lambda v: v in (2, 4))
        if "ill" in names:
            records = published.where("age", lambda a: a < 50)
            values = published.which(lambda v: v == key["ill"])
        for name in {"age", "sex"} & set(names):
            records &= np.array([cell == key[name] for cell in published.columns[name]])
        assert answer == pytest.approx(published.answer(records, values, f"{keys} {where}")), key


def ages(published: Weighted) -> np.ndarray:
    return np.array([math.nan if a is None else a for a in published.columns["age"]], dtype=float)


def illnesses(published: Weighted) -> np.ndarray:
    return np.array([math.nan if v is None else v for v in published.values], dtype=float)


def test_sums_and_averages(parties: Parties, published: Weighted) -> None:
    """Of x on either side: the weights times x, and those divided by the weights."""
    age, ill, weights = ages(published), illnesses(published), published.weights
    known, valued = ~np.isnan(age), ~np.isnan(ill)

    def both(records: np.ndarray, values: np.ndarray, x: np.ndarray) -> tuple[float, float]:
        own = weights[records][:, values]
        total = float((own * x).sum())
        return total, total / float(own.sum())

    of_age = both(known, published.which(lambda v: v in (2, 5)), age[known][:, None])
    of_ill = both(published.where("age", lambda a: a > 40), valued, ill[valued])
    few = published.which(lambda v: v in (2, 3))
    of_few = both(published.where("age", lambda a: a > 40), few, ill[few])
    for (total, mean), x, where in (
        (of_age, "age", "ill IN (2, 5)"), (of_ill, "ill", "age > 40"),
        (of_few, "ill", "age > 40 AND ill IN (2, 3)"),
    ):  # fmt: skip
        for function, expected in (("SUM", total), ("AVG", mean)):
            query = f"SELECT {function}({x}) FROM {NAME} WHERE {where}"
            ((found, error, low, high),) = fetch(
                parties.analyst,
                "SELECT estimate, std_error, lower_bound, upper_bound FROM kanon.estimate($1)",
                query,
            )
            truth = value(parties.publisher, query.replace(f" {NAME} ", f" frozen.{NAME} "))
            assert low <= truth <= high, query
            assert found == pytest.approx(min(max(expected, low), high)), query
            assert 0 < error <= (high - low) / 2


def test_sums_of_groups(parties: Parties, published: Weighted) -> None:
    age, weights = ages(published), published.weights
    women = published.where("sex", lambda s: s == "f") & ~np.isnan(age)
    rows = fetch(
        parties.analyst,
        "SELECT group_key, estimate FROM kanon.estimate($1::text)",
        f"SELECT ill, SUM(age) FROM {NAME} WHERE sex = 'f' GROUP BY ill",
    )
    assert len(rows) == len(published.values)
    for group, found in rows:
        key = group if isinstance(group, dict) else json.loads(group)
        own = weights[women][:, published.which(lambda v: v == key["ill"])][:, 0]
        assert found == pytest.approx(float(own @ age[women])), key


def test_groups_add_up(parties: Parties, published: Weighted) -> None:
    """All values of a question on people: their number, but for how levels are rounded.

    The levels of a record may add up to a little more or less than 1: half a level of each value
    and record, with chance's sign.
    """
    records = published.where("age", lambda a: 30 <= a <= 39)
    groups = fetch(
        parties.analyst,
        "SELECT estimate, lower_bound, upper_bound FROM kanon.estimate_counts($1::text)",
        f"SELECT ill, COUNT(*) FROM {NAME} WHERE age BETWEEN 30 AND 39 GROUP BY ill",
    )
    rounded = math.sqrt(records.sum() * (1 / 4 / published.parts**2).sum())
    assert abs(sum(n for n, *_ in groups) - records.sum()) < 5 * rounded + 0.01 * records.sum()
    assert all(low <= n <= high for n, low, high in groups)
    everybody = fetch(
        parties.analyst,
        "SELECT estimate FROM kanon.estimate_counts($1::text)",
        f"SELECT ill, COUNT(*) FROM {NAME} GROUP BY ill",
    )
    assert sum(n for (n,) in everybody) == N_DRAWN


def test_weights_are_nearer_and_the_papers_error_says_what_it_misses(
    parties: Parties, published: Weighted
) -> None:
    where = "age BETWEEN 30 AND 39 AND ill = 3"
    kanon = Functions(parties.analyst)
    query = f"SELECT COUNT(*) FROM {NAME} WHERE {where}"
    own = kanon.estimate(query)
    with as_in_the_paper(parties.analyst):
        by_paper = kanon.estimate(query)
    truth = value(parties.publisher, f"SELECT count(*) FROM frozen.{NAME} WHERE {where}")
    assert by_paper[2:] == own[2:]
    assert abs(own[0] - truth) < abs(by_paper[0] - truth) / 2
    half = (own[3] - own[2]) / 2
    assert by_paper[1] >= min(abs(own[0] - by_paper[0]), half) - 1e-9


CHANGES = [
    "UPDATE {0} SET weights = set_bit(weights, 0, 1 - get_bit(weights, 0)) WHERE ill = 3",
    "UPDATE {0} SET weights = decode(repeat('00', length(weights)), 'hex') WHERE ill IS NULL",
    "UPDATE {0} SET weights = decode(repeat('ff', length(weights)), 'hex')",
    "UPDATE {0} SET weights = decode(repeat('ff', 9999 * length(weights)), 'hex') WHERE ill = 3",
    "UPDATE {0} SET weights = substr(weights, 2)",
    "UPDATE {0} SET weights = ''",
    "UPDATE {0} SET weights = NULL",
    "UPDATE {0} SET parts = parts + 1 WHERE ill = 2",
    "UPDATE {0} SET parts = 0",
    "UPDATE {0} SET parts = -1",
    "UPDATE {0} SET parts = NULL",
    "DELETE FROM {0} WHERE ill = 4",
    "DELETE FROM {0}",
    "INSERT INTO {0} SELECT * FROM {0} WHERE ill = 3",
    "INSERT INTO {0} SELECT * FROM {0}",
]


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_noticed(parties: Parties, published: Weighted, change: str) -> None:
    """By verify; answers stay within their bounds, or are the paper's."""
    assert failed_checks(parties.admin, NAME) == []
    kanon = Functions(parties.admin)
    with parties.admin.transaction(force_rollback=True):
        fetch(parties.admin, change.format(f"published.{NAME}_est"))
        failed = failed_checks(parties.admin, NAME)
        for question in QUESTIONS:
            expected = published.answer(*QUESTIONS[question](published), question)
            found = kanon.estimate(f"SELECT COUNT(*) FROM {NAME} WHERE {question}")
            assert found[2:] == expected[2:]
            assert found[2] <= found[0] <= found[3]
        fetch(parties.admin, "SELECT * FROM kanon.estimate($1)",
              f"SELECT AVG(ill) FROM {NAME} WHERE age > 40")  # fmt: skip
    assert failed == [
        "weights of values add up to their numbers in each bucket, none above its threshold"
    ], change


# -- The cap: no single person's weight exceeds the threshold of the value ------------------------

SPECIFICATIONS = {
    "all alike": '{"default": 0.4}',
    "one strict": '{"default": 0.7, "values": {"3": "0.3"}}',
    "relative": '{"theta": 3}',
    "l": '{"l": 2}',
}


@pytest.mark.parametrize("stated", ['{"ill": {}}', '{"nobody": {"age": 1}}', "weaker"])
def test_a_layout_does_not_belittle_dependences(
    parties: Parties, published: Weighted, stated: str
) -> None:
    """Errors would be smaller than buckets tell."""
    assert failed_checks(parties.admin, NAME) == []
    if stated == "weaker":
        weaker = {name: 0.5 * one for name, one in published.strengths.items()}
        stated = json.dumps({"ill": weaker})
    with parties.admin.transaction(force_rollback=True):
        fetch(
            parties.admin,
            "UPDATE kanon.publication SET layout = jsonb_set(layout, '{strengths}', $1::jsonb)"
            " WHERE name = $2",
            stated, NAME,
        )  # fmt: skip
        failed = failed_checks(parties.admin, NAME)
    assert failed == ["values depend on quasi-identifiers no more strongly than errors allow for"]


def thresholds(parties: Parties, name: str) -> dict[str | None, Fraction]:
    """The thresholds that docs/understand/methods.md defines, from the counts of values."""
    spec = json.loads(SPECIFICATIONS[name])
    counts = fetch(
        parties.analyst, f'SELECT ill, sum(count)::int FROM published."{name}_sat" GROUP BY ill'
    )
    total = sum(n for _, n in counts)
    found = {}
    for ill, n in counts:
        if "l" in spec:
            found[ill] = Fraction(1, spec["l"])
        elif "theta" in spec:
            found[ill] = min(Fraction(1), spec["theta"] * Fraction(n, total))
        else:
            chosen = spec.get("values", {}).get(str(ill), spec["default"])
            found[ill] = Fraction(str(chosen))
    return found


@pytest.fixture(scope="module")
def few(parties: Parties) -> Callable[[str], str]:
    """450 people whom their numbers tell apart; how to publish them, once, by a specification."""
    rows = [(number, *row) for number, row in enumerate(draw_related(450, seed=3, related=1.0))]
    kanon = create_source(parties.publisher, "data.few", f"id int, {RELATED}", rows)

    @cache
    def publish(name: str) -> str:
        how = {"privacy": SPECIFICATIONS[name], "assignment": "random", "max_bucket_size": 100}
        return str(kanon.publish("data.few", name, **how)["name"])

    return publish


def singled_out(parties: Parties, name: str, values: Sequence[Any]) -> dict[Any, list[float]]:
    """By how much one person more raises the answer, for each value and person."""
    table, found = f'"{name}"', {}
    count = "SELECT estimate FROM kanon.estimate_counts($1::text)"
    for ill in values:
        asked = "ill IS NULL" if ill is None else f"ill = {ill}"
        up_to = [
            Functions(parties.analyst).estimate(
                f"SELECT COUNT(*) FROM {table} WHERE id < {number} AND {asked}"
            )[0]
            for number in range(0, 301, 4)
        ]
        found[ill] = [(after - before) / 4 for before, after in pairwise(up_to)]
        grouped = f"SELECT id, COUNT(*) FROM {table} WHERE {asked} GROUP BY id"
        found[ill] += [n for (n,) in fetch(parties.analyst, count, grouped)]
    return found


@pytest.mark.slow("asks about everybody")
@pytest.mark.pitfall(12)
@pytest.mark.parametrize("name", long_but({"one strict", "l"}, SPECIFICATIONS))
def test_nobody_weighs_more_than_the_threshold(
    parties: Parties, few: Callable[[str], str], name: str
) -> None:
    """A theorem, exactly; and what questions tell of one person is the weight."""
    limits = thresholds(parties, few(name))
    if weighted(parties, name):
        own = Weighted.read(parties.analyst, name, "ill")
        assert own.most.keys() == limits.keys()
        assert all(own.most[ill] <= limits[ill] for ill in limits)
    told = singled_out(parties, name, list(limits))
    for ill, limit in limits.items():
        assert max(told[ill]) <= limit + Fraction(1, 10**9), ill
    assert failed_checks(parties.admin, name) == []


@pytest.mark.pitfall(12)
def test_differences_of_one_person(parties: Parties, few: Callable[[str], str]) -> None:
    """Of all pairs of questions that one person more, or less, tells apart."""
    name = few("all alike")
    assert weighted(parties, name) == ["ill"]
    kanon, limits = Functions(parties.analyst), thresholds(parties, name)
    draw = random.Random(5)  # noqa: S311
    for _ in range(60):
        person, ill = draw.randrange(300), draw.choice([2, 3, 4, 5])
        low, high = sorted(draw.sample(range(300), 2))
        others = draw.choice(
            [f"id BETWEEN {low} AND {high}", f"age < {draw.randrange(20, 60)}", "sex = 'f'",
             f"id IN ({', '.join(map(str, draw.sample(range(300), 20)))})"]
        )  # fmt: skip
        for joined in (
            ("({}) AND ill = {}", f"({others}) AND id <> {person}", f"{others} OR id = {person}"),
            ("({}) OR ill = {}", f"({others}) AND id <> {person}", f"{others} OR id = {person}"),
        ):
            asked, without, with_them = joined
            before, after = (
                kanon.estimate(f'SELECT COUNT(*) FROM "{name}" WHERE {asked.format(part, ill)}')[0]
                for part in (without, with_them)
            )
            told = after - before
            if asked.startswith("({}) OR"):
                told = 1 - told  # the share of the person that has the value
            assert -1e-9 <= told <= limits[ill] + Fraction(1, 10**9), (person, ill, others)


@pytest.mark.long
@pytest.mark.pitfall(12)
def test_differences_of_one_person_where_either_side_is_asked(parties: Parties) -> None:
    """Of two values: levels of one say nothing of the other that its own would not."""
    rows = [(number, age, int(age >= 40 or not number % 9))
            for number, (age, *_) in enumerate(draw_related(2_000, seed=6)) if age]  # fmt: skip
    kanon = create_source(parties.publisher, "data.sure", "id int, age int, ill int", rows)
    kanon.publish("data.sure", "sure", privacy='{"default": 0.7}', assignment="random")
    assert weighted(parties, "sure") == ["ill"]
    own = Weighted.read(parties.analyst, "sure", "ill")
    assert (own.levels.sum(axis=1) != own.parts[0]).any()  # rounding is to be seen
    told = {}
    for ill in (0, 1):
        found = [
            Functions(parties.analyst).estimate(
                f"SELECT COUNT(*) FROM sure WHERE id < {number} OR ill = {ill}"
            )[0]
            for number in range(301)
        ]
        told[ill] = [1 - (after - before) for before, after in pairwise(found)]
    n_published = {number for number, *_ in rows}
    for ill, shares in told.items():
        its = [share for number, share in enumerate(shares) if number in n_published]
        assert max(its) <= 0.7 + 1e-9, ill


# -- What is learned, and from what ---------------------------------------------------------------


def test_nothing_is_learned_where_nothing_is_related(parties: Parties) -> None:
    """Answers are the paper's then."""
    rows = draw_related(1_500, seed=8, related=0.0)
    kanon = create_source(parties.publisher, "data.unrelated", RELATED, rows)
    kanon.publish("data.unrelated", "unrelated", privacy=PRIVACY, assignment="random")
    assert weighted(parties, "unrelated") == []
    assert failed_checks(parties.admin, "unrelated") == []
    query = "SELECT COUNT(*) FROM unrelated WHERE age < 40 AND ill = 3"
    weight = "SELECT sum(weight) FROM published.unrelated WHERE age < 40 AND ill = 3"
    found = Functions(parties.analyst).estimate(query)
    assert found[0] == pytest.approx(value(parties.analyst, weight))
    with as_in_the_paper(parties.analyst):
        assert Functions(parties.analyst).estimate(query) == found


def test_uncapped(parties: Parties) -> None:
    """A risk, which is refused, accepted with a reason, shown, and kept by a replacement."""
    name, source = "uncapped", Functions(parties.publisher)
    given = {"privacy": '{"default": 0.3}', "assignment": "random", "estimates": "uncapped"}
    refused = lambda: source.publish(f"frozen.{NAME}", name, **given)
    assert sqlstate_of(refused) == "KN005"
    source.publish(f"frozen.{NAME}", name, accept=UNCAPPED, **given)
    own = Weighted.read(parties.analyst, name, "ill")
    assert max(own.most.values()) > Fraction(3, 10)
    checks = Functions(parties.admin).verify(name)
    assert all(holds for *_, holds in checks)
    assert "weights of values add up to their numbers in each bucket" in {c for c, *_ in checks}
    shown = fetch(parties.publisher, "SELECT * FROM kanon.publications WHERE name = $1", name)
    assert "uncapped_estimates" in str(shown)
    again = lambda: source.publish(f"frozen.{NAME}", name, replace=True, **given)
    assert sqlstate_of(again) == "KN005"


@pytest.mark.long
def test_uncapped_stays_uncapped(parties: Parties) -> None:
    """In a refresh; what was accepted is shown."""
    rows = [(number, *row) for number, row in enumerate(draw_related(4_800, seed=10, related=1.0))]
    kanon = create_source(
        parties.publisher, "data.free", f"id int, {RELATED}", rows[:3_000], ["age", "sex"], "ill",
        entity="id",
    )  # fmt: skip
    kanon.publish(
        "data.free", "free", privacy='{"default": 0.3}', assignment="random", accept=UNCAPPED,
        estimates="uncapped",
    )  # fmt: skip
    with parties.publisher.cursor() as cursor, cursor.copy("COPY data.free FROM STDIN") as copy:
        for row in rows[3_000:]:
            copy.write_row(row)
    kanon.call("refresh", "free")
    own = Weighted.read(parties.analyst, "free", "ill")
    assert own.bucket.size > 3_900
    assert max(own.most.values()) > Fraction(3, 10)
    assert failed_checks(parties.admin, "free") == []
    assert "uncapped_estimates" in str(Functions(parties.publisher).verify("free"))


def test_several_sensitive_attributes(parties: Parties) -> None:
    """Each has weights; a question about one has them, and one about both the paper's estimate."""
    draw = random.Random(12)  # noqa: S311
    rows = [
        (
            age,
            sex,
            "none" if ill is None else f"ill {ill}",
            str((age or 30) // 20 + (draw.random() < 0.2)),
        )
        for age, sex, ill in draw_related(4_000, seed=11)
    ]
    kanon = create_source(
        parties.publisher, "data.two", "age int, sex text, ill text, cost text", rows,
        ["age", "sex"], "ill", also_sensitive=["cost"],
    )  # fmt: skip
    ill = {"default": 0.6, "values": {"ill 4": 0.3}}
    privacy = json.dumps({"attributes": {"ill": ill, "cost": {"default": 0.7}}})
    kanon.publish("data.two", "two", privacy=privacy, assignment="random")
    assert weighted(parties, "two") == ["ill", "cost"]
    assert failed_checks(parties.admin, "two") == []
    analyst = Functions(parties.analyst)
    for attribute, asked in (("ill", "ill 3"), ("cost", "2")):
        own = Weighted.read(parties.analyst, "two", attribute)
        records = own.where("age", lambda a: a < 35)
        expected = own.answer(records, own.which(lambda v: v == asked), "age")
        query = f"SELECT COUNT(*) FROM two WHERE age < 35 AND {attribute} = '{asked}'"
        assert analyst.estimate(query) == pytest.approx(expected)
    both = "age < 35 AND ill = 'ill 3' AND cost = '2'"
    weight = value(parties.analyst, f"SELECT sum(weight) FROM published.two WHERE {both}")
    found = analyst.estimate(f"SELECT COUNT(*) FROM two WHERE {both}")
    assert found[0] == pytest.approx(weight)
    with parties.admin.transaction(force_rollback=True):
        fetch(
            parties.admin, "DELETE FROM published.two_est WHERE attribute = 'cost' AND cost = '2'"
        )
        assert failed_checks(parties.admin, "two") == [
            "weights of values add up to their numbers in each bucket, none above its threshold"
        ]


def test_without_weights(parties: Parties) -> None:
    assert weighted(parties, "by_paper") == []
    assert value(parties.admin, "SELECT count(*) FROM published.by_paper_est") == 0
    assert failed_checks(parties.admin, "by_paper") == []
    query = "SELECT COUNT(*) FROM by_paper WHERE age < 40 AND ill = 3"
    weight = "SELECT sum(weight) FROM published.by_paper WHERE age < 40 AND ill = 3"
    assert Functions(parties.analyst).estimate(query)[0] == pytest.approx(
        value(parties.analyst, weight)
    )


def test_no_share_may_differ_under_l(parties: Parties) -> None:
    """Of buckets with l values, each once, all shares are at the bound: nothing can be learned."""
    rows = [(*row[:2], row[2] or 0) for row in draw_related(600, seed=4, related=0.5)]
    kanon = create_source(parties.publisher, "data.signed", RELATED, rows)
    kanon.publish("data.signed", "signed", privacy='{"l": 3}', assignment="m_invariant")
    sizes = value(parties.admin, "SELECT layout -> 'sizes' FROM kanon.publications"
                  " WHERE name = 'signed'")  # fmt: skip
    if sizes == [3]:
        assert weighted(parties, "signed") == []
    elif weighted(parties, "signed"):
        own = Weighted.read(parties.analyst, "signed", "ill")
        assert max(own.most.values()) <= Fraction(1, 3)
    assert failed_checks(parties.admin, "signed") == []


@pytest.mark.long
def test_batches_are_learned_together(parties: Parties) -> None:
    """A refresh learns of old and new buckets, below the thresholds that hold for both."""
    rows = [(number, *row) for number, row in enumerate(draw_related(1_600, seed=9))]
    kanon = create_source(
        parties.publisher, "data.grown", f"id int, {RELATED}", rows[:1_000], ["age", "sex"], "ill",
        entity="id",
    )  # fmt: skip
    kanon.publish("data.grown", "grown", privacy='{"default": 0.4}', assignment="random")
    before = Weighted.read(parties.analyst, "grown", "ill")
    for row in rows[1_000:]:
        fetch(
            parties.publisher,
            "INSERT INTO data.grown VALUES ($1::int, $2::int, $3::text, $4::int)",
            *row,
        )
    assert kanon.call("refresh", "grown")["added"] > 500
    own = Weighted.read(parties.analyst, "grown", "ill")
    assert own.bucket.size > before.bucket.size
    assert max(own.most.values()) <= Fraction(2, 5)
    assert failed_checks(parties.admin, "grown") == []
    records, asked = own.where("age", lambda a: a < 35), own.which(lambda v: v in (2, 3))
    found = Functions(parties.analyst).estimate(
        "SELECT COUNT(*) FROM grown WHERE age < 35 AND ill IN (2, 3)"
    )
    assert found == pytest.approx(own.answer(records, asked, "age"))


@pytest.mark.pitfall(12)
def test_what_is_learned_from_when_publishing(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QIT and SAT: the records of a bucket in an order that has nothing to do with their values."""
    rows = [(age, "mf"[age % 2], age // 10) for age, _, _ in draw_related(1_500, seed=2) if age]
    create_source(parties.admin, "data.certain", RELATED, rows)
    given: list[BucketedRecords] = []

    def learn(records: BucketedRecords, *others: Any) -> Any:
        given.append(records)
        return learn_levels(records, *others)

    monkeypatch.setattr(bucket_relations, "learn_levels", learn)
    with kanon_db.connect(parties.dsn) as kanon:
        kanon.publish_buckets("data.certain", "certain", privacy=PRIVACY, assignment="random")
    (records,) = given
    size = np.diff(records.starts)
    bucket = np.repeat(np.arange(size.size), size)
    sat = fetch(parties.admin, "SELECT bucket_id - 1, ill - 2, count FROM published.certain_sat")
    expected = sorted((g, v) for g, v, n in sat for _ in range(n))
    own = [*zip(bucket.tolist(), records.values.tolist(), strict=True)]
    assert own == expected  # in the order of the values
    qit = fetch(
        parties.admin, "SELECT bucket_id - 1, age - 20, sex = 'm' FROM published.certain_qit"
    )
    coded = zip(bucket.tolist(), *(column.tolist() for column in records.columns), strict=True)
    assert sorted(coded) == sorted((g, age, int(sex)) for g, age, sex in qit)
    # How many records stand beside their own value is as chance has it.
    true = records.columns[0] // 10
    beside = int((true == records.values).sum())
    counts = np.zeros((size.size, 4))
    np.add.at(counts, (bucket, records.values), 1)
    mean = float((counts**2 / size[:, None]).sum())
    assert abs(beside - mean) < 6 * math.sqrt(mean)
    assert beside < 0.7 * records.n_records
