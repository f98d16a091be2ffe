"""How many combinations there are, counted from their smallest hashes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")

from kanon_db.spark._coded_records import (  # noqa: E402
    CHOICES,
    MOST_BITS,
    estimated,
    group_codes,
    groups_of,
    sketch,
    smallest,
)

NAMES = ["q0", "q1", "q2"]


def batches(columns: dict[str, Any], size: int) -> Iterator[Any]:
    return iter(pa.table(columns).to_batches(max_chunksize=size))


@pytest.fixture(params=[(3_000, 1_000), (60, 20)], ids=["many", "few"])
def codes(request: pytest.FixtureRequest) -> Any:
    """Columns with a wide, a skewed and a narrow distribution."""
    wide, narrow = request.param
    random = np.random.default_rng(5)
    n = 40_000
    return {
        "q0": random.integers(0, wide, n).astype(np.int32),
        "q1": np.minimum(random.geometric(0.02, n), narrow).astype(np.int32),
        "q2": random.integers(0, 4, n).astype(np.int32),
    }


def groups(codes: Any, bits: int | None) -> list[Any]:
    if bits is None:
        return list(codes.values())
    return [groups_of(np.bincount(own), bits)[own] for own in codes.values()]


@pytest.mark.long
def test_counted_as_they_are(codes: Any) -> None:
    """Of few combinations exactly, of many within five standard errors; over several tasks."""
    finest = [groups_of(np.bincount(own), MOST_BITS) for own in codes.values()]
    random = np.random.default_rng(1)
    tables = [random.integers(2**64, size=1 << MOST_BITS, dtype=np.uint64) for _ in NAMES]
    known = NAMES, finest, tables
    found: list[list[Any]] = [[] for _ in CHOICES]
    for half in (slice(0, 15_000), slice(15_000, None)):
        (of_task,) = sketch(known, batches({name: own[half] for name, own in codes.items()}, 7_000))
        choice, hashes = (of_task.column(i).to_numpy() for i in range(2))
        for i in range(len(CHOICES)):
            found[i].append(hashes[choice == i].view(np.uint64))
    for bits, of in zip(CHOICES, found, strict=True):
        truth = np.unique(np.stack(groups(codes, bits)), axis=1).shape[1]
        counted = estimated(smallest(np.concatenate(of)))
        assert counted == truth if truth < 1024 else abs(counted / truth - 1) < 5 / np.sqrt(1022)


def test_groups_of_fewer_bits_are_unions(codes: Any) -> None:
    """They have about as many records each, in the order of values."""
    for own in codes.values():
        counts = np.bincount(own)
        finest = groups_of(counts, MOST_BITS)
        assert (np.diff(finest) >= 0).all()
        for bits in range(1, MOST_BITS):
            assert (groups_of(counts, bits) == finest >> (MOST_BITS - bits)).all()
        of_group = np.bincount(groups_of(counts, 3)[own])
        assert of_group.size <= 8
        assert of_group.max() <= own.size / 8 + counts.max()


def test_codes_become_groups(codes: Any) -> None:
    known = ["q0", "q1"], [groups_of(np.bincount(codes[name]), 3) for name in ("q0", "q1")]
    table = pa.Table.from_batches(group_codes(known, batches(codes, 9_000)))
    expected = [*groups(codes, 3)[:2], codes["q2"]]
    for name, own in zip(NAMES, expected, strict=True):
        assert (table[name].to_numpy() == own).all()
    assert table.schema.names == NAMES
