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
from kanon_db.errors import InfeasibleError, InvalidParameterError


class TestIsValid:
    def test_lemma_2(self) -> None:
        setting = BucketSetting.of([8], [4])
        counts = [2, 2, 2, 4, 4, 4, 6, 8]
        assert is_valid(counts, [[1]] * 6 + [[2], [2]], setting)
        assert not is_valid(counts, [[1]] * 7 + [[2]], setting)

    def test_limits_beyond_the_bucket_size_do_not_overflow(self) -> None:
        setting = BucketSetting.of([2], [MAX_RECORDS // 2])
        assert is_valid([MAX_RECORDS], [[2**62]], setting)

    def test_shape_of_limits(self) -> None:
        with pytest.raises(InvalidParameterError, match="limits must hold one number"):
            is_valid([1, 1], [[1], [1]], BucketSetting.of([1, 2], [1, 1]))

    def test_theorem_1_does_not_suffice_for_three_sizes(self) -> None:
        # The first value alone can go to the buckets of 1 and 2, but has 2 records for 3 places.
        setting = BucketSetting.of([1, 2, 3], [1, 1, 1])
        limits = [[1, 2, 3], [0, 0, 3]]
        assert not is_valid([2, 4], limits, setting)
        available = np.minimum(limits, [[2], [4]])
        assert (available.sum(axis=0) >= [1, 2, 3]).sum() == 3
        assert is_valid([3, 3], limits, setting)


class TestPartitionRecords:
    def test_a_value_without_records_left_is_not_moved(self) -> None:
        """Line 5 of Algorithm 1 taken literally moves records that do not exist."""
        setting = BucketSetting.of([1, 2], [4, 3])
        partition = partition_records([1, 9], [[1, 2], [1, 2]], setting)
        assert partition.sum(axis=0).tolist() == [4, 6]
        assert partition.sum(axis=1).tolist() == [1, 9]
        assert partition.min() >= 0

    def test_invalid(self) -> None:
        with pytest.raises(InfeasibleError, match="not valid") as caught:
            partition_records([4, 2], [[1], [1]], BucketSetting.of([2], [3]))
        assert caught.value.detail == (
            "3 buckets for 6 records, table of 6 records and 2 sensitive values"
        )

    def test_three_sizes_of_the_largest_table(self) -> None:
        third = MAX_RECORDS // 3 // 6 * 6
        setting = BucketSetting.of([1, 2, 3], [third, third // 2, third // 3])
        partition = partition_records([2 * third, third], [[1, 2, 3]] * 2, setting)
        assert partition.tolist() == [[2 * third // 3] * 3, [third // 3] * 3]

    def test_products_beyond_64_bits(self) -> None:
        half = MAX_RECORDS // 2
        setting = BucketSetting.of([1, 2], [half, half // 2])
        partition = partition_records([half, half], [[1, 2]] * 2, setting)
        assert partition.tolist() == [[half // 2, half // 2]] * 2


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
