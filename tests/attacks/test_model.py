"""Attacks on a model: reading it, asking what it must not tell, asking in odd ways."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from kanon_db.cluster._host import find_programs
from kanon_db.errors import KanonError
from kanon_db.models.asking import encoding_of
from tests.attacks.models import GIVEN, ROW, ask, create_people, publish
from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    Parties,
    create_table,
    failed_checks,
    fetch,
    holds,
    remains,
    sqlstate_of,
    value,
)

INVALID, UNKNOWN, FORBIDDEN = "22023", "42704", "42501"


@pytest.fixture(scope="module")
def published(parties: Parties) -> Iterator[Parties]:
    """Models: ``open`` for everybody, ``told`` with logits, ``theirs`` for nobody, and rows."""
    create_people(parties.publisher)
    publish(parties.publisher, "open", input_noise="0")
    publish(parties.publisher, "told", logits=True)
    publish(parties.publisher, "theirs", readers=[])
    kanon = Functions(parties.publisher)
    kanon.suppress("data.people", "rows", k=5)
    yield parties
    for name in kanon.publications():
        kanon.drop(name)
    assert remains(parties.admin) == []


@pytest.mark.slow("the first of its module trains a model")
@pytest.mark.pitfall(12)
def test_nobody_reads_the_members(
    published: Parties, new_role: Callable[..., str], connect_as: Callable[[str, str], Connection]
) -> None:
    """Not another publisher, nor an analyst, with any statement that reads a table."""
    with connect_as(published.dsn, new_role("kanon_publisher")) as other:
        for connection in (published.analyst, published.stranger, other):
            for statement in (
                "TABLE published.open_net",
                "SELECT count(*) FROM published.open_net",
                "SELECT network FROM published.open_net",
                "COPY published.open_net TO STDOUT",
                "CREATE TEMPORARY TABLE taken AS TABLE published.open_net",
                "EXPLAIN ANALYZE SELECT FROM published.open_net WHERE network > ''",
                "DECLARE c CURSOR WITH HOLD FOR TABLE published.open_net",
                "UPDATE published.open_net SET network = ''",
                "DELETE FROM published.open_net",
            ):
                assert sqlstate_of(lambda: fetch(connection, statement)) == FORBIDDEN, statement
            assert fetch(connection, "SELECT * FROM pg_stats WHERE tablename = 'open_net'") == []
        dsn = published.dsn_of("analyst")
        program = find_programs(None).path("pg_dump")
        done = subprocess.run(
            [program, f"--dbname={dsn}", "--schema=published"], capture_output=True, text=True
        )
        assert done.returncode
        assert "COPY" not in done.stdout


@pytest.mark.pitfall(12)
def test_what_readers_see_has_nothing_of_anybody(published: Parties) -> None:
    """Names of features, declared ranges and values, digests: no relation has rows of people."""
    assert fetch(published.analyst, "TABLE published.open") == [
        ("age", "feature", "numeric", 0.0, 80.0, None, None),
        ("sex", "feature", "categorical", None, None, None, ["f", "m"]),
        ("sick", "label", "categorical", None, None, None, ["no", "yes"]),
    ]
    (entry,) = fetch(
        published.analyst, "SELECT p::text FROM kanon.publications AS p WHERE name = 'open'"
    )
    assert "canary" not in entry[0]
    assert "accuracy" not in entry[0]
    assert "accuracy" in str(
        fetch(published.publisher, "SELECT metrics FROM kanon.publications WHERE name = 'open'")
    )


@pytest.mark.pitfall(12)
def test_only_readers_ask(published: Parties, new_role: Callable[..., str]) -> None:
    """Also beside the functions, by the view that they insert into."""
    insert = (
        "INSERT INTO kanon.question (task, given, inputs) VALUES"
        " ($1::text, $2::text::jsonb, '\\x00') RETURNING answer"
    )
    for name in ("theirs", "rows", "none", "theirs_net", None):
        for task in ("classify", "members"):
            call = lambda: fetch(published.analyst, insert, task, json.dumps({"name": name}))
            assert sqlstate_of(call) == UNKNOWN, (name, task)
    assert sqlstate_of(lambda: ask(published.analyst, "theirs")) == UNKNOWN
    assert sqlstate_of(lambda: ask(published.analyst, "rows")) == INVALID
    for call in (
        lambda: ask(published.stranger, "open"),
        lambda: fetch(published.stranger, insert, "members", '{"name": "open"}'),
        lambda: fetch(published.analyst, 'SELECT kanon.asked(10::oid, \'{"name": "theirs"}\')'),
    ):
        assert sqlstate_of(call) == FORBIDDEN
    assert value(published.analyst, insert, "drop", '{"name": "open"}') is None
    assert ask(published.publisher, "theirs")


@pytest.mark.pitfall(2)
def test_look_alikes_are_not_asked(published: Parties) -> None:
    """Temporary relations and functions under the names that answering uses."""
    reader, before = published.analyst, ask(published.analyst, "open")
    with reader.transaction(force_rollback=True):
        for statement in (
            "CREATE TEMPORARY TABLE publication AS SELECT 'open' AS name, 'model' AS kind",
            "CREATE TEMPORARY TABLE open_net AS SELECT 1 AS member, '\\x00'::bytea AS network",
            "CREATE TEMPORARY TABLE question (task text, given text, inputs text, answer text)",
            "CREATE TEMPORARY TABLE setting AS SELECT 'published_schema' AS name, 'x' AS value",
            "CREATE TEMPORARY VIEW pg_class AS SELECT 1 AS oid",
            "CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1'",
            "CREATE FUNCTION pg_temp.abs(float8) RETURNS float8 LANGUAGE sql AS 'SELECT 1.0'",
            "SET search_path = pg_temp, pg_catalog",
        ):
            fetch(reader, statement)
        assert ask(reader, "open") == before
        assert holds(reader, "open")


MISTAKES: dict[str, Any] = {
    "no object": [1, 2],
    "a text": "age",
    "nothing": None,
    "no feature": {},
    "one feature": {"age": 3},
    "a text for a number": {**ROW, "age": "canary7f3b"},
    "an object for a number": {**ROW, "age": {"canary7f3b": 1}},
    "a list for a number": {**ROW, "age": [1, 2]},
    "a very long number": {**ROW, "age": "9" * 100_000 + "x"},
}
ODD: dict[str, Any] = {
    "a null": {**ROW, "age": None},
    "a large number": {**ROW, "age": 10**300},
    "the largest number": {**ROW, "age": -1.7e308},
    "a number beyond": {**ROW, "age": "1e999"},
    "not a number": {**ROW, "age": "NaN"},
    "infinity": {**ROW, "age": "-Infinity"},
    "true": {**ROW, "age": True},
    "an unknown value": {**ROW, "sex": "canary7f3b"},
    "a list for a text": {**ROW, "sex": [[[["f"]]]]},
    "an object for a text": {**ROW, "sex": {"f": {"m": None}}},
    "a very long text": {**ROW, "sex": "x" * 1_000_000},
    "more than it knows": {**ROW, "sick": "yes", "name": "canary7f3b", "": {}},
    "marks": {**ROW, "sex": "'; DROP TABLE kanon.publication; --"},
}


@pytest.mark.pitfall(10, 25)
@pytest.mark.parametrize("ways", [Functions, Package])
def test_hostile_rows(published: Parties, ways: type[Functions] | type[Package]) -> None:
    """They are answered or refused, and a refusal repeats no value."""

    def call(row: Any) -> Any:
        if ways is Package:
            return Package(published.analyst).kanon.perform(
                "classify", {"publication": "open", "features": row}
            )
        return fetch(
            published.analyst,
            "SELECT label FROM kanon.classify('open', $1::text::jsonb)",
            json.dumps(row),
        )

    for what, row in MISTAKES.items():
        with pytest.raises((KanonError, psycopg.Error)) as caught:
            call(row)
        assert caught.value.sqlstate == INVALID, what  # type: ignore[attr-defined]
        assert "canary" not in str(caught.value), what
    for what, row in ODD.items():
        assert call(row), what
    deep = "[" * 100_000 + "]" * 100_000
    for text in (
        f'{{"age": {deep}, "sex": "f"}}', '{"age": 1, "age": 2, "sex": "f"}', '{"age": NaN}',
    ):  # fmt: skip
        asked = lambda: Package(published.analyst).kanon.perform(
            "classify", {"publication": "open", "features": text}
        )
        assert sqlstate_of(asked) == INVALID


@pytest.mark.long
@pytest.mark.pitfall(25)
def test_hostile_inputs(published: Parties) -> None:
    """Rows that were encoded by somebody else: of another width, infinite, too many, none."""
    layout = value(published.analyst, "SELECT layout FROM kanon.publications WHERE name = 'open'")
    width = 4 * sum(feature.width for feature in encoding_of(layout).features)
    insert = (
        "INSERT INTO kanon.question (task, given, inputs) VALUES"
        ' (\'classify\', \'{"name": "open", "rows": -1}\', $1::bytea) RETURNING answer'
    )
    for inputs in (
        None, b"", b"\0", b"\0" * (width - 1), b"\0\0\xc0\x7f" * (width // 4),
        b"\0\0\x80\xff" * (width // 4), b"\0\0\x80\x40" * (width // 4), b"\0" * 40_000_000,
    ):  # fmt: skip
        answer = value(published.analyst, insert, inputs)
        assert answer["error"]["sqlstate"] == INVALID
    answer = value(published.analyst, insert, b"\0" * width * 3)
    assert len(answer["winners"]) == 3
    assert answer.keys() == {"winners", "shares", "logits", "left"}
    row = "jsonb_build_object('age', 3, 'sex', 'm')"
    rows = f"(SELECT jsonb_agg({row}) FROM generate_series(1, {{}}))"
    count = "SELECT count(*), min(position), max(position) FROM kanon.classify_all('open', {})"
    assert fetch(published.analyst, count.format(rows.format(1000))) == [(1000, 1, 1000)]
    assert fetch(published.analyst, count.format("'[]'")) == [(0, None, None)]
    too_many = lambda: fetch(published.analyst, count.format(rows.format(1_000_000)))
    assert sqlstate_of(too_many) == INVALID


@pytest.mark.pitfall(22)
def test_logits_are_told_where_they_may_be_and_noisy(published: Parties) -> None:
    """Those of the same row differ, and the vote is that of the noisy inputs."""
    assert ask(published.analyst, "open")[0]["logits"] is None
    found = [ask(published.analyst, "told")[0]["logits"] for _ in range(5)]
    assert all(logits.keys() == {"no", "yes"} for logits in found)
    assert len({json.dumps(logits) for logits in found}) == 5
    for refused in (
        {"logits": True, "input_noise": "0"},
        {"logits": True, "budget": '{"epsilon": 1, "delta": 1e-6, "noise": 20}'},
        {"method": "all", "budget": '{"epsilon": 1, "delta": 1e-6, "noise": 20}'},
    ):
        call = lambda: publish(published.publisher, "refused", **refused)
        assert sqlstate_of(call) == INVALID


@pytest.mark.long
@pytest.mark.pitfall(9)
def test_votes_under_a_budget_are_noisy(published: Parties) -> None:
    """Also for the publisher, whose questions nobody counts; the share, too."""
    budget = '{"epsilon": 4, "delta": 0.00001, "noise": 6}'
    publish(published.publisher, "paid", budget=budget, input_noise="0")
    rows = ask(published.publisher, "paid", 200)
    assert {row["label"] for row in rows} == {"no", "yes"}
    assert len({row["agreement"] for row in rows}) > 3
    assert {row["answers_left"] for row in rows} == {None}
    assert len({row["agreement"] for row in ask(published.publisher, "open", 200)}) == 1


@pytest.mark.pitfall(32)
def test_promises(published: Parties) -> None:
    """A model that promises nothing says so, and is a risk; budgets bind, or are refused."""
    publisher = published.publisher
    guarantee = value(publisher, "SELECT guarantee FROM kanon.publications WHERE name = 'open'")
    assert guarantee.startswith("nothing is promised")
    assert sqlstate_of(lambda: publish(publisher, "refused", accept="{}")) == "KN005"
    for unbound in (
        {"epsilon": 1e9}, {"delta": 0.5}, {"delta": 0}, {"noise": 0}, {"noise": 2.5},
        {"epsilon": True}, {"epsilon": "1"}, {"answers": 9}, {"epsilon": 0.01, "noise": 2},
    ):  # fmt: skip
        budget = json.dumps({"epsilon": 1, "delta": 1e-6, "noise": 20, **unbound})
        call = lambda: publish(publisher, "refused", budget=budget)
        assert sqlstate_of(call) == ("KN002" if len(unbound) == 2 else INVALID), unbound
    budget = '{"epsilon": 4, "delta": 1e-5, "noise": 9}'
    learned = publish(publisher, "learned", features=None, labels=None, budget=budget)
    assert "age, sex, sick were read from the source" in learned["guarantee"]
    declared = publish(publisher, "declared", budget=budget)["guarantee"]
    assert "read from the source" not in declared


@pytest.mark.long
@pytest.mark.pitfall(10, 24)
def test_features_that_do_not_fit(published: Parties) -> None:
    """Each mistake of a publisher is refused without a value, and without a trace."""
    publisher, before = published.publisher, remains(published.admin)
    rows = [
        (i, "yes" if i % 2 else "no", None if i == 5 else "canary7f3b", "1918-03-07",
         "{1,2,3}" if i % 3 else "{1,2}", "{1,NULL}" if i == 7 else "{1,2}", f"{i}")
        for i in range(30)
    ]  # fmt: skip
    create_table(
        publisher, "data.odd",
        "n int, sick text, hidden text, born date, uneven real[], holes real[], many text", rows,
    )  # fmt: skip
    fetch(publisher, "ALTER TABLE data.odd ADD huge float8 DEFAULT 'Infinity'")
    Functions(publisher).register(
        "data.odd", ["n", "born"], "sick",
        insensitive=["hidden", "uneven", "holes", "many", "huge"],
    )  # fmt: skip
    for given, sqlstate in (
        ({"features": '{"born": {}}'}, "42804"),
        ({"features": '{"uneven": {}}'}, "42804"),
        ({"features": '{"holes": {}}'}, "42804"),
        ({"features": '{"huge": {}}'}, "42804"),
        ({"features": '{"n": {}}', "label": "hidden"}, INVALID),
        ({"features": '{"n": {}}', "label": "many", "labels": ["canary7f3b", "1"]}, INVALID),
        ({"features": '{"n": {}}', "label": "uneven"}, "42804"),
        ({"features": '{"n": {"lower": 1}}'}, INVALID),
        ({"features": '{"n": {"lower": 2, "upper": 2}}'}, INVALID),
        ({"features": '{"n": {"lower": "a", "upper": 2}}'}, INVALID),
        ({"features": '{"n": {"values": []}}'}, INVALID),
        ({"features": '{"n": {"values": [1, 1]}}'}, INVALID),
        ({"features": '{"n": {"shape": [1]}}'}, INVALID),
        ({"features": '{"many": {"lower": 1, "upper": 2}}'}, INVALID),
        ({"features": '{"n": {}}', "members": 31}, INVALID),
        ({"features": '{"n": {}}', "labels": ["no"]}, "KN002"),
        ({"features": '{"n": {}}', "options": '{"time_limit": 0.000001}'}, None),
    ):  # fmt: skip
        whole = {**GIVEN, "labels": None, **given}
        with pytest.raises(psycopg.Error) as caught:
            Functions(publisher).call("publish_model", "data.odd", "odd", **whole)
        if sqlstate:
            assert caught.value.sqlstate == sqlstate, given
        assert "canary" not in str(caught.value)
        assert "1918" not in str(caught.value)
    assert remains(published.admin) == before


@pytest.mark.pitfall(18)
def test_a_cancelled_training_leaves_nothing(published: Parties) -> None:
    """The cancel is heard while members are trained, and there is no trace of any."""
    publisher, before = published.publisher, remains(published.admin)
    fetch(publisher, "SET statement_timeout = '1s'")
    try:
        call = lambda: publish(publisher, "late", options='{"steps": 1000000}')
        assert sqlstate_of(call) == "57014"
    finally:
        fetch(publisher, "RESET statement_timeout")
    assert remains(published.admin) == before


@pytest.mark.pitfall(21)
def test_members_that_somebody_changed_are_noticed(published: Parties) -> None:
    """A superuser's change of a byte fails the verification."""
    publish(published.publisher, "changed")
    fetch(
        published.admin,
        "UPDATE published.changed_net SET network = set_byte(network, length(network) - 1, 1)"
        " WHERE member = 2",
    )
    for connection in (published.analyst, published.publisher):
        assert failed_checks(connection, "changed") == ["every member is there, as it was trained"]
