from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.generalization.greedy_classes import initial
from kanon_db.algorithms.generalization.optimal_classes import optimal, split_carry
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.microdata import Microdata
from kanon_db.errors import InvalidParameterError
from tests.generalization_plain import assert_valid, random_table, total_loss


@pytest.fixture(scope="module")
def records() -> Microdata:
    return random_table(np.random.default_rng(10), 70, "n0cn", 6)


def test_one_sub_problem_is_the_whole_problem() -> None:
    microdata = random_table(np.random.default_rng(11), 16, "nc", 5)
    whole = optimal(microdata, 3).proof.objective
    for options in ({"s": 5}, {"s": 9}, {"bubble": (16, 1)}, {"bubble": (15, 1)}):
        found = split_carry(microdata, 3, **options)  # type: ignore[arg-type]
        assert found.sizes.tolist() == [16]
        assert total_loss(microdata, found.class_of_record) == whole


@pytest.mark.parametrize(("k", "s", "carry"), [(2, 3, 2), (3, 2, 3), (3, 3, 1), (3, 1, 7)])
def test_sizes_of_sub_problems(records: Microdata, k: int, s: int, carry: int) -> None:
    sizes = split_carry(records, k, s=s, carry=carry).sizes
    n_groups = 70 // k
    assert sizes.size == -(-n_groups // s)
    assert sizes[0] == k * s
    # Lemma 2, with l in place of k, and what is left over in the last sub-problem.
    assert sizes[:-1].max() <= carry * (2 * k - 1) + k * s
    assert sizes[-1] <= carry * (2 * k - 1) + k * (s + 1) - 1


def test_sub_problems_of_bubble_carry_have_one_size(records: Microdata) -> None:
    sizes = split_carry(records, 3, bubble=(13, 1)).sizes
    assert set(sizes[:-1].tolist()) == {13}
    assert 3 <= sizes[-1] <= 13 + 3 - 1


def test_bubble_carry_leaves_no_record_without_a_class() -> None:
    for n_records in range(6, 16):
        microdata = random_table(np.random.default_rng(n_records), n_records, "nn", 5)
        for n_accepted in (1, 9):
            found = split_carry(microdata, 3, bubble=(7, n_accepted))
            assert_valid(found.class_of_record, n_records, 3)


def test_no_time(records: Microdata) -> None:
    found = split_carry(records, 5, pulse=Pulse(1e-9))
    assert_valid(found.class_of_record, 70, 5)
    first = total_loss(records, initial(records, 5).class_of_record)
    assert total_loss(records, found.class_of_record) <= first


def test_cut_short() -> None:
    microdata = random_table(np.random.default_rng(12), 60, "nncccc", 12)
    found = split_carry(microdata, 6, s=5, pulse=Pulse(1e-9))
    assert found.n_cut_short > 0
    assert_valid(found.class_of_record, 60, 6)


def test_refusals(records: Microdata) -> None:
    for options in ({"s": 0}, {"carry": 0}):
        with pytest.raises(InvalidParameterError, match="s and carry"):
            split_carry(records, 3, **options)  # type: ignore[arg-type]
    many = random_table(np.random.default_rng(1), 1001, "nn", 99)
    with pytest.raises(InvalidParameterError, match="too many records for an exact search"):
        split_carry(many, 2, s=501)
    for bubble in ((5, 1), (12, 0)):
        with pytest.raises(InvalidParameterError, match="bubble"):
            split_carry(records, 3, bubble=bubble)
