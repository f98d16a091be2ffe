"""Records are dealt into buckets, at random."""

from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.bucketization import bucket_assignment
from kanon_db.algorithms.bucketization.bucket_assignment import (
    is_valid,
    partition_records,
    round_robin,
)
from kanon_db.algorithms.bucketization.buckets import MAX_RECORDS, BucketSetting
from kanon_db.algorithms.ground.arrays import sort_keys
from kanon_db.errors import InfeasibleError, InvalidParameterError


class TestPartitionRecords:
    def test_invalid(self) -> None:
        with pytest.raises(InvalidParameterError, match="limits must hold one number"):
            is_valid([1, 1], [[1], [1]], BucketSetting.of([1, 2], [1, 1]))
        with pytest.raises(InfeasibleError, match="not valid") as caught:
            partition_records([4, 2], [[1], [1]], BucketSetting.of([2], [3]))
        assert caught.value.detail == (
            "3 buckets for 6 records, table of 6 records and 2 sensitive values"
        )

    def test_products_beyond_64_bits(self) -> None:
        assert is_valid([MAX_RECORDS], [[2**62]], BucketSetting.of([2], [MAX_RECORDS // 2]))
        half, third = MAX_RECORDS // 2, MAX_RECORDS // 3 // 6 * 6
        setting = BucketSetting.of([1, 2], [half, half // 2])
        partition = partition_records([half, half], [[1, 2]] * 2, setting)
        assert partition.tolist() == [[half // 2, half // 2]] * 2
        setting = BucketSetting.of([1, 2, 3], [third, third // 2, third // 3])
        partition = partition_records([2 * third, third], [[1, 2, 3]] * 2, setting)
        assert partition.tolist() == [[2 * third // 3] * 3, [third // 3] * 3]


class TestRoundRobin:
    def test_table_4_of_the_paper(self) -> None:
        """32 records in 4 buckets of 8; filled in the paper's order, column by column."""
        counts = [2, 2, 2, 4, 4, 4, 6, 8]
        setting = BucketSetting.of([8], [4])
        allotment = round_robin(np.array(counts)[:, np.newaxis], setting)
        values = np.repeat(np.arange(8), counts)
        ranks = np.concatenate([np.arange(count) for count in counts])
        buckets = allotment.bucket_of(values, ranks)
        rows = [sorted(values[buckets == bucket] + 1) for bucket in range(4)]
        assert rows == [
            [1, 3, 4, 5, 6, 7, 8, 8],
            [1, 3, 4, 5, 6, 7, 8, 8],
            [2, 4, 5, 6, 7, 7, 8, 8],
            [2, 4, 5, 6, 7, 7, 8, 8],
        ]

    def test_runs_are_the_buckets_of_all_ranks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bucket_assignment, "_RUN", 5)
        setting = BucketSetting.of([2, 3], [8, 8])
        allotment = round_robin([[9, 6], [0, 13], [7, 5]], setting)
        values = np.repeat([0, 1, 2], [15, 13, 12])
        ranks = np.concatenate([np.arange(n) for n in (15, 13, 12)])
        runs = list(allotment.runs())
        assert max(run.size for run in runs) == 5
        assert np.concatenate(runs).tolist() == allotment.bucket_of(values, ranks).tolist()

    @pytest.mark.parametrize(
        ("values", "ranks"),
        [([0], [2]), ([1], [0]), ([2], [1]), ([3], [0]), ([-1], [0]), ([0], [-1])],
    )
    def test_records_that_do_not_exist(self, values: list[int], ranks: list[int]) -> None:
        allotment = round_robin([[2], [0], [1]], BucketSetting.of([3], [1]))
        with pytest.raises(InvalidParameterError, match="not part of the allotment"):
            allotment.bucket_of(values, ranks)

    @pytest.mark.parametrize("partition", [[[1], [1]], [[1, 2]], [[4], [-1]], [3]])
    def test_a_partition_that_does_not_fill_the_buckets(self, partition: list[list[int]]) -> None:
        with pytest.raises(InvalidParameterError, match="does not fill"):
            round_robin(partition, BucketSetting.of([3], [1]))


class TestSortKeys:
    def test_reflected_neighbors_differ_in_one_attribute(self) -> None:
        grid = np.array([(i, j, k) for i in range(3) for j in range(3) for k in range(3)], np.int32)
        path = grid[np.argsort(sort_keys(list(grid.T), reflected=True))]
        assert ((path[1:] != path[:-1]).sum(axis=1) == 1).all()

    def test_more_codes_than_fit_an_integer(self) -> None:
        generator = np.random.default_rng(0)
        columns = [generator.integers(2**20, size=50).astype(np.int32) for _ in range(5)]
        expected = np.lexsort(columns[::-1])
        assert np.argsort(sort_keys(columns)).tolist() == expected.tolist()
        doubled = [np.tile(column, 2) for column in columns]
        for reflected in (False, True):
            keys = sort_keys(doubled, reflected=reflected)
            assert (keys[:50] == keys[50:]).all()
            assert np.unique(keys).size == 50
