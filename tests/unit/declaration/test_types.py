"""What callers give is read in one way, and refused in one wording without its value."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from kanon_db.declaration import (
    FLAG,
    NAMES,
    SECONDS,
    SHARE,
    TEXT,
    WEIGHTS,
    ParameterType,
    choice,
    json_list,
    json_object,
    numbers,
    options,
    pair,
    parameter,
    read_request,
    whole,
    wholes,
)
from kanon_db.declaration.parameter_types import unknown
from kanon_db.errors import InvalidParameterError
from kanon_db.operations import operations

CHOICE = choice("method", first="one", second="another")


@dataclass(frozen=True, kw_only=True)
class Options:
    size: int = parameter(whole(least=2), "A size.", default=3)
    method: str = parameter(CHOICE, "A method.", default="first")


@pytest.mark.parametrize(
    ("type_", "given", "expected"),
    [
        (TEXT, "a", "a"), (FLAG, True, True), (NAMES, ["a", "b"], ("a", "b")), (NAMES, (), ()),
        (SHARE, "0.05", Fraction(1, 20)), (SHARE, 0.05, Fraction(1, 20)),
        (SHARE, Decimal("0.05"), Fraction(1, 20)), (SHARE, "1/3", Fraction(1, 3)), (SHARE, 0, 0),
        (WEIGHTS, '{"age": 0.1, "sex": 2}', {"age": Fraction(1, 10), "sex": 2}),
        (WEIGHTS, {"age": 0.1}, {"age": Fraction(1, 10)}), (SECONDS, 60, 60.0),
        (SECONDS, "0.5", 0.5), (whole(), 1, 1), (whole(), np.int64(3), 3),
        (wholes(), np.array([1, 2]).tolist(), (1, 2)), (whole(least=0, most=0), 0, 0),
        (wholes(), [1, 2], (1, 2)), (numbers(most=1), [0.5, "1"], (0.5, 1.0)),
        (pair(), [20, 1], (20, 1)), (CHOICE, "second", "second"),
        (json_object(dict), '{"a": 0.10, "b": 1}', {"a": "0.10", "b": 1}),
        (json_object(dict, is_exact=False), '{"a": 0.5}', {"a": 0.5}),
        (json_list(), "[1, [2]]", [1, [2]]), (options(Options), "{}", read_request(Options, {})),
        (options(Options), {"size": 5}, Options(size=5, method="first")),
    ],
)  # fmt: skip
def test_read(type_: ParameterType, given: Any, expected: Any) -> None:
    found = type_.read(given, "it")
    assert found == expected
    assert type(found) is type(expected) or isinstance(found, Fraction)


SECRET = "HIV-99"  # noqa: S105  # stands for a value that no message may repeat


@pytest.mark.parametrize(
    ("type_", "given"),
    [
        (TEXT, 1), (FLAG, 1), (FLAG, "true"), (NAMES, SECRET), (NAMES, [SECRET, None]),
        (NAMES, [SECRET, 1]), (NAMES, {SECRET: 1}), (SHARE, SECRET), (SHARE, True),
        (SHARE, "1.01"), (SHARE, -1), (SHARE, "nan"), (SHARE, "1/0"), (SHARE, "9" * 100),
        (WEIGHTS, f'{{"{SECRET}": 0}}'), (WEIGHTS, f'{{"{SECRET}": "{SECRET}"}}'),
        (WEIGHTS, '{"age": 1e99999999999}'), (WEIGHTS, f"[{99}]"), (SECONDS, 0),
        (SECONDS, float("nan")), (SECONDS, float("inf")), (SECONDS, SECRET), (SECONDS, True),
        (whole(), 0), (whole(), True), (whole(), 1.5), (whole(), "1"), (whole(most=5), 6),
        (whole(), 2**31), (whole(sql="bigint"), 2**63), (whole(), 10**4000),
        (pair(), [1, 10**4000]), (wholes(), [0]), (numbers(most=1), [1.5]), (pair(), [1]),
        (pair(), "12"), (CHOICE, SECRET[:3]), (json_object(dict), SECRET),
        (json_object(dict), f'["{SECRET}"]'),
        (json_object(dict), f'{{"{SECRET}": 1, "{SECRET}": 2}}'),
        (json_object(dict), f'{{"{SECRET}": NaN}}'), (json_object(dict), "[" * 100_000),
        (json_list(), f'{{"{SECRET}": 1}}'), (options(Options), '{"size": 1}'),
        (options(Options), '{"size": 11111111111111111111}'), (options(Options), '{"method": 1}'),
    ],
)  # fmt: skip
def test_refused(type_: ParameterType, given: Any) -> None:
    with pytest.raises(InvalidParameterError) as refused:
        type_.read(given, "it")
    said = f"{refused.value.message} {refused.value.detail} {refused.value.hint}"
    assert SECRET not in said
    assert refused.value.message


@pytest.mark.parametrize(
    ("given", "near"),
    [({"sise": 3}, "did you mean size?"), ({"zzz": 3}, "the options here are method, size")],
)
def test_unknown_names_bring_the_nearest(given: dict[str, Any], near: str) -> None:
    with pytest.raises(InvalidParameterError, match="the option is not known") as refused:
        read_request(Options, given, what="option")
    assert near in refused.value.hint


def test_a_word_that_is_a_plural_has_no_other() -> None:
    assert unknown("estimates", "sharp", ["capped"]).hint == "the estimates here are capped"


def test_missing_and_null() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Request:
        name: str = parameter(TEXT, "A name.")
        other: str | None = parameter(TEXT, "Another.", default=None)
        options: Options = parameter(options(Options), "Options.", default=None)

    assert read_request(Request, {"name": "a", "other": None}) == Request(
        name="a", other=None, options=Options(size=3, method="first")
    )
    for given in ({}, {"name": None}):
        with pytest.raises(InvalidParameterError, match="name"):
            read_request(Request, given)


def test_objects_that_contain_themselves_are_refused() -> None:
    request = operations()["publish_buckets"].request
    privacy: dict[str, Any] = {"l": 2}
    privacy["values"] = privacy
    with pytest.raises(InvalidParameterError, match="nested too deeply"):
        read_request(request, {"source": "a", "publication": "b", "privacy": privacy})
