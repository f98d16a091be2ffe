from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from kanon_db.algorithms.suppression.pattern_vectors import (
    MAX_PATTERNS,
    all_patterns,
    expand_rules,
    parse_patterns,
)
from kanon_db.errors import InvalidParameterError

COLUMNS = ["age", "work", "job", "sex"]


def test_canonical_order_of_listed_patterns() -> None:
    patterns = parse_patterns(["****", "..**", "*...", "**..", "...*", "*..."], 4)
    assert patterns.texts == ("*...", "...*", "..**", "**..", "****")
    assert patterns.n_stars.tolist() == [1, 1, 2, 2, 4]
    assert patterns.suppresses_fully


def test_order_of_all_patterns_counts_with_the_first_column_most_significant() -> None:
    assert all_patterns(3).texts == (
        "...", "..*", ".*.", "*..", ".**", "*.*", "**.", "***",
    )  # fmt: skip


def test_weights_order_and_cost_patterns() -> None:
    patterns = all_patterns(3, weights=["1/3", 0.1, Fraction(1, 2)])
    assert patterns.texts == ("...", ".*.", "*..", "**.", "..*", ".**", "*.*", "***")
    assert patterns.cost_unit == 30
    assert patterns.costs.tolist() == [0, 3, 10, 13, 15, 18, 25, 28]


def test_ties_of_decimal_weights_are_ties() -> None:
    # In floating point 0.1 + 0.2 exceeds 0.3.
    assert parse_patterns(["..*", "**."], 3, weights=[0.1, 0.2, 0.3]).texts == ("..*", "**.")
    assert parse_patterns(["**.", "..*"], 3, weights=[0.1, 0.2, 0.3]).texts == ("**.", "..*")


@pytest.mark.parametrize(
    "weights",
    [[1, 2], [1, 2, 0], [1, 2, -1], [1, 2, "x"], [1, 2, float("nan")], [1, 2, float("inf")],
     [1, 2, "1e999999999"], [1, 2, "1/0"], [1, 2, None], [1, 2, True]],
)  # fmt: skip
def test_refused_weights(weights: list[Any]) -> None:
    with pytest.raises(InvalidParameterError, match="one number above 0"):
        all_patterns(3, weights=weights)


@pytest.mark.parametrize("text", ["..", "....", ".x.", "", None, "..\u066d"])
def test_refused_patterns(text: Any) -> None:
    with pytest.raises(InvalidParameterError, match="one \\* or \\.") as caught:
        parse_patterns(["...", text], 3)
    assert caught.value.detail == "pattern 2, quasi-identifiers: 3"


@pytest.mark.parametrize("n_columns", [0, 63])
def test_refused_numbers_of_columns(n_columns: int) -> None:
    with pytest.raises(InvalidParameterError, match="number of quasi-identifiers"):
        all_patterns(n_columns)


def test_too_many_patterns() -> None:
    assert len(all_patterns(16)) == MAX_PATTERNS
    with pytest.raises(InvalidParameterError, match="too many pattern vectors"):
        all_patterns(17)
    names = [f"column {i}" for i in range(40)]
    with pytest.raises(InvalidParameterError, match="too many pattern vectors"):
        expand_rules([{"at_most": 10}], names)
    assert len(expand_rules([{"at_most": 2}], names)) == 1 + 40 + 780


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([{"at_most": 0}], "...."),
        ([{"at_most": 1}], ".... ...* ..*. .*.. *..."),
        ([{"never": ["age", "work", "job"]}], ".... ...*"),
        ([{"together": ["work", "job"]}, {"at_most": 2}], ".... ...* *... .**. *..*"),
        # Tied columns are tied through one they share, and kept if one must be.
        ([{"together": ["age", "work"]}, {"together": ["work", "sex"]}], ".... ..*. **.* ****"),
        ([{"together": ["age", "work"]}, {"never": ["age"]}], ".... ...* ..*. ..**"),
        ([{"at_most": 1, "of": ["age", "work", "job"]}, {"never": ["sex"]}],
         ".... ..*. .*.. *..."),
        ([{"at_most": 1, "of": ["age"]}, {"at_most": 1}, {"outliers": "suppress"}],
         ".... ...* ..*. .*.. *... ****"),
        ([{"outliers": "suppress"}, {"never": ["age", "work", "job", "sex"]}], ".... ****"),
    ],
)  # fmt: skip
def test_rules(rules: list[dict[str, object]], expected: str) -> None:
    assert expand_rules(rules, COLUMNS).texts == tuple(expected.split())


@pytest.mark.parametrize(
    "rule",
    [{}, {"at_most": -1}, {"at_most": "2"}, {"at_most": 1.5}, {"at_most": True}, {"never": "age"},
     {"never": []}, {"together": None}, {"at_most": 1, "never": ["age"]}, {"at_most": 1, "of": []},
     {"never": ["age"], "of": ["age"]}, {"outliers": True}, {"always": ["age"]}, ["at_most", 1], 3],
)  # fmt: skip
def test_malformed_rules(rule: Any) -> None:
    with pytest.raises(InvalidParameterError, match="a rule is malformed") as caught:
        expand_rules([{"at_most": 2}, rule], COLUMNS)
    assert caught.value.detail == "rule 2"
    assert '"at_most"' in caught.value.hint


def test_a_rule_names_an_unknown_column() -> None:
    with pytest.raises(InvalidParameterError, match="not a quasi-identifier") as caught:
        expand_rules([{"never": ["name"]}], COLUMNS)
    assert caught.value.detail == 'rule 1, column "name"'


@pytest.mark.parametrize("rules", ["at_most", {"at_most": 1}, None])
def test_rules_are_a_list(rules: Any) -> None:
    with pytest.raises(InvalidParameterError, match="rules must be a list"):
        expand_rules(rules, COLUMNS)
