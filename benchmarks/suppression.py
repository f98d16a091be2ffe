"""Pattern-guided suppression: [PG] Tables 1 to 4 and 6 to 8, and a table of 1,000,000 rows.

Data are looked for in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import psycopg

from benchmarks.harness import REST, peak_memory, private_server, seconds, table, timed
from benchmarks.publication import make_census
from kanon_db.algorithms.generalization.mondrian import mondrian
from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.algorithms.ground.computation import Pulse
from kanon_db.algorithms.recoding.microdata import Attribute, Microdata
from kanon_db.algorithms.suppression.greedy_suppression import greedy
from kanon_db.algorithms.suppression.optimal_suppression import optimal
from kanon_db.algorithms.suppression.pattern_vectors import all_patterns, expand_rules
from kanon_db.metrics.information_loss import (
    RowTypeDiversity,
    output_row_types,
    usefulness_loss,
)

DATA = Path(os.environ.get("KANON_SHARED", Path(__file__).resolve().parents[2] / "shared"), "data")
KS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 25, 50, 75, 100)
ADULT2 = (
    "age", "workclass", "education", "marital-status", "occupation", "race", "sex",
    "native-country", "salary-class",
)  # fmt: skip
ADULT2_RULES: list[dict[str, object]] = [
    {"at_most": 2},
    {"never": ["education", "salary-class"]},
    {"together": ["workclass", "occupation"]},
    {"at_most": 1, "of": ["age", "sex", "race"]},
    {"outliers": "suppress"},
]
PAGE_KS = (2, 10, 100)  # the others are printed only
TIME_LIMIT = 300
# Columns that are left out, numeric ones, and usefulness by the greedy method and by Mondrian, k by
# k, in Tables 1 to 4.
BESIDE_MONDRIAN: dict[str, tuple[str, str, str, tuple[float, ...], tuple[float, ...]]] = {
    "Adult": (
        "adult_full", "fnlwgt", "age education-num capital-gain capital-loss hours-per-week",
        (2.062, 2.290, 2.470, 2.615, 2.738, 2.851, 2.942, 3.026, 3.106, 3.840, 4.462, 4.873, 5.151),
        (3.505, 3.782, 4.007, 4.191, 4.362, 4.498, 4.622, 4.766, 4.875, 6.009, 6.729, 7.339, 7.805),
    ),
    "Adult2": (
        "adult_full",
        "fnlwgt education-num relationship capital-gain capital-loss hours-per-week", "age",
        (1.760, 1.872, 1.962, 2.037, 2.099, 2.161, 2.212, 2.260, 2.302, 2.722, 3.094, 3.312, 3.434),
        (1.885, 1.992, 2.074, 2.142, 2.201, 2.257, 2.291, 2.325, 2.366, 2.724, 3.070, 3.385, 3.573),
    ),
    "Nursery": (
        "nursery", "class", "",
        (3.200, 3.200, 3.283, 3.333, 3.867, 3.867, 3.867, 3.867, 3.950, 4.533, 4.750, 4.833, 5.283),
        (2.776, 3.057, 3.072, 3.338, 3.338, 3.396, 3.396, 3.607, 3.607, 4.091, 4.493, 4.720, 4.861),
    ),
    "CMC": (
        "cmc", "", "",
        (3.274, 3.508, 3.735, 3.934, 4.115, 4.219, 4.410, 4.500, 4.545, 5.641, 6.319, 6.926, 7.271),
        (3.469, 3.814, 4.139, 4.331, 4.538, 4.724, 4.913, 5.023, 5.178, 6.434, 7.272, 7.836, 7.981),
    ),
}  # fmt: skip
# Suppressions and seconds of the ILP in Tables 6 to 8; Table 6 prints 12,690 for 12,960.
PAPER_NURSERY = (*(12_960,) * 4, *(25_920,) * 5, *(38_880,) * 3, 51_840)
PAPER_NURSERY_S = (62.859, 62.627, 61.097, 60.543, 60.812, 47.496, 59.188, 59.717, 59.334, 56.221,
                   49.699, 45.728, 44.085)  # fmt: skip
PAPER_CMC = (2932, 5216, 7024, 8065, 9012, 9751, 10254, 11051, 11462, 13722, 14314, 14730, 14730)
PAPER_CMC_S = (2.205, 3.668, 2.240, 3.939, 1.655, 1.479, 1.454, 1.269, 1.364, 1.106, 1.174, 1.169,
               1.146)  # fmt: skip
PAPER_ADULT2 = (29056, 43887, 54162, 61701, 68278, 74160, 79109, 84065, 88026, 125233, 161083,
                185870, 197421)  # fmt: skip
PAPER_ADULT2_S = (19.91, 41.36, 53.13, 163.9, 183.1, 322.7, 110.3, 68.58, 52.39, 18.43, 7.067,
                  6.179, 6.552)  # fmt: skip


def main() -> str:
    """Return the results as Markdown."""
    beside_mondrian, all_of_it = _beside_mondrian()
    parts = [_exact(), beside_mondrian, REST, all_of_it]
    with private_server() as dsn:
        make_census(dsn)
        parts.append(_at_scale(dsn))
    return "\n".join(parts)


def read(file: str, left_out: str) -> pd.DataFrame:
    """Read a table, where ``?`` is an ordinary value."""
    frame = pd.read_csv(DATA / f"{file}.csv.gz", keep_default_na=False)
    return frame.drop(columns=left_out.split())


def codes_of(frame: pd.DataFrame) -> IntArray:
    """Replace the values of each column by their places in sorted order."""
    columns = [np.unique(frame[column], return_inverse=True)[1] for column in frame]
    return np.column_stack(columns).astype(np.int64)


def _exact() -> str:
    nursery, cmc = codes_of(read("nursery", "class")), codes_of(read("cmc", ""))
    adult2 = codes_of(read("adult_full", "")[list(ADULT2)])
    at_most_two: list[dict[str, object]] = [{"at_most": 2}, {"outliers": "suppress"}]
    cases = (
        ("Nursery", nursery, all_patterns(8), PAPER_NURSERY, PAPER_NURSERY_S),
        ("CMC", cmc, expand_rules(at_most_two, [*map(str, range(10))]), PAPER_CMC, PAPER_CMC_S),
        ("Adult2", adult2, expand_rules(ADULT2_RULES, ADULT2), PAPER_ADULT2, PAPER_ADULT2_S),
    )
    rows = []
    for name, codes, patterns, least, paper_seconds in cases:
        for k, paper, time in zip(KS, least, paper_seconds, strict=True):
            best, taken = timed(partial(optimal, codes, patterns, k, pulse=Pulse(TIME_LIMIT)))
            rows.append(
                [name, k, f"{greedy(codes, patterns, k).n_suppressed:,}",
                 f"{float(best.proof.objective):,.0f}", f"{paper:,}",
                 "proven" if best.proof.is_optimal else f"gap {100 * best.proof.gap:.2f} %",
                 f"{taken:.1f} s", f"{time:.1f} s"]
            )  # fmt: skip
    return (
        "Suppressed cells in [PG] Tables 6 to 8: by `greedy`, by `optimal`, and by the paper's "
        f"program. Nursery with all {2**8} patterns, CMC with at most two stars, Adult2 (32,561 "
        "records) with the 15 patterns of the paper's rules. Ours is on one thread, in seconds of "
        "processors; the paper's CPLEX had four cores. It stopped at its default gap.\n\n"
        + table(["table", "k", "greedy", "optimal", "paper", "", "time", "paper's time"], rows)
    )


def _beside_mondrian() -> tuple[str, str]:
    """Tell what a page needs, and all figures."""
    rows, n_equal = [], 0
    for name, (file, left_out, named, *printed) in BESIDE_MONDRIAN.items():
        frame, numeric = read(file, left_out), named.split()
        codes, patterns = codes_of(frame), all_patterns(len(frame.columns))
        values = {list(frame).index(column): frame[column].to_numpy() for column in numeric}
        data = _microdata(frame, codes, numeric)
        for k, paper_greedy, paper_mondrian in zip(KS, *printed, strict=True):
            found, taken = timed(partial(greedy, codes, patterns, k))
            cut, also_taken = timed(partial(mondrian, data, k))
            suppressed, classes = found.suppressed, cut.class_of_record
            types = output_row_types(codes, suppressed)
            sizes = np.bincount(classes)
            usefulness = usefulness_loss(codes, suppressed, values)
            n_equal += round(usefulness, 3) == paper_greedy
            rows.append(
                [name, k, f"{usefulness:.3f}", f"{paper_greedy:.3f}",
                 f"{_usefulness_of_classes(codes, classes, values):.3f}",
                 f"{paper_mondrian:.3f}", f"{types.number:,}", f"{sizes.size:,}",
                 types.largest_size, sizes.max(), f"{taken:.2f} s", f"{also_taken:.2f} s"]
            )  # fmt: skip
    heading = ["table", "k", "greedy", "paper", "Mondrian", "paper", "row types", "classes",
               "largest", "largest", "time", "time"]  # fmt: skip
    return (
        "[PG] Tables 1 to 4: the usefulness (lower is better) of `greedy` with all patterns, which "
        f"is the paper's to three digits in {n_equal} of its {len(rows)} cases, and of Mondrian, "
        "where the paper's is another program with ranges of its own; row types and classes, the "
        "largest of each, and seconds of processors.\n\n"
        + table(heading, [row for row in rows if row[1] in PAGE_KS]),
        table(heading, rows),
    )


def _microdata(frame: pd.DataFrame, codes: IntArray, numeric: Sequence[str]) -> Microdata:
    attributes = []
    for column in frame:
        values = np.unique(frame[column])
        if column in numeric:
            numbers = values.astype(np.float64)
            attributes.append(Attribute(values.size, numbers, numbers[0], numbers[-1]))
        else:
            attributes.append(Attribute(values.size))
    return Microdata(codes.astype(np.int32), tuple(attributes))


def _usefulness_of_classes(
    codes: IntArray, classes: IntArray, values: Mapping[int, FloatArray]
) -> float:
    diversity = RowTypeDiversity(classes)
    total = sum(
        diversity.of_numbers(np.asarray(values[position], dtype=np.float64))
        if position in values
        else diversity.of_categories(column)
        for position, column in enumerate(codes.T)
    )
    return total / diversity.n_row_types


def _at_scale(dsn: str) -> str:
    """Compare publishing with a copy, and the search in numpy with one in SQL."""
    with psycopg.connect(dsn, autocommit=True) as connection:

        def shuffled_copy() -> None:
            connection.execute("DROP TABLE IF EXISTS shuffled")
            connection.execute("CREATE TABLE shuffled AS SELECT * FROM census ORDER BY random()")

        floor = seconds(shuffled_copy, runs=3)
        quasi_identifiers = connection.execute(
            "SELECT quasi_identifiers FROM kanon.source"
        ).fetchone()[0]  # type: ignore[index]
        names = ", ".join(quasi_identifiers)
        ranks = ", ".join(f"dense_rank() OVER (ORDER BY {name})" for name in quasi_identifiers)
        rows = connection.execute(f"SELECT {ranks} FROM census").fetchall()
        codes = np.array(rows, dtype=np.int64)
        patterns = all_patterns(len(quasi_identifiers))

        def search_in_sql() -> None:
            connection.execute("DROP TABLE IF EXISTS left_over")
            connection.execute(
                f"CREATE TEMP TABLE left_over AS SELECT {names}, count(*) AS n FROM census"
                f" GROUP BY {names}"
            )
            for kept in ~patterns.stars:
                key = ", ".join(np.array(quasi_identifiers)[kept])
                over = f"(PARTITION BY {key})" if key else "()"
                connection.execute(
                    f"CREATE TEMP TABLE next AS SELECT {names}, n FROM"
                    f" (SELECT *, sum(n) OVER {over} AS s FROM left_over) AS x WHERE s < 5"
                )
                connection.execute("DROP TABLE left_over")
                connection.execute("ALTER TABLE next RENAME TO left_over")

        in_numpy = seconds(lambda: greedy(codes, patterns, 5), runs=3)
        in_sql = seconds(search_in_sql, runs=1)
    with psycopg.connect(dsn, autocommit=True) as connection:

        def publish() -> None:
            connection.execute(
                "SELECT * FROM kanon.publish_suppressed('public.census', 'census_p', k => 5,"
                " replace => true)"
            )

        taken = seconds(publish, runs=3)
        memory = peak_memory(connection.info.backend_pid)
    return table(
        [f"{len(codes):,} records, 7 quasi-identifiers, all {len(patterns)} patterns, k = 5",
         "time", "ratio"],
        [
            ["`CREATE TABLE … AS SELECT … ORDER BY random()`", f"{floor:.2f} s", "1"],
            ["the greedy search on codes, in numpy", f"{in_numpy:.2f} s",
             f"{in_numpy / floor:.1f}"],
            ["the same search in SQL, a window of row types for each pattern", f"{in_sql:.2f} s",
             f"{in_sql / floor:.1f}"],
            ["`publish_suppressed`, whole, verified", f"{taken:.2f} s", f"{taken / floor:.1f}"],
            ["peak memory of the backend, shared buffers included", f"{memory:.0f} MB", ""],
        ],
    )  # fmt: skip
