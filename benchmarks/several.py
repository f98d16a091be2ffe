"""Several sensitive attributes: loss and errors beside publications of one, and time.

Run from the root of the repository: ``python -m benchmarks several``. The tables are looked for as
in :mod:`benchmarks.real_tables`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
import psycopg

from benchmarks.cells import SEARCHES, in_cells
from benchmarks.harness import REST, private_server, seconds, table
from benchmarks.publication import N_RECORDS, make_census
from benchmarks.real_tables import (
    DATA,
    MAX_BUCKET_SIZE,
    N_QUERIES,
    SELECTIVITY,
    Microdata,
)
from kanon_db.algorithms.bucketization.bucket_assignment import assign_randomly
from kanon_db.algorithms.bucketization.cell_assignment import assign_jointly_in_cells
from kanon_db.algorithms.bucketization.joint_assignment import (
    JointPlan,
    SensitiveCombinations,
    deal_randomly,
)
from kanon_db.algorithms.bucketization.multi_size import jointly_multi_size, jointly_two_size
from kanon_db.algorithms.bucketization.privacy import FPrimePrivacy, PrivacySpecification
from kanon_db.algorithms.ground.arrays import CodeArray
from kanon_db.metrics.count_queries import random_queries
from kanon_db.publications.buckets.bucket_workload import count_errors

THETA: Final = '{"theta": 8, "base": 0.02}'
DIVERSE: Final = '{"l": 3}'
ADULT: Final = ("adult_30162.csv.gz", "age marital-status race sex native-country")
FARS: Final = ("fars_occupants.csv.gz", "age sex modelyr year airbag inimpact Restraint")
TABLES: Final = (
    (*ADULT, ("occupation", "education"), DIVERSE),
    (*ADULT, ("occupation", "education"), THETA),
    (*ADULT, ("occupation", "education", "workclass"), THETA),
    (*FARS, ("injury", "state"), THETA),
)
RUNS: Final = 3

JOINT: Final[dict[str, Callable[[SensitiveCombinations], JointPlan]]] = {
    "two_size": lambda data: jointly_two_size(data, MAX_BUCKET_SIZE),
    "multi_size": lambda data: jointly_multi_size(data, MAX_BUCKET_SIZE),
}


def main() -> str:
    """Return the results as Markdown."""
    return "\n".join([loss_table(), round_trip()])


class Sensitive(NamedTuple):
    """Records of a table, by the combinations of some sensitive attributes."""

    data: SensitiveCombinations
    codes: CodeArray  # (n_records,): the combination of each record


def _read(columns: list[CodeArray], specification: str) -> Sensitive:
    values, codes, counts = np.unique(
        np.column_stack(columns), axis=0, return_inverse=True, return_counts=True
    )
    privacies = []
    for column in columns:
        its = np.bincount(column)
        labels = [str(i) for i in range(its.size)]
        privacies.append(PrivacySpecification.parse(specification).thresholds(labels, its))
    data = SensitiveCombinations(counts, values.astype(np.int64), tuple(privacies))
    return Sensitive(data, codes.astype(np.int32).ravel())


def _together(
    read: Sensitive, qi_codes: CodeArray, assignment: str, method: str, seed: int
) -> tuple[int, CodeArray]:
    """Return the loss, and the bucket of each record."""
    search, random = JOINT[method], np.random.default_rng(seed)
    if assignment == "random":
        plan = search(read.data)
        return plan.setting.loss, deal_randomly(read.codes, plan, random)
    found = assign_jointly_in_cells(
        qi_codes, read.codes, read.data.values,
        lambda factor: tuple(privacy.tightened(factor) for privacy in read.data.privacies),
        MAX_BUCKET_SIZE, search, random,
    )  # fmt: skip
    return found.setting.loss, found.bucket_of_record


def _alone(
    column: CodeArray, privacy: FPrimePrivacy, qi_codes: CodeArray, assignment: str, method: str,
    seed: int,
) -> tuple[int, CodeArray]:  # fmt: skip
    """Return the same of one attribute."""
    data = Microdata(qi_codes, column, np.bincount(column))
    if assignment == "cells":
        found = in_cells(data, privacy, SEARCHES[method], seed)
        return found.setting.loss, found.bucket_of_record
    setting = SEARCHES[method](data.counts, privacy)
    limits = privacy.occurrence_limits(setting.sizes)
    random = np.random.default_rng(seed)
    return setting.loss, assign_randomly(column, data.counts, limits, setting, random)


def loss_table() -> str:
    """Compare losses, and errors of the same queries on each attribute."""
    rows = []
    for file, known, attributes, specification in TABLES:
        frame = pd.read_csv(DATA / file, keep_default_na=False)

        def codes(column: str, frame: pd.DataFrame = frame) -> CodeArray:
            return np.unique(frame[column], return_inverse=True)[1].astype(np.int32)

        qi_codes = np.column_stack([codes(column) for column in known.split()])
        columns = {name: codes(name) for name in attributes}
        together = _read(list(columns.values()), specification)
        n_codes = (qi_codes.max(axis=0) + 1).tolist()
        for assignment in ("random", "cells"):
            for method in JOINT:
                joint = [
                    _together(together, qi_codes, assignment, method, seed) for seed in range(RUNS)
                ]
                found = {}
                for (name, column), privacy in zip(
                    columns.items(), together.data.privacies, strict=True
                ):
                    queries = random_queries(
                        N_QUERIES, n_codes, int(column.max()) + 1, np.random.default_rng(1),
                        dimensionality=range(1, len(n_codes) + 1), selectivity=[SELECTIVITY],
                    )  # fmt: skip
                    alone = [
                        _alone(column, privacy, qi_codes, assignment, method, seed)
                        for seed in range(RUNS)
                    ]
                    errors = [
                        float(np.median([count_errors(b, qi_codes, column, queries).mean
                                         for _, b in some]))
                        for some in (alone, joint)
                    ]  # fmt: skip
                    found[name] = (alone[0][0], *errors)
                least = max(loss for loss, *_ in found.values())
                rows.append(
                    [
                        ", ".join(attributes), PrivacySpecification.parse(specification).describe(),
                        f"{assignment}, {method}", f"{least:,}",
                        f"{joint[0][0]:,}", f"{joint[0][0] / least:.2f}",
                        ", ".join(f"{both / one:.2f}" for _, one, both in found.values()),
                    ]
                )  # fmt: skip
    heading = [
        "sensitive", "privacy", "buckets", "largest loss alone", "together", "ratio",
        "errors, of those alone",
    ]  # fmt: skip
    return (
        f"Mean relative errors of {N_QUERIES:,} queries (s = {SELECTIVITY}) on quasi-identifiers"
        " and one of the attributes, as ratios to those where it is published alone; medians of"
        f" {RUNS} seeds. The largest optimal loss of an attribute alone is a bound for all of them"
        " together. In cells, a strict attribute also forbids cuts.\n\n"
        + table(heading, [row for row in rows if row[2].endswith("two_size")])
        + REST
        + table(heading, rows)
    )


def round_trip() -> str:
    """Publish 1,000,000 rows with one sensitive attribute and with two."""
    rows = []
    with private_server() as dsn:
        make_census(dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            known = "'{age,workclass,marital_status,race,sex,native_country}'"
            for view, also in (("one", ""), ("two", ", also_sensitive => '{education}'")):
                connection.execute(f"CREATE VIEW {view} AS TABLE census")
                connection.execute(
                    f"SELECT kanon.register_source('public.{view}', {known}, 'occupation'{also})"
                )
            for assignment in ("random", "cells"):
                taken = {}
                for view in ("one", "two"):

                    def publish(view: str = view, assignment: str = assignment) -> None:
                        connection.execute(
                            f"SELECT * FROM kanon.publish_buckets('public.{view}', '{view}_b',"
                            f" assignment => '{assignment}', replace => true,"
                            f" privacy => '{DIVERSE}')"
                        )

                    publish()  # compiles
                    taken[view] = seconds(publish)
                rows.append(
                    [
                        assignment, f"{taken['one']:.2f} s", f"{taken['two']:.2f} s",
                        f"{taken['two'] / taken['one']:.2f}",
                    ]
                )  # fmt: skip
    return table(
        [f"{N_RECORDS:,} records, `{DIVERSE}`", "one attribute", "two", "ratio (target: 2)"], rows
    )
