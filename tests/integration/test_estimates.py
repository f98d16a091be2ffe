"""Estimates against sums of weights and the paper's formula, from the published tables by numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import psycopg
import pytest

import kanon_db
from kanon_db.interfaces.demo import write_fair
from tests.expected_counts import Weighted
from tests.profiles import examples

N_QUERIES = examples(200)
SENSITIVE = "affairs"


@dataclass
class Case:
    """A published table, its source and what was published, as data frames."""

    dsn: str
    quasi_identifiers: list[str]
    source: pd.DataFrame
    qit: pd.DataFrame
    sat: pd.DataFrame
    weighted: Weighted
    records: pd.DataFrame  # The quasi-identifiers of each record, in the order of the weights
    values: pd.DataFrame  # The sensitive values in the order of the weights


@pytest.fixture(scope="module")
def case(module_database, tmp_path_factory):
    """The demo's people: strict thresholds leave one cell, so its buckets are random."""
    path = tmp_path_factory.mktemp("fair") / "fair.csv"
    columns = write_fair(path)
    columns.remove(SENSITIVE)
    with kanon_db.connect(module_database) as kanon:
        kanon.load(path, "public.fair")
        kanon.register_source("public.fair", quasi_identifiers=columns, sensitive=SENSITIVE)
        privacy = '{"default": 0.1, "values": {"0.0": 0.8}}'
        kanon.publish_buckets("public.fair", "fair_b", privacy=privacy)

    def frame(relation: str) -> pd.DataFrame:
        with psycopg.connect(module_database) as connection:
            cursor = connection.execute(f"SELECT * FROM {relation}")
            columns = [column.name for column in cursor.description]
            data = pd.DataFrame(cursor.fetchall(), columns=columns)
        return data.apply(lambda c: c if c.name in ("bucket_id", "count") else c.astype(float))

    relations = ("public.fair", "published.fair_b_qit", "published.fair_b_sat")
    with psycopg.connect(module_database) as connection:
        weighted = Weighted.read(connection, "fair_b", SENSITIVE)
    records = pd.DataFrame(weighted.columns).astype(float)
    values = pd.DataFrame({SENSITIVE: weighted.values}).astype(float)
    return Case(module_database, columns, *map(frame, relations), weighted, records, values)


class Question:
    """A random conjunction, as SQL and as a function on data frames."""

    def __init__(self, case: Case, random: np.random.Generator) -> None:
        self.parts: list[tuple[str, str, list]] = []
        n_columns = int(random.integers(0, 4))
        columns = random.choice(case.quasi_identifiers, size=n_columns, replace=False).tolist()
        if n_columns == 0 or random.random() < 0.9:
            columns.append(SENSITIVE)
        for column in columns:
            values, _ = _distinct(case.source, column)
            chosen = random.choice(values, size=int(random.integers(1, 5)))
            kinds = ["IN", "NOT IN", "<", ">=", "="]
            kinds += ["BETWEEN", "NOT BETWEEN"] if len(chosen) > 1 else []
            self.parts.append((column, str(random.choice(kinds)), sorted(chosen.tolist())))

    @property
    def sql(self) -> str:
        return " AND ".join(self._part(*part) for part in self.parts)

    @staticmethod
    def _part(column: str, kind: str, values: list) -> str:
        texts = [repr(v) for v in values]
        if kind.endswith("IN"):
            return f'"{column}" {kind} ({", ".join(texts)})'
        if kind.endswith("BETWEEN"):
            return f'"{column}" {kind} {texts[0]} AND {texts[-1]}'
        return f'"{column}" {kind} {texts[0]}'

    @property
    def is_one_sided(self) -> bool:
        columns = {column for column, _, _ in self.parts}
        return columns == {SENSITIVE} or SENSITIVE not in columns

    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        """Which rows meet the parts that mention the frame's columns."""
        held = np.ones(len(frame), dtype=bool)
        for column, kind, values in self.parts:
            if column in frame:
                cells, places = _distinct(frame, column)
                held &= {
                    "IN": lambda c=cells, v=values: np.isin(c, v),
                    "NOT IN": lambda c=cells, v=values: ~np.isin(c, v),
                    "<": lambda c=cells, v=values: c < v[0],
                    ">=": lambda c=cells, v=values: c >= v[0],
                    "=": lambda c=cells, v=values: c == v[0],
                    "BETWEEN": lambda c=cells, v=values: (c >= v[0]) & (c <= v[-1]),
                    "NOT BETWEEN": lambda c=cells, v=values: ~((c >= v[0]) & (c <= v[-1])),
                }[kind]()[places]
        return held


_KNOWN: dict[tuple[int, str], tuple[np.ndarray, np.ndarray]] = {}


def _distinct(frame: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values of a column, and the place of each cell's value among them."""
    key = id(frame), column  # the frames live as long as the module's fixtures
    if key not in _KNOWN:
        _KNOWN[key] = np.unique(frame[column].to_numpy(), return_inverse=True)
    return _KNOWN[key]


def _expected(case: Case, question: Question) -> tuple[float, float, int, int]:
    """By weights, with the bounds and errors of docs/understand/estimation.md."""
    records, values = question.holds(case.records), question.holds(case.values)
    estimate, error, lower, upper = case.weighted.answer(records, values, question.sql)
    return estimate, 0.0 if question.is_one_sided else error, lower, upper


def _by_paper(case: Case, question: Question) -> float:
    """[GB] 3.2 by bucket."""
    n_buckets = int(case.qit["bucket_id"].max()) + 1
    size = np.bincount(case.qit["bucket_id"], minlength=n_buckets)[1:]
    q = np.bincount(case.qit["bucket_id"], question.holds(case.qit), n_buckets)[1:]
    s = np.bincount(case.sat["bucket_id"], question.holds(case.sat) * case.sat["count"], n_buckets)
    return float((q * s[1:] / size).sum())


def _asked(connection, text):
    """The estimate with its error and bounds, and the likely range."""
    row = connection.execute("SELECT * FROM kanon.estimate_count(%s)", [text]).fetchone()
    return row[:4], row[4:]


@pytest.mark.slow("the module's records are published first")
def test_random_queries_equal_the_formula_and_bound_the_truth(case):
    """So do sums of weights of the view, and rewritten statements."""
    random = np.random.default_rng(1)
    with psycopg.connect(case.dsn) as connection:
        for number in range(N_QUERIES):
            question = Question(case, random)
            text = f"SELECT COUNT(*) FROM fair_b WHERE {question.sql}"
            answer, range_ = _asked(connection, text)
            expected = _expected(case, question)
            assert answer == pytest.approx(expected, rel=1e-9, abs=1e-9), text
            true = int(question.holds(case.source).sum())
            assert answer[2] <= true <= answer[3], text
            assert answer[2] <= range_[0] <= answer[0] <= range_[1] <= answer[3], text
            if question.is_one_sided:
                assert answer == (true, 0, true, true), text
            if number % 10 == 0:
                (rewritten,) = connection.execute(
                    "SELECT kanon.rewrite_count(%s)", [text]
                ).fetchone()
                run, *_ = connection.execute(rewritten.encode()).fetchone()
                assert run == pytest.approx(answer[0], rel=1e-9, abs=1e-9), text
                (weight,) = connection.execute(
                    f"SELECT coalesce(sum(weight), 0) FROM published.fair_b WHERE {question.sql}"
                ).fetchone()
                assert weight == pytest.approx(_by_paper(case, question), rel=1e-9, abs=1e-9), text
