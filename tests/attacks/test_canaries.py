"""Attacks on what is said: no data value in any error, notice or log, whatever goes wrong.

Every column of the sources holds canaries; every way to fail is forced. The SQL functions keep
silent even where the server logs all it can. The package sends statements from outside, whose
errors the server logs by itself: there, the settings of the private cluster keep its log clean.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kanon_db.errors import KanonError
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.csv_table import load_csv
from tests.integration.parties import (
    WAYS,
    Connection,
    Functions,
    Package,
    Parties,
    create_table,
    fetch,
    quoted,
    remains,
    value,
)
from tests.server_log import ServerLog

CANARY = "canary7f3b"
NUMBER = "918273645"
CANARIES = (CANARY, NUMBER, "1918-03-07")
COLUMNS = "name text, age int, born date, sick text"
ROWS = [
    (f"{CANARY} {i}", 918273645 if i % 2 else i, "1918-03-07", f"{CANARY} {'abcd'[i % 4]}")
    for i in range(60)
]


@pytest.fixture(scope="module", autouse=True)
def canaries(parties: Parties) -> None:
    """Sources full of canaries."""
    owner = parties.publisher
    for table, rows in (("people", ROWS), ("hidden", ROWS), ("empty", [])):
        create_table(owner, f"data.{table}", COLUMNS, rows)
    raising = "CREATE FUNCTION data.{}(text) RETURNS text LANGUAGE plpgsql AS $$BEGIN {} END$$"
    view = "CREATE VIEW data.{} AS SELECT {} FROM data.people"
    for name, expression in VIEWS.items():
        fetch(owner, raising.format(name, RAISING.get(name, "RETURN $1;")))
        fetch(owner, view.format(name, f"age, {expression} AS sick"))
    typed = "json_build_object('a', sick) AS json, ('<a>' || sick || '</a>')::xml AS xml"
    fetch(owner, view.format("typed", f"name, age, born, sick, point(age, 1) AS point, {typed}"))
    fetch(owner, "ALTER TABLE data.hidden ENABLE ROW LEVEL SECURITY")
    fetch(owner, "ALTER TABLE data.hidden FORCE ROW LEVEL SECURITY")
    fetch(owner, f"CREATE POLICY visible ON data.hidden USING (sick <> '{CANARY} a')")
    kanon = Functions(owner)
    for table in ("people", "hidden", "empty", *VIEWS):
        kanon.register(f"data.{table}", ["age"], "sick")
    kanon.publish("data.people", "live", privacy='{"l": 2}')


Publishers = dict[str, Connection]


@pytest.fixture(scope="module")
def publishers(
    parties: Parties, connect_as: Callable[[str, str], Connection]
) -> Iterator[Publishers]:
    """The publisher's connection for each way; that for SQL logs every message in full."""
    database = quoted(parties.admin.info.dbname)
    for setting in ("log_min_messages = 'notice'", "log_error_verbosity = 'verbose'"):
        fetch(parties.admin, f"ALTER DATABASE {database} SET {setting}")
    with connect_as(parties.dsn, parties.publisher.info.user) as loud:
        yield {"sql": loud, "python": parties.publisher}
    fetch(parties.admin, f"ALTER DATABASE {database} RESET ALL")


VIEWS = {
    "cast_to_int": "sick::int",
    "cast_to_date": "sick::date",
    "cast_to_regclass": "split_part(sick, ' ', 1)::regclass::text",
    "cast_to_regrole": "split_part(sick, ' ', 1)::regrole::text",
    "cast_to_json": "sick::json::text",
    "division": "(1 / (age - 918273645))::text",
    "overflow": "(age * 918273645)::text",
    "regex": "regexp_replace(sick, '(' || sick, '')",
    "too_long": "sick::varchar(3)::text || repeat(sick, 100000000)",
    "raises": "data.raises(sick)",
    "raises_privilege": "data.raises_privilege(sick)",
    "raises_name": "data.raises_name(sick)",
    "raises_resources": "data.raises_resources(sick)",
    "notices": "data.notices(sick) || 1 / (age - 918273645)",
}
"""Views that fail, or speak, while they are read."""

RAISING = {
    "raises": "RAISE EXCEPTION 'with %', $1 USING DETAIL = $1, HINT = $1;",
    "raises_privilege": "RAISE EXCEPTION 'with %', $1 USING ERRCODE = '42501';",
    "raises_name": "RAISE EXCEPTION 'with %', $1 USING ERRCODE = '42P01';",
    "raises_resources": "RAISE EXCEPTION 'with %', $1 USING ERRCODE = '53200';",
}


class Heard:
    """Everything that a call says: to the client, and to the server's log."""

    def __init__(self, parties: Parties) -> None:
        self.said: list[str] = []
        self._log = ServerLog(parties.admin)

    def notice(self, diagnostic: Any) -> None:
        self.said += fields_of(diagnostic)

    def all(self) -> str:
        return "\n".join([*self.said, self._log.text()])


def fields_of(diagnostic: Any) -> list[str]:
    names = [name for name in dir(diagnostic) if not name.startswith("_")]
    return [str(text) for name in names if isinstance(text := getattr(diagnostic, name), str)]


@contextlib.contextmanager
def silent(parties: Parties, connection: Connection, *, fails: bool = True) -> Iterator[Heard]:
    """A call that fails says no canary, and nothing is left of it."""
    heard = Heard(parties)
    before = remains(parties.admin)
    connection.add_notice_handler(heard.notice)
    failed = False
    try:
        yield heard
    except KanonError as error:
        failed = True
        heard.said += [error.message, error.detail, error.hint, repr(error)]
        heard.said.append("".join(traceback.format_exception(error)))
    except psycopg.Error as error:
        failed = True
        heard.said += [*fields_of(error.diag), str(error)]
    finally:
        connection.remove_notice_handler(heard.notice)
    assert failed == fails
    assert remains(parties.admin) == before
    said = heard.all().splitlines()
    assert [line for line in said if any(canary in line for canary in CANARIES)] == []


TWO = '{"l": 2}'
SPECIFICATIONS = {
    "unknown key": {CANARY: 1},
    "ineligible": {"l": 5},
    "ineligible value": {"l": 2, "values": {f"{CANARY} a": "1/100"}},
    "ineligible linear": {"theta": 0.5, "base": 0.01},
    "absent value": {"l": 2, "values": {f"{CANARY} of nobody": "1/2"}},
    "bad threshold": {"l": 2, "values": {f"{CANARY} a": 2}},
    "bad number": {"l": 2, "values": {f"{CANARY} a": CANARY}},
    "number in words": {"l": CANARY},
    "nested": {"l": 2, "values": {f"{CANARY} a": {CANARY: [CANARY]}}},
    "list": [CANARY],
    "values is a list": {"l": 2, "values": [CANARY]},
    "uncovered": {"values": {f"{CANARY} a": "1/2"}},
}


OF_ROWS: dict[str, dict[str, Any]] = {
    "suppress": {"k": 2},
    "generalize": {"k": 2, "method": "initial", "refine": False},
    "freeform": {"k": 2},
}
CALLS: dict[str, tuple[str, list[object], dict[str, object]]] = {
    **{
        f"privacy: {name}": ("publish", ["people"], {"privacy": json.dumps(specification)})
        for name, specification in SPECIFICATIONS.items()
    },
    "infeasible": ("publish", ["people"], {"privacy": '{"l": 4}', "max_bucket_size": 3}),
    "anatomy": ("publish", ["people"], {"privacy": '{"l": 5}', "method": "anatomy"}),
    "duplicate name": ("publish", ["people", "live"], {"privacy": TWO}),
    "no such method": ("publish", ["people"], {"privacy": TWO, "method": CANARY}),
    "suppressed": ("suppress", ["people"], {"k": 2, "patterns": ["." * 9]}),
    "generalized": ("generalize", ["people"], {"k": 900}),
    "constraints": ("generalize", ["people"], {"k": 2, "constraints": '{"l": 900}'}),
    "named value": (
        "generalize", ["people"], {"k": 2, "constraints": f'{{"values": {{"{CANARY}": "1/9"}}}}'}
    ),
    "freeform": ("freeform", ["people"], {"k": 900}),
    "freeform, weaker": ("freeform", ["people"], {"k": 2, "method": "k_concealment"}),
    "option": ("freeform", ["people"], {"k": 2, "options": f'{{"symmetric": "{CANARY}"}}'}),
    "no place": ("suppress", ["people"], {"k": 900, "patterns": ["."]}),
    "rule": ("suppress", ["people"], {"k": 2, "rules": f'[{{"{CANARY}": "{CANARY}"}}]'}),
    "weight": ("suppress", ["people"], {"k": 2, "weights": f'"{CANARY}"'}),
    "suppressed, empty source": ("suppress", ["empty"], {"k": 2}),
    "empty source": ("publish", ["empty"], {"privacy": TWO}),
    "hidden rows": ("publish", ["hidden"], {"privacy": TWO}),
    **{f"{call}, hidden rows": (call, ["hidden"], {"k": 2}) for call in OF_ROWS},
    "registered and live": ("register", ["people", ["born"], "sick"], {}),
    "json column": ("register", ["typed", ["json"], "sick"], {}),
    "xml column": ("register", ["typed", ["age"], "xml"], {}),
    "point column": ("register", ["typed", ["age", "point"], "sick"], {}),
    **{
        f"bad attributes: {text}": ("register", ["empty", ["age"], "sick"], {"attributes": text})
        for text in (
            f'{{"age": {{"lower": {NUMBER}, "upper": 1}}}}',
            f'{{"age": {{"{CANARY}": "{CANARY}"}}}}',
            f'{{"age": {{"kind": "{CANARY}"}}}}',
        )
    },
    **{f"view: {view}": ("publish", [view], {"privacy": TWO}) for view in VIEWS},
    **{
        f"{call} view: {view}": (call, [view], OF_ROWS[call])
        for call, view in zip(cycle(OF_ROWS), VIEWS)
    },
    "drop of nothing": ("drop", [], {}),
    "attack on nothing": ("attack", [], {}),
}  # fmt: skip
"""Operations, their sources with what else is named, and what they are given."""


@pytest.mark.pitfall(10)
@pytest.mark.parametrize("call", CALLS)
def test_refusals(parties: Parties, publishers: Publishers, call: str) -> None:
    """Each way to fail, both ways in: neither the error nor the server's log has a value."""
    operation, names, given = CALLS[call]
    texts = [f"data.{names[0]}", *(names[1:] or ["new"])] if names else ["nothing"]
    for way, connection in publishers.items():
        with silent(parties, connection):
            getattr(WAYS[way](connection), operation)(*texts, **given)


STATEMENTS = (
    "SELECT sick::int FROM data.people",
    "SELECT sick::data.short FROM data.people",
    "INSERT INTO data.checked SELECT sick FROM data.people",
    "INSERT INTO data.checked SELECT 'x' || left(sick, 1) FROM data.people",
    "SELECT data.raises(sick) FROM data.people",
    "SELECT sick::date FROM data.people",
    "SELECT sick::json FROM data.people",
    "SELECT 'a' ~ ('(' || sick) FROM data.people",
    "SELECT sick::data.mood FROM data.people",
    "SELECT (age * 1000)::text FROM data.people",
)


@pytest.mark.pitfall(10)
def test_errors_of_statements(parties: Parties) -> None:
    """Whatever statement fails, a session says no more than where and of which kind."""
    for statement in (
        "CREATE DOMAIN data.short AS text CONSTRAINT short CHECK (length(value) < 3)",
        "CREATE TYPE data.mood AS ENUM ('sad')",
        "CREATE TABLE data.checked (a text PRIMARY KEY, CHECK (a < 'c'))",
    ):
        fetch(parties.publisher, statement)
    session = PsycopgSession(parties.publisher)
    for statement in STATEMENTS:
        with silent(parties, parties.publisher), session.transaction():
            session.fetch(statement)


@pytest.mark.slow("publishes, verifies and attacks in every way")
@pytest.mark.pitfall(10)
def test_success(parties: Parties, publishers: Publishers) -> None:
    """What is published, verified, measured and attacked without error says no value, either."""
    for way, connection in publishers.items():
        kanon = WAYS[way](connection)
        with silent(parties, connection, fails=False) as heard:
            for call, given in {"publish": {"privacy": TWO}, **OF_ROWS}.items():
                getattr(kanon, call)("data.people", "new", **given)
                for ask in (kanon.verify, kanon.metrics, kanon.attack):
                    heard.said.append(str(ask("new")))
                kanon.drop("new")


# What somebody with the rights of a superuser does to the relations between writing and verifying.
TAMPERINGS = {
    "rows removed": "DELETE FROM $sat",
    "values exchanged": "UPDATE $sat SET sick = (SELECT max(sick) FROM $sat)",
    "counts raised": "UPDATE $sat SET count = 918273",
    "column of another type": "ALTER TABLE $sat ALTER count TYPE text USING sick",
    "column of another name": "ALTER TABLE $sat RENAME sick TO canary",
    "a check that fails": "ALTER TABLE $sat ADD CHECK (sick = '')",
}


@pytest.mark.pitfall(10)
@pytest.mark.parametrize(("tampering", "way"), [*zip(TAMPERINGS, cycle(WAYS))])
def test_failed_verification(
    parties: Parties, publishers: Publishers, tampering: str, way: str
) -> None:
    """Relations that somebody changed before they were verified are refused without a value."""
    fetch(
        parties.admin,
        "CREATE OR REPLACE FUNCTION public.tamper() RETURNS event_trigger LANGUAGE plpgsql AS"
        " $$DECLARE _sat CONSTANT text := (SELECT oid::regclass FROM pg_class"
        " WHERE relname ~ '^kanon_[0-9a-f]{32}_sat$'); BEGIN IF _sat IS NOT NULL THEN"
        f" EXECUTE replace($do${TAMPERINGS[tampering]}$do$, '$sat', _sat); END IF; END$$",
    )
    fetch(
        parties.admin,
        "CREATE EVENT TRIGGER tamper ON ddl_command_end WHEN TAG IN ('CREATE VIEW')"
        " EXECUTE FUNCTION public.tamper()",
    )
    try:
        with silent(parties, publishers[way]):
            WAYS[way](publishers[way]).publish("data.people", "new", privacy=TWO)
    finally:
        fetch(parties.admin, "DROP EVENT TRIGGER tamper")


def test_unreadable_description(parties: Parties) -> None:
    """Text that only looks like JSON, and holds a value, is refused without being quoted."""
    kanon = Package(parties.publisher)
    for text in ('{"values": {"' + CANARY + '": 1, }', f'{{"l": {CANARY}}}', CANARY, "[" * 10**5):
        with silent(parties, parties.publisher):
            kanon.publish("data.people", "new", privacy=text)
        with silent(parties, parties.publisher):
            kanon.register("data.empty", ["age"], "sick", attributes=text)


QUERIES = (
    f"SELECT COUNT(*) FROM live WHERE sick = {CANARY}",
    f"SELECT COUNT(*) FROM live WHERE age = '{CANARY}'",
    "SELECT COUNT(*) FROM live WHERE sick = 5",
    "SELECT COUNT(*) FROM live WHERE age < 'x'",
    "SELECT COUNT(*) FROM live WHERE sick::int = 5",
    "SELECT COUNT(*) FROM live WHERE 1 / (age - 918273645) = 1",
    "SELECT sick FROM live",
)


@pytest.mark.pitfall(10)
def test_queries(parties: Parties) -> None:
    """A refused query shows at most what its author wrote, and no value of the publication."""
    for query, way in product(QUERIES, WAYS.values()):
        heard = Heard(parties)
        try:
            way(parties.analyst).estimate(query)
        except KanonError as error:
            heard.said += [error.message, error.detail, error.hint]
        except psycopg.Error as error:
            heard.said += fields_of(error.diag)
        text = heard.all().replace(query, "")
        for canary in CANARIES:
            assert canary not in text or canary in query


FILES = {
    "ragged": f"a,b\n{CANARY},{NUMBER},1918-03-07\n",
    "short": f"a,b\n{CANARY}\n",
    "open quote": f'a,b\n"{CANARY},{NUMBER}\n',
    "header twice": f"{CANARY},{CANARY}\n1,2\n",
    "not a date": f"a,b\n{CANARY},1918-02-31\n",
    "not in utf-8": f"a,b\n{CANARY},\xff\n",
    "long header": f"a,{CANARY * 10}\n1,2\n",
}


def test_files(parties: Parties, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    session = PsycopgSession(parties.publisher)
    for number, (what, text) in enumerate(FILES.items()):
        path.write_bytes(text.encode("latin-1"))
        fails = what not in ("header twice", "not a date")
        with silent(parties, parties.publisher, fails=fails), session.transaction():
            load_csv(session, path, f"data.file_{number}")


@pytest.mark.pitfall(10)
@pytest.mark.parametrize("way", WAYS)
def test_cancel(parties: Parties, publishers: Publishers, way: str) -> None:
    """A cancel while the rows are read, waiting inside a function that holds one of them."""
    slow = "CREATE OR REPLACE FUNCTION data.slow(text) RETURNS text LANGUAGE plpgsql AS"
    fetch(parties.publisher, f"{slow} $$BEGIN RETURN $1; END$$")
    fetch(
        parties.publisher,
        "CREATE OR REPLACE VIEW data.slow AS SELECT age, data.slow(sick) AS sick FROM data.people",
    )
    Functions(parties.publisher).register("data.slow", ["age"], "sick")
    fetch(parties.publisher, f"{slow} $$BEGIN PERFORM pg_sleep(60); RETURN $1; END$$")
    pid = publishers[way].info.backend_pid

    def cancel() -> None:
        with psycopg.connect(parties.dsn, autocommit=True) as other:
            asleep = "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $1::int4"
            for _ in range(1000):
                if value(other, asleep, pid):
                    break
                time.sleep(0.01)
            fetch(other, "SELECT pg_cancel_backend($1::int4)", pid)

    thread = threading.Thread(target=cancel)
    thread.start()
    with silent(parties, publishers[way]) as heard:
        WAYS[way](publishers[way]).publish("data.slow", "new", privacy=TWO)
    thread.join()
    assert any("cancel" in text for text in heard.said)
