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
    def test_each_constraint_of_theorem_1(self) -> None:
        setting = BucketSetting.of([2, 3], [2, 1])
        limits = [[1, 1], [1, 1], [1, 1]]
        assert is_valid([3, 3, 1], limits, setting)
        assert not is_valid([4, 2, 1], limits, setting)  # privacy (3)
        assert not is_valid([3, 3, 2], limits, setting)  # capacity (5)

    def test_fill_constraint(self) -> None:
        # Each value fits somewhere, but the bucket of three cannot be filled within limits of 1.
        assert not is_valid([4, 3], [[2, 1], [2, 1]], BucketSetting.of([2, 3], [2, 1]))

    def test_lemma_2(self) -> None:
        setting = BucketSetting.of([8], [4])
        counts = [2, 2, 2, 4, 4, 4, 6, 8]
        assert is_valid(counts, [[1]] * 6 + [[2], [2]], setting)
        assert not is_valid(counts, [[1]] * 7 + [[2]], setting)

    def test_empty(self) -> None:
        nothing = BucketSetting.of([], [])
        assert is_valid([], np.empty((0, 0)), nothing)
        assert not is_valid([1], np.empty((1, 0)), nothing)

    def test_limits_beyond_the_bucket_size_do_not_overflow(self) -> None:
        setting = BucketSetting.of([2], [MAX_RECORDS // 2])
        assert is_valid([MAX_RECORDS], [[2**62]], setting)

    def test_shape_of_limits(self) -> None:
        with pytest.raises(InvalidParameterError, match="limits must hold one number"):
            is_valid([1, 1], [[1], [1]], BucketSetting.of([1, 2], [1, 1]))

    def test_three_sizes(self) -> None:
        assert is_valid([6], [[1, 2, 3]], BucketSetting.of([1, 2, 3], [1, 1, 1]))
        assert not is_valid([6], [[1, 1, 1]], BucketSetting.of([1, 2, 3], [1, 1, 1]))

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

    def test_moves_are_spread_in_proportion_to_the_room(self) -> None:
        # 400 of the 800 records must leave; the values have room for 100, 300 and 400.
        setting = BucketSetting.of([1, 4], [400, 100])
        partition = partition_records([100, 300, 400], [[1, 4]] * 3, setting)
        assert partition.tolist() == [[50, 50], [150, 150], [200, 200]]

    def test_one_size(self) -> None:
        assert partition_records([2, 4], [[1], [2]], BucketSetting.of([3], [2])).tolist() == [
            [2],
            [4],
        ]

    def test_empty(self) -> None:
        nothing = BucketSetting.of([], [])
        assert partition_records([], np.empty((0, 0)), nothing).shape == (0, 0)

    def test_invalid(self) -> None:
        with pytest.raises(InfeasibleError, match="not valid") as caught:
            partition_records([4, 2], [[1], [1]], BucketSetting.of([2], [3]))
        assert caught.value.detail == (
            "3 buckets for 6 records, table of 6 records and 2 sensitive values"
        )

    def test_three_sizes_share_out_evenly(self) -> None:
        setting = BucketSetting.of([1, 2, 3], [600, 300, 200])
        partition = partition_records([900, 600, 300], [[1, 2, 3]] * 3, setting)
        assert partition.tolist() == [[300] * 3, [200] * 3, [100] * 3]

    def test_three_sizes_where_records_pass_through_another_size(self) -> None:
        # The first value may leave buckets of 1 for those of 2 only, the second those for 3.
        setting = BucketSetting.of([1, 2, 3], [2, 1, 1])
        limits = [[1, 2, 0], [0, 2, 3]]
        partition = partition_records([4, 3], limits, setting)
        assert partition.tolist() == [[2, 2, 0], [0, 0, 3]]

    def test_three_sizes_invalid(self) -> None:
        setting = BucketSetting.of([1, 2, 3], [1, 1, 1])
        with pytest.raises(InfeasibleError, match="not valid"):
            partition_records([2, 4], [[1, 2, 3], [0, 0, 3]], setting)

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

    def test_arguments_are_not_changed(self) -> None:
        counts, limits = np.array([2, 3]), np.array([[0, 1], [1, 2]])
        partition_records(counts, limits, BucketSetting.of([1, 2], [1, 2]))
        assert (counts.tolist(), limits.tolist()) == ([2, 3], [[0, 1], [1, 2]])


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

    def test_the_pointer_is_carried_over_within_each_size(self) -> None:
        setting = BucketSetting.of([1, 2], [2, 2])
        allotment = round_robin([[1, 1], [0, 2], [1, 1]], setting)
        assert allotment.value.tolist() == [0, 0, 1, 2, 2]
        assert allotment.first_rank.tolist() == [0, 1, 0, 0, 1]
        assert allotment.n_records.tolist() == [1, 1, 2, 1, 1]
        assert allotment.first_bucket.tolist() == [0, 2, 2, 0, 2]
        assert allotment.n_buckets.tolist() == [2, 2, 2, 2, 2]
        assert allotment.start.tolist() == [0, 0, 1, 1, 1]
        assert allotment.bucket_of([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1]).tolist() == [
            0, 2, 3, 2, 1, 3,
        ]  # fmt: skip

    def test_three_sizes(self) -> None:
        setting = BucketSetting.of([1, 2, 3], [1, 1, 1])
        allotment = round_robin([[1, 0, 1], [0, 2, 2]], setting)
        assert allotment.bucket_of([0, 0, 1, 1, 1, 1], [0, 1, 0, 1, 2, 3]).tolist() == [
            0, 2, 1, 1, 2, 2,
        ]  # fmt: skip

    def test_values_without_records_have_no_entry(self) -> None:
        allotment = round_robin([[0], [2], [0]], BucketSetting.of([2], [1]))
        assert allotment.value.tolist() == [1]

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

    def test_empty(self) -> None:
        allotment = round_robin(np.empty((0, 0), dtype=np.int64), BucketSetting.of([], []))
        assert allotment.bucket_of([], []).tolist() == []
