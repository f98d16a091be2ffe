from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from statistics import pstdev, pvariance, stdev, variance

import pytest

from kanon_db.answers.estimates import in_order
from kanon_db.errors import UnsupportedQueryError
from kanon_db.query import expressions as ex
from kanon_db.query.formulas import NOTHING, Estimated, Group, with_calculated
from tests.unit.query.test_check import query

PART = "COUNT(*) FILTER (WHERE age > 1)"


def calculate(expression: str, *estimates: Estimated) -> Estimated:
    """Calculate from estimates of its aggregates, in their order."""
    found = query(f"SELECT {expression} FROM t")
    assert len(found.measures) == len(estimates)
    (group,) = with_calculated([Group("{}", (), estimates)], found)
    ((place, _),) = found.shown
    return group.estimates[place]


COUNTED, ALL = Estimated(4.0, 1.0, 2, 7), Estimated(10.0, 2.0, 5, 12)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f"100.0 * {PART} / COUNT(*)", Estimated(40.0, 18.0, 100 * 2 / 12, 100.0)),
        (f"-{PART} * 1.5 + COUNT(*)", Estimated(4.0, 3.5, -5.5, 9.0)),
        (f"{PART} - COUNT(*)", Estimated(-6.0, 3.0, -10.0, 2.0)),
        ("COUNT(age) / 2.0 / COUNT(*)", Estimated(0.2, 0.09, 2 / 24, 0.5)),
        (f"COUNT(*)::numeric / {PART}", Estimated(0.4, 0.18, 2 / 12, 1.4)),
        ("SUM(CASE WHEN member THEN 1 ELSE 0 END) * 1.0 / COUNT(*)",
         Estimated(0.4, 0.18, 2 / 12, 1.0)),
    ],
)  # fmt: skip
def test_bounds_and_errors(expression: str, expected: Estimated) -> None:
    found = calculate(expression, COUNTED, ALL)
    for one, other in (
        (found.estimate, expected.estimate), (found.std_error, expected.std_error),
        (found.lower_bound, expected.lower_bound), (found.upper_bound, expected.upper_bound),
    ):  # fmt: skip
        assert one == pytest.approx(other)


def test_the_same_aggregate_twice_is_one() -> None:
    found = calculate("COUNT(*) * 2 - 1.0 * COUNT(*)", ALL)
    assert (found.estimate, found.std_error) == (10.0, 2.0)


def test_what_has_no_bounds_gives_none() -> None:
    unknown = Estimated(3.0, 1.0, None, 5.0)
    assert calculate("2 * SUM(age)", unknown) == Estimated(6.0, 2.0, None, 10.0)
    assert calculate("1.0 / SUM(age)", unknown).lower_bound is None
    assert calculate("1.0 / NULLIF(SUM(age), 0)", NOTHING) == NOTHING


def test_dividing_by_no_record_at_all() -> None:
    none = Estimated(0.0, 0.0, 0, 0)
    assert calculate("1.0 / NULLIF(COUNT(*), 0)", none) == NOTHING
    assert calculate("1.0 / NULLIF(COUNT(*), 0)::numeric", none) == NOTHING
    with pytest.raises(UnsupportedQueryError, match="arithmetic fails"):
        calculate("1.0 / COUNT(*)", none)


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        (f"{PART} / COUNT(*)", "cut to a whole number"),
        ("SUM(age) / COUNT(*)", "cut to a whole number"),
        ("COUNT(*) % 2", "calculations with aggregates"),
        ("COUNT(*) + age", "calculations with aggregates"),
        ("COUNT(*)::text", "calculations with aggregates"),
    ],
)
def test_refused(expression: str, what: str) -> None:
    with pytest.raises(UnsupportedQueryError, match=what):
        query(f"SELECT {expression} FROM t")


def test_order_by_what_is_calculated() -> None:
    share = f"100.0 * {PART} / COUNT(*)"
    found = query(f"SELECT sex, {share} AS s FROM t GROUP BY sex ORDER BY s, COUNT(age)")
    assert [order.measure for order in found.order] == [3, 2]
    assert [label.label for _, label in found.shown] == ["s"]
    assert found.listed == (3,)


def test_deviations_of_large_numbers_that_are_alike() -> None:
    """What is left of their squares is rounded, and says nothing."""
    numbers = [3_000_000_001.0] * 3

    def deviation(squares: float) -> Estimated:
        sums = (Estimated(x, 0.0, x, x) for x in (3.0, sum(numbers), squares))
        return calculate("stddev_pop(age) FILTER (WHERE member)", *sums)

    squares = math.fsum(x * x for x in numbers)
    for rounded in (squares + 4096, squares - 4096):
        found = deviation(rounded)
        assert found.estimate == found.lower_bound == 0
        assert found.upper_bound is not None
        assert found.upper_bound > 100
        assert found.std_error == found.upper_bound / 2


def ends(numbers: list[float]) -> Estimated:
    return Estimated(numbers[0], 1.0, min(numbers), max(numbers))


@pytest.mark.long
@pytest.mark.parametrize("function", ["stddev", "stddev_samp", "stddev_pop", "variance", "var_pop"])
def test_bounds_of_spreads_hold(function: str) -> None:
    of = {"stddev_pop": pstdev, "variance": variance, "var_pop": pvariance}.get(function, stdev)
    draw, fewest = Random(1), 1 if function.endswith("_pop") else 2  # noqa: S311
    for _ in range(300):
        tables = [
            [draw.choice([0.1, -3, 7, 1e6, 1e6 + 1]) for _ in range(draw.randint(1, 5))]
            for _ in range(draw.randint(1, 3))
        ]
        sums = (
            ends([len(table) for table in tables]),
            ends([sum(table) for table in tables]),
            ends([sum(x * x for x in table) for table in tables]),
        )
        found = calculate(f"{function}(age) FILTER (WHERE member)", *sums)
        known = [of(table) for table in tables if len(table) >= fewest]
        if not known:
            assert found == NOTHING
        for truth in known if found.estimate is not None else []:
            assert found.lower_bound is not None
            assert found.upper_bound is not None
            assert found.lower_bound <= truth <= found.upper_bound
        if len(tables) == 1 and known:
            assert found.estimate == pytest.approx(known[0], rel=1e-4, abs=1e-2)


def correlate(pairs: list[tuple[float, float]]) -> float | None:
    """Calculate it from the differences to the means, exactly but for two roots."""
    exact = [tuple(map(Fraction, pair)) for pair in pairs]
    means = [sum(column) / len(pairs) for column in zip(*exact, strict=True)]
    away = [(y - means[0], x - means[1]) for y, x in exact]
    both = sum(y * x for y, x in away)
    squares = sum(y * y for y, _ in away), sum(x * x for _, x in away)
    return float(both) / math.sqrt(squares[0]) / math.sqrt(squares[1]) if all(squares) else None


@pytest.mark.parametrize("values", [(0.1, -3, 7), (0, 1), (1e6, 1e6 + 1, 1e6 + 7)])
def test_bounds_of_correlations_hold(values: tuple[float, ...]) -> None:
    draw = Random(2)  # noqa: S311
    for _ in range(300):
        tables = [
            [(draw.choice(values), draw.choice(values)) for _ in range(draw.randint(1, 5))]
            for _ in range(draw.randint(1, 3))
        ]
        columns = [tuple(zip(*table, strict=True)) for table in tables]
        sums = (
            ends([len(table) for table in tables]),
            *(ends([sum(column[place]) for column in columns]) for place in (0, 1)),
            *(
                ends([sum(y * x for y, x in zip(column[i], column[j], strict=True))
                      for column in columns])
                for i, j in ((0, 0), (1, 1), (0, 1))
            ),
        )  # fmt: skip
        answer = calculate("corr(age, years)", *sums)
        truths = [truth for table in tables if (truth := correlate(table)) is not None]
        if answer.estimate is None:
            assert answer == NOTHING
            assert correlate(tables[0]) is None or 1e6 in values
            continue
        assert -1 <= answer.lower_bound <= answer.estimate <= answer.upper_bound <= 1
        for truth in truths:
            assert answer.lower_bound - 1e-12 <= truth <= answer.upper_bound + 1e-12
        truth = correlate(tables[0])
        if truth is not None and 1e6 not in values:
            assert answer.estimate == pytest.approx(truth, abs=1e-9)


N, Y, X, YY, XX = (Estimated(n, 0.0, n, n) for n in (4.0, 10.0, 10.0, 30.0, 30.0))  # 1 to 4


@pytest.mark.parametrize(
    ("changed", "estimate", "bounds"),
    [
        ({}, 1.0, (1, 1)),
        ({5: Estimated(25.0, 1.0, 25, 30)}, 0.0, (0, 1)),
        ({5: Estimated(22.0, 1.0, 20, 25)}, -0.6, (-1, 0)),
        ({5: Estimated(30.0, None, None, None)}, 1.0, (-1, 1)),
        ({3: Estimated(30.0, 1.0, 25, None)}, 1.0, (0, 1)),
        ({3: Estimated(30.0, 1.0, 25, None), 5: Estimated(20.0, 1.0, 20, 20)}, -1.0, (-1, 0)),
        ({1: Estimated(10.0, None, None, None)}, 1.0, (-1, 1)),
        ({0: Estimated(4.0, 1.0, 0, 6)}, 1.0, (-1, 1)),
    ],
)
def test_bounds_of_a_correlation(
    changed: dict[int, Estimated], estimate: float, bounds: tuple[float, float]
) -> None:
    sums = [N, Y, X, YY, XX, Estimated(30.0, 0.0, 30, 30)]
    for place, answer in changed.items():
        sums[place] = answer
    found = calculate("corr(age, years)", *sums)
    assert found.estimate == pytest.approx(estimate)
    assert (found.lower_bound, found.upper_bound) == pytest.approx(bounds, abs=1e-12)


@pytest.mark.parametrize(
    "changed", [{0: Estimated(1.0, 0.0, 1, 1)}, {3: Estimated(25.0, 0.0, 25, 25)}]
)
def test_no_correlation_with_what_is_always_the_same(changed: dict[int, Estimated]) -> None:
    sums = [N, Y, X, YY, XX, Estimated(25.0, 0.0, 25, 25)]
    for place, answer in changed.items():
        sums[place] = answer
    assert calculate("corr(age, years)", *sums) == NOTHING


def test_having_reads_what_is_shown_of_a_statistic() -> None:
    """Not what follows from sums that a rule of figures hides."""
    found = query("SELECT sex, corr(age, years) FROM t GROUP BY sex HAVING corr(age, years) > 0.5")
    hidden = [NOTHING] * len(found.measures)
    groups = [
        Group('{"sex": "f"}', (0,), (*hidden, Estimated(0.9, 0.0, 0.9, 0.9))),
        Group('{"sex": "m"}', (1,), (*hidden, Estimated(0.1, 0.0, 0.1, 0.1))),
        Group('{"sex": "x"}', (2,), (*hidden, NOTHING)),
    ]
    assert in_order(groups, found) == groups[:1]


@pytest.mark.parametrize(
    "condition",
    [
        "SUM(age) IS NULL",
        "COALESCE(SUM(age), 0) < 1",
        "NOT SUM(age) > 1",
        "corr(age, years) IS NULL",
        "COALESCE(corr(age, years), 0) < 1",
    ],
)
def test_having_takes_no_hidden_figure_for_null(condition: str) -> None:
    found = query(f"SELECT sex, SUM(age) FROM t GROUP BY sex HAVING {condition}")
    one = Estimated(1.0, 0.0, 1, 1)
    figures = (NOTHING, *[one] * (len(found.measures) - 1), *[NOTHING] * len(found.formulas))
    places = frozenset(range(len(found.measures)))
    hidden, null = (
        Group("{}", (place,), figures, own) for place, own in enumerate((places, frozenset()))
    )
    assert in_order([hidden, null], found) == ([] if "NOT" in condition else [null])


def test_a_correlation_is_of_records_that_have_both_numbers() -> None:
    found = query("SELECT corr(age, years) FILTER (WHERE member) FROM t")
    assert [label.label for _, label in found.shown] == ["corr(age, years)"]
    filters = [
        [type(part) for part in ex.walk(measure.aggregate.condition)] for measure in found.measures
    ]
    both = [ex.And, ex.Column, ex.NullTest, ex.Column]
    assert filters == [both] * 5 + [[ex.Column]]


@pytest.mark.parametrize(
    "call",
    ["stddev(DISTINCT age)", "stddev(name)", "stddev(SUM(age))", "stddev(age, age)", "corr(age)",
     "corr(age, name)", "corr(age, born)", "corr(SUM(age), age)", "corr(DISTINCT age, age)"],
)  # fmt: skip
def test_statistics_refused(call: str) -> None:
    with pytest.raises(UnsupportedQueryError):
        query(f"SELECT {call} FROM t")


@pytest.mark.parametrize(
    ("answer", "finest", "is_untold"),
    [
        (Estimated(50.0, 40.0, 0, 100), 0, True),
        (Estimated(50.0, 10.0, 0, 100), 0, False),
        (Estimated(126.3, 0.5, 126, 127), 0, False),  # one record that is left out hides little
        (Estimated(0.0, 0.5, 0, 1), 0, True),
        (Estimated(10.0, 5.0, 10, 15), 5, False),  # rounded by a rule of figures
        (Estimated(10.0, 5.0, 10, 20), 5, True),
        (Estimated(7.0, 0.0, 7, 7), 0, False),
    ],
)
def test_a_number_is_told_unless_much_is_likely(
    answer: Estimated, finest: int, *, is_untold: bool
) -> None:
    assert answer.is_untold(finest) is is_untold
