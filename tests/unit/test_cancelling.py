"""Every search ends where its heartbeat raises, soon, and leaves no thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms import bucketization, freeform, generalization, suppression
from kanon_db.algorithms.attacks import BucketValues, model_weights
from kanon_db.algorithms.bucketization.bucket_assignment import transport
from kanon_db.algorithms.bucketization.multi_size import multi_size, optimal
from kanon_db.algorithms.freeform.improvement import ring
from kanon_db.algorithms.freeform.matching_heuristics import greedy, hungarian, sort_greedy
from kanon_db.algorithms.freeform.optimal_graph import min_cost_flow
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.changing_classes import Constraint
from kanon_db.algorithms.recoding.generalized_cells import cells_of_classes
from kanon_db.algorithms.recoding.loss import ExactLoss
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.metrics.count_queries import random_queries
from kanon_db.publications.buckets.bucket_workload import count_errors
from tests.generalization_plain import random_table
from tests.unit.freeform.plain import run

HARD = bucketization.FPrimePrivacy(tuple(Fraction(i, 40) for i in (3, 4, 5, 6, 7, 9, 12, 16)))
HARD_COUNTS = [40, 53, 99, 101, 135, 202, 233, 477]
ROWS = np.random.default_rng(11).integers(0, 4, size=(60, 5))
CODES = np.random.default_rng(1).integers(0, 12, size=(20_000, 3)).astype(np.int32)
VALUES = CODES[:, 0] // 3
SAT = BucketValues.of(np.arange(20_000) // 5, VALUES, 4)
TABLE = random_table(np.random.default_rng(7), 70, "n0cn", 6)
MANY = random_table(np.random.default_rng(7), 20_000, "n0cn", 60)
FEW = random_table(np.random.default_rng(2), 9, "n0c", 4)
DIGITS = Attribute(3_000, np.random.default_rng(3).random(3_000), 0.0, 1.0)

SEARCHES: dict[str, Callable[[Pulse], object]] = {
    "two sizes": lambda pulse: bucketization.two_size(HARD_COUNTS, HARD, 400, pulse=pulse),
    "several sizes": lambda pulse: multi_size(HARD_COUNTS, HARD, 40, pulse=pulse),
    "the best sizes": lambda pulse: optimal(HARD_COUNTS, HARD, 40, pulse=pulse),
    "a transportation problem": lambda pulse: transport(
        np.arange(9), np.arange(9), np.full((9, 9), 9), pulse=pulse
    ),
    "learners": lambda pulse: model_weights(
        CODES, np.arange(20_000) // 5, SAT, 4, [np.random.default_rng(0)], pulse
    ),
    "split and carry": lambda pulse: generalization.split_carry(TABLE, 3, pulse=pulse),
    "patterns": lambda pulse: suppression.greedy(ROWS, suppression.all_patterns(5), 4, pulse=pulse),
    "the best patterns": lambda pulse: suppression.optimal(
        ROWS, suppression.all_patterns(5), 4, pulse=pulse
    ),
    "rows in blocks": lambda pulse: generalization.greedy_search(
        TABLE, 3, block_size=4, pulse=pulse
    ),
    "k-member": lambda pulse: generalization.k_member(
        TABLE, 2, random=np.random.default_rng(1), pulse=pulse
    ),
    "strict cuts": lambda pulse: generalization.mondrian(MANY, 2, pulse=pulse),
    "relaxed cuts": lambda pulse: generalization.mondrian(MANY, 2, cut="relaxed", pulse=pulse),
    "the best classes": lambda pulse: generalization.optimal(TABLE, 5, pulse=pulse),
    "losses of numbers with many digits": lambda pulse: ExactLoss.of(
        Microdata(np.arange(3_000)[:, np.newaxis], (DIGITS,)), "ncp", pulse=pulse
    ),
    "classes of numbers with many digits": lambda pulse: generalization.mondrian(
        Microdata(np.arange(3_000)[:, np.newaxis], (DIGITS,)), 3_000, pulse=pulse
    ),
    "refined classes": lambda pulse: generalization.refine(
        TABLE, np.arange(70) // 7, 3, random=np.random.default_rng(0), pulse=pulse
    ),
    "suppressed records": lambda pulse: generalization.suppress(
        TABLE, np.arange(70) // 7, 4, Fraction(1, 2), pulse=pulse
    ),
    "united classes": lambda pulse: generalization.enforce(
        TABLE, np.arange(70) // 7, 5, Constraint(np.arange(70) // 18, 4, l=2), pulse=pulse
    ),
    **{
        f"matches: {method.__name__}": lambda pulse, method=method: run(
            method, TABLE, 3, pulse=pulse
        )
        for method in (greedy, sort_greedy, hungarian, ring, min_cost_flow)
    },
    "the best matches": lambda pulse: freeform.optimal(FEW, 3, pulse=pulse),
    **{
        f"cells of {name}": lambda pulse, attribute=attribute: cells_of_classes(
            Microdata([[0] * 5, [1] * 5], (attribute,) * 5), np.array([0, 0]), pulse
        )
        for name, attribute in (
            ("labels", Attribute(2)), ("numbers", Attribute(2, np.array([0.0, 1.0]), 0.0, 1.0)),
        )
    },
    "questions": lambda pulse: random_queries(
        9, [90_000] * 3, 90_000, np.random.default_rng(0), dimensionality=[2], selectivity=[0.1],
        pulse=pulse,
    ),
    "answers": lambda pulse: count_errors(
        VALUES, CODES, VALUES,
        random_queries(200, [12] * 3, 4, np.random.default_rng(0), dimensionality=[1],
                       selectivity=[0.5]),
        pulse=pulse,
    ),
}  # fmt: skip


class Stopped(BaseException):
    """Neither an Exception nor anything that a search could wait for."""


@pytest.mark.parametrize("search", SEARCHES)
def test_a_heartbeat_that_raises_ends_it(search: str) -> None:
    for most in (1, 3):
        beats = 0

        def beat(most: int = most) -> None:
            nonlocal beats
            beats += 1
            if beats == most:
                raise Stopped

        before = threading.active_count()
        with pytest.raises(Stopped):
            SEARCHES[search](Pulse(heartbeat=beat))
        assert beats == most
        assert threading.active_count() == before
