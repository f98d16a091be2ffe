"""Suppression against golden/suppress_*.json and the tables printed in [PG]."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import psycopg
import pytest

import kanon_db
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.suppression.greedy_suppression import Suppression, greedy
from kanon_db.algorithms.suppression.optimal_suppression import optimal
from kanon_db.algorithms.suppression.pattern_vectors import (
    PatternSet,
    all_patterns,
    expand_rules,
    parse_patterns,
)
from kanon_db.metrics.information_loss import output_row_types, usefulness_loss
from tests.profiles import long_but

Golden = Callable[[str], Any]

ADULT2_RULES: list[dict[str, object]] = [
    {"at_most": 2},
    {"never": ["education", "salary-class"]},
    {"together": ["workclass", "occupation"]},
    {"at_most": 1, "of": ["age", "sex", "race"]},
    {"outliers": "suppress"},
]
# The order of equal costs is not told in the paper; this one, found by search, gives its Table 8.
ADULT2_ORDER = (
    "......... .......*. ...*..... *........ .....*... ......*.. ...*...*. .*..*.... *......*. "
    "*..*..... ...*..*.. ...*.*... .....*.*. ......**. *********"
).split()

TABLE_1 = {2: (14589, 16), 10: (2559, 56), 100: (274, 317)}  # k: #h, h_max
# k: s, u, #h, h_max
TABLE_7 = {
    2: (4112, 3.18, 533, 249), 3: (6564, 3.42, 264, 501), 4: (8252, 3.57, 153, 696),
    5: (8952, 3.69, 109, 771), 6: (9821, 3.76, 78, 874), 7: (10339, 3.84, 61, 935),
    8: (10878, 3.95, 47, 998), 9: (11486, 4.06, 32, 1074), 10: (11678, 4.08, 28, 1098),
    25: (13722, 5.69, 4, 1347), 50: (14314, 7.12, 2, 1421), 75: (14730, 10.0, 1, 1473),
    100: (14730, 10.0, 1, 1473),
}  # fmt: skip
TABLE_7_ILP = {
    2: 2932, 3: 5216, 4: 7024, 5: 8065, 6: 9012, 7: 9751, 8: 10254, 9: 11051, 10: 11462,
    25: 13722, 50: 14314, 75: 14730, 100: 14730,
}  # fmt: skip
TABLE_8 = {
    2: (38312, 1.73, 9214, 2356), 3: (55749, 1.81, 5313, 3896), 4: (67618, 1.87, 3676, 5077),
    5: (76363, 1.91, 2777, 5967), 6: (83598, 1.95, 2214, 6736), 7: (89501, 1.99, 1849, 7346),
    8: (94086, 2.02, 1581, 7801), 9: (98999, 2.04, 1360, 8333), 10: (103624, 2.07, 1194, 8863),
    25: (141697, 2.31, 395, 13237), 50: (173947, 2.53, 164, 17110), 75: (196218, 2.57, 97, 20040),
    100: (207417, 2.57, 73, 21465),
}  # fmt: skip
TABLE_8_ILP = {50: 161083, 75: 185870, 100: 197421}
ADULT2_OPTIMA = {
    2: 29056, 3: 43886, 4: 54161, 5: 61701, 6: 68278, 7: 74160, 8: 79109, 9: 84063, 10: 88026,
    25: 125231, 50: 161081, 75: 185870, 100: 197421,
}  # fmt: skip
"""Proven within half a minute each; of some, the paper has two more, or one."""


class Table(NamedTuple):
    frame: pd.DataFrame
    codes: np.ndarray[Any, np.dtype[np.int64]]

    @classmethod
    def read(cls, shared: Path, file: str, columns: list[str] | None = None) -> Table:
        # "?" is an ordinary value.
        frame = pd.read_csv(shared / "data" / file, keep_default_na=False)
        frame = frame[columns] if columns else frame
        codes = [pd.factorize(frame[column])[0] for column in frame]
        return cls(frame, np.column_stack(codes).astype(np.int64))

    def numeric(self, *columns: str) -> dict[int, Any]:
        return {list(self.frame).index(name): self.frame[name].to_numpy() for name in columns}


@pytest.fixture(scope="module")
def nursery(shared: Path) -> Table:
    table = Table.read(shared, "nursery.csv.gz")
    return Table(table.frame.iloc[:, :8], table.codes[:, :8])


@pytest.fixture(scope="module")
def cmc(shared: Path) -> Table:
    return Table.read(shared, "cmc.csv.gz")


@pytest.fixture(scope="module")
def adult2(shared: Path, golden: Golden) -> Table:
    return Table.read(shared, "adult_full.csv.gz", golden("suppress_real")["adult2_columns"])


def cmc_patterns() -> PatternSet:
    """At most two stars, or all; of equal cost, counting with the last column most significant."""
    masks = [mask for mask in range(2**10) if mask.bit_count() <= 2] + [2**10 - 1]
    return parse_patterns(
        [f"{mask:010b}"[::-1].replace("0", ".").replace("1", "*") for mask in masks], 10
    )


def measured(table: Table, found: Suppression, *numeric: str) -> tuple[float, ...]:
    rows = output_row_types(table.codes, found.suppressed)
    usefulness = usefulness_loss(table.codes, found.suppressed, table.numeric(*numeric))
    return found.n_suppressed, usefulness, rows.number, rows.largest_size


def test_nursery(golden: Golden, nursery: Table) -> None:
    expected = golden("suppress_nursery")
    patterns = all_patterns(8)
    for row in expected["rows"]:
        found = greedy(nursery.codes, patterns, row["k"])
        values = measured(nursery, found)
        assert values == pytest.approx((row["s"], row["u"], row["h"], row["h_max"]), rel=1e-12)
        rows = output_row_types(nursery.codes, found.suppressed)
        assert (rows.average_size, rows.smallest_size) == (row["h_avg"], row["h_min"])
        used = np.unique(found.pattern_of_record[found.pattern_of_record >= 0])
        assert [patterns.texts[i] for i in used] == row["patterns_used"]
        u, number, average, largest = expected["paper_table3"][str(row["k"])]
        assert (round(values[1], 3), rows.number, rows.average_size, rows.largest_size) == (
            u, number, average, largest,
        )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("k", long_but([4, 50], (2, 4, 5, 6, 10, 25, 50, 75, 100)))
def test_nursery_optimal(golden: Golden, nursery: Table, k: int) -> None:
    (cost,) = (row["s"] for row in golden("suppress_nursery")["rows"] if row["k"] == k)
    found = optimal(nursery.codes, all_patterns(8), k)
    assert (found.proof.status, found.suppression.n_suppressed) == ("optimal", cost)
    assert output_row_types(nursery.codes, found.suppression.suppressed).smallest_size >= k


@pytest.mark.long
def test_nursery_through_the_database(golden: Golden, shared: Path, module_database: str) -> None:
    """Metrics of the published views are the paper's figures."""
    with kanon_db.connect(module_database) as kanon:
        kanon.load(shared / "data" / "nursery.csv.gz", "nursery")
        with psycopg.connect(module_database) as connection:
            named = connection.execute("SELECT * FROM nursery LIMIT 0").description
        assert named is not None
        columns = [column.name for column in named]
        kanon.register_source(
            "nursery", quasi_identifiers=columns[:8], sensitive="class",
            attributes=json.dumps({name: {"kind": "categorical"} for name in columns[:8]}),
        )  # fmt: skip
        for row in golden("suppress_nursery")["rows"][::4]:
            # Listed, so that of two that cost the same, the first one is taken, as by the paper.
            published = kanon.publish_suppressed(
                "nursery", "nursery_p", k=row["k"], patterns=all_patterns(8).texts, replace=True
            )
            found = published.metrics
            assert found["usefulness_loss"] == pytest.approx(row["u"], rel=1e-12)
            assert [
                found[metric]
                for metric in (
                    "suppressed_cells", "classes", "average_class_size", "smallest_class",
                    "largest_class",
                )
            ] == [row[column] for column in ("s", "h", "h_avg", "h_min", "h_max")]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "table", "numeric"), [("cmc_table4", "cmc", []), ("adult2_table2", "adult2", ["age"])]
)
def test_all_patterns_of_real_tables(
    golden: Golden, name: str, table: str, numeric: list[str], request: pytest.FixtureRequest
) -> None:
    data: Table = request.getfixturevalue(table)
    patterns = all_patterns(data.codes.shape[1])
    for row in golden("suppress_real")[name]["rows"]:
        found = greedy(data.codes, patterns, row["k"])
        assert measured(data, found, *numeric) == pytest.approx(
            (row["s"], row["u"], row["h"], row["h_max"]), rel=1e-12
        )
        assert found.n_left_over == row["leftover_rows_fully_suppressed"]
        rows = output_row_types(data.codes, found.suppressed)
        assert rows.smallest_size == row["h_min"]
        assert rows.average_size == pytest.approx(row["h_avg"], rel=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("k", long_but([10], TABLE_1))
def test_all_patterns_of_adult(shared: Path, k: int) -> None:
    table = Table.read(shared, "adult_full.csv.gz")
    # Without the final weight, unique for half of the records.
    codes = np.delete(table.codes, list(table.frame).index("fnlwgt"), axis=1)
    rows = output_row_types(codes, greedy(codes, all_patterns(14), k).suppressed)
    assert (rows.number, rows.largest_size) == TABLE_1[k]


def test_cmc_with_at_most_two_stars(cmc: Table) -> None:
    # For k = 7 the paper prints h_max = 924. With at most two stars in each other row that allows
    # no more than 10 * 924 + 2 * 549 = 10,338 of its 10,339 suppressions.
    for k, expected in TABLE_7.items():
        s, u, number, largest = measured(
            cmc, greedy(cmc.codes, cmc_patterns(), k), "wife_age", "children"
        )
        assert (s, number, largest) == (expected[0], *expected[2:]), k
        assert u == pytest.approx(expected[1], abs=0.0051), k


@pytest.mark.parametrize("k", long_but([4, 25], TABLE_7_ILP))
def test_cmc_optimal(cmc: Table, k: int) -> None:
    found = optimal(cmc.codes, cmc_patterns(), k)
    assert (found.proof.status, found.suppression.n_suppressed) == ("optimal", TABLE_7_ILP[k])
    assert found.proof.lower_bound == found.proof.objective == TABLE_7_ILP[k]
    assert output_row_types(cmc.codes, found.suppression.suppressed).smallest_size >= k


def test_adult2_with_rules(adult2: Table) -> None:
    expanded = expand_rules(ADULT2_RULES, list(adult2.frame.columns))
    assert set(expanded.texts) == set(ADULT2_ORDER)
    patterns = parse_patterns(ADULT2_ORDER, 9)
    for k, expected in TABLE_8.items():
        s, u, number, largest = measured(adult2, greedy(adult2.codes, patterns, k), "age")
        assert (s, number, largest) == (expected[0], *expected[2:]), k
        assert u == pytest.approx(expected[1], abs=0.0051), k


@pytest.mark.long
@pytest.mark.parametrize("k", ADULT2_OPTIMA)
def test_parts_are_solved_to_the_optimum(adult2: Table, k: int) -> None:
    """Each part has the time that it needs: shares by size alone left 38,000 stars of 29,056."""
    found = optimal(adult2.codes, parse_patterns(ADULT2_ORDER, 9), k, pulse=Pulse(300))
    assert (found.suppression.n_suppressed, found.proof.gap) == (ADULT2_OPTIMA[k], 0)


@pytest.mark.parametrize("k", long_but([100], TABLE_8_ILP))
def test_adult2_optimal(adult2: Table, k: int) -> None:
    patterns = expand_rules(ADULT2_RULES, list(adult2.frame.columns))
    found = optimal(adult2.codes, patterns, k, pulse=Pulse(300))
    assert found.proof.status == "optimal"
    # The paper's solver stopped at its default gap.
    assert found.suppression.n_suppressed <= TABLE_8_ILP[k]
    assert output_row_types(adult2.codes, found.suppression.suppressed).smallest_size >= k
