"""Whether the first choice of `recommend`, made on a sample, is as good as any on the whole table.

``python -m benchmarks --write recommend``. Tables are looked for in ``data/`` of the folder named
by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np

import kanon_db
from benchmarks.harness import private_server, table
from benchmarks.real_tables import DATA
from kanon_db.advice.identifying_columns import copy_source
from kanon_db.advice.publication_candidates import PROTECTIONS, Candidate, candidates_for
from kanon_db.advice.recommendation import (
    TrialGround,
    answer_counts,
    number_of_draws,
    recommend,
    what_is_protected,
)
from kanon_db.catalog.sources import open_source
from kanon_db.session.psycopg_session import PsycopgSession, open_connection
from kanon_db.transfer.allowance import Allowance

ALLOWED: Final = 1.2
LEVELS: Final = ("standard",)
"""Of protection; the default one."""

N_DRAWS: Final = 2
"""Of publications of a large table; more of small ones."""


@dataclass(frozen=True)
class Data:
    """A real table, and the columns that others may know."""

    file: str
    quasi_identifiers: tuple[str, ...]
    sensitive: str

    @property
    def name(self) -> str:
        """The file's name up to its number of rows."""
        return self.file.split("_")[0].split(".")[0]


TABLES: Final = (
    Data(
        "adult_30162.csv.gz",
        (
            "age", "workclass", "education", "marital-status", "race", "sex", "native-country",
            "hours-per-week",
        ),
        "occupation",
    ),
    Data(
        "fars_occupants.csv.gz",
        ("age", "sex", "modelyr", "year", "airbag", "inimpact", "Restraint"),
        "injury",
    ),
    Data(
        "ipums1980.csv.gz", ("age", "sex", "race", "marstat", "educrec", "yrsusa"), "classwk"
    ),
    Data("brfss_cdc20k.csv.gz", ("gender", "age", "height", "weight"), "genhlth"),
    Data(
        "nmes1988.csv.gz", ("age", "gender", "region", "married", "school", "afam"), "chronic"
    ),
    Data(
        "census1980_fertility.csv.gz",
        ("age", "gender1", "gender2", "morekids", "afam", "hispanic"),
        "work",
    ),
)  # fmt: skip


def main() -> str:
    """Return the results as Markdown."""
    rows, worst, slowest = [], 0.0, 0.0
    with private_server() as dsn:
        for data in TABLES:
            with kanon_db.connect(dsn) as kanon:
                records = kanon.load(DATA / data.file, data.name).records
                kanon.register_source(
                    f"public.{data.name}", quasi_identifiers=data.quasi_identifiers,
                    sensitive=data.sensitive,
                )  # fmt: skip
            for protection in LEVELS:
                first, seconds, ratio, errors = _measure(dsn, data, protection)
                worst, slowest = max(worst, ratio), max(slowest, seconds)
                listed = " / ".join(f"{error:.3f}" for error in errors)
                rows.append([
                    data.name, f"{records:,}", protection, first, f"{seconds:.0f} s", listed,
                    f"{ratio:.2f}",
                ])  # fmt: skip
    heading = [
        "table", "records", "protection", "first choice", "found in",
        "count errors on the whole table", "first / best",
    ]  # fmt: skip
    return (
        "For the purpose `counts`. `recommend` tries candidates on samples of at most 60,000"
        " records. Then each candidate with the first choice's protection is published from the"
        " whole table, two to five times, and answers 300 random counts: half of them are off by no"
        " more than the count error, of the true count (the mean of the publications). The first of"
        " these errors is that of the first choice; the others are in the order in which they are"
        " tried.\n\n"
        + table(heading, rows)
        + f"\nThe first choice's error is at most {worst:.2f} times that of the best candidate"
        f" (target {ALLOWED}), found within {slowest:.0f} s (target 60 s).\n"
    )


def _measure(dsn: str, data: Data, protection: str) -> tuple[str, float, float, list[float]]:
    """Recommend, then measure all candidates of the same protection on the whole table."""
    session = PsycopgSession(open_connection(dsn))
    source = f"public.{data.name}"
    with session.transaction():
        started = time.perf_counter()
        found = recommend(session, source, purpose="counts", protection=protection)
        seconds = time.perf_counter() - started
    with session.transaction():
        described, _ = open_source(session, source)
        whole = TrialGround(copy_source(session, described, Allowance.of(session)))
        candidates = candidates_for(
            "counts", PROTECTIONS[protection], what_is_protected(whole, has_entities=False)
        )
        (first,) = [one for one in candidates if one.title == found[0].candidate]
        others = [one for one in candidates if one.protects == first.protects and one is not first]
        n_draws = max(N_DRAWS, number_of_draws(whole.copy.n_records))

        def error(candidate: Candidate) -> float:
            draws = [answer_counts(session, candidate, whole).error for _ in range(n_draws)]
            return float(np.mean(draws))

        errors = [error(one) for one in (first, *others)]
    session.connection.close()
    return first.title, seconds, errors[0] / min(errors), errors
