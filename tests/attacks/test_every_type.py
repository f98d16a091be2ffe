"""Bounds are certain for a column of any type, in every kind of publication, whatever is asked.

A condition means on a publication what it means on the source, or the question is refused. What is
answered is compared with the source here; nothing is expected of estimates.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.integration.parties import Connection, Functions, Parties, fetch, sqlstate_of, value
from tests.profiles import examples

SETUP = (
    "CREATE TYPE data.grade AS ENUM ('zed', 'low', 'mid', 'apex')",
    "CREATE DOMAIN data.short AS varchar(9)",
    "CREATE DOMAIN data.points AS float8 CHECK (value <> 7)",
    "CREATE TYPE data.both AS (a int, b text)",
    "CREATE TYPE data.spans AS RANGE (subtype = text)",
)

N: range = range(24)
_FLOATS = ["NaN", "Infinity", "-Infinity", "-0", "1e300", "-1e300", "5e-324", "0.1"]
_SEVENTHS = [repr(i / 7) for i in N]
TYPES: dict[str, Sequence[str]] = {
    # Texts in whose order values are not, wherever the type has such.
    "smallint": [str(i * 7 - 50) for i in N],
    "int": [str(i * 89_478_485 - 2**30) for i in N],
    "bigint": [str(2**53 + i) for i in N] + ["-9223372036854775808", "9223372036854775807"],
    "numeric": [f"{i * 7}.5" for i in N] + ["1e30", "-1e30"],
    "numeric(40,20)": [f"0.1000000000000000000{i % 10}" for i in N],
    "numeric[]": ["{9}", "{10}", "{}", "{NULL}", "{1.0,2}"],
    "real": [repr(i / 7) for i in N],
    "float8": _SEVENTHS,
    "data.points": _SEVENTHS,
    "money": [str(i * 4) for i in N],
    "oid": [str(i * 7) for i in N],
    "xid": ["9", "10", "100"],
    "cid": ["9", "10", "100"],
    "tid": [f"({i},1)" for i in N],
    "xid8": [str(i * 7) for i in N],
    "pg_lsn": [f"0/{i * 77:X}" for i in N],
    "regclass": ["pg_class", "pg_type", "pg_proc", "pg_namespace"],
    "regtype": ["int4", "text", "date", "oid"],
    "text": [f"n{i}" for i in N] + ["", "a_b", "a%b", "a\\b", "A"],
    "varchar(9)": [f"n{i}" for i in N],
    "char(5)": [f"{i:3}" for i in N],
    "data.short": [f"n{i}" for i in N],
    '"char"': [chr(65 + i) for i in N],
    "name": [f"n{i}" for i in N],
    "bool": ["t", "f"],
    "date": [f"2020-{1 + i % 12:02}-17" for i in N],
    "time": [f"{i % 24}:07" for i in N],
    "timetz": [f"{i % 24}:07+{i % 5:02}" for i in N],
    "timestamp": [f"2020-01-{1 + i} 12:00:00.{i}" for i in N],
    "timestamptz": [f"2020-01-{1 + i} 12:00+{i % 5:02}" for i in N],
    "interval": [f"{i * 7 % 40} days {i * 5} hours" for i in N],
    "uuid": [f"{i * 9:08x}-9c0b-4ef8-bb6d-6bb9bd380a11" for i in N],
    "inet": [f"10.0.{i % 12}.{i * 9}" for i in N] + ["::1", "10.0.0.0/8"],
    "cidr": [f"10.{i}.0.0/16" for i in N],
    "macaddr": [f"08:00:2b:01:02:{i * 9:02x}" for i in N],
    "macaddr8": [f"08:00:2b:01:02:03:04:{i * 9:02x}" for i in N],
    "bit(5)": [f"{i:05b}" for i in N],
    "varbit": [f"{i:b}" for i in N],
    "bytea": [f"\\\\x{i * 9:02x}" for i in N],
    "json": ['{"k": 1}', "[]"],
    "jsonb": [f'{{"k": {i * 7 % 20}}}' for i in N] + ["9", "10", '"a"', "null"],
    "jsonpath": ["$.a", "$.b"],
    "xml": ["<a/>", "<b/>"],
    "tsvector": ["a b", "b", "c"],
    "tsquery": ["a & b", "b", "c"],
    "txid_snapshot": ["10:20:10,14", "9:9:"],
    "pg_snapshot": ["10:20:10,14", "9:9:"],
    "point": ["(1,2)"], "line": ["{1,2,3}"], "lseg": ["[(1,2),(3,4)]"], "box": ["(3,4),(1,2)"],
    "path": ["[(1,2),(3,4)]"], "polygon": ["((1,2),(3,4))"], "circle": ["<(1,2),3>"],
    "int4range": [f"[{i},{i + 3})" for i in N] + ["empty", "(,)"],
    "int8range": [f"[{i},{i + 3})" for i in N],
    "numrange": [f"[{i}.5,{i + 3})" for i in N],
    "daterange": [f"[2020-01-{1 + i},2020-02-{1 + i})" for i in N],
    "tsrange": [f"[2020-01-{1 + i},2020-02-{1 + i})" for i in N],
    "tstzrange": [f"[2020-01-{1 + i},2020-02-{1 + i})" for i in N],
    "int4multirange": [f"{{[{i},{i + 3})}}" for i in N] + ["{}"],
    "int[]": [f"{{{i}}}" for i in N] + ["{}", "{NULL}"],
    "text[]": [f"{{n{i}}}" for i in N],
    "data.grade": ["zed", "low", "mid", "apex"],
    "data.both": [f"({i},a)" for i in N],
    "data.spans": [f"[a{i},b)" for i in N],
}  # fmt: skip
ODD_NUMBERS = {
    "float8": [*_SEVENTHS[:12], *_FLOATS],
    "real": ["0.1", "1.5", "NaN", "Infinity", "-Infinity", "16777217", "3e38", "1e-45"],
    "numeric": ["1.5", "2", "NaN", "Infinity", "-Infinity", "1e-30", "1e40"],
    "date": ["2020-01-01", "2021-01-01", "infinity", "-infinity", "0044-03-15 BC"],
    "timestamp": ["2020-01-01", "2021-01-01", "infinity", "-infinity"],
    "time": ["24:00", "00:00", "23:59:59.999999", "12:00", "00:00:00.000001"],
    "interval": ["1 mon", "30 days", "1 year", "364 days", "-1 year", "360 days 1 us", "9 mons"],
}
KINDS = {
    "buckets": "privacy => '{\"l\": 2}', assignment => 'random'",
    "generalized": "k => 4, method => 'mondrian', refine => false",
    "freeform": "k => 3, options => '{\"refine\": false}'",
    "suppressed": "k => 3",
}
PLACES = (*((kind, "") for kind in KINDS), ("buckets", " as sensitive"))
"""Each kind with the column as a quasi-identifier; and what else it may be."""

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
AGGREGATES = (
    "COUNT(x)", "COUNT(DISTINCT x)", "SUM(x)", "AVG(x)", "MIN(x)", "MAX(x)",
    "percentile_disc(0.4) WITHIN GROUP (ORDER BY x)",
    "percentile_cont(0.4) WITHIN GROUP (ORDER BY x)",
)  # fmt: skip


GROUPED = ("COUNT(*)", "SUM(y)")
NUMBERS = ("int", "numeric", "float8", "real")


class Question(NamedTuple):
    """What is asked, of the publication and of the source; a count if there is no aggregate."""

    aggregate: str
    condition: str


def questions(texts: Sequence[str], chance: random.Random, n: int = 6) -> list[Question]:
    """So many operators, and about as many of all else that the allow-list has."""

    def drawn() -> str:
        return "'" + chance.choice(texts).replace("\\\\", "\\").replace("'", "''") + "'"

    others = (
        f"x IN ({drawn()}, {drawn()})",
        f"x NOT IN ({drawn()}, {drawn()})",
        f"x BETWEEN {drawn()} AND {drawn()}",
        f"x IS DISTINCT FROM {drawn()}",
        f"NOT (x < {drawn()} OR x = {drawn()})",
        "x IS NULL",
        f"COALESCE(x, {drawn()}) < {drawn()}",
        f"CASE WHEN x > {drawn()} THEN 1 ELSE 0 END = 1",
        f"NULLIF(x, {drawn()}) > {drawn()}",
        "x LIKE '%1%'",
        "x ILIKE 'N_'",
        f"CAST(x AS text) < {drawn()}",
        "CAST(x AS integer) < 10",
        "x < 10",
        "x + 1 > 10.5",
        "x = 0.1",
    )
    conditions = ("true", f"x < {drawn()}", f"x >= {drawn()} AND y < 3")
    return [
        *(Question("COUNT(*)", f"x {each} {drawn()}") for each in chance.sample(OPERATORS, n)),
        *(Question("COUNT(*)", condition) for condition in chance.sample(others, n)),
        *(Question(each, chance.choice(conditions)) for each in chance.sample(AGGREGATES, n)),
    ]


def misses(low: float | None, high: float | None, truth: Any) -> bool:
    """Whether bounds exclude the truth; NULL bounds exclude nothing.

    Sums and averages are exact here (`Battery.exactly`): PostgreSQL's own depend on the order of
    its records in their last digits. Interpolated percentiles are compared to twelve digits.
    """
    if truth is None:
        return False
    if isinstance(truth, Fraction):
        return (low is not None and low > truth) or (high is not None and high < truth)
    if isinstance(truth, date):  # Extremes of moments are answered in seconds since 1970.
        moment = truth if isinstance(truth, datetime) else datetime.combine(truth, time())
        truth = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    exact = above = below = Decimal(truth)
    given = [None if end is None else Decimal(end) for end in (low, high)]
    if exact.is_nan() or any(end is not None and end.is_nan() for end in given):
        # PostgreSQL has NaN after all numbers.
        return given[1] is not None and not given[1].is_nan() and exact.is_nan()
    if exact.is_finite() and (isinstance(truth, float) or exact != exact.to_integral_value()):
        above, below = (exact + sign * abs(exact) / 10**12 for sign in (1, -1))
    least, most = given
    return (least is not None and least > above) or (most is not None and most < below)


class Battery:
    """Asks, and collects what was wrong."""

    def __init__(self, admin: Connection, publisher: Connection, analyst: Connection) -> None:
        self._admin, self._publisher, self._analyst = admin, publisher, analyst
        self._type = ""
        self.wrong: list[str] = []

    def make(self, type_: str, texts: Sequence[str], n_rows: int = 100) -> None:
        """Make a table of a column ``x``; every tenth value is NULL."""
        self._type = type_
        self.drop()
        fetch(self._publisher, "DROP TABLE IF EXISTS data.every")
        fetch(self._publisher, f"CREATE TABLE data.every (x {type_}, y int, ill text)")
        with self._publisher.cursor().copy("COPY data.every FROM STDIN") as copy:
            for i in range(n_rows):
                text = "\\N" if i % 10 == 9 or not texts else texts[i * 7 % len(texts)]
                copy.write(f"{text}\t{i % 5}\ti{i * 17 % 6}\n")

    def drop(self) -> None:
        """Drop the publication, if there is one."""
        if value(self._admin, "SELECT count(*) FROM kanon.publications WHERE name = 'every'"):
            fetch(self._publisher, "SELECT kanon.drop_publication('every')")

    def ask(
        self,
        type_: str,
        kind: str,
        asked: Sequence[Question],
        role: str = "",
        groups: Sequence[str] = GROUPED,
    ) -> None:
        """Publish the table and compare all answers with it."""
        columns = "'{y}', sensitive => 'x'" if role else "'{x,y}', sensitive => 'ill'"
        self.drop()
        try:
            fetch(self._publisher, f"SELECT kanon.register_source('data.every', {columns})")
            fetch(
                self._publisher,
                f"SELECT kanon.publish_{kind}('data.every', 'every', {KINDS[kind]})",
            )
        except psycopg.Error as error:
            self._require_clear(error, f"{type_} {kind}")
            return
        for question in asked:
            self._compare(f"{type_} {kind}{role}", question)
        for aggregate in groups:
            self._compare_groups(f"{type_} {kind}{role}", aggregate)

    def _compare_groups(self, where: str, aggregate: str) -> None:
        query = f"SELECT x, {aggregate} FROM @ GROUP BY x"
        answers = self._answers(where, query)
        found = fetch(
            self._admin,
            f"SELECT to_jsonb(x) #>> '{{}}', {aggregate} FROM data.every GROUP BY x",
        ) if answers else []  # fmt: skip
        truth = dict(found)
        for key, low, high in answers:
            if key in truth and misses(low, high, truth[key]):
                self.wrong.append(f"{where} {aggregate} of {key}: {low}..{high}, {truth[key]}")

    def _compare(self, where: str, question: Question) -> None:
        query = f"SELECT {question.aggregate} FROM @ WHERE {question.condition}"
        for _, low, high in self._answers(where, query):
            own = query.replace("@", "data.every", 1)
            if " real " in f" {where} ":  # whose sums and texts have six digits
                for inner in ("(x)", "BY x)"):
                    own = own.replace(inner, inner.replace("x)", "x::float8)"), 1)
            try:
                truth = self.exactly(question.aggregate, question.condition)
                if truth is None:
                    truth = value(self._admin, own)
            except psycopg.Error:
                return  # the source fails
            if misses(low, high, truth):
                self.wrong.append(f"{where} {question}: {low}..{high}, {truth}")

    def exactly(self, aggregate: str, condition: str) -> Fraction | None:
        """Add up the numbers of the source without rounding, if that is what is asked for."""
        name, _, column = aggregate.rstrip(")").partition("(")
        if name not in ("SUM", "AVG"):
            return None
        number = f"{column}::float8" if (self._type, column) == ("real", "x") else column
        numbers = [
            number
            for (number,) in fetch(
                self._admin, f"SELECT {number} FROM data.every"
                f" WHERE {column} IS NOT NULL AND ({condition})",
            )
        ]  # fmt: skip
        if not numbers or not all(
            isinstance(number, int | float | Decimal) and math.isfinite(number)
            for number in numbers
        ):
            return None
        total = sum(map(Fraction, numbers), Fraction(0))
        return total if name == "SUM" else total / len(numbers)

    def _answers(self, where: str, query: str) -> list[tuple[Any, ...]]:
        """Return the key and the bounds of each group; nothing if the query is refused."""
        try:
            found = fetch(
                self._analyst,
                "SELECT group_key ->> 'x', lower_bound, upper_bound FROM kanon.estimate($1::text)",
                query.replace("@", "every", 1),
            )
        except psycopg.Error as error:
            self._require_clear(error, f"{where} {query}")
            return []
        return found

    def _require_clear(self, error: psycopg.Error, where: str) -> None:
        """A refusal is one of ours, or of a constant that is none of the column's type.

        Nobody lacks a right here: a role that may not use a function would be kanon_db's defect,
        as is what it calls a bug.
        """
        state = error.sqlstate or ""
        if state[:2] in ("", "38", "39", "XX", "P0") or state in ("42501", "KN000"):
            self.wrong.append(f"{where}: {error}")


@pytest.fixture(scope="module")
def battery(parties: Parties) -> Battery:
    for statement in SETUP:
        fetch(parties.publisher, statement)
    return Battery(parties.admin, parties.publisher, parties.analyst)


CASES = [*TYPES.items(), *ODD_NUMBERS.items()]
TRIED = [
    *(
        pytest.param(
            number,
            PLACES[number % len(PLACES) :][:1],
            2,
            id=f"{name}-{number}",
            marks=[pytest.mark.long] if number % 3 else [],
        )
        for number, (name, _) in enumerate(CASES)
    ),
    *(
        pytest.param(number, PLACES, 6, id=f"{name}-{number} everywhere", marks=pytest.mark.long)
        for number, (name, _) in enumerate(CASES)
    ),
]


@pytest.mark.pitfall(48)
@pytest.mark.parametrize(("case", "places", "n_of_each"), TRIED)
def test_bounds_of_every_type_hold_the_truth(
    battery: Battery, case: int, places: Sequence[tuple[str, str]], n_of_each: int
) -> None:
    type_, texts = CASES[case]
    chance = random.Random(case)  # noqa: S311  # made-up questions
    battery.make(type_, texts)
    before = len(battery.wrong)
    for kind, role in places:
        asked = questions(texts, chance, n_of_each)
        battery.ask(type_, kind, asked, role, chance.sample(GROUPED, min(2, n_of_each // 2)))
    assert battery.wrong[before:] == []


@pytest.mark.pitfall(48)
def test_types_without_a_case_of_their_own(parties: Parties, battery: Battery) -> None:
    """All that pg_type has but arrays: NULLs are published and counted, or the type is refused."""
    names = {
        name
        for (name,) in fetch(
            parties.admin,
            "SELECT format_type(oid, NULL) FROM pg_type WHERE typtype IN ('b', 'r', 'm')"
            " AND typnamespace = 'pg_catalog'::regnamespace AND typcategory <> 'A'",
        )
    }
    known = {
        value(parties.admin, "SELECT format_type(to_regtype($1::text), NULL)", type_)
        for type_ in TYPES
    }
    battery.drop()
    kanon, kept = Functions(parties.publisher), []
    for name in sorted(names - known):
        fetch(parties.publisher, f"CREATE TABLE data.odd AS SELECT 1 AS y, NULL::{name} AS x")
        refused = sqlstate_of(lambda: kanon.register("data.odd", ["x"], "y"))
        assert refused in (None, "42804"), name
        if refused is None:
            kept.append(name)
        fetch(parties.publisher, "DROP TABLE data.odd")
    columns = {f"x{number}": name for number, name in enumerate(kept)}
    nulls = ", ".join(f"NULL::{name} AS {column}" for column, name in columns.items())
    fetch(
        parties.publisher,
        f"CREATE TABLE data.odd AS SELECT {nulls}, i % 6 AS ill FROM generate_series(1, 30) AS i",
    )
    kanon.register("data.odd", list(columns), "ill")
    kanon.generalize("data.odd", "odd", k=4, method="mondrian", refine=False)
    for column, name in columns.items():
        answer = Functions(parties.analyst).estimate(
            f"SELECT COUNT(*) FROM odd WHERE {column} IS NULL"
        )
        assert answer == (30, 0, 30, 30), name


@pytest.mark.long
@pytest.mark.pitfall(48)
def test_random_tables_of_odd_numbers(battery: Battery) -> None:
    chance = random.Random(38)  # noqa: S311  # made-up tables
    before = len(battery.wrong)
    for _ in range(examples(40)):
        type_ = chance.choice(["float8", "real", "numeric", "bigint"])
        size = chance.choice([1, 1e6, 1e15, 1e18])
        texts = [str(int(chance.uniform(-size, size))) for _ in range(chance.randint(3, 30))]
        if type_ != "bigint":
            texts += [repr(chance.gauss(0, size)) for _ in range(chance.randint(0, 20))]
            texts += chance.sample(["NaN", "Infinity", "-Infinity", "1e30", "-1e30"], 2)[
                : chance.choice([0, 0, 1, 2])
            ]
        battery.make(type_, texts, n_rows=chance.randint(40, 100))
        asked = chance.sample(questions(texts, chance), 6)
        battery.ask(type_, chance.choice(list(KINDS)), asked)
    assert battery.wrong[before:] == []


@pytest.mark.long
@pytest.mark.pitfall(48)
@pytest.mark.parametrize(
    ("type_", "places", "digits"),
    [
        *((type_, PLACES[at : at + 2], (7,)) for at, type_ in enumerate(NUMBERS)),
        *(pytest.param(type_, PLACES, (1, 2, 7), marks=pytest.mark.long) for type_ in NUMBERS),
    ],
)
def test_sums_and_averages_hold_the_exact_truth(
    battery: Battery, type_: str, places: Sequence[tuple[str, str]], digits: Sequence[int]
) -> None:
    """Whatever adding up and dividing has rounded, of numbers that no float is."""
    chance = random.Random(type_)  # noqa: S311  # made-up tables
    before = len(battery.wrong)
    asked = [
        Question(aggregate, condition)
        for aggregate in ("SUM(x)", "AVG(x)", "SUM(y)", "AVG(y)")
        for condition in ("true", "y < 3", "ill = 'i1'", "x > 1")
    ]
    for n_digits in digits:
        texts = [
            str(i) if type_ == "int" else f"{chance.uniform(-9, 99):.{n_digits}f}"
            for i in range(40)
        ]
        battery.make(type_, texts)
        for kind, role in places:
            battery.ask(type_, kind, asked, role)
    assert battery.wrong[before:] == []


@pytest.mark.pitfall(49)
def test_the_error_of_a_top_coded_average_reaches_the_truth(parties: Parties) -> None:
    fetch(
        parties.publisher,
        "CREATE TABLE data.ages AS SELECT 20 + (i * 37) % 81 AS age,"
        " (array['a','b','c'])[1 + i % 3] AS dx FROM generate_series(1, 400) AS i",
    )
    fetch(
        parties.publisher,
        "SELECT kanon.register_source('data.ages', '{age}', 'dx',"
        ' attributes => \'{"age": {"top": 90}}\')',
    )
    fetch(parties.publisher, "SELECT kanon.publish_generalized('data.ages', 'ages', k => 5)")
    for condition in ("true", "dx = 'a'", "age > 50"):
        query = f"SELECT AVG(age) FROM {{}} WHERE {condition}"
        ((estimate, error),) = fetch(
            parties.analyst, "SELECT estimate, std_error FROM kanon.estimate($1::text)",
            query.format("ages"),
        )  # fmt: skip
        truth = float(value(parties.admin, query.format("data.ages")))
        assert abs(estimate - truth) <= error
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="FILTER"):
        fetch(
            parties.analyst,
            "SELECT kanon.estimate('SELECT CASE WHEN age >= 65 THEN 1 ELSE 0 END, COUNT(*)"
            " FROM ages GROUP BY 1')",
        )


@pytest.mark.pitfall(48)
def test_a_backslash_means_what_it_means_on_the_source(parties: Parties, battery: Battery) -> None:
    battery.make("text", ["a_b", "a\\\\\\\\b", "axb"])
    battery.ask("text", "generalized", [])
    query = r"SELECT COUNT(*) FROM every WHERE x LIKE 'a\_b'"
    ask = "SELECT lower_bound, upper_bound FROM kanon.estimate($1::text)"
    ((low, high),) = fetch(parties.analyst, ask, query)
    truth = value(parties.admin, query.replace("every", "data.every"))
    assert low <= truth <= high
    fetch(parties.analyst, "SET standard_conforming_strings = off")
    try:
        with pytest.raises(psycopg.Error, match="standard_conforming_strings"):
            fetch(parties.analyst, ask, query)
    finally:
        fetch(parties.analyst, "RESET standard_conforming_strings")
