"""The rule of figures: what is shown of few people, and that bounds stay true."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

import kanon_db
from kanon_db.errors import InvalidParameterError
from kanon_db.interfaces import cli
from kanon_db.interfaces.agent_server import AgentTools
from kanon_db.interfaces.cli.commands import NUMBERS
from kanon_db.interfaces.python import Kanon
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import Functions, Parties, create_source, fetch, hearing, value

RULE = '{"least": 6, "round": 5}'
NAMES = ("told_b", "told_g", "told_p")
COUNTS = (
    "COUNT(*)", "COUNT(*) FILTER (WHERE sick = 'd1')", "COUNT(visits)", "COUNT(DISTINCT town)",
    "SUM(CASE WHEN sick = 'd2' THEN 1 ELSE 0 END)", "CAST(COUNT(*) AS numeric)", "SUM(1)",
    "SUM(CASE WHEN age > 60 THEN 1.0 ELSE 0.0 END)", "SUM((age > 40 OR town = 't2')::int)",
)  # fmt: skip
OTHERS = ("SUM(visits)", "AVG(age)", "MAX(age)", "STDDEV(age)", "1.0 * SUM(age) / COUNT(*)")
CONDITIONS = (
    "age < 30", "age BETWEEN 20 AND 27", "town = 't3'", "sick IN ('d0', 'd3')", "visits > 2",
    "age > 60 AND sick = 'd1'", "town = 't1' OR age = 44",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def publications(parties: Parties) -> None:
    chance = random.Random(5)  # noqa: S311
    rows = [
        (chance.randint(18, 70), f"t{chance.randint(0, 5)}", chance.choice([None, 0, 0, 1, 2, 3]))
        for _ in range(300)
    ]
    rows = [(*row, f"d{chance.choice([0, 0, 0, 1, 1, 2, 3, 4])}") for row in rows]
    kanon = create_source(
        parties.publisher, "data.told", "age int, town text, visits int, sick text", rows
    )
    kanon.publish("data.told", "told_b", privacy='{"default": 0.8}', figures=RULE)
    kanon.generalize("data.told", "told_g", k=3, method="mondrian", figures=RULE)
    kanon.suppress("data.told", "told_p", k=3, figures=RULE)
    kanon.generalize("data.told", "plain_g", k=3, method="mondrian")
    kanon.publish("data.told", "plain_b", privacy='{"default": 0.8}')


@pytest.fixture
def reader(parties: Parties) -> Iterator[Kanon]:
    with parties.analyst.transaction():
        yield Kanon(PsycopgSession(parties.analyst))


def drawn_questions(n: int) -> list[tuple[str, list[str], str]]:
    """Draw questions: a publication, what is asked, and the rest of the statement."""
    chance, questions = random.Random(7), []  # noqa: S311
    for _ in range(n):
        items = [chance.choice(COUNTS), *chance.sample((*COUNTS, *OTHERS), 1)]
        where = f" WHERE {chance.choice(CONDITIONS)}" if chance.random() < 0.8 else ""
        group = chance.choice(["", "", "town", "sick"])
        questions.append((chance.choice(NAMES), list(dict.fromkeys(items)), where + "|" + group))
    return questions


def are_shown(numbers: tuple[Any, ...]) -> bool:
    """Whether no figure of a count is of fewer than six, or not rounded."""
    return all(n is None or n == 0 or (n >= 6 and n % 5 == 0) for n in numbers)


@pytest.mark.parametrize("n", [60, pytest.param(1000, marks=pytest.mark.long)])
def test_no_count_of_few_and_every_bound_true(parties: Parties, n: int) -> None:
    n_hidden = n_shown = 0
    for name, items, rest in drawn_questions(n):
        where, _, group = rest.partition("|")
        keys = [group] if group else []
        select, by = ", ".join([*keys, *items]), f" GROUP BY {group}" if group else ""
        question = f"SELECT {select} FROM {name}{where}{by}"
        truth = {
            row[0] if group else None: row[len(keys) :]
            for row in fetch(parties.publisher, f"SELECT {select} FROM data.told{where}{by}")
        }
        answers = fetch(
            parties.analyst,
            "SELECT group_key, estimate, std_error, lower_bound, upper_bound, likely_low,"
            " likely_high FROM kanon.estimate($1)",
            question,
        )
        for number, (key, *numbers) in enumerate(answers):
            place = number % len(items)
            group_truth = truth.get(key.get(group) if group else None)
            exact = 0 if group_truth is None else group_truth[place]
            estimate, _, low, high, likely_low, likely_high = numbers
            if items[place] in COUNTS:
                assert are_shown(tuple(numbers)), (question, numbers)
                assert low <= (exact or 0) <= high, (question, exact, numbers)
                n_hidden += estimate is None
                n_shown += estimate is not None
            if exact is not None and low is not None and high is not None:
                assert low <= float(exact) <= high, (question, exact, numbers)
            if None not in (estimate, likely_low, likely_high):
                assert likely_low <= estimate <= likely_high, (question, items[place], numbers)
    assert n_hidden > n / 10
    assert n_shown > n / 10


def test_it_is_the_same_everywhere(parties: Parties, reader: Kanon) -> None:
    question = "SELECT town, COUNT(*) FROM told_b WHERE age < 30 AND sick = 'd1' GROUP BY town"
    numbers = ", ".join(NUMBERS)
    with hearing(parties.analyst) as heard:
        rows = fetch(parties.analyst, f"SELECT {numbers} FROM kanon.estimate($1)", question)
    note = (
        "counts are 0 or at least 6, and rounded to 5; a missing estimate of a count means fewer"
        " than 6, and nothing else is told of so few"
    )
    assert heard == [note]
    frame = reader.count(question)
    assert frame.attrs["notes"] == [note]
    plain = frame[NUMBERS].astype(object)
    assert [tuple(row) for row in plain.where(plain.notna(), None).to_numpy()] == rows
    dsn = parties.dsn_of("analyst")
    ask = ["query", question, "--dsn", dsn]
    said = CliRunner().invoke(cli.main, [*ask, "--json"])
    assert [tuple(row[name] for name in NUMBERS)
            for row in json.loads(said.stdout)["rows"]] == rows  # fmt: skip
    assert CliRunner().invoke(cli.main, ask).stdout.count("fewer than 6") > 1


@pytest.mark.parametrize("n", [12, pytest.param(1000, marks=pytest.mark.long)])
def test_every_way_answers_alike(parties: Parties, n: int) -> None:
    """SQL, Python, the shell, and what a language model is told."""
    fetch(parties.admin, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    dsn = parties.dsn_of("analyst")
    numbers = ", ".join(NUMBERS)
    tools = AgentTools(dsn)
    try:
        for name, items, rest in drawn_questions(n):
            where, _, group = rest.partition("|")
            select = ", ".join([*([group] if group else []), *items])
            by = f" GROUP BY {group}" if group else ""
            question = f"SELECT {select} FROM {name}{where}{by}"
            wanted = fetch(parties.analyst, f"SELECT {numbers} FROM kanon.estimate($1)", question)
            with kanon_db.connect(dsn, on_warning=lambda _: None) as kanon:
                frame = kanon.count(question)[NUMBERS].astype(object)
            said = CliRunner().invoke(cli.main, ["query", question, "--dsn", dsn, "--json"])
            one = json.loads(said.stdout)
            ways = {
                "Python": list(frame.where(frame.notna(), None).itertuples(index=False, name=None)),
                "shell": _numbers(one.get("rows", [one])),
                "model": _numbers(tools.ask(question)["rows"]),
            }
            for way, rows in ways.items():
                assert rows == wanted, (way, question)
    finally:
        tools.close()


def _numbers(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in NUMBERS) for row in rows]


def test_a_caller_can_ask_for_it(parties: Parties, reader: Kanon) -> None:
    few = "SELECT COUNT(*) FROM plain_g WHERE age = 44 AND town = 't1'"
    plain = reader.estimate_count(few)
    assert plain.estimate is not None
    hidden = reader.estimate_count(few, figures={"least": 6, "round": 5})
    upper = -(-max(plain.upper_bound, 6) // 5) * 5
    assert (hidden.estimate, hidden.lower_bound, hidden.upper_bound) == (None, 0, upper)
    # Both rules hold, so nobody weakens the publication's.
    for rule in ({"least": 1, "round": 1}, {"round": 7}):
        frame = reader.count("SELECT town, COUNT(*) FROM told_g GROUP BY town", figures=rule)
        assert all(n % 5 == 0 for n in frame["estimate"])
    with pytest.raises(InvalidParameterError, match="least must be a whole number"):
        reader.count(few, figures='{"least": 0}')
    with pytest.raises(InvalidParameterError, match="the figure is not known"):
        reader.count(few, figures={"lest": 6})


def test_nothing_is_told_of_sums_over_few(parties: Parties, reader: Kanon) -> None:
    """Also where few of many people add something to the sum."""
    rare = "SELECT min(age) FROM (SELECT age FROM data.told GROUP BY 1 HAVING count(*) < 6) AS t"
    age = value(parties.publisher, rare)
    calculated = ("1.0 * SUM(age) / COUNT(*)", "COALESCE(SUM(age), 0)", "COALESCE(STDDEV(age), 0)")
    for asked in ("SUM(age)", "AVG(age)", "MIN(age)", "STDDEV(age)", *calculated):
        (row,) = reader.count(f"SELECT {asked} FROM told_b WHERE age = {age}").to_dict("records")
        assert all(pd.isna(row[name]) for name in NUMBERS)
    added = f"SUM(CASE WHEN age = {age} THEN 7 ELSE 0 END)"
    (row,) = reader.count(f"SELECT {added} FROM told_b").to_dict("records")
    assert pd.isna(row["estimate"])
    frame = reader.count("SELECT COUNT(age), STDDEV(age) FROM told_b")
    assert frame["estimate"][1] == pytest.approx(15, rel=0.2)


def test_having_and_order_see_what_is_shown(reader: Kanon) -> None:
    asked = "SELECT age, COUNT(*) FROM told_b GROUP BY age"
    assert not len(reader.count(f"{asked} HAVING COUNT(*) BETWEEN 1 AND 5"))
    shown = reader.count(f"{asked} HAVING COUNT(*) > 0")["estimate"]
    assert len(shown)
    assert are_shown(tuple(shown))
    valued = "SELECT age, COUNT(visits) FROM told_b GROUP BY age"
    assert reader.count(valued)["estimate"].isna().any()
    for condition in ("SUM(visits) IS NULL", "COALESCE(SUM(visits), 0) < 1", "NOT SUM(visits) > 9"):
        chosen = reader.count(f"{valued} HAVING {condition}")["estimate"]
        assert not chosen.isna().any(), condition  # Where nobody has a value, SUM is NULL.
    for figure in ("COUNT(*)", "SUM(age)"):  # what is missing is not NULL, so it is not first
        first = reader.count(f"SELECT age, {figure} AS n FROM told_b GROUP BY age ORDER BY n DESC")
        assert not pd.isna(first["estimate"][0])
        assert pd.isna(first["estimate"].iloc[-1])


@pytest.mark.parametrize("name", NAMES)
def test_groups_are_aggregated_as_they_are_shown(
    parties: Parties, reader: Kanon, name: str
) -> None:
    question = (
        "SELECT COUNT(*) AS c, SUM(n) AS s, MAX(n) AS m, MIN(n) AS l, AVG(n) AS a FROM"
        " (SELECT town, sick, COUNT(*) AS n FROM {} GROUP BY town, sick) AS t"
    )
    (true,) = fetch(parties.publisher, question.format("data.told"))
    shown = reader.count(question.format(name))
    for place, row in enumerate(shown.itertuples()):
        low, high = row.lower_bound, row.upper_bound
        assert pd.isna(low) or low <= true[place]
        assert pd.isna(high) or high >= true[place]
        assert place == 4 or pd.isna(row.estimate) or are_shown((row.estimate,))


def test_files_and_reports_have_the_rule(parties: Parties, tmp_path: Path) -> None:
    with parties.publisher.transaction():
        kanon = Kanon(PsycopgSession(parties.publisher))
        for relation in ("sat", "view", "wgt"):
            with pytest.raises(InvalidParameterError, match="by the rule of figures"):
                kanon.export("plain_b", tmp_path / "told.csv", relation=relation, figures=RULE)
        with pytest.raises(InvalidParameterError, match="by the rule of figures"):
            kanon.export("told_b", tmp_path / "told.csv")
        kanon.export("told_b", tmp_path / "told.csv", relation="qit")
        kanon.export("told_g", tmp_path / "rows.csv")
        report = kanon.report("told_g", figures={"least": 10})
        assert "the smallest has fewer than 10 records" in report
        assert "300</b> records in the source" in report


def test_a_report_tells_nothing_of_few(parties: Parties) -> None:
    """Three people are unlike all others: none of the numbers that say so is in the report."""
    rows = [(i // 40, f"t{i % 3}", f"d{i % 5}") for i in range(120)]
    rows += [(97, "t7", "d1"), (98, "t8", "d2"), (99, "t9", "d9")]
    kanon = create_source(parties.publisher, "data.few", "age int, town text, sick text", rows)
    kanon.generalize("data.few", "few", k=20, max_suppressed="0.05", method="mondrian")
    with parties.publisher.transaction():
        asked = Kanon(PsycopgSession(parties.publisher))
        exact, shown = asked.report("few"), asked.report("few", figures=RULE)
        by_town = asked.count("SELECT town, COUNT(*) FROM few GROUP BY town", figures=RULE)
    assert "not listed: fewer than 6 records are left out" in by_town.attrs["notes"][-1]
    rare = {
        "left out": ("<b>123</b> records in the source; 3 have no row", "fewer than 6 have no row"),
        "alone": ('original" class="n">2.44 %</td>', 'original" class="n">fewer than 6</td>'),
        "attacked": ('class="n">3</td>', 'class="n">fewer than 6</td>'),
        "checked": ("3 suppressed", "every record is published once, or suppressed"),
        "parameter": ("<code>suppressed</code></dt><dd><code>3</code>", "<dd><code>fewer"),
    }  # fmt: skip
    for what, (told, instead) in rare.items():
        assert told in exact, what
        assert told not in shown, what
        assert instead in shown, what
    assert exact.count("not shown") < shown.count("not shown")
    kanon.drop("few")


def test_a_refreshed_and_a_loaded_publication_keep_it(parties: Parties) -> None:
    names = Functions(parties.publisher).publications()
    found = fetch(
        parties.publisher,
        "SELECT name, parameters -> 'figures' FROM kanon.publications WHERE name = ANY ($1)",
        names,
    )
    rule = {"least": 6, "round": 5}
    assert dict(found) == {**dict.fromkeys(NAMES, rule), "plain_b": None, "plain_g": None}
