"""What the papers' programs state: their variables and constraints, by the papers' numbers."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from kanon_db.algorithms import freeform, suppression
from kanon_db.algorithms.bucketization import FPrimePrivacy
from kanon_db.algorithms.bucketization.multi_size import optimal as optimal_setting
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.programs import (
    PaperProgram,
    bucket_program,
    class_program,
    graph_program,
    pattern_program,
)
from kanon_db.algorithms.recoding import Attribute, Microdata
from kanon_db.errors import InfeasibleError, InvalidParameterError
from tests.generalization_plain import random_table


def stated(program: PaperProgram) -> dict[str, int]:
    """How many constraints there are of each number."""
    names = (constraint.name for constraint in program.problem.constraints())
    numbers = Counter(name.split("_")[0] for name in names)
    return dict(sorted(numbers.items(), key=lambda pair: int(pair[0])))


def written(program: PaperProgram, name: str) -> str:
    """A constraint as PuLP writes it, a whole number on its right without a decimal point."""
    text = str(program.problem.get_constraint_by_name(name))
    return text.removesuffix(".0").replace("= -0", "= 0")


def test_the_program_of_buckets() -> None:
    # 3 values, and the sizes 2, 3 and 4.
    program = bucket_program([2, 3, 4], [Fraction(29, 100), Fraction(1, 2), Fraction(1)], 2, 4)
    assert stated(program) == {"1": 3, "2": 3, "3": 9, "4": 1}
    assert {letter: len(found) for letter, found in program.variables.items()} == {"b": 3, "v": 9}
    assert str(program.problem.objective) == "b_0 + 4*b_1 + 9*b_2"
    assert written(program, "1_1") == "v_1_0 + v_1_1 + v_1_2 = 3"
    assert written(program, "2_1") == "-3*b_1 + v_0_1 + v_1_1 + v_2_1 = 0"
    assert written(program, "3_1_2") == "-2*b_2 + v_1_2 <= 0"  # floor(4 / 2)
    assert written(program, "3_0_2") == "-b_2 + v_0_2 <= 0"  # floor(4 * 0.29)
    assert written(program, "4") == "2*b_0 + 3*b_1 + 4*b_2 = 9"
    assert all(one.cat == "Integer" for one in program.problem.variables())


@pytest.fixture
def patients() -> Microdata:
    """Three records with an age between 0 and 100, a height that is not whole, and a town."""
    age = Attribute(3, np.array([30.0, 40.0, 60.0]), 0, 100)
    height = Attribute(3, np.array([1.5, 1.6, 2.0]), 1.5, 2.5, weight=2.0)
    return Microdata([[0, 2, 0], [1, 1, 2], [2, 0, 0]], (age, height, Attribute(4)))


def test_the_program_of_classes(patients: Microdata) -> None:
    program = class_program(patients, 2, loss="binary")
    # Two numbers and two towns, the two others being nobody's; three pairs.
    assert stated(program) == {"22": 12, "23": 12, "24": 12, "25": 12, "26": 3}
    assert written(program, "22_0_1_0") == "40*v_0_1 + y_0_0 - y_1_0 <= 40"  # (29)
    assert written(program, "23_0_1_0") == "-40*v_0_1 + y_0_0 - y_1_0 >= -40"  # (30)
    assert written(program, "24_0_1_0") == "70*v_0_1 + z_0_0 - z_1_0 <= 70"  # (31)
    assert written(program, "25_0_1_0") == "-70*v_0_1 + z_0_0 - z_1_0 >= -70"  # (32)
    assert written(program, "26_1") == "v_0_1 + v_1_2 >= 1"
    losses = dict(program.problem.objective.items())
    variables = program.variables
    assert losses[variables["z"][0, 0]] == pytest.approx(1 / 100)
    assert losses[variables["y"][0, 0]] == pytest.approx(-1 / 100)
    assert losses[variables["z"][0, 1]] == pytest.approx(2)  # weighted, of a range of 1
    assert losses[variables["z"][0, 2]] == pytest.approx(1 / 4)  # 1 / |H|
    assert (variables["y"][1, 0].lowBound, variables["y"][1, 0].upBound) == (0, 40)
    assert (variables["z"][1, 0].lowBound, variables["z"][1, 0].upBound) == (40, 100)
    # Ages are whole numbers: (27). Heights are not: (28).
    assert (variables["y"][1, 0].cat, variables["y"][1, 1].cat) == ("Integer", "Continuous")


def test_the_program_of_graphs(patients: Microdata) -> None:
    program = graph_program(patients, 2)
    assert stated(program) == {"4": 18, "5": 6, "6": 18, "7": 6, "8": 18, "9": 6, "10": 6}
    assert written(program, "4_0_2_0") == "u_0_0 - 30*x_2_0 >= 30"
    assert written(program, "5_0_0") == "u_0_0 >= 30"
    assert written(program, "6_1_0_0") == "l_1_0 + 10*x_0_1 <= 40"
    assert written(program, "7_1_0") == "l_1_0 <= 40"
    assert written(program, "8_0_1_2_2") == "h_0_2_2 - x_1_0 >= 0"
    assert written(program, "9_0_2_0") == "h_0_2_0 >= 1"
    assert written(program, "10_of_original_0") == "x_0_0 + x_0_1 + x_0_2 = 2"
    assert written(program, "10_of_record_0") == "x_0_0 + x_1_0 + x_2_0 = 2"
    losses = dict(program.problem.objective.items())
    assert losses[program.variables["h"][0, 2, 0]] == pytest.approx(1 / 3)  # 1 / (|A_j| - 1)
    assert losses[program.variables["l"][0, 0]] == pytest.approx(-1 / 100)
    assert program.problem.objective.constant == pytest.approx(-1)


def test_the_program_of_patterns() -> None:
    rows = np.array([[0, 0], [0, 1], [1, 0]])
    stars = np.array([[False, False], [False, True], [True, True]])
    program = pattern_program(rows, [4, 1, 2], stars, [0, 1, 2], 3)
    # 3, 2 and 1 instances.
    assert stated(program) == {"6": 6, "7": 6, "8": 3}
    assert str(program.problem.objective) == "x_0_1 + 2*x_0_2 + x_1_1 + 2*x_1_2 + x_2_1 + 2*x_2_2"
    assert written(program, "6_1_0") == "-7*u_1_0 + x_0_1 + x_1_1 <= 0"
    assert written(program, "7_1_0") == "-3*u_1_0 + x_0_1 + x_1_1 >= 0"
    assert written(program, "8_0") == "x_0_0 + x_0_1 + x_0_2 = 4"


def test_unknown_formulations_are_refused(patients: Microdata) -> None:
    for refused in (
        lambda: optimal_setting([1], FPrimePrivacy((Fraction(1),)), 4, formulation="x"),  # type: ignore[arg-type]
        lambda: freeform.optimal(patients, 2, formulation="x"),  # type: ignore[arg-type]
        lambda: suppression.optimal([[0]], suppression.all_patterns(1), 1, formulation="x"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidParameterError, match="unknown formulation"):
            refused()
    with pytest.raises(InvalidParameterError, match="cannot be combined with symmetric"):
        freeform.optimal(patients, 2, formulation="paper", symmetric=True)


def test_out_of_time() -> None:
    counts, thresholds = [40, 53, 99, 101], FPrimePrivacy((Fraction(3, 8),) * 4)
    best = optimal_setting(counts, thresholds, 12)
    found = optimal_setting(counts, thresholds, 12, formulation="paper", pulse=Pulse(1e-9))
    assert found.proof.lower_bound <= best.proof.objective <= found.proof.objective
    table = random_table(np.random.default_rng(3), 9, "nnc", 5)
    graph = freeform.optimal(table, 3, formulation="paper", pulse=Pulse(1e-9))
    least = freeform.optimal(table, 3).proof.objective
    assert graph.proof.lower_bound <= least <= graph.proof.objective
    rows = np.random.default_rng(11).integers(0, 4, size=(60, 5))
    with pytest.raises(InfeasibleError, match="within the time limit"):
        suppression.optimal(
            rows, suppression.all_patterns(5), 4, formulation="paper", pulse=Pulse(1e-9)
        )


@pytest.mark.parametrize("seed", range(3))
def test_numbers_that_solvers_could_not_tell_apart(seed: int) -> None:
    """Times in microseconds are measured in units of their range."""
    random = np.random.default_rng(seed)
    start = 1.6e15
    numbers = np.sort(start + random.integers(0, 10**9, size=6))
    table = Microdata(np.arange(6)[:, np.newaxis], (Attribute(6, numbers, start, start + 1e9),))
    best = freeform.optimal(table, 2)
    found = freeform.optimal(table, 2, formulation="paper")
    assert found.proof.objective == best.proof.objective
