"""What networks answer, and how they are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.errors import InvalidParameterError
from kanon_db.models._network import (
    Architecture,
    Member,
    digest_of,
    layer_outputs,
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
    outputs = layer_outputs(member_of(architecture), inputs)
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
