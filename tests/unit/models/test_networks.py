"""What networks answer, and how they are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.errors import InvalidParameterError
from kanon_db.models._network import (
    Architecture,
    Encoding,
    Feature,
    FeatureKind,
    Member,
    _forward,
    digest_of,
    logits,
    network_for,
)

SHAPES = [(5,), (4, 4, 1), (8, 8, 1), (9, 11, 3), (16, 17, 1)]


def member_of(architecture: Architecture, seed: int = 0) -> Member:
    generator = np.random.default_rng(seed)
    return Member(
        architecture,
        tuple(
            generator.normal(0, 0.3, shape).astype(np.float32)
            for shape in architecture.parameter_shapes()
        ),
        temperature=30.0,
        part=7,
    )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_are_as_declared(shape: tuple[int, ...]) -> None:
    architecture = network_for(shape, 3)
    inputs = np.random.default_rng(1).normal(size=(6, *shape)).astype(np.float32)
    outputs = list(_forward(member_of(architecture), inputs))
    assert [array[0].size for array in outputs] == architecture.sizes()
    assert np.array_equal(outputs[-1], logits(member_of(architecture), inputs))
    # All but the last layer, and poolings of what has it, end with ReLU.
    assert all((array >= 0).all() for array in outputs[:-1])
    assert (outputs[-1] < 0).any()


def test_table_4_1() -> None:
    """[TH]: two convolutions, pooling, two convolutions, pooling, two dense layers."""
    mnist = network_for((28, 28, 1), 10)
    kinds = [layer.kind for layer in mnist.layers]
    assert kinds == ["convolution"] * 2 + ["pooling"] + ["convolution"] * 2 + ["pooling"] + [
        "dense", "dense", "logits"
    ]  # fmt: skip
    assert {layer.units for layer in mnist.layers} == {32, 0, 200, 10}
    colors = network_for((32, 32, 3), 10)
    assert {layer.units for layer in colors.layers} == {64, 0, 256, 10}


def test_many_rows_are_answered_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    member = member_of(network_for((8, 8, 1), 10))
    inputs = np.random.default_rng(3).uniform(size=(50, 8, 8, 1)).astype(np.float32)
    at_once = logits(member, inputs)
    monkeypatch.setattr("kanon_db.models._network._VALUES_AT_ONCE", 3000)
    np.testing.assert_allclose(logits(member, inputs), at_once, rtol=1e-4, atol=1e-5)
    assert logits(member, inputs[:0]).shape == (0, 10)


@given(st.sampled_from(SHAPES), st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_bytes_and_back(shape: tuple[int, ...], seed: int, classes: int) -> None:
    member = member_of(network_for(shape, classes), seed)
    content = member.to_bytes()
    read = Member.from_bytes(content, digest_of(content))
    assert (read.architecture, read.temperature, read.part) == (member.architecture, 30.0, 7)
    for old, new in zip(member.parameters, read.parameters, strict=True):
        assert np.array_equal(old, new)
    assert read.to_bytes() == content


@given(st.data())
def test_a_changed_byte_is_noticed(data: st.DataObject) -> None:
    content = member_of(network_for((3,), 2)).to_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InvalidParameterError, match="has changed"):
        Member.from_bytes(bytes(changed), digest_of(content))


@given(st.binary(max_size=60))
def test_other_bytes_are_refused(content: bytes) -> None:
    magic = member_of(network_for((3,), 2)).to_bytes()[:12]
    for candidate in (content, magic + content, magic + b'{"shape": [3]}\n' + content):
        with pytest.raises(InvalidParameterError, match="no member"):
            Member.from_bytes(candidate)


def test_cut_off_bytes_are_refused() -> None:
    content = member_of(network_for((3,), 2)).to_bytes()
    with pytest.raises(InvalidParameterError, match="no member"):
        Member.from_bytes(content[:-4])


@pytest.mark.parametrize(
    ("shape", "classes", "message"), [((3,), 1, "two classes"), ((3, 9, 1), 2, "4 x 4")]
)
def test_what_no_network_is_for(shape: tuple[int, ...], classes: int, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        network_for(shape, classes)


COLUMNS: dict[str, Any] = {
    "age": [20, None, 60, 100],
    "job": ["nurse", "cook", None, "pilot"],
    "shape": [[0, 4], None, [2, 8], [4, 4]],
}
KINDS: dict[str, FeatureKind] = {"age": "numeric", "job": "categorical", "shape": "array"}


def declared() -> Encoding:
    return Encoding.fit(
        {},
        KINDS,
        ranges={"age": (20, 60), "shape": (0, 4)},
        categories={"job": ["cook", "nurse"]},
        shapes={"shape": [2]},
    )


def test_what_is_declared_needs_no_records() -> None:
    encoding = declared()
    assert encoding.is_declared
    assert encoding.shape == (2 + 4 + 2,)
    assert encoding.encode(COLUMNS).tolist() == [
        [-1, 0, 0, 1, 0, 0, 0, 1],
        [0, 1, 1, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 1, 0.5, 1],
        [1, 0, 0, 0, 1, 0, 1, 1],
    ]


def test_what_is_not_declared_is_learned() -> None:
    encoding = Encoding.fit(COLUMNS, KINDS)
    assert not encoding.is_declared
    age, job, shape = encoding.features
    assert (age.low, age.high) == (20, 100)
    assert job.categories == ("cook", "nurse", "pilot")
    assert (shape.low, shape.high, shape.shape) == (0, 8, (2,))
    # A single value far away does not stretch a range.
    far = Encoding.fit({"x": [0.0] * 999 + [1e6]}, {"x": "numeric"}).features[0]
    assert far.high < 1e6
    # Neither a shape nor a range alone makes an array declared.
    for given_ in ({"ranges": {"shape": (0, 8)}}, {"shapes": {"shape": [2]}}):
        found = Encoding.fit(COLUMNS, {"shape": "array"}, **given_)  # type: ignore[arg-type]
        assert not found.is_declared


def test_images_keep_their_shape() -> None:
    encoding = Encoding.fit(
        {}, {"image": "array"}, ranges={"image": (0, 16)}, shapes={"image": (2, 3, 1)}
    )
    assert encoding.shape == (2, 3, 1)
    inputs = encoding.encode({"image": [list(range(6)), [16] * 6]})
    assert inputs.shape == (2, 2, 3, 1)
    assert inputs[0, 1, 0, 0] == 3 / 16


@given(
    st.lists(st.none() | st.floats() | st.integers(-(10**30), 10**30), max_size=8),
    st.lists(st.none() | st.text(max_size=3), max_size=8),
)
def test_inputs_are_within_their_ranges(numbers: list[Any], texts: list[Any]) -> None:
    encoding = declared()
    rows = min(len(numbers), len(texts))
    inputs = encoding.encode(
        {"age": numbers[:rows], "job": texts[:rows], "shape": [[v, 0] for v in numbers[:rows]]}
        if None not in numbers[:rows]
        else {"age": numbers[:rows], "job": texts[:rows], "shape": [None] * rows}
    )
    assert inputs.shape == (rows, 8)
    assert inputs.dtype == np.float32
    assert (abs(inputs) <= 1).all()
    assert (inputs[:, 2:6].sum(axis=1) == 1).all()


@given(st.data())
def test_json_and_back(data: st.DataObject) -> None:
    numbers = st.floats(-1e9, 1e9)
    low = data.draw(numbers)
    encoding = Encoding(
        (
            Feature("a", "numeric", low, low + 1.5, is_declared=True),
            Feature("b", "categorical", categories=tuple(data.draw(st.lists(st.text())))),
            Feature("c", "array", shape=(2, 2, 1)),
        )
    )
    assert Encoding.from_json(encoding.to_json()) == encoding


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"age": [1], "job": ["x"]}, "missing"),
        ({"age": ["secret"], "job": ["x"], "shape": [[1, 2]]}, "another kind"),
        ({"age": [1], "job": ["x"], "shape": [["secret", 2]]}, "another kind"),
        ({"age": [1], "job": ["x"], "shape": [[1, 2, 3]]}, "another length"),
        ({"age": [[1]], "job": ["x"], "shape": [[1, 2]]}, "another kind"),
        ({"age": [1, 2], "job": ["x"], "shape": [[1, 2]]}, "as many"),
    ],
)
def test_rows_that_do_not_fit(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message) as error:
        declared().encode(columns)
    assert "secret" not in str(error.value) + error.value.detail


@pytest.mark.parametrize(
    ("columns", "kinds", "ranges", "message"),
    [
        ({"a": [1]}, {"a": "other"}, {}, "unknown kind"),
        ({"a": [None]}, {"a": "numeric"}, {}, "no numbers"),
        ({"a": [None]}, {"a": "array"}, {}, "no arrays"),
        ({"a": [1]}, {"a": "numeric"}, {"a": (2, 1)}, "range is empty"),
        ({"a": [1]}, {"a": "numeric"}, {"a": (0, float("inf"))}, "range is empty"),
        ({}, {}, {}, "needs a feature"),
    ],
)
def test_features_that_cannot_be(
    columns: dict[str, Any], kinds: dict[str, Any], ranges: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        Encoding.fit(columns, kinds, ranges=ranges)
