from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms.bucketization.privacy import (
    FPrimePrivacy,
    PrivacySpecification,
    check_eligible,
)
from kanon_db.errors import IneligibleError, InvalidParameterError


def thresholds(text: str, **counts: int) -> list[str]:
    privacy = PrivacySpecification.parse(text).thresholds(list(counts), list(counts.values()))
    return [str(threshold) for threshold in privacy.thresholds]


class TestFPrimePrivacy:
    @pytest.mark.parametrize(
        ("threshold", "size", "limit"),
        [
            ("29/100", 100, 29),  # 0.29 * 100 = 28.999…
            ("58/100", 50, 29),  # 0.58 * 50 = 28.999…
            ("1/3", 3, 1),
            ("1/5", 5, 1),  # 0.02 + 2 * 0.09 = 0.19999…
            ("999999999999999999/1000000000000000000", 5000, 4999),
            ("1", 5000, 5000),
        ],
    )
    def test_limits_are_exact_where_doubles_are_not(
        self, threshold: str, size: int, limit: int
    ) -> None:
        assert FPrimePrivacy((Fraction(threshold),)).occurrence_limits([size]).tolist() == [[limit]]

    def test_limits_of_thresholds_beyond_64_bits(self) -> None:
        exact = Fraction(1, 3) - Fraction(1, 10**40)
        privacy = FPrimePrivacy((exact, Fraction(1, 3)))
        assert privacy.occurrence_limits([3, 4, 6]).tolist() == [[0, 1, 1], [1, 1, 2]]
        assert privacy.occurrence_limits([3]).dtype == np.int64

    def test_a_frequency_equal_to_the_threshold_is_eligible(self) -> None:
        privacy = FPrimePrivacy((Fraction(1, 3), Fraction(2, 3)))
        assert privacy.ineligible([1, 2]).tolist() == [False, False]
        assert privacy.ineligible([2, 1]).tolist() == [True, False]

    @pytest.mark.parametrize("threshold", [Fraction(0), Fraction(-1, 2), Fraction(11, 10)])
    def test_range(self, threshold: Fraction) -> None:
        with pytest.raises(InvalidParameterError, match=r"must lie in \(0, 1\]") as caught:
            FPrimePrivacy((Fraction(1), threshold))
        assert caught.value.detail == "1 of 2 thresholds lie outside"


class TestRules:
    def test_a_cap_bounds_all_values(self) -> None:
        text = '{"theta": 8, "base": 0.02, "cap": 0.5, "null": 0.9, "values": {"a": 0.8, "b": 0.1}}'
        spec = PrivacySpecification.parse(text)
        found = spec.thresholds([None, "a", "b", "c", "d"], [10, 10, 10, 69, 1]).thresholds
        assert [str(threshold) for threshold in found] == ["1/2", "1/2", "1/10", "1/2", "1/10"]
        assert spec.describe().endswith("null 0.9, cap 0.5, 2 values with a threshold of their own")

    def test_null(self) -> None:
        spec = PrivacySpecification.parse(
            '{"default": 0.5, "null": "1/7", "values": {"null": 0.25}}'
        )
        privacy = spec.thresholds([None, "null", ""], [1, 1, 1])
        assert privacy.thresholds == (Fraction(1, 7), Fraction(1, 4), Fraction(1, 2))

    def test_a_threshold_for_null_does_not_require_nulls(self) -> None:
        assert thresholds('{"l": 2, "null": 0.1}', a=1) == ["1/2"]

    def test_values_that_no_rule_covers(self) -> None:
        spec = PrivacySpecification.parse('{"values": {"secret": 0.5}}')
        with pytest.raises(InvalidParameterError, match="without a threshold") as caught:
            spec.thresholds(["secret", "other", None], [1, 1, 1])
        assert caught.value.detail == "2 of 3 sensitive values are not covered"

    def test_entries_that_do_not_occur(self) -> None:
        spec = PrivacySpecification.parse('{"l": 2, "values": {"HVI": 0.1, "Flu": 0.5}}')
        with pytest.raises(InvalidParameterError, match="does not occur") as caught:
            spec.thresholds(["HIV", "Flu", None], [1, 1, 1])
        assert caught.value.detail.startswith("1 of the 2 values named")
        assert "HVI" not in f"{caught.value.detail}{caught.value.hint}"

    def test_a_value_without_records(self) -> None:
        with pytest.raises(InvalidParameterError, match="at least one record"):
            thresholds('{"l": 2}', a=1, b=0)


REFUSED: dict[str, list[str]] = {
    "not valid JSON": ["", "{'l': 4}", '{"l": 4} x', '{"l": .5}'],
    "must be a JSON object": ["[4]", "4", '"l"', "null"],
    "is empty": ["{}", '{"values": {}}'],
    "unknown key": ['{"epsilon": 1}', '{"l": 4, "L": 4}'],
    "repeats a key": ['{"l": 4, "l": 5}', '{"values": {"a": 0.1, "a": 0.2}}'],
    "values must be a JSON object": ['{"values": [0.1]}'],
    "each of values must be a number": ['{"values": {"a": {"b": 0.1}}}'],
    "must be a number": ['{"l": true}', '{"theta": null}', '{"theta": [1]}', '{"cap": null}'],
    "not finite": [f'{{"theta": {number}}}' for number in ("NaN", "Infinity", "-Infinity")],
    "malformed or too long": [
        f'{{"theta": {number}}}'
        for number in (
            '"NaN"', '"inf"', '""', '" 1"', '"1\\n"', '"1_0"', '"0x10"', '"\\u0661"', '"1/2/3"',
            '"1.5/2"', "1e41",
        )
    ],
    "denominator 0": ['{"theta": "1/0"}'],
    "theta must be at least 0": ['{"theta": -1}'],
    "must not both be 0": ['{"theta": 0}', '{"base": 0.0}', '{"theta": 0, "base": 0, "l": 2}'],
    r"base must be in \[0, 1\]": ['{"base": 1.01}', '{"base": -0.01}'],
    r"default must be in \(0, 1\]": ['{"default": 0}', '{"default": 1.001}'],
    r"null must be in \(0, 1\]": ['{"null": 0}'],
    r"cap must be in \(0, 1\]": ['{"cap": 0}', '{"theta": 2, "cap": 1.01}'],
    "l must be at least 1": ['{"l": 0.5}'],
    r"must lie in \(0, 1\]": ['{"values": {"a": 0, "b": 1, "c": 2}}'],
}  # fmt: skip


class TestParse:
    def test_numbers_are_taken_as_written(self) -> None:
        spec = PrivacySpecification.parse(
            '{"theta": 1e1, "base": 0.1, "default": "1/3", "null": "2.5E-1", '
            '"values": {"a": 0.1000000000000000000000000000000000001}}'
        )
        assert (spec.theta, spec.base) == (10, Fraction(1, 10))
        assert (spec.default, spec.null) == (Fraction(1, 3), Fraction(1, 4))
        assert spec.values["a"] == Fraction(1, 10) + Fraction(1, 10**37)

    @pytest.mark.parametrize(
        ("text", "message"),
        [(text, message) for message, texts in REFUSED.items() for text in texts],
    )
    def test_refusals(self, text: str, message: str) -> None:
        with pytest.raises(InvalidParameterError, match=message):
            PrivacySpecification.parse(text)

    @pytest.mark.parametrize(
        "text",
        [
            '{"theta": 1e999999999}', '{"theta": 1e-999999999}', '{"theta": "1e999999999"}',
            '{"theta": ' + "9" * 1_000_000 + "}", '{"theta": "1/' + "9" * 1_000_000 + '"}',
            '{"values": ' + "[" * 1_000_000, '{"values": ' + '{"a":' * 500_000,
            '{"l": 4' + " " * 2**24 + "}",
        ],
        ids=["exponent", "negative", "string", "digits", "denominator", "array", "object", "long"],
    )  # fmt: skip
    def test_small_work_for_hostile_texts(self, text: str) -> None:
        # Written out, 10 ** 999999999 would take gigabytes and minutes.
        with pytest.raises(InvalidParameterError):
            PrivacySpecification.parse(text)

    @pytest.mark.parametrize(
        "text",
        [
            '{"values": {"CANARY": 7}}', '{"values": {"CANARY": "x"}}',
            '{"values": {"CANARY": 0.1, "CANARY": 0.1}}', '{"CANARY": 0.1}',
            '{"values": {"CANARY": }}',
        ],
    )  # fmt: skip
    def test_messages_do_not_quote_values(self, text: str) -> None:
        with pytest.raises(InvalidParameterError) as caught:
            PrivacySpecification.parse(text)
        error = caught.value
        assert "CANARY" not in f"{error} {error.message} {error.detail} {error.hint}"
        assert error.__cause__ is None


class TestCheckEligible:
    @pytest.mark.parametrize(
        ("text", "counts", "n", "hint"),
        [
            ('{"l": 4}', [3, 6, 11], 2,
             "lower l to 1.818 or give the most frequent value a threshold of its own in values"),
            ('{"l": 4}', [3, 7, 10], 2, "lower l to 2"),
            ('{"default": 0.3}', [1, 2, 4], 1, "raise default to 0.572"),
            ('{"theta": 0.5}', [1, 1, 2], 3, "raise theta to 1 or base to 0.25"),
            ('{"theta": 0.5, "base": 0.02}', [1, 1, 1], 3, "raise theta to 0.94 or base to 0.167"),
            ('{"base": 0.3}', [1, 1, 2], 1, "raise theta to 0.4 or base to 0.5"),
            ('{"l": 5, "theta": 0.9}', [1, 1, 1], 3,
             "lower l to 3; raise theta to 1 or base to 0.0334"),
            ('{"cap": 0.3}', [1, 2, 4], 1, "raise cap to 0.572"),
            ('{"theta": 2, "cap": 0.3, "null": 0.5}', [1, 2, 4], 1,
             "raise cap to 0.572; raise null to 0.572"),
            ('{"default": 1, "values": {"a": 0.1, "b": 0.2}}', [3, 4, 13], 1,
             "raise 1 of the values' thresholds to 0.15"),
            ('{"default": 0.1, "null": 0.01, "values": {"a": 0.1, "b": 0.1}}', [3, 4, 13], 3,
             "raise 2 of the values' thresholds to 0.2; raise null to 0.65"),
        ],
    )  # fmt: skip
    def test_refusals(self, text: str, counts: list[int], n: int, hint: str) -> None:
        spec = PrivacySpecification.parse(text)
        with pytest.raises(IneligibleError) as caught:
            check_eligible(spec, ["a", "b", None], counts)
        assert caught.value.detail.startswith(f"{n} of 3")
        assert caught.value.hint == hint

    def test_tiny_suggestions_are_not_rounded_to_zero_or_one(self) -> None:
        spec = PrivacySpecification.parse('{"theta": 0.99999, "base": 0.0000001}')
        with pytest.raises(IneligibleError) as caught:
            check_eligible(spec, ["a", "b"], [1, 1])
        assert caught.value.hint == "raise theta to 1 or base to 0.000005"


class TestDecodedSpecification:
    def test_text_and_decoded_are_the_same(self) -> None:
        text = '{"theta": 8, "base": 0.02, "null": "1/3", "values": {"HIV": 0.1}}'
        assert PrivacySpecification.parse(json.loads(text)) == PrivacySpecification.parse(text)
        as_text = json.loads(text, parse_float=str)
        assert PrivacySpecification.parse(as_text) == PrivacySpecification.parse(text)

    def test_the_mapping_given_stays_as_it_is(self) -> None:
        given = {"default": "1/2", "values": {"a": "1/4"}}
        PrivacySpecification.parse(given)
        assert given == {"default": "1/2", "values": {"a": "1/4"}}

    @pytest.mark.parametrize(
        "given",
        [{}, {"l": True}, {"l": None}, {"l": float("nan")}, {"x": 1}, {"values": [1]}, [1], 3],
    )
    def test_refusals(self, given: object) -> None:
        with pytest.raises(InvalidParameterError):
            PrivacySpecification.parse(given)  # type: ignore[arg-type]

    def test_descriptions_name_no_value(self) -> None:
        spec = PrivacySpecification.parse(
            '{"theta": 8, "base": 0.02, "values": {"HIV": 0.1, "Flu": "1/3"}}'
        )
        assert spec.describe() == "theta 8, base 0.02, 2 values with a threshold of their own"
        assert PrivacySpecification.parse('{"values": {"HIV": 1}}').describe() == (
            "1 value with a threshold of its own"
        )
