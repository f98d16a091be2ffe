"""Columns with too many different ranges to number them: where each begins and ends."""

from __future__ import annotations

import random
from datetime import date, timedelta

import psycopg
import pytest

from kanon_db.answers import evidence, evidence_sql, scope
from kanon_db.answers.estimates import AnswerRow, answer
from kanon_db.publications.rows import class_table
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_table,
    fetch,
    keep_cells_with_rows,
    value,
)

N_RECORDS = 300
CHECK = "the numbers of the cells are those of the rows"
NAMES = ("wide_classes", "wide_graph")
ENDED = ["born", "wage"]
QUESTIONS = (
    "SELECT COUNT(*) FROM {} WHERE born < '1990-01-01'",
    "SELECT COUNT(*) FROM {} WHERE NOT born BETWEEN '1985-01-01' AND '1990-01-01' AND wage > 5000",
    "SELECT COUNT(*) FROM {} WHERE extract(month FROM born) = 3 OR sick = 'flu'",
    "SELECT COUNT(*) FROM {} WHERE wage % 7 = 2 AND sex = 'f'",
    "SELECT COUNT(*) FROM {} WHERE born IS NULL",
    "SELECT COUNT(*) FROM {} WHERE (born > '1985-05-05') IS UNKNOWN OR wage <> 1234",
    "SELECT COUNT(wage), COUNT(*) FILTER (WHERE wage > 0) FROM {} WHERE sick IS NOT NULL",
    "SELECT sick, COUNT(*) FROM {} WHERE born >= '1988-01-01' GROUP BY sick",
    "SELECT sex, AVG(ward) FROM {} WHERE wage BETWEEN 1000 AND 7000 GROUP BY sex",
    "SELECT COUNT(*) FROM {} WHERE wage < 99999999999 AND born < '2030-01-01'",
    "SELECT COUNT(*) FROM {} WHERE wage > 2000 AND wage % 2 = 0",
    "SELECT COUNT(*) FROM {} WHERE wage IN (1000, 2000, 3000) AND born <> '1990-01-01'",
)
OTHERWISE = (  # more is asked than how likely a condition on one of the columns is
    "SELECT MIN(wage), percentile_disc(0.5) WITHIN GROUP (ORDER BY wage) FROM {}",
    "SELECT COUNT(*) FROM {} WHERE CASE WHEN wage < 3000 THEN sick = 'flu' ELSE sex = 'f' END",
    "SELECT AVG(wage) FROM {} WHERE sick = 'flu'",
    "SELECT COUNT(*) FROM {} WHERE wage > ward",
    "SELECT COUNT(*) FROM {} WHERE wage > 1000 AND extract(year FROM born) = wage",
    "SELECT COUNT(*) FROM {} WHERE 9 / (wage + 1) = 0",
)


@pytest.fixture(scope="module", autouse=True)
def published(parties: Parties) -> None:
    draw = random.Random(5)  # noqa: S311  # made-up data
    rows = [
        (
            None if draw.random() < 0.05 else date(1980, 1, 1) + timedelta(draw.randrange(5000)),
            draw.choice([None, draw.randrange(9000), draw.randrange(9000)]),
            draw.choice("fm"),
            draw.randrange(5),
            draw.choice(["flu", "cold", None]),
        )
        for _ in range(N_RECORDS)
    ]
    columns = "born date, wage bigint, sex text, ward int, sick text"
    create_table(parties.publisher, "data.wide", columns, rows)
    kanon = Package(parties.publisher)
    kanon.register("data.wide", ["born", "wage", "sex"], "sick", insensitive=["ward"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(class_table, "MOST_NUMBERED", 9)
        patch.setattr(class_table, "MOST_CELLS", 8)  # fewer, as they are
        kanon.generalize("data.wide", "wide_classes", k=3, method="mondrian")
        kanon.freeform("data.wide", "wide_graph", k=3)


def ended(parties: Parties, name: str) -> object:
    query = "SELECT layout -> 'classes' -> 'ends' FROM kanon.publication WHERE name = $1"
    return value(parties.admin, query, name)


def holds(parties: Parties, name: str) -> bool:
    return bool({row[0]: row[3] for row in Functions(parties.admin).verify(name)}[CHECK])


def asked(parties: Parties, query: str) -> list[AnswerRow]:
    session = PsycopgSession(parties.analyst)
    with session.transaction():
        return answer(session, query).rows


def method(parties: Parties, query: str) -> str:
    lines = fetch(parties.analyst, "SELECT * FROM kanon.explain_count($1)", query)
    return str({line[0]: line[1] for line in lines}["method"])


def test_no_column_has_both_ends_and_shares() -> None:
    assert class_table.MOST_CELLS <= class_table.MOST_NUMBERED


@pytest.mark.parametrize("name", NAMES)
def test_they_are_those_of_the_rows(parties: Parties, name: str) -> None:
    assert ended(parties, name) == ENDED
    assert all(row[3] for row in Functions(parties.admin).verify(name))
    whole = f"SELECT {{}}(born)) FROM published.{name}"
    least, most = (value(parties.admin, whole.format(f)) for f in ("min(lower", "max(upper"))
    cell = f"SELECT born FROM published.{name}_cls WHERE attribute = 'born' AND codes IS NULL"
    found = value(parties.admin, cell)
    assert (found.lower, found.upper) == (least, most)


def is_stored(parties: Parties, query: str, patch: pytest.MonkeyPatch) -> bool:
    """Whether the types of records are read from the table of classes alone."""
    with patch.context() as inner:
        inner.setattr(evidence.ListedTypes, "all", lambda _: iter(()))
        stored = asked(parties, query)
    return stored == asked(parties, query)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("question", [*QUESTIONS, *OTHERWISE])
def test_both_ways_give_the_same_answers(
    parties: Parties, name: str, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view answers what the ends of ranges do not: what its values are, one by one."""
    query = question.format(name)
    assert method(parties, query).startswith(scope.BY_CLASSES)
    assert is_stored(parties, query, monkeypatch) == (question in QUESTIONS)
    found = asked(parties, query)
    monkeypatch.setattr(scope, "_class_table", lambda *_: None)
    wanted = asked(parties, query)
    assert [row.group_key for row in found] == [row.group_key for row in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.estimate == pytest.approx(other.estimate, abs=1e-6)
        assert one.std_error == pytest.approx(other.std_error, abs=1e-6)
        assert (one.lower_bound, one.upper_bound) == (other.lower_bound, other.upper_bound)


@pytest.mark.parametrize(("limit", "question"), [("MOST_BETWEEN", 0), ("MOST_TRIED", 2)])
def test_so_many_values_are_not_tried(
    parties: Parties, limit: str, question: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = QUESTIONS[question].format("wide_classes")
    wanted = asked(parties, query)
    monkeypatch.setattr(evidence_sql, limit, 100)
    (found,) = asked(parties, query)
    assert found.estimate == pytest.approx(wanted[0].estimate)


@pytest.mark.pitfall(4)
@pytest.mark.parametrize("name", NAMES)
def test_they_do_not_depend_on_the_order_of_rows(parties: Parties, name: str) -> None:
    with parties.admin.transaction(force_rollback=True):
        keep_cells_with_rows(parties.admin, name)
        fetch(parties.admin, f"CREATE TEMP TABLE t ON COMMIT DROP AS TABLE published.{name}_row")
        fetch(parties.admin, f"DELETE FROM published.{name}_row")
        fetch(
            parties.admin, f"INSERT INTO published.{name}_row SELECT * FROM t ORDER BY wage, born"
        )
        fetch(parties.admin, f"REFRESH MATERIALIZED VIEW published.{name}")
        assert holds(parties, name)


CELL = "attribute = 'born' AND codes IS NULL"
CODES = "attribute = 'born' AND codes IS NOT NULL"


@pytest.mark.parametrize(
    "change",
    [
        f"UPDATE {{}} SET born = daterange(lower(born) - 1, upper(born)) WHERE {CELL}",
        f"UPDATE {{}} SET born = daterange(lower(born), upper(born) + 1) WHERE {CELL}",
        f"UPDATE {{}} SET born = daterange(lower(born) + 1, upper(born)) WHERE {CELL}",
        f"UPDATE {{}} SET born = daterange(lower(born), NULL) WHERE {CELL}",
        f"UPDATE {{}} SET born = NULL WHERE {CELL}",
        f"UPDATE {{}} SET records = records - 1 WHERE {CELL}",
        f"UPDATE {{}} SET number = 1 WHERE {CELL}",
        f"DELETE FROM {{}} WHERE {CELL}",
        f"INSERT INTO {{0}} SELECT * FROM {{0}} WHERE {CELL}",
        f"UPDATE {{}} SET codes = set_byte(codes, 0, 1 + get_byte(codes, 0)) WHERE {CODES}",
        f"UPDATE {{}} SET codes = codes || '\\x0000000000000000'::bytea WHERE {CODES}",
        f"DELETE FROM {{}} WHERE {CODES}",
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_changed_is_found(parties: Parties, name: str, change: str) -> None:
    with parties.admin.transaction(force_rollback=True):
        fetch(parties.admin, change.format(f"published.{name}_cls"))
        assert not holds(parties, name)


@pytest.mark.parametrize(
    "codes",
    ["substr(codes, 2)", "set_byte(codes, 7, 255)", "set_byte(codes, 3, 127)", "''::bytea"],
)
def test_an_answer_from_changed_ends_is_refused(parties: Parties, codes: str) -> None:
    with parties.admin.transaction(force_rollback=True):
        fetch(parties.admin, f"UPDATE published.wide_graph_cls SET codes = {codes} WHERE {CODES}")
        with pytest.raises(psycopg.Error, match="changed"):
            fetch(
                parties.admin,
                "SELECT * FROM kanon.estimate($1)",
                QUESTIONS[0].format("wide_graph"),
            )


def test_ranges_without_an_end_have_none(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    kanon = Package(parties.publisher)
    fetch(parties.publisher, "CREATE TABLE data.topped AS TABLE data.wide")
    kanon.register(
        "data.topped", ["born", "wage", "sex"], "sick", insensitive=["ward"],
        attributes={"wage": {"top": 8000}},
    )  # fmt: skip
    monkeypatch.setattr(class_table, "MOST_NUMBERED", 9)
    kanon.generalize("data.topped", "endless", k=3, method="mondrian")
    assert ended(parties, "endless") == ["born"]
    assert all(row[3] for row in Functions(parties.admin).verify("endless"))
