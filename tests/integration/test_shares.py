"""Estimates from the distribution that published cells imply, against the same by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest

from kanon_db.answers.estimates import answer, open_query
from kanon_db.answers.likelihoods import DEPENDENT, MISLED, TOGETHER
from kanon_db.answers.rows import coded_rows
from kanon_db.answers.rows.coded_rows import CountedRows, TypeCounter, record_types
from kanon_db.answers.rows.value_counts import ValueCounts
from kanon_db.answers.scope import OpenQuery
from kanon_db.publications.rows import cell_columns
from kanon_db.publications.rows.cell_columns import RangeColumn
from kanon_db.query.formulas import common_spelling
from kanon_db.query.sql import Request
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.bucket_ways import as_in_the_paper
from tests.integration.frozen import SKEWED, parties
from tests.integration.parties import Functions, Parties, create_source, failed_checks, fetch, value
from tests.rewritten import compared

__all__ = ["parties"]


class ByHand:
    """The table of shares, as Python reads it."""

    def __init__(self, parties: Parties, name: str) -> None:
        self.rows = fetch(
            parties.analyst,
            f"SELECT {', '.join(f'{c}::text' for c in SKEWED)} FROM published.{name}",
        )
        self.lines: dict[str, dict[str, Any]] = {c: {} for c in SKEWED}
        for attribute, *line in fetch(
            parties.analyst,
            "SELECT attribute, cell, shares, first, last, own, points, known"
            f" FROM published.{name}_est",
        ):
            self.lines[attribute][line[0]] = line[1:]
        self.elements = dict(
            fetch(parties.analyst, f"SELECT DISTINCT job::text, job FROM published.{name}")
        )

    def likelihood(self, column: str, cell: str | None, meets: Callable[[Any], bool]) -> float:
        """How likely a record with this cell meets a condition that NULL does not meet."""
        if cell is None or cell == "(,)":
            return 0.0
        shares, first, last, own, *_ = self.lines[column][cell]
        if column == "job":
            return sum(
                share
                for share, job in zip(shares, self.elements[cell], strict=True)
                if job is not None and meets(job)
            )
        low, high = self.ends(column, cell)
        parts, *_, points, trust = self.lines[column][None]
        inside = list(zip(parts, points, strict=True))[first - 1 : last]
        met = sum(p for p, at in inside if meets(self.read(column, at)))
        values = self.between(column, low, high)
        evenly = sum(map(meets, values)) / len(values)
        rest = trust * met / sum(p for p, _ in inside) + (1 - trust) * evenly
        return float(own) * (meets(low) + meets(high)) + (1 - 2 * float(own)) * rest

    def between(self, column: str, low: Any, high: Any) -> list[Any]:
        if column == "day":
            return [f"{low[:-2]}{day:02}" for day in range(int(low[-2:]), int(high[-2:]) + 1)]
        return list(range(low, high + 1))

    def read(self, column: str, text: str) -> Any:
        return text if column == "day" else int(text)

    def ends(self, column: str, cell: str) -> tuple[Any, Any]:
        low, high = cell.strip("[)").split(",")
        if column == "day":
            return low, f"{high[:-2]}{int(high[-2:]) - 1:02}" if high < "2020-02" else "2020-01-31"
        return int(low), int(high) - 1


CONDITIONS: dict[str, list[tuple[str, Callable[[Any], bool]]]] = {
    "age": [("age < 25", lambda x: x < 25), ("age % 2 = 0", lambda x: x % 2 == 0)],
    "job": [("job = 'nurse'", lambda x: x == "nurse"), ("job > 'cook'", lambda x: x > "cook")],
    "pay": [("pay < 500", lambda x: x < 500), ("pay BETWEEN 200 AND 20000",
             lambda x: 200 <= x <= 20000)],
    "day": [("day > '2020-01-09'", lambda x: x > "2020-01-09")],
}  # fmt: skip


each_kind = pytest.mark.parametrize("name", ["classes", "graph"])


def estimated(parties: Parties, query: str) -> tuple[float, float, float, float]:
    ((_, _, *found),) = fetch(parties.analyst, "SELECT * FROM kanon.estimate($1::text)", query)
    estimate, error, lower, upper, *_ = found
    return estimate, error, lower, upper


@pytest.mark.long
@each_kind
def test_conditions(parties: Parties, name: str) -> None:
    by_hand = ByHand(parties, name)

    def likely(column: str, meets: Callable[[Any], bool]) -> list[float]:
        place = SKEWED.index(column)
        return [by_hand.likelihood(column, row[place], meets) for row in by_hand.rows]

    for column, text, meets in ((c, *one) for c, all_ in CONDITIONS.items() for one in all_):
        # pay has parts, which may reach over the end of a condition that a cell meets surely.
        tolerance = 3.0 if column == "pay" else 1e-6
        estimate, _, lower, upper = estimated(parties, f"SELECT COUNT(*) FROM {name} WHERE {text}")
        assert estimate == pytest.approx(sum(likely(column, meets)), abs=tolerance), text
        truth = value(parties.publisher, f"SELECT count(*) FROM frozen.skewed WHERE {text}")
        assert lower <= truth <= upper
        assert lower <= estimate <= upper
    estimate, *_ = estimated(
        parties,
        f"SELECT COUNT(*) FROM {name} WHERE age < 25 AND (job = 'nurse' OR day > '2020-01-09')",
    )
    by_column = (likely(c, CONDITIONS[c][0][1]) for c in ("age", "job", "day"))
    assert estimate == pytest.approx(
        sum(age * (1 - (1 - job) * (1 - day)) for age, job, day in zip(*by_column, strict=True))
    )


@pytest.mark.long
@each_kind
def test_groups_and_sums_agree_with_counts(parties: Parties, name: str) -> None:
    """Where a column is listed value by value, its values have the same shares."""
    kanon = Functions(parties.analyst)
    answered = "SELECT group_key ->> 'k', estimate FROM kanon.estimate_counts($1::text)"
    groups = fetch(
        parties.analyst,
        answered,
        f"SELECT day AS k, COUNT(*) FROM {name} WHERE sick <> 'flu' GROUP BY k",
    )
    for day, estimate in groups[:10]:
        query = f"SELECT COUNT(*) FROM {name} WHERE day = '{day}' AND sick <> 'flu'"
        assert estimate == pytest.approx(kanon.estimate(query)[0], abs=1e-6)
    total, *_ = estimated(parties, f"SELECT SUM(EXTRACT(day FROM day)) FROM {name}")
    everybody = fetch(
        parties.analyst, answered, f"SELECT day AS k, COUNT(*) FROM {name} GROUP BY k"
    )
    assert total == pytest.approx(sum(int(day[-2:]) * n for day, n in everybody))
    # One quantity has one error.
    condition = "day < '2020-01-09' AND job = 'nurse'"
    counted = estimated(parties, f"SELECT COUNT(*) FROM {name} WHERE {condition}")
    summed = f"SELECT SUM(CASE WHEN {condition} THEN 1 ELSE 0 END) FROM {name}"
    assert estimated(parties, summed) == pytest.approx(counted)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("classes", "age / 5"),
        ("classes", "age % 3"),
        ("classes", "date_trunc('week', day)::date"),
        ("graph", "date_trunc('week', day)::date"),
        ("graph", "EXTRACT(day FROM day) % 4"),
    ],
)
def test_a_group_is_the_count_of_its_condition(parties: Parties, name: str, key: str) -> None:
    """Values that a group does not tell apart are listed as one, with what they add up to."""
    also = "day > '2020-01-02' AND sick <> 'flu'"
    query = f"SELECT {key} AS k, COUNT(*) FROM {name} WHERE {also} GROUP BY k"
    groups = groups_of(parties, query)
    assert len(groups) > 2
    for group, found in groups.items():
        condition = f"{key} = '{group}'" if group is not None else f"{key} IS NULL"
        alone = estimated(parties, f"SELECT COUNT(*) FROM {name} WHERE {also} AND {condition}")
        assert found == pytest.approx(alone, abs=1e-6), group


def groups_of(parties: Parties, query: str) -> dict[str | None, tuple[float, ...]]:
    return {
        key: tuple(found)
        for key, *found in fetch(
            parties.analyst,
            "SELECT group_key ->> 'k', estimate, std_error, lower_bound, upper_bound"
            " FROM kanon.estimate_counts($1::text)",
            query,
        )
    }


def test_dates_of_a_lifetime_are_grouped_by_year(parties: Parties) -> None:
    """Cells of more than 20,000 days; narrower ones show that most people are young."""
    draw = random.Random(4)  # noqa: S311
    rows = [
        (
            max(0, place - 300),
            f"{1930 + int(86 * draw.random() ** 0.2)}-0{draw.randrange(1, 10)}-11",
            "x",
        )
        for place in range(600)
    ]
    kanon = create_source(parties.publisher, "data.lives", "place int, born date, sick text", rows)
    kanon.generalize("data.lives", "lives", k=10, method="initial", refine=False)
    query = "SELECT EXTRACT(YEAR FROM born)::int::text AS k, COUNT(*) FROM {} GROUP BY k"
    groups = groups_of(parties, query.format("lives").replace("::int::text", ""))
    for year, n in fetch(parties.publisher, query.format("data.lives")):
        assert groups[year][2] <= n <= groups[year][3]
    assert sum(found[0] for found in groups.values()) == pytest.approx(600)
    evenly, widest = fetch(
        parties.analyst,
        "SELECT sum((upper(in_it) - lower(in_it))::float8 / (upper(born) - lower(born))),"
        " max(upper(born) - lower(born)) FROM published.lives,"
        " LATERAL (SELECT born * '[1990-01-01,1991-01-01)'::daterange) AS year (in_it)"
        " WHERE NOT isempty(in_it)",
    )[0]
    assert widest > 20_000
    assert groups["1990"][0] == pytest.approx(evenly)
    alone = estimated(parties, "SELECT COUNT(*) FROM lives WHERE EXTRACT(YEAR FROM born) = 1990")
    assert alone[0] != pytest.approx(groups["1990"][0], rel=0.05)  # follows the shares of parts


def test_averages_of_skewed_columns(parties: Parties) -> None:
    truth = float(value(parties.publisher, "SELECT avg(pay) FROM frozen.skewed"))
    for name in ("classes", "graph"):
        estimate, error, lower, upper = estimated(parties, f"SELECT AVG(pay) FROM {name}")
        assert lower <= truth <= upper
        assert abs(estimate - truth) < 0.1 * truth
        assert 0 < error < 0.2 * truth


def test_the_papers_estimator_is_a_choice(parties: Parties) -> None:
    """Every value of a cell as likely as the others; the bounds are the same."""
    query = "SELECT COUNT(*) FROM classes WHERE age < 25"
    own = estimated(parties, query)
    with as_in_the_paper(parties.analyst):
        evenly = estimated(parties, query)
    by_hand = (
        "SELECT sum((least(25, upper(age)) - least(25, lower(age)))::float8"
        " / (upper(age) - lower(age))) FROM published.classes WHERE NOT lower_inf(age)"
    )
    assert evenly[0] == pytest.approx(value(parties.analyst, by_hand))
    assert evenly[2:] == own[2:]
    assert not math.isclose(evenly[0], own[0])
    with parties.analyst.transaction(force_rollback=True):
        parties.analyst.execute("SET LOCAL kanon.estimator = 'papper'")
        with pytest.raises(psycopg.Error, match="estimator is not known") as raised:
            estimated(parties, query)
        assert "paper" in (raised.value.diag.message_hint or "")


@each_kind
def test_the_shares_follow_from_the_rows(parties: Parties, name: str) -> None:
    """Readers get nothing from the table that they could not make of the view themselves."""
    cells = fetch(parties.analyst, f"SELECT DISTINCT attribute, cell FROM published.{name}_est")
    shown = {
        (column, cell)
        for column in SKEWED
        for (cell,) in fetch(
            parties.analyst, f"SELECT DISTINCT {column}::text FROM published.{name}"
        )
    }
    assert {(a, c) for a, c in cells if c is not None} <= shown
    assert failed_checks(parties.analyst, name) == []
    with parties.admin.transaction(force_rollback=True):
        fetch(
            parties.admin,
            f"INSERT INTO published.{name}_est SELECT * FROM published.{name}_est"
            " WHERE attribute = 'age' AND cell IS NOT NULL LIMIT 1",
        )
        assert failed_checks(parties.admin, name) == [
            "the shares of the values of each cell add up to one"
        ]
        with pytest.raises(psycopg.Error, match="have changed"):
            Functions(parties.admin).estimate(f"SELECT COUNT(*) FROM {name} WHERE age < 40")
    for change in (
        "own = 0.7 WHERE own IS NOT NULL", "last = 9999 WHERE last IS NOT NULL",
        "known = 1.5 WHERE cell IS NULL", "known = 'NaN' WHERE shares IS NOT NULL",
        "attribute = 'aged' WHERE attribute = 'age'", "attribute = 'job' WHERE attribute = 'age'",
        "cell = cell || ' ' WHERE attribute = 'day'", "points = points[2:] WHERE cell IS NULL",
        "shares = shares || 0::float8 WHERE attribute = 'job'",
    ):  # fmt: skip
        with parties.admin.transaction(force_rollback=True):
            fetch(parties.admin, f"UPDATE published.{name}_est SET {change}")
            failed = failed_checks(parties.admin, name)
        assert "the shares of the values of each cell add up to one" in failed, change


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "where", "estimator", "column"),
    [
        ("classes", "", "published", "pay"),
        ("graph", "WHERE job = 'nurse'", "paper", "age"),
        ("graph", "WHERE sick <> 'flu' OR day IS NULL", "published", "age"),
    ],
)
def test_counts_below_many_values_are_those_of_a_statement_each(
    parties: Parties, name: str, where: str, estimator: str, column: str
) -> None:
    """What percentiles are found from, at the ends of ranges and elsewhere."""
    session = PsycopgSession(parties.analyst)
    with parties.analyst.transaction(force_rollback=True):
        parties.analyst.execute(f"SET LOCAL kanon.estimator = '{estimator}'")
        opened = open_query(session, f"SELECT MAX({column}) FROM {name} {where}")
        (cells,) = ValueCounts.blocks(opened, opened.query.measures[0].aggregate)
        group = cells.group(common_spelling("{}"))
        bounds = {int(at): ends for at, ends in zip(group.boundaries, group.bounds.T, strict=True)}
        places = group.places.tolist()
        for boundary in {1, 2, len(places) // 3, len(places) // 2, len(places) - 1, len(places)}:
            for is_above in (False, True):
                condition = f"{column} {'>' if is_above else '<='} {places[boundary - 1]!r}"
                both = f"{where} AND {condition}" if where else f"WHERE {condition}"
                if " OR " in where:
                    both = f"WHERE ({where[6:]}) AND {condition}"
                asked = Functions(parties.analyst).estimate(f"SELECT COUNT(*) FROM {name} {both}")
                found = group.count(boundary, is_above=is_above)
                assert (found.lower_bound, found.upper_bound) == asked[2:]
                if boundary in bounds:
                    assert tuple(bounds[boundary][2 * is_above :][:2]) == asked[2:]
                assert found.estimate == pytest.approx(asked[0], rel=1e-6, abs=1e-6)
                if not where:
                    assert found.std_error == pytest.approx(asked[1], rel=1e-6, abs=1e-6)


def test_whole_numbers_of_another_type_stay_whole(parties: Parties) -> None:
    """Heights in inches, as floating-point numbers: BETWEEN includes both ends."""
    draw = random.Random(20)  # noqa: S311  # made-up data
    rows = [(round(draw.gauss(67, 3)), draw.choice("mf"), draw.choice("ab")) for _ in range(2_000)]
    kanon = create_source(
        parties.publisher, "data.tall", "height float8, sex text, sick text", rows
    )
    kanon.generalize("data.tall", "tall", k=20, method="mondrian")
    for low, high in ((64, 66), (66, 66), (68, 71)):
        where = f"height BETWEEN {low} AND {high}"
        truth = value(parties.publisher, f"SELECT count(*) FROM data.tall WHERE {where}")
        estimate, error, *_ = estimated(parties, f"SELECT COUNT(*) FROM tall WHERE {where}")
        assert abs(estimate - truth) <= max(3 * error, 0.1 * truth)


def test_numbers_beyond_those_that_are_exact(parties: Parties) -> None:
    """The ends of bigint: published, and answered as if all values were as likely."""
    numbers = [2**63 - 1, -(2**63) + 1, 2**53, 1, 2, 3, 4, 5]
    rows = [(numbers[i % 8], "m", "ab"[i % 2]) for i in range(64)]
    kanon = create_source(parties.publisher, "data.huge", "x int8, sex text, sick text", rows)
    kanon.generalize("data.huge", "huge", k=9, method="mondrian")
    for where in ("x > 2", "x = 9223372036854775807", "x < 0", "x BETWEEN 1 AND 9007199254740992"):
        truth = value(parties.publisher, f"SELECT count(*) FROM data.huge WHERE {where}")
        query = f"SELECT COUNT(*) FROM huge WHERE {where}"
        estimate, _, lower, upper = estimated(parties, query)
        assert lower <= estimate <= upper
        assert lower <= truth <= upper
        assert compared(parties.analyst, query) == "equal"


def test_an_average_of_what_has_no_share_is_null_in_statements(parties: Parties) -> None:
    """A single number of a range is as unlikely as a point; of other groups, more is known."""
    rows = [(f"{i % 8 / 8}", "mf"[i % 3 > 0], "ab"[i % 2]) for i in range(64)]
    kanon = create_source(parties.publisher, "data.points", "x numeric, sex text, ill text", rows)
    kanon.generalize("data.points", "points", k=9, method="mondrian")
    query = "SELECT ill, AVG(x) FILTER (WHERE ill = 'a' OR x % 3 = 0) FROM points GROUP BY ill"
    averages = fetch(parties.analyst, "SELECT estimate FROM kanon.estimate($1)", query)
    assert sorted(average is None for (average,) in averages) == [False, True]
    assert compared(parties.analyst, query) == "equal"


def test_shares_of_one_up_to_rounding_tell_nothing_in_statements(parties: Parties) -> None:
    """Whatever was kept meets the condition; whether suppressed cells do, nobody knows."""
    draw = random.Random(4)  # noqa: S311  # made-up data
    rows = [
        (draw.choice([None, *range(4)]), draw.choice("abcdef"), f"i{draw.randint(0, 4)}")
        for _ in range(300)
    ]
    kanon = create_source(parties.publisher, "data.kept", "x int, g text, ill text", rows)
    for k in (5, 10):
        kanon.call("publish_suppressed", "data.kept", "kept", k=k)
        for condition in ("x < 5 OR x IS NULL", "x <= 3", "g <> 'g'", "g <> 'g' OR x = 1"):
            query = f"SELECT COUNT(*) FROM kept WHERE {condition}"
            assert compared(parties.analyst, query) == "equal"
        kanon.drop("kept")


def test_percentiles_of_more_ranges_than_memory_holds(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The values of each record give the same bounds."""
    query = "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY age) FROM classes"
    session = PsycopgSession(parties.analyst)
    with session.transaction():
        (row,) = answer(session, query).rows
        monkeypatch.setattr(ValueCounts, "_of_column", lambda *_: iter(()))
        (other,) = answer(session, query).rows
    assert (other.lower_bound, other.upper_bound) == (row.lower_bound, row.upper_bound)
    assert other.estimate == pytest.approx(row.estimate)


@pytest.mark.parametrize("name", ["classes", "graph"])
def test_percentiles_of_groups_are_the_same_in_blocks(
    parties: Parties, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Groups for which there is no room together are counted after one another."""
    query = f"SELECT job, percentile_cont(0.4) WITHIN GROUP (ORDER BY age) FROM {name} GROUP BY 1"
    session, n_blocks = PsycopgSession(parties.analyst), 0
    with session.transaction():
        wanted = answer(session, query).rows
        opened = open_query(session, query)
        aggregate = opened.query.measures[0].aggregate
        (counts,) = ValueCounts.blocks(opened, aggregate)
        n_cells = int(counts.sums.cell.max()) + 1
        monkeypatch.setattr(coded_rows, "_SUM_BYTES", opened.limits.kept // (n_cells + 1))
        n_blocks = len(list(ValueCounts.blocks(opened, aggregate)))
        assert answer(session, query).rows == wanted
    assert 1 < n_blocks <= len(wanted)


@pytest.mark.parametrize("name", ["classes", "graph"])
def test_extremes_of_groups_are_the_same_in_chunks(
    parties: Parties, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Groups are met in each chunk of the records, where these are more than fit at once."""
    query = (
        f"SELECT job, MIN(age), MAX(age), percentile_cont(0.4) WITHIN GROUP (ORDER BY age)"
        f" FROM {name} WHERE age > 30 OR job <> 'a' GROUP BY job"
    )
    session = PsycopgSession(parties.analyst)
    with session.transaction():
        wanted = answer(session, query).rows
        monkeypatch.setattr(coded_rows, "_MOST_BYTES", 100_000)
        for row, other in zip(answer(session, query).rows, wanted, strict=True):
            assert (row.lower_bound, row.upper_bound) == (other.lower_bound, other.upper_bound)
            assert row.estimate == pytest.approx(other.estimate)


def test_values_of_ranges_are_tried_in_blocks(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a few ranges at once, however many ranges there are."""
    draw = random.Random(21)  # noqa: S311  # made-up data
    rows = [(draw.gauss(67, 3), draw.choice("mf"), draw.choice("ab")) for _ in range(300)]
    kanon = create_source(
        parties.publisher, "data.exact", "height float8, sex text, sick text", rows
    )
    kanon.generalize("data.exact", "exact", k=5, method="mondrian")
    where = "CASE WHEN height > 66.5 THEN 1 ELSE 0 END = 1 OR height * height < 4300 AND sex = 'm'"
    query = f"SELECT COUNT(*) FROM exact WHERE {where}"
    session, sizes = PsycopgSession(parties.analyst), list[int]()
    split = RangeColumn.try_wide

    def try_wide(cells: RangeColumn, *given: Any) -> Any:
        sizes.append(len(cells._blocks))
        return split(cells, *given)

    with session.transaction():
        (row,) = answer(session, query).rows
        monkeypatch.setattr(cell_columns, "_TRIED_AT_ONCE", 7)
        monkeypatch.setattr(RangeColumn, "try_wide", try_wide)
        (other,) = answer(session, query).rows
    assert max(sizes) > 1
    assert (other.lower_bound, other.upper_bound) == (row.lower_bound, row.upper_bound)
    assert (other.estimate, other.std_error) == pytest.approx((row.estimate, row.std_error))


@each_kind
def test_errors_reach_from_learned_shares_to_even_ones(parties: Parties, name: str) -> None:
    """Whether what was learned is nearer to the truth, nobody knows."""
    session, n_apart = PsycopgSession(parties.analyst), 0
    for asked in (
        "COUNT(*) FROM {} WHERE age < 25",
        "COUNT(*) FROM {} WHERE job = 'nurse' AND day > '2020-01-09'",
        "COUNT(*) FROM {} WHERE age < 25 OR NOT job > 'cook'",
        "COUNT(*) FROM {} WHERE age > 21 AND age % 2 = 0",
        "COUNT(*) FROM {} WHERE (job = 'nurse') IS NOT TRUE",
        "COUNT(*) FROM {} WHERE pay < 3000",
        "COUNT(*) FROM {} WHERE pay BETWEEN 200 AND 20000",
        "SUM(age) FROM {} WHERE job = 'nurse'",
        "SUM(age) FROM {} WHERE age < 30 AND day > '2020-01-09'",
    ):
        query = f"SELECT {asked.format(name)}"
        learned, error, lower, upper = estimated(parties, query)
        with as_in_the_paper(parties.analyst):
            evenly = estimated(parties, query)[0]
        with session.transaction():
            rows = count_rows(open_query(session, query))
        of_sum = rows.moments is not None
        away = [rows.n @ one.away[-1] for one in rows.effects]
        if len(away) == 1:
            assert away[0] == pytest.approx(learned - evenly, abs=1e-6), query
        if not of_sum:
            base = without_learned(rows)
            found = math.sqrt(base + MISLED**2 * sum(one**2 for one in away))
            assert error == pytest.approx(min(found, (upper - lower) / 2), rel=1e-6), query
            n_apart += sum(one**2 for one in away) > base / 50
    assert n_apart >= 2


@each_kind
def test_a_dependence_on_published_values_is_allowed_for(parties: Parties, name: str) -> None:
    """Cells may go with what is published as it is, in the same direction in all of them."""
    session = PsycopgSession(parties.analyst)
    for where, is_joint in (("age < 25", False), ("age < 25 AND sick = 'flu'", True)):
        query = f"SELECT COUNT(*) FROM {name} WHERE {where}"
        with session.transaction():
            rows = count_rows(open_query(session, query))
        (away,) = (rows.n @ one.away[0] for one in rows.effects)
        allowed = estimated(parties, query)[1] ** 2 - without_learned(rows) - (MISLED * away) ** 2
        together = TOGETHER * DEPENDENT * (rows.n @ np.sqrt(rows.m * (1 - rows.m)))
        assert allowed == pytest.approx(is_joint * together**2, abs=1e-6)


def without_learned(rows: CountedRows) -> float:
    """Return the square of a count's error without what learned shares may mislead by."""
    off = [TOGETHER * (rows.n @ one.deviation(None)) for one in rows.effects]
    return float(rows.n @ (rows.m * (1 - rows.m)) + sum(one**2 for one in off))


def count_rows(opened: OpenQuery) -> CountedRows:
    """Count the types of records, which are few."""
    (measure,) = opened.query.measures
    request = Request(opened.query, measure.aggregate, opened.lookups)
    with record_types(opened, request, opened.layout) as types:
        (rows,) = (own for codes, n in types.all() for own in TypeCounter(types).counted(codes, n))
        return rows
