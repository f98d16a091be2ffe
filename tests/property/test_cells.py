"""Assignment in cells: the steps of its proof, and cuts against brute force."""

from __future__ import annotations

import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.bucketization import (
    FPrimePrivacy,
    cell_assignment,
    two_size,
)
from kanon_db.algorithms.bucketization.cell_assignment import (
    CellAssignment,
    CellCutter,
    CellRoom,
    Cut,
    allot_cells,
    assign_in_cells,
    best_cut,
)
from kanon_db.algorithms.bucketization.multi_size import multi_size
from kanon_db.algorithms.ground.arrays import CodeArray, IntArray, give_back
from kanon_db.algorithms.ground.computation import UNLIMITED, Pulse
from kanon_db.randomness import SecureRandom
from tests.attacks.posterior import tail
from tests.profiles import examples

FRACTIONS = st.fractions(Fraction(1, 20), Fraction(1), max_denominator=20)
IMPOSSIBLE = 1e-9


@st.composite
def records(draw: st.DrawFn) -> tuple[CodeArray, CodeArray, FPrimePrivacy]:
    """Up to 120 records with up to 3 quasi-identifiers and 4 values, eligible."""
    n, n_qi, m = draw(st.integers(1, 120)), draw(st.integers(1, 3)), draw(st.integers(2, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    qi_codes = random.integers(0, draw(st.integers(1, 12)), (n, n_qi)).astype(np.int32)
    # Values that go with the first quasi-identifier, more or less.
    noise = draw(st.integers(0, 2))
    codes = ((qi_codes[:, 0] + random.integers(0, noise + 1, n)) % m).astype(np.int32)
    counts = np.bincount(codes, minlength=m)
    thresholds = [
        max(draw(FRACTIONS), Fraction(int(count), n), Fraction(1, 50)) for count in counts
    ]
    return qi_codes, codes, FPrimePrivacy(tuple(thresholds))


def assign(
    data: tuple[CodeArray, CodeArray, FPrimePrivacy], largest: int = 120, least: int = 1
) -> CellAssignment:
    qi_codes, codes, privacy = data
    return assign_in_cells(
        qi_codes, codes, privacy.tightened, largest,
        lambda counts, thresholds: two_size(counts, thresholds, largest),
        SecureRandom(), least=least,
    )  # fmt: skip


@given(records())
@settings(max_examples=examples(100))
def test_buckets_keep_the_thresholds_of_their_cell(
    data: tuple[CodeArray, CodeArray, FPrimePrivacy],
) -> None:
    """Stricter ones where cuts were declined; no bucket crosses cells; sizes are as said."""
    _, codes, privacy = data
    found = assign(data)
    sizes = np.bincount(found.bucket_of_record)
    assert np.array_equal(np.sort(sizes), sizes)
    assert np.array_equal(np.repeat(found.setting.sizes, found.setting.counts), sizes)
    for bucket, size in enumerate(sizes.tolist()):
        inside = found.bucket_of_record == bucket
        (cell,) = set(found.cell_of_record[inside].tolist())
        factor = found.tightening[cell]
        for value, count in enumerate(np.bincount(codes[inside]).tolist()):
            threshold = privacy.thresholds[value]
            share = Fraction(count, size)
            # In odds, as in the proof.
            assert share * (1 - threshold) * factor <= threshold * (1 - share)


@pytest.mark.pitfall(14)
@given(records())
@settings(max_examples=examples(60))
def test_the_order_of_the_source_decides_nothing(
    data: tuple[CodeArray, CodeArray, FPrimePrivacy],
) -> None:
    """The same people in another order are put into the same cells."""
    qi_codes, codes, privacy = data
    order = SecureRandom().permutation(codes.size)

    def cells(data: tuple[CodeArray, CodeArray, FPrimePrivacy]) -> CodeArray:
        with pytest.MonkeyPatch.context() as patch:  # declined or not, but always the same
            patch.setattr(CellCutter, "_declines", lambda *given: given[-1] % 2 == 0)
            return assign(data).cell_of_record

    whole, shuffled = cells(data), cells((qi_codes[order], codes[order], privacy))
    pairs = set(zip(whole[order].tolist(), shuffled.tolist(), strict=True))
    assert len(pairs) == len(set(whole.tolist())) == len(set(shuffled.tolist()))


@given(records(), st.integers(1, 40))
@settings(max_examples=examples(60))
def test_a_histogram_is_cut_as_its_records_are(
    data: tuple[CodeArray, CodeArray, FPrimePrivacy], most: int
) -> None:
    """Rows with weights, from which records on many machines are assigned: same cells, same loss.

    The cuts tell the cell of each record, and the allotment gives each cell the same buckets. Of
    large cells only every so-many-th record is looked at, here of more than `most`.
    """
    qi_codes, codes, privacy = data
    rows, weights = np.unique(np.column_stack([qi_codes, codes]), axis=0, return_counts=True)
    with pytest.MonkeyPatch.context() as patch:  # declined or not, but always the same
        patch.setattr(CellCutter, "_declines", lambda *given: given[-1] % 2 == 0)
        patch.setattr(cell_assignment, "_MOST_LOOKED_AT", most)
        found = assign(data)
        cutter = CellCutter(
            rows[:, :-1], rows[:, -1], privacy.tightened, 120, SecureRandom(), 1, UNLIMITED, weights
        )
        cut = cutter.cells()
    # One machine numbers cells by their first records, whatever the order of the cuts.
    order_of_cells = np.argsort([cell.records.min() for cell in cut])
    cells = [cut[number] for number in order_of_cells]
    cell_of_record = np.argsort(order_of_cells)[cutter.tree().cell_of(qi_codes)]
    assert cell_of_record.tolist() == found.cell_of_record.tolist()
    assert tuple(cell.factor for cell in cells) == found.tightening
    m = len(privacy.thresholds)
    setting, allotment = allot_cells(
        cells, lambda counts, thresholds: two_size(counts, thresholds, 120), m
    )
    assert setting.pairs == found.setting.pairs
    groups = cell_of_record.astype(np.int64) * m + codes
    order = np.argsort(groups, kind="stable")
    ranks = np.empty(codes.size, dtype=np.int64)
    starts = np.searchsorted(groups[order], groups[order])
    ranks[order] = np.arange(codes.size) - starts
    buckets = allotment.bucket_of(groups, ranks)
    sizes = np.bincount(buckets)
    assert sizes.tolist() == np.repeat(setting.sizes, setting.counts).tolist()
    for cell in range(len(cells)):
        contents = []
        for of in (buckets, found.bucket_of_record):
            inside = cell_of_record == cell
            pairs = np.unique(np.column_stack([of[inside], codes[inside]]), axis=0, return_counts=1)
            contents.append((*pairs[0].tolist(), *pairs[1].tolist()))
        assert contents[0] == contents[1]


@given(records(), st.data())
@settings(max_examples=examples(200))
def test_a_swap_changes_the_slack_of_a_cut_by_one_at_most(
    data: tuple[CodeArray, CodeArray, FPrimePrivacy], draw: st.DataObject
) -> None:
    """What bounds how much a declined cut can tell."""
    _, codes, privacy = data
    room = CellRoom(privacy, draw.draw(st.sampled_from([10, 50, 120])))
    side = np.arange(codes.size) < draw.draw(st.integers(1, codes.size))
    first, second = (draw.draw(st.integers(0, codes.size - 1)) for _ in range(2))
    swapped = codes.copy()
    swapped[[first, second]] = codes[[second, first]]
    m = len(privacy.thresholds)
    cell = np.bincount(codes, minlength=m)
    slacks = [room.slack(np.bincount(c[side], minlength=m), cell) for c in (codes, swapped)]
    assert abs(slacks[0] - slacks[1]) <= 1


@given(records(), st.sampled_from([5, 20, 50, 120]))
@settings(max_examples=examples(200))
def test_where_there_is_room_a_setting_is_found(
    data: tuple[CodeArray, CodeArray, FPrimePrivacy], largest: int
) -> None:
    _, codes, privacy = data
    counts = np.bincount(codes, minlength=len(privacy.thresholds))
    if CellRoom(privacy, largest).holds(counts):
        for search in (two_size, multi_size):
            assert search(counts, privacy, largest).n_records == codes.size


@given(records(), st.data())
@settings(max_examples=examples(100))
def test_a_cut_that_is_sure_can_be_made_whatever_lies_where(
    data: tuple[CodeArray, CodeArray, FPrimePrivacy], draw: st.DataObject
) -> None:
    _, codes, privacy = data
    m, room = len(privacy.thresholds), CellRoom(privacy, 120)
    n = draw.draw(st.integers(1, codes.size))
    cell = np.bincount(codes, minlength=m)
    side = np.bincount(codes[:n], minlength=m)
    if room.slack(side, cell) >= cell_assignment._NOT_AT_RISK:
        others = np.random.default_rng(0).permutation(codes)[:n]
        assert room.holds(np.bincount(others, minlength=m))


def test_a_cut_of_many_attributes_does_not_take_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody could cancel it: the work grows with the square of their number."""
    work = []

    def looked_at(codes: CodeArray, *_: object) -> tuple[int, int]:
        work.append(codes.shape[1] * codes.shape[0] ** 2)
        return -1, -1

    monkeypatch.setattr(cell_assignment, "_best_cut", looked_at)
    for n_qi in (1, 16, 40, 200):
        best_cut(np.zeros((2**15, n_qi), np.int32), np.arange(2**15, dtype=np.int32), 1)
    assert max(work) <= 2**23


def test_each_cut_that_is_looked_for_can_be_canceled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only each cell: dozens of cuts of one cell may be declined."""
    monkeypatch.setattr(CellCutter, "_declines", lambda *_: True)
    events = []

    def looked_for(codes: CodeArray, records: IntArray, least: int, _weights: None) -> Cut | None:
        events.append("look")
        return best_cut(codes, records, least)

    monkeypatch.setattr(cell_assignment, "best_cut", looked_for)
    codes = np.random.default_rng(0).integers(0, 3, 1000).astype(np.int32)
    cutter = CellCutter(
        np.arange(1000, dtype=np.int32)[:, np.newaxis], codes,
        FPrimePrivacy((Fraction(1, 2),) * 3).tightened, 10, SecureRandom(), 1,
        Pulse(heartbeat=lambda: events.append("beat")),
    )  # fmt: skip
    cutter.cells()
    assert events.count("look") > 5
    assert ("look", "look") not in pairwise(events)


def test_cells_of_records_that_have_nothing_in_common_lose_little() -> None:
    """Cuts that split off a few of very many records must not tighten all others."""
    random, n = np.random.default_rng(0), 20_000
    qi_codes = np.column_stack([random.permutation(n) for _ in range(3)]).astype(np.int32)
    privacy = FPrimePrivacy((Fraction(1, 3),) * 11)
    found = assign((qi_codes, np.arange(n, dtype=np.int32) % 11, privacy), largest=50, least=50)
    assert len(found.tightening) > 100
    assert found.setting.msbs < 3  # 1.3 is the least, and it was 7.8


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it asks Linux for the memory")
def test_records_take_few_bytes_each() -> None:
    """Of a million, assigning takes some 35 MB beside what was read, which were 85."""
    random, n = np.random.default_rng(0), 400_000
    qi_codes = random.integers(0, 3, (n, 7), dtype=np.uint8)
    case = (
        qi_codes,
        random.integers(0, 14, n, dtype=np.int32),
        FPrimePrivacy((Fraction(1, 4),) * 14),
    )
    assign(case, largest=50, least=n // 20)  # so that all is compiled
    give_back()
    Path("/proc/self/clear_refs").write_text("5")  # the most is what it has now
    before = _most_memory()
    assign(case, largest=50, least=n // 20)
    assert _most_memory() - before < 70 * n


def _most_memory() -> int:
    """Return the most bytes that this process has had."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.parametrize(("factor", "slack"), [("3/2", 0), ("3/2", 3), ("9/8", 1)])
def test_cuts_are_declined_as_often_as_the_proof_says(factor: str, slack: int) -> None:
    cutter = CellCutter(
        np.zeros((1, 1), np.int32), np.zeros(1, np.int32),
        FPrimePrivacy((Fraction(1),)).tightened, 1, SecureRandom(), 1, UNLIMITED,
    )  # fmt: skip
    n, chance = 20_000, float(Fraction(factor) ** -(slack + 1))
    declined = sum(cutter._declines(Fraction(factor), slack) for _ in range(n))
    assert tail(n, chance, declined) > IMPOSSIBLE
    assert tail(n, 1 - chance, n - declined) > IMPOSSIBLE
