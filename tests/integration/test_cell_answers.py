"""Answers from cells that stand for several values: ranges, sets, suppressed ones.

The expected answer comes from PostgreSQL's own reading of the query, on a table that holds every
combination of values that a record's cells may stand for.
"""

from __future__ import annotations

import math
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kanon_db.answers.estimates import open_query
from kanon_db.answers.likelihoods import DEPENDENT, TOGETHER
from kanon_db.answers.rows.pieces import Pieces
from kanon_db.errors import InvalidParameterError, UnsupportedQueryError
from kanon_db.publications.rows.cell_codes import write_cell_codes
from kanon_db.publications.rows.distinct_cells import ShownRows
from kanon_db.query.layout import CODES, VALUES, CellLayout, RowView
from kanon_db.query.sql import Request
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.allowance import Allowance
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_table,
    enter_by_hand,
    fetch,
    value,
)
from tests.profiles import examples
from tests.rewritten import compared

N_RECORDS = 60
COLUMNS = "age int, height numeric, born date, sex text, zip int, illness text, cost int"
QUASI_IDENTIFIERS = ["age", "height", "born", "sex", "zip"]


def records() -> list[tuple[Any, ...]]:
    """Draw records with NULLs in every column."""
    draw = random.Random(7)  # noqa: S311  # the same records every time
    return [
        (
            draw.choice([None, *range(20, 32)]),
            draw.choice([None, *range(150, 160)]),
            f"2020-01-{draw.randrange(1, 13):02}",
            draw.choice(["f", "m", "x", None]),
            draw.randrange(4),
            draw.choice(["flu", "cold", None]),
            draw.choice([None, -5, 0, 10, 20]),
        )
        for _ in range(N_RECORDS)
    ]


class OwnRelations(NamedTuple):
    """Relations of a superuser, written as those that are staged."""

    session: PsycopgSession
    schema: str
    name: str

    def create_table(self, suffix: str, select: str, *, uncompressed: Sequence[str] = ()) -> None:
        table = self.session.identifier(self.schema, self.name + suffix)
        self.session.fetch(f"CREATE TABLE {table} AS {select} WITH NO DATA")

    def analyze(self, *suffixes: str, **how: Any) -> None:
        pass


def enter(parties: Parties, name: str, kind: str, layout: dict[str, Any]) -> None:
    """Enter a view that a superuser made, with the codes of its cells."""
    session, described = PsycopgSession(parties.admin), {"columns": [], **layout}
    with session.transaction():
        rows = ShownRows.of_view(session, "published", name, described, Allowance.of(session))
        view = RowView.of(session, "published", name, described)
        staging: Any = OwnRelations(session, "published", name)
        described["store"] = write_cell_codes(staging, view, described, rows).layout
    n_records = rows.combination_of_row.size
    enter_by_hand(parties.admin, name, kind, described, n_records, ["", VALUES, CODES])


def layout_of(cells: list[str]) -> dict[str, Any]:
    return {
        "quasi_identifiers": [
            {"name": name, "cell": cell}
            for name, cell in zip(QUASI_IDENTIFIERS, cells, strict=True)
        ],
        "sensitive": "illness",
        "others": ["illness", "cost"],
        "columns": [*QUASI_IDENTIFIERS, "illness", "cost"],
    }


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_table(parties.publisher, "data.people", COLUMNS, records())
    create_table(
        parties.publisher, "data.regions", "zip int, region text, price int",
        [(0, "north", 5), (1, "south", 7), (2, "north", None)],
    )  # fmt: skip
    fetch(parties.publisher, "GRANT USAGE ON SCHEMA data TO kanon_analyst")
    fetch(parties.publisher, "GRANT SELECT ON data.regions TO kanon_analyst")
    # Classes of about three records; heights stay whole, so that they can be listed below.
    fetch(
        parties.publisher,
        "CREATE TABLE data.classes AS SELECT *, ntile(20) OVER (ORDER BY age, sex, zip) AS class,"
        " row_number() OVER () AS record FROM data.people",
    )
    fetch(
        parties.admin,
        "CREATE MATERIALIZED VIEW published.general AS SELECT"
        " CASE WHEN min(age) OVER w IS NOT NULL THEN int4range(min(age) OVER w, max(age) OVER w,"
        " '[]') END AS age,"
        " height, daterange(min(born) OVER w, max(born) OVER w, '[]') AS born,"
        " CASE WHEN class = 1 THEN ARRAY[NULL]::text[]"
        " WHEN class % 2 = 0 THEN ARRAY['f', 'm', NULL] ELSE ARRAY['x', 'f', 'm', NULL] END"
        " AS sex, zip, illness, cost FROM data.classes WINDOW w AS (PARTITION BY class)",
    )
    # What the view claims of each record must be true of it.
    fetch(
        parties.publisher,
        "UPDATE data.classes AS c SET age = CASE WHEN age IS NULL THEN o.least ELSE age END,"
        " sex = CASE WHEN c.class = 1 THEN NULL WHEN c.class % 2 = 0 AND sex = 'x' THEN 'f'"
        " ELSE sex END FROM (SELECT class, min(age) AS least FROM data.classes GROUP BY 1) AS o"
        " WHERE o.class = c.class",
    )
    enter(parties, "general", "generalized", layout_of(["range", "value", "range", "set", "value"]))
    fetch(
        parties.publisher,
        "CREATE TABLE data.possible AS SELECT r.record, x.age, r.height, y.born, z.sex, r.zip,"
        " r.illness, r.cost, (1 / (greatest(upper(r.age) - lower(r.age), 1)"
        " * (upper(r.born) - lower(r.born)) * cardinality(r.sex))::float8) AS w"
        " FROM (SELECT *, row_number() OVER () AS record FROM published.general) AS r,"
        " LATERAL (SELECT generate_series(lower(r.age), upper(r.age) - 1) UNION ALL"
        "  SELECT NULL WHERE r.age IS NULL) AS x (age),"
        " LATERAL (SELECT lower(r.born) + i FROM generate_series(0, upper(r.born) - lower(r.born)"
        "  - 1) AS i) AS y (born), unnest(r.sex) AS z (sex)",
    )


CONDITIONS = {
    "age": ["age > 25", "age BETWEEN 22 AND 27.5", "age <> 24", "age IS NULL", "age % 2 = 0",
            "NOT age IN (21, 30)", "age * 2 < 50 OR age = 31", "21 < age"],
    "born": ["born < DATE '2020-01-06'", "EXTRACT(day FROM born) IN (3, 5, 8)",
             "born = '2020-01-07'", "born > TIMESTAMP '2020-01-04 12:00'"],
    "sex": ["sex = 'f'", "sex IN ('f', 'm')", "sex IS NULL", "sex LIKE '%m%'", "sex > 'f'"],
    "height": ["height >= 155", "height IS DISTINCT FROM 152"],
    "illness": ["illness = 'flu'", "illness IS NULL"],
    "zip": ["zip <> 2"],
    "both": ["age - 20 > zip", "age > 25 AND sex = 'f' OR age < 23 AND sex = 'm'",
             "CASE WHEN sex = 'f' THEN age > 26 ELSE zip = 1 END",
             "EXTRACT(day FROM born) + 20 < age"],
}  # fmt: skip
CONDITION = st.sampled_from([text for texts in CONDITIONS.values() for text in texts])
PREDICATE = st.recursive(
    CONDITION,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("(NOT {})".format, inner.map("({})".format)),
        st.builds("(({}) IS NOT TRUE)".format, inner),
    ),
    max_leaves=4,
)


def expected(
    parties: Parties, predicate: str, blocks: Sequence[str] = ()
) -> tuple[float, float, int, int]:
    """Let PostgreSQL evaluate every combination of values."""
    rows = fetch(
        parties.publisher,
        f"SELECT coalesce(sum(w) FILTER (WHERE {predicate}), 0)::float8, bool_and(({predicate})"
        f" IS TRUE), bool_or(({predicate}) IS TRUE) FROM data.possible GROUP BY record",
    )
    variances = [max(p * (1 - p), 0) for p, _, _ in rows]
    variance, names = sum(variances), set(re.findall(r"\w+", predicate))
    if names & {"age", "born", "sex"} and names & {"height", "zip", "illness", "cost"}:
        # Cells may go with what is published as it is.
        variance += (TOGETHER * DEPENDENT * sum(map(math.sqrt, variances))) ** 2
    for columns in blocks or sorted(names & {"age", "born", "sex"}):
        deviations = fetch(
            parties.publisher,
            "SELECT sqrt(greatest(sum(w * p * p) - sum(w * p) ^ 2, 0))::float8 FROM ("
            f" SELECT record, sum(w) AS w, coalesce(sum(w) FILTER (WHERE {predicate}), 0) / sum(w)"
            f" AS p FROM data.possible GROUP BY record, {columns}) AS each_value GROUP BY record",
        )
        variance += (TOGETHER * sum(deviation for (deviation,) in deviations)) ** 2
    lower, upper = sum(surely for _, surely, _ in rows), sum(possibly for _, _, possibly in rows)
    error = min(math.sqrt(variance), (upper - lower) / 2)
    return sum(p for p, _, _ in rows), error, lower, upper


def blocks_of(parties: Parties, query: str) -> list[str]:
    """Return the columns whose values are looked at together, block by block."""
    session = PsycopgSession(parties.analyst)
    with session.transaction():
        opened = open_query(session, query)
    (measure,) = opened.query.measures
    assert isinstance(opened.layout, CellLayout)
    pieces = Pieces.of(Request(opened.query, measure.aggregate, opened.lookups), opened.layout)
    names = {place: name for name, place in pieces.places.items()}
    return [", ".join(names[place] for place in block) for block in pieces.blocks]


def test_one_condition(parties: Parties) -> None:
    for condition in (text for texts in CONDITIONS.values() for text in texts):
        query = f"SELECT COUNT(*) FROM general WHERE {condition}"
        answer = Functions(parties.analyst).estimate(query)
        assert answer == pytest.approx(
            expected(parties, condition, blocks_of(parties, query)), abs=1e-6
        ), condition
        truth = value(parties.publisher, f"SELECT count(*) FROM data.classes WHERE {condition}")
        assert answer[2] <= truth <= answer[3], condition


@given(predicate=PREDICATE)
@settings(
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_condition(parties: Parties, predicate: str) -> None:
    query = f"SELECT COUNT(*) FROM general WHERE {predicate}"
    estimate, error, lower, upper = Functions(parties.analyst).estimate(query)
    by_hand = expected(parties, predicate)
    assert estimate == pytest.approx(by_hand[0], abs=1e-6)
    # Three-valued logic may leave more open than the combinations do.
    assert error >= by_hand[1] - 1e-6
    assert lower <= by_hand[2] <= by_hand[3] <= upper
    truth = value(parties.publisher, f"SELECT count(*) FROM data.classes WHERE {predicate}")
    assert lower <= truth <= upper


@pytest.mark.parametrize("condition", ["age > 24", "sex = 'f' OR zip = 1"])
def test_groups(parties: Parties, condition: str) -> None:
    for key in ("age", "sex", "zip", "illness", "age / 5", "EXTRACT(day FROM born)",
                "age % 3", "date_trunc('week', born)"):  # fmt: skip
        rows = fetch(
            parties.analyst,
            "SELECT group_key -> 'k', estimate, lower_bound, upper_bound"
            " FROM kanon.estimate_counts($1::text)",
            f"SELECT {key} AS k, COUNT(*) FROM general WHERE {condition} GROUP BY k",
        )
        by_hand: dict[Any, float] = defaultdict(float)
        weights = f"SELECT to_jsonb({key}), sum(w) FROM data.possible WHERE {condition}"
        for k, w in fetch(parties.publisher, f"{weights} GROUP BY 1, record"):
            by_hand[k] += w
        assert {k: estimate for k, estimate, _, _ in rows} == pytest.approx(by_hand), key
        counts = f"SELECT to_jsonb({key}), count(*) FROM data.classes WHERE {condition} GROUP BY 1"
        truth = dict(fetch(parties.publisher, counts))
        bounds = {k: (lower, upper) for k, _, lower, upper in rows}
        assert truth.keys() <= bounds.keys(), key
        for k, (lower, upper) in bounds.items():
            assert lower <= truth.get(k, 0) <= upper, (key, k)


@pytest.mark.parametrize("x", ["age", "cost", "age + zip", "cost * age", "height"])
def test_sums_and_averages(parties: Parties, x: str) -> None:
    for condition in ("true", "age > 24", "sex = 'f' AND age <> 25"):
        total, weight = fetch(
            parties.publisher,
            f"SELECT sum(w * ({x}))::float8, sum(w)::float8 FROM data.possible"
            f" WHERE {condition} AND {x} IS NOT NULL",
        )[0]
        for function, wanted in (("sum", total), ("avg", total / weight)):
            query = f"SELECT {function}({x}) FROM {{}} WHERE {condition}"
            ((_, _, estimate, error, lower, upper, *_),) = fetch(
                parties.analyst, "SELECT * FROM kanon.estimate($1::text)", query.format("general")
            )
            assert estimate == pytest.approx(wanted), query
            truth = float(value(parties.publisher, query.format("data.classes")))
            assert lower - 1e-9 <= truth <= upper + 1e-9, query
            if condition == "true" and x in ("cost", "height"):
                assert (error, lower, upper) == pytest.approx((0, truth, truth), abs=1e-6)


def test_lookup_tables(parties: Parties) -> None:
    """Of a column that is as it was; and of a range, each value of which finds its own row."""
    analyst = Functions(parties.analyst)
    query = (
        "SELECT COUNT(*) FROM {} JOIN data.regions AS r ON r.zip = {}.zip"
        " WHERE r.region = 'north' AND age > 25"
    )
    answer = analyst.estimate(query.format("general", "general"))
    assert answer == pytest.approx(expected(parties, "zip IN (0, 2) AND age > 25"), abs=1e-6)
    truth = value(parties.publisher, query.format("data.classes", "classes"))
    assert answer[2] <= truth <= answer[3]
    decades = [(age, f"{age // 10}0s") for age in range(20, 30)]
    create_table(parties.publisher, "data.decades", "age int, decade text", decades)
    fetch(parties.publisher, "GRANT SELECT ON data.decades TO kanon_analyst")
    answer = analyst.estimate(
        "SELECT COUNT(*) FROM general LEFT JOIN data.decades USING (age)"
        " WHERE decade IS NULL OR sex = 'f'"
    )
    by_hand = expected(parties, "age IS NULL OR age > 29 OR sex = 'f'")
    assert answer[:2] == pytest.approx(by_hand[:2], abs=1e-6)
    for condition in ("decade = '20s'", "decade = '20s' AND illness = 'flu'",
                      "decade = '20s' AND sex = 'f'"):  # fmt: skip
        joined = (
            f"SELECT COUNT(*) FROM general LEFT JOIN data.decades USING (age) WHERE {condition}"
        )
        assert compared(parties.analyst, joined) == "equal", condition


# -- continuous ranges, and suppressed cells --------------------------------------------------


VIEWS = {
    "continuous": ("height, seen, name", """
        (numrange(10, 20, '[]'), tsrange('2020-01-01', '2020-01-03', '[]'), 'a'),
        (numrange(15, 15, '[]'), tsrange('2020-01-02', '2020-01-02', '[]'), 'b'),
        (NULL, NULL, 'c')"""),
    "instants": ("at", """
        (tstzrange('2020-01-01+00', '2020-01-03+00', '[]')),
        (tstzrange('2020-01-02+00', '2020-01-02+00', '[]')), (NULL)"""),
    "mixed": ("age", "(int4range(20, 30, '[]')), (int4range(NULL, NULL)), (NULL)"),
    # One begins where the other ends: there, the values of both columns may be equal.
    "meet": ("a, b", "(numrange(10, 20, '[]'), numrange(5, 10, '[]'))"),
    "hidden": ("age, sex, marks, cost", """
        (NULL::int, 'f', '*.', 1), (20, 'm', '..', 2), (20, NULL, '.*', 3), (30, 'f', '..', 4),
        (NULL, NULL, '..', 5), (40, 'm', '..', 6)"""),
}  # fmt: skip
"""Publications of a few rows, whose answers are told below."""


@pytest.fixture(scope="module", autouse=True)
def by_hand(parties: Parties) -> None:
    for name, (columns, rows) in VIEWS.items():
        view = f"SELECT * FROM (VALUES {rows}) AS v ({columns})"
        fetch(parties.admin, f"CREATE MATERIALIZED VIEW published.{name} AS {view}")
        cell = "value" if name == "hidden" else "range"
        others = {"continuous": ["name"], "hidden": ["cost"]}.get(name, [])
        layout: dict[str, Any] = {
            "quasi_identifiers": [
                {"name": column, "cell": cell}
                for column in columns.split(", ")
                if column not in ("name", "marks", "cost")
            ],
            "sensitive": None,
            "others": others,
        }
        if name == "hidden":
            layout |= {"sensitive": "cost", "pattern": "marks"}
        enter(parties, name, "suppressed" if name == "hidden" else "freeform", layout)


# Of five ages and five sexes kept, two of the ages are 20, and two of the sexes f, and two m: these
# are suppressed as often as by the power of 0.3 of that.
FREQUENT = 2**0.3 / (2**0.3 + 3)
RARE = 1 / (2**0.3 + 3)
SEX = 2**0.3 / (2 * 2**0.3 + 1)
ANSWERS: dict[str, dict[str, tuple[float | None, int, int]]] = {
    "continuous": {
        "height < 12.5": (0.25, 0, 1),
        "height >= 10": (2, 2, 2),
        "height BETWEEN 15 AND 30": (1.5, 1, 2),
        "height < 15": (0.5, 0, 1),
        "height <= 15": (1.5, 1, 2),
        "height > 15": (0.5, 0, 1),
        "height >= 15": (1.5, 1, 2),
        "height = 15": (1, 1, 2),
        "height <> 15": (1, 0, 1),
        "height > 20": (0, 0, 0),
        "height IS NULL": (1, 1, 1),
        "height IN (1, 15) OR height > 18": (1.2, 1, 2),
        "height * 2 < 30": (0.5, 0, 1),
        "seen < TIMESTAMP '2020-01-01 12:00'": (0.25, 0, 1),
        "seen = '2020-01-02'": (1, 1, 2),
        "seen >= '2020-01-02' AND name <> 'b'": (0.5, 0, 1),
        "seen >= '2020-01-02' AND height < 12": (0.1, 0, 1),
        "seen < DATE '2020-01-02'": (0.5, 0, 1),
        "NOT (height < 12.5 OR name = 'b')": (0.75, 0, 1),
    },
    "instants": {
        "at IS NULL": (1, 1, 1),
        "at IS NOT NULL": (2, 2, 2),
        "at < '2020-01-02 00:00+00'": (0.5, 0, 1),
    },
    "meet": {
        "a <= b": (None, 0, 1), "a < b": (None, 0, 0), "a = b": (None, 0, 1),
        "a <> b": (None, 0, 1), "a >= b": (None, 1, 1), "a > b": (None, 0, 1),
        "b >= a": (None, 0, 1), "b < a": (None, 0, 1), "b <= a": (None, 1, 1),
    },
    "hidden": {
        "age = 20": (2 + FREQUENT, 2, 3),
        "age IS NULL": (1 + RARE, 1, 2),
        "sex = 'f'": (2 + SEX, 2, 3),
        "age = 20 AND sex = 'f'": (FREQUENT + SEX, 0, 2),
        "age > 25 OR sex = 'm'": (3 + 2 * RARE + SEX, 3, 5),
        "cost > 4": (2, 2, 2),
        "age < cost * 10": (3, 3, 4),
        "age = 50": (0, 0, 1),
    },
}  # fmt: skip
"""The estimate, if it is told, and the bounds."""


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_by_hand(parties: Parties, name: str) -> None:
    for condition, (estimate, *bounds) in ANSWERS[name].items():
        query = f"SELECT COUNT(*) FROM {name} WHERE {condition}"
        found, _, *between = Functions(parties.analyst).estimate(query)
        assert estimate is None or found == pytest.approx(estimate), query
        assert between == bounds, query


def test_sum_of_continuous_ranges(parties: Parties) -> None:
    rows = fetch(
        parties.analyst,
        "SELECT estimate, lower_bound, upper_bound FROM kanon.estimate($1::text)",
        "SELECT SUM(height), AVG(height), SUM(height * 2) FROM continuous",
    )
    estimates, lower, upper = zip(*rows, strict=True)
    assert estimates == pytest.approx((30, 15, 60))
    assert lower == (pytest.approx(25), pytest.approx(12.5), None)
    assert upper == (pytest.approx(35), pytest.approx(17.5), None)
    assert lower[0] <= 25
    assert upper[0] >= 35
    with pytest.raises(UnsupportedQueryError, match="continuous ranges"):
        Package(parties.analyst).kanon.count(
            "SELECT height, COUNT(*) FROM continuous GROUP BY height"
        )


@pytest.mark.parametrize("query", [None, 3])
def test_a_question_is_a_text(parties: Parties, query: Any) -> None:
    kanon = Package(parties.analyst).kanon
    with pytest.raises(InvalidParameterError, match="query must be a text"):
        kanon.count(query)


def test_ranges_without_an_end_are_asked_for_by_intervals(parties: Parties) -> None:
    kanon = Package(parties.analyst).kanon
    with pytest.raises(UnsupportedQueryError, match="of numbers and NULL") as refused:
        kanon.count("SELECT age, COUNT(*) FROM mixed GROUP BY age")
    own = refused.value.hint.partition("as in ")[2].replace("x", "age")
    answer = kanon.estimate(f"SELECT {own} FROM mixed")
    assert answer["lower_bound"].tolist() == [0, 1, 1]
    assert answer["upper_bound"].tolist() == [1, 2, 2]


def test_groups_and_sums_of_suppressed_cells(parties: Parties) -> None:
    """Sums have no bounds."""
    rows = fetch(
        parties.analyst,
        "SELECT group_key ->> 'age', estimate, lower_bound, upper_bound"
        " FROM kanon.estimate_counts($1::text)",
        "SELECT age, COUNT(*) FROM hidden GROUP BY age ORDER BY age",
    )
    assert rows == [
        ("20", pytest.approx(2 + FREQUENT), 2, 3),
        *((age, pytest.approx(1 + RARE), 1, 2) for age in ("30", "40", None)),
    ]
    kanon = Package(parties.analyst).kanon
    for found in (
        kanon.count("SELECT age, cost AS c, COUNT(*) FROM hidden GROUP BY age, c ORDER BY age"),
        kanon.estimate("SELECT age, cost AS c, COUNT(*) FROM hidden GROUP BY age, c ORDER BY age"),
        kanon.estimate_counts("SELECT DISTINCT age, cost AS c FROM hidden ORDER BY age"),
    ):
        assert list(found.columns[:2]) == ["age", "c"]
        assert found["age"].dropna().tolist() == sorted(found["age"].dropna())
        assert found["age"].isna().any()
    alone = kanon.estimate("SELECT COUNT(*) FROM hidden")
    assert list(alone.columns[:2]) == ["group_key", "aggregate"]
    frame = kanon.count("SELECT SUM(age), SUM(cost) FROM hidden")
    assert frame["estimate"].tolist() == pytest.approx([110 + 20 * FREQUENT + 70 * RARE, 21])
    assert frame["upper_bound"].isna().tolist() == [True, False]


def test_explanation(parties: Parties) -> None:
    """What is published as it is, is told from what is not."""
    kanon = Package(parties.analyst).kanon
    lines = kanon.explain_count(
        "SELECT zip, COUNT(*) FROM general WHERE age > 25 AND sex = 'f' AND illness = 'flu'"
        " GROUP BY zip"
    )
    told = dict(lines[["description", "accuracy"]].itertuples(index=False))
    assert told["(\"age\" > '25'::integer)"].startswith("estimated: each value of a range")
    assert told["(\"sex\" = 'f'::text)"].startswith("estimated: each value of a set")
    assert told["(\"illness\" = 'flu'::text)"].startswith("exact")
    assert told['"zip"'].startswith("exact")
    assert told["count(*)"].startswith("estimated: cells hide")
    hidden = kanon.explain_count("SELECT COUNT(*) FROM hidden WHERE age = 20")
    assert "suppressed cell could be anything" in hidden["accuracy"][1]
    assert hidden["std_error"][2] > 0
