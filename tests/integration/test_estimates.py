"""Estimates against the paper's formula, computed apart in numpy from the published tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import psycopg
import pytest

import kanon_db
from kanon_db.interfaces.demo import write_fair
from tests.expected_counts import TIMES, of_buckets, regressed
from tests.profiles import examples

N_QUERIES = examples(200)
QI = ["age", "workclass", "education", "marital-status", "race", "sex", "native-country"]


@dataclass
class Case:
    """A published table, its source and what was published, as data frames."""

    dsn: str
    name: str
    quasi_identifiers: list[str]
    sensitive: str
    source: pd.DataFrame
    qit: pd.DataFrame
    sat: pd.DataFrame


def _publish(dsn: str, path: Path, name: str, qi: list[str], sensitive: str, privacy: str) -> Case:
    with kanon_db.connect(dsn) as kanon:
        kanon.load(path, f"public.{name}")
        kanon.register_source(f"public.{name}", quasi_identifiers=qi, sensitive=sensitive)
        kanon.publish_buckets(f"public.{name}", f"{name}_b", privacy=privacy)

    def frame(relation: str) -> pd.DataFrame:
        with psycopg.connect(dsn) as connection:
            cursor = connection.execute(f"SELECT * FROM {relation}")
            columns = [column.name for column in cursor.description]
            data = pd.DataFrame(cursor.fetchall(), columns=columns)
        return data.apply(lambda c: c.astype(float) if c.name in NUMBERS else c)

    return Case(dsn, f"{name}_b", qi, sensitive, frame(f"public.{name}"),
                frame(f"published.{name}_b_qit"), frame(f"published.{name}_b_sat"))  # fmt: skip


NUMBERS = {
    "age", "rate_marriage", "yrs_married", "children", "religious", "educ", "occupation_husb",
    "affairs",
}  # fmt: skip


@pytest.fixture(scope="module")
def adult(shared, module_database):
    path = shared / "data" / "adult_30162.csv.gz"
    if not path.exists():
        pytest.skip(f"no {path}")
    return _publish(module_database, path, "adult", QI, "occupation", '{"theta": 8, "base": 0.02}')


@pytest.fixture(scope="module")
def fair(module_database, tmp_path_factory):
    path = tmp_path_factory.mktemp("fair") / "fair.csv"
    columns = write_fair(path)
    columns.remove("affairs")
    return _publish(
        module_database, path, "fair", columns, "affairs",
        '{"default": 0.1, "values": {"0.0": 0.8}}',
    )  # fmt: skip


class Question:
    """A random conjunction, as SQL and as a function on data frames."""

    def __init__(self, case: Case, random: np.random.Generator) -> None:
        self.parts: list[tuple[str, str, list]] = []
        n_columns = int(random.integers(0, 4))
        columns = random.choice(case.quasi_identifiers, size=n_columns, replace=False).tolist()
        if n_columns == 0 or random.random() < 0.9:
            columns.append(case.sensitive)
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
        texts = [f"'{v}'" if isinstance(v, str) else repr(v) for v in values]
        if kind.endswith("IN"):
            return f'"{column}" {kind} ({", ".join(texts)})'
        if kind.endswith("BETWEEN"):
            return f'"{column}" {kind} {texts[0]} AND {texts[-1]}'
        return f'"{column}" {kind} {texts[0]}'

    def is_one_sided(self, case: Case) -> bool:
        columns = {column for column, _, _ in self.parts}
        return columns == {case.sensitive} or case.sensitive not in columns

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
    """[GB] 3.2 by bucket, with the bounds and the variance of docs/understand/estimation.md."""
    n_buckets = int(case.qit["bucket_id"].max()) + 1
    size = np.bincount(case.qit["bucket_id"], minlength=n_buckets)[1:]
    q = np.bincount(case.qit["bucket_id"], question.holds(case.qit), n_buckets)[1:]
    s = np.bincount(case.sat["bucket_id"], question.holds(case.sat) * case.sat["count"], n_buckets)
    s = s[1:]
    buckets = zip(size, q, s, strict=True)
    estimate, error, lower, upper = of_buckets(buckets, _missing(case, question)[0])
    if case.name == "fair_b" and not question.is_one_sided(case):
        # Strict thresholds leave one cell, so its buckets are random.
        variance = ((q - q * q / size) * (s - s * s / size) / np.maximum(size - 1, 1)).sum()
        error = min(_of_many_values(case, question, variance), (upper - lower) / 2)
    if question.is_one_sided(case):
        error = 0.0
    return estimate, error, lower, upper


def _of_many_values(case: Case, question: Question, variance: float) -> float:
    """Of 77 values, what a correction would add counts as error (docs/understand/estimation.md)."""
    more, error = _missing(case, question, variance)
    return math.hypot(error, TIMES["random"] * more)


def _missing(case: Case, question: Question, variance: float = 0.0) -> tuple[float, float]:
    """What a correction would add, and its error."""
    values, places = _distinct(case.sat, case.sensitive)
    composition = np.zeros((int(case.qit["bucket_id"].max()), values.size))
    composition[case.sat["bucket_id"] - 1, places] = case.sat["count"]
    asked = np.zeros(values.size)
    asked[places] = question.holds(case.sat)
    return regressed(
        question.holds(case.qit) * 1.0, case.qit["bucket_id"].to_numpy() - 1, composition, asked,
        variance=variance,
    )  # fmt: skip


@pytest.mark.parametrize("which", ["adult", "fair"])
def test_random_queries_equal_the_formula_and_bound_the_truth(which, request):
    case = request.getfixturevalue(which)
    random = np.random.default_rng(1)
    with psycopg.connect(case.dsn) as connection:
        for number in range(N_QUERIES):
            question = Question(case, random)
            text = f"SELECT COUNT(*) FROM {case.name} WHERE {question.sql}"
            answer = connection.execute("SELECT * FROM kanon.estimate_count(%s)", [text]).fetchone()
            expected = _expected(case, question)
            assert answer == pytest.approx(expected, rel=1e-9, abs=1e-9), text
            true = int(question.holds(case.source).sum())
            assert answer[2] <= true <= answer[3], text
            if question.is_one_sided(case):
                assert answer == (true, 0, true, true), text
            if number % 10 == 0:
                rewritten = connection.execute("SELECT kanon.rewrite_count(%s)", [text]).fetchone()
                run = connection.execute(rewritten[0].encode()).fetchone()
                connection.execute("SET LOCAL kanon.estimator = 'paper'")
                paper = connection.execute(
                    "SELECT estimate FROM kanon.estimate_count(%s)", [text]
                ).fetchone()
                connection.execute("SET LOCAL kanon.estimator = 'published'")
                assert run == pytest.approx(paper, rel=1e-9, abs=1e-9), text


@pytest.mark.parametrize("which", ["adult", "fair"])
def test_the_view_gives_the_same_estimates(which, request):
    case = request.getfixturevalue(which)
    random = np.random.default_rng(2)
    with psycopg.connect(case.dsn) as connection:
        for _ in range(20):
            question = Question(case, random)
            weight = connection.execute(
                f"SELECT coalesce(sum(weight), 0) FROM published.{case.name} WHERE {question.sql}"
            ).fetchone()[0]
            assert weight == pytest.approx(_expected(case, question)[0], rel=1e-9, abs=1e-9)


def test_adult_has_the_setting_of_the_golden_results(adult):
    with kanon_db.connect(adult.dsn) as kanon:
        assert kanon.verify("adult_b")["holds"].all()
        kanon.publish_buckets(
            "adult", "adult_whole", assignment="random", privacy={"theta": 8, "base": 0.02}
        )
        metrics = dict(kanon.metrics("adult_whole").itertuples(index=False))
        kanon.drop_publication("adult_whole")
    assert metrics["buckets_of_size_3"] == 8809
    assert metrics["buckets_of_size_45"] == 83
    assert metrics["loss"] == 195924
