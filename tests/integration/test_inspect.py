"""`inspect_relation` counts rightly, guesses roles that can be registered, and shows no values."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from kanon_db.advice import inspection
from kanon_db.interfaces.python import connect
from tests.acceptance.commands import kanon as command
from tests.docs.console import PAGES, blocks
from tests.integration.parties import (
    Functions,
    Parties,
    create_table,
    everything,
    fetch,
    sqlstate_of,
    value,
)

FORBIDDEN, INFEASIBLE, INVALID = "42501", "KN002", "22023"
N = 600
NAMES = ("Anna Maier", "Bernd O'Neil", "Clara Weber", "Doris Huber-Lang")
COLUMNS = (
    "number int, patient_id text, contact text, nurse text, born date, sex text, zip int,"
    " admitted date, diagnosis text, cost numeric, age int, remark text, ward_name text, same text,"
    ' "Station, ""B""" text, shape point, document json, amount_text text'
)


@pytest.fixture(scope="module", autouse=True)
def stays(parties: Parties) -> None:
    rows = [
        (
            i + 1, f"P{i % 250:04}", f"person{i}@example.org", NAMES[i % 4] + "abcdefghij"[i % 10],
            "9999-12-31" if i % 100 == 0 else f"{1930 + i % 70}-0{1 + i % 9}-1{i % 10}",
            "w " if i % 50 == 0 else "wm"[i % 2], 80000 + i % 30, f"2024-0{1 + i % 9}-01",
            "unknown" if i % 60 == 0 else f"code {i % 7}", i + 0.5, 999 if i % 40 == 0 else i % 90,
            "a long story " * (5 + i % 9), f"ward {i % 3}", "x", f"bed {i % 5}", f"({i},1)",
            '{"a": 1}', f"{i % 40},5" if i % 30 else "many",
        )
        for i in range(N)
    ]  # fmt: skip
    create_table(parties.publisher, "data.stays", COLUMNS, rows)


@pytest.fixture(scope="module")
def inspected(parties: Parties, stays: None) -> list[dict[str, Any]]:
    before = everything(parties.admin)
    found = Functions(parties.publisher).rows("inspect_relation", "data.stays")
    assert everything(parties.admin) == before
    return found


ROLES = {
    "number": "identifier", "patient_id": "entity", "contact": "identifier", "nurse": "none",
    "born": "quasi-identifier", "sex": "quasi-identifier", "zip": "quasi-identifier",
    "admitted": "arrival", "diagnosis": "sensitive", "cost": "sensitive",
    "age": "quasi-identifier", "remark": "none", "ward_name": "quasi-identifier",
    "same": "none", 'Station, "B"': "quasi-identifier", "shape": "none", "document": "none",
    "amount_text": "sensitive",
}  # fmt: skip


def test_roles_are_guessed(inspected: list[dict[str, Any]]) -> None:
    assert {row["name"]: row["role"] for row in inspected[1:]} == ROLES
    assert all(row["reason"] for row in inspected[1:])
    (reason,) = (row["reason"] for row in inspected if row["name"] == "nurse")
    assert reason == "values like names of people or places"


def test_counts_are_those_of_the_table(parties: Parties, inspected: list[dict[str, Any]]) -> None:
    for row in inspected[1:]:
        name = '"' + row["name"].replace('"', '""') + '"'
        (counted,) = fetch(
            parties.publisher,
            "SELECT count(*), coalesce(sum(n) FILTER (WHERE v IS NULL), 0) / 600.0,"
            f" count(*) FILTER (WHERE n = 1) / 600.0 FROM (SELECT {name}::text AS v, count(*) AS n"
            " FROM data.stays GROUP BY 1) AS s",
        )
        found = (row["distinct_values"], row["missing"], row["once"])
        assert found == pytest.approx(tuple(map(float, counted)))


NOTES = {
    "born": "6 records have 9999-12-31, which may mean missing",
    "sex": "12 records with blanks around the text; 1 values differ in case or blanks alone",
    "diagnosis": "10 records have unknown, which may mean missing",
    "age": "15 records have 999, which may mean missing",
    "amount_text": "texts that look like numbers, but for 20 records",
}


def test_what_is_odd_is_noted(inspected: list[dict[str, Any]]) -> None:
    notes = {row["name"]: row["notes"] for row in inspected}
    for name, said in NOTES.items():
        assert said in notes[name], name
    assert notes[None] == "600 records; 2.4 records for each patient_id"
    assert notes["zip"] == notes["cost"] == ""  # 99 within other numbers is a number


def test_rows_that_repeat_are_counted(parties: Parties) -> None:
    fetch(
        parties.publisher,
        "CREATE TABLE data.twice AS SELECT row_number() OVER () AS number, age, sex FROM"
        " (SELECT age, sex FROM data.stays, generate_series(1, 2)) AS s",
    )
    whole = Functions(parties.publisher).rows("inspect_relation", "data.twice")[0]
    different = value(
        parties.publisher, "SELECT count(*) FROM (SELECT DISTINCT age, sex FROM data.twice) AS s"
    )
    assert whole["distinct_values"] == different
    assert (
        f"{1200 - different:,} repeat another one in all columns, but for identifiers"
        in (whole["notes"])
    )


def test_what_it_writes_registers_the_table(
    parties: Parties, inspected: list[dict[str, Any]]
) -> None:
    by_role: dict[str, list[str]] = {}
    for name, role in ROLES.items():
        by_role.setdefault(role, []).append(name)

    def registered() -> tuple[Any, ...]:
        (row,) = fetch(
            parties.publisher,
            "SELECT quasi_identifiers, sensitive, also_sensitive, identifiers, entity, arrival,"
            " keep FROM kanon.source WHERE source_id = $1", number,
        )  # fmt: skip
        return row

    wanted = (
        by_role["quasi-identifier"], "diagnosis", ["cost", "amount_text"], by_role["identifier"],
        "patient_id", "admitted", "first",
    )  # fmt: skip
    number = value(parties.publisher, inspected[0]["sql"])
    assert registered() == wanted
    words = shlex.split(inspected[0]["command"])
    assert words[:2] == ["kanon", "register"]
    done = command(*words[1:], dsn=parties.publisher.info.dsn)
    assert done.returncode == 0, done.stderr
    number = value(parties.publisher, "SELECT max(source_id) FROM kanon.source")
    assert registered() == wanted


def test_names_of_columns_are_quoted(parties: Parties) -> None:
    fetch(
        parties.publisher,
        'CREATE TABLE data."it\'s; $(x)" AS SELECT age AS "age, ""x""", sex AS "--sex", diagnosis'
        " AS \"diagnosis'\", cost AS \"cost $(y)\" FROM data.stays",
    )  # fmt: skip
    found = Functions(parties.publisher).rows("inspect_relation", 'data."it\'s; $(x)"')[0]
    number = value(parties.publisher, found["sql"])
    known = "SELECT quasi_identifiers FROM kanon.source WHERE source_id = $1"
    assert value(parties.publisher, known, number) == ['age, "x"', "--sex"]
    done = command(*shlex.split(found["command"])[1:], dsn=parties.publisher.info.dsn)
    assert done.returncode == 0, done.stderr


def test_no_value_is_shown(parties: Parties, inspected: list[dict[str, Any]]) -> None:
    """Neither in rows nor in messages; codes are from a list that everybody can read."""
    told: list[str] = []
    with connect(
        parties.publisher.info.dsn, on_notice=told.append, on_warning=told.append
    ) as kanon:
        found = kanon.inspect_relation("data.stays")
    shown = " ".join([*told, *(str(row) for row in inspected), found.to_string()])
    for name in ("patient_id", "contact", "nurse", "zip", "remark", "ward_name", "amount_text"):
        rows = fetch(parties.publisher, f"SELECT DISTINCT {name}::text FROM data.stays LIMIT 50")
        assert not [text for (text,) in rows if len(text) > 3 and text.strip() in shown], name


def test_types_that_are_odd(parties: Parties) -> None:
    """Infinity, NaN, years before and long after ours, arrays, and nothing at all."""
    fetch(
        parties.publisher,
        "CREATE TABLE data.odd AS SELECT * FROM (VALUES"
        " (timestamptz 'infinity', numeric 'NaN', date '0044-03-15 BC', '{1}'::int[], NULL::text,"
        " float8 '-Infinity', int4range(1, 3), interval '1 day', '\\x00'::bytea),"
        " ('2020-01-01', 99, '10000-01-01', NULL, NULL, -99, NULL, NULL, NULL),"
        " ('2021-01-01', 3, '2020-01-01', NULL, NULL, 3, NULL, NULL, NULL))"
        " AS s (seen, number, day, list, nothing, figure, span, length, bytes)",
    )
    found = Functions(parties.publisher).rows("inspect_relation", "data.odd")
    notes = {row["name"]: row["notes"] for row in found}
    assert "1 records have infinity" in notes["seen"]
    assert "1 records have 99," in notes["number"]
    assert "1 records have -99," in notes["figure"]
    assert next(row["role"] for row in found if row["name"] == "nothing") == "none"
    fetch(parties.publisher, "CREATE TABLE data.empty AS SELECT * FROM data.odd WHERE false")
    fetch(parties.publisher, "CREATE TABLE data.bare ()")
    for name in ("empty", "bare"):
        call = lambda name=name: Functions(parties.publisher).rows(
            "inspect_relation", f"data.{name}"
        )
        assert sqlstate_of(call) == INFEASIBLE
    fetch(parties.publisher, "CREATE TABLE data.blank AS SELECT NULL::text AS a, 1 AS b")
    (whole, *_) = Functions(parties.publisher).rows("inspect_relation", "data.blank")
    assert whole["sql"] is whole["command"] is None
    assert "no column can be a quasi-identifier" in whole["notes"]


def test_only_who_may_read_all_of_it(parties: Parties) -> None:
    call = lambda who: Functions(who).rows("inspect_relation", "data.stays")
    for connection in (parties.analyst, parties.stranger, parties.admin):
        assert sqlstate_of(lambda: call(connection)) == FORBIDDEN
    other = parties.analyst.info.user
    fetch(parties.admin, f'GRANT kanon_publisher TO "{other}"')
    fetch(parties.publisher, f'GRANT USAGE ON SCHEMA data TO "{other}"')
    fetch(parties.publisher, f'GRANT SELECT (age, sex) ON data.stays TO "{other}"')
    assert sqlstate_of(lambda: call(parties.analyst)) == FORBIDDEN
    fetch(parties.publisher, f'GRANT SELECT ON data.stays TO "{other}"')
    assert call(parties.analyst)
    fetch(parties.admin, f'REVOKE kanon_publisher FROM "{other}"')


def test_a_large_table_is_sampled(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "MOST_RECORDS", 300)
    told: list[str] = []
    with connect(parties.publisher.info.dsn, on_notice=told.append) as kanon:
        found = kanon.inspect_relation("data.stays")
    assert told[0].startswith("counted in a random sample of ")
    assert 200 < found["distinct_values"][1] < 400


def test_the_command_prints_what_to_type(parties: Parties) -> None:
    dsn = parties.publisher.info.dsn
    done = command("inspect", "data.stays", dsn=dsn)
    assert done.returncode == 0, done.stderr
    assert "These are guesses" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("kanon register data.stays --quasi-identifiers ")
    assert command("inspect", "data.stays", "--json", dsn=dsn).json().keys() == {"inspected"}


def create_odd_values(parties: Parties) -> None:
    """Values as files of statistical offices, registers and forms have them."""
    create_table(
        parties.publisher, "data.odd_values",
        "hhid int, member int, zip text, plus4 text, born text, seen int, income int, loss int,"
        " codes text, remark text, answer text",
        [
            (
                i // 5, i, "8902" if i % 20 == 0 else f"0{8900 + i % 7}",
                f"0{8900 + i % 7}-1166" if i % 20 == 0 else f"0{8900 + i % 7}",
                f"{1 + i % 28:02}.0{1 + i % 9}.19{40 + i % 60}", 20200101 + i % 28,
                -666666666 if i % 2 else (9999999, 9999998)[i % 4 // 2] if i % 10 == 0 else i,
                -9999 if i % 3 == 0 else i - 100, ("a", "a;b", "b;c", "c;a")[i % 4],
                f"Anna Maier was seen on day {i}", ("strongly agree with this one", "no")[i % 2],
            )
            for i in range(200)
        ],
    )  # fmt: skip


ODD_NOTES = {
    "zip": "texts that look like numbers; 10 records have a code that may have lost a zero at its"
    " beginning",
    "plus4": "texts that look like numbers, but for 10 records; 10 records have a code of another"
    " length than 5, which is usual",
    "born": "texts that look like dates",
    "seen": "numbers that look like dates",
    "income": "100 records have -666666666, which may mean missing; 10 records have 9999998, which"
    " may mean missing; 10 records have 9999999, which may mean missing",
    "loss": "67 records have -9999, which may mean missing",
    "codes": '150 of 200 cells list several values between ";" (3 different ones): a bound on it is'
    " on the whole cell; one row or one column for each value would be bounded by values",
    "remark": "free texts, which can name people (200 of 200 texts have 5 words or more and occur"
    " once)",
    "answer": "",
}


def test_odd_values_are_noted_with_counts(parties: Parties) -> None:
    create_odd_values(parties)
    rows = Functions(parties.publisher).rows("inspect_relation", "data.odd_values")
    notes = {row["name"]: row["notes"].removeprefix("nearly unique: coarsen it, or leave it out; ")
             for row in rows}  # fmt: skip
    assert {name: notes[name] for name in ODD_NOTES} == ODD_NOTES
    roles = {row["name"]: row["role"] for row in rows}
    assert (roles["hhid"], roles["member"], roles["remark"]) == ("entity", "identifier", "none")
    assert "keep => 'random'" in rows[0]["sql"]
    assert rows[0]["command"].endswith("--entity hhid --keep random")


def test_what_has_no_rows_is_refused_with_what_to_do(parties: Parties) -> None:
    fetch(parties.publisher, "CREATE INDEX stays_age ON data.stays (age)")
    fetch(parties.publisher, "CREATE MATERIALIZED VIEW data.later AS TABLE data.stays WITH NO DATA")
    functions = Functions(parties.publisher)
    for name in ("stays_age", "later"):
        for call in (
            lambda name=name: functions.rows("inspect_relation", f"data.{name}"),
            lambda name=name: functions.register(f"data.{name}", ["age"], "sex"),
        ):
            assert sqlstate_of(call) == INVALID
    fetch(parties.publisher, "REFRESH MATERIALIZED VIEW data.later")
    functions.register("data.later", ["age"], "diagnosis")
    fetch(parties.publisher, "DROP MATERIALIZED VIEW data.later; DROP INDEX data.stays_age")


TWO_TABLES = """
CREATE TABLE data.patients (mrn int PRIMARY KEY, "full name" text, born date, sex text,
    insurance_code text UNIQUE, admitted date);
CREATE TABLE data.nurses (id int PRIMARY KEY);
CREATE TABLE data."their Stays" (stay int PRIMARY KEY, subject int REFERENCES data.patients,
    nurse int REFERENCES data.nurses, admitted date, diagnosis text, "co""st" numeric);
INSERT INTO data.patients SELECT i, 'Anna Maier ' || i, date '1950-01-01' + i * 40, 'fm',
    'K' || i, '2020-01-01' FROM generate_series(1, 120) AS i;
UPDATE data.patients SET sex = 'f' WHERE mrn % 2 = 0;
INSERT INTO data.nurses SELECT generate_series(1, 9);
INSERT INTO data."their Stays" SELECT i, nullif(1 + i % 100, 50), 1 + i % 9,
    date '2024-01-01' + i, 'code ' || i % 7, i FROM generate_series(1, 300) AS i;
CREATE TABLE data.households (hhid int PRIMARY KEY, region text, rooms int);
CREATE TABLE data.census (member int PRIMARY KEY, hhid int NOT NULL REFERENCES data.households,
    age int, sex text, income int);
INSERT INTO data.households SELECT i, 'region ' || i % 4, i % 6 FROM generate_series(1, 80) AS i;
INSERT INTO data.census SELECT i, 1 + i % 80, i % 90, 'wm', i * 10
    FROM generate_series(1, 240) AS i;
CREATE TABLE data.members (site int, person int, region text, PRIMARY KEY (site, person));
CREATE TABLE data.claims (claim int PRIMARY KEY, person int, site int, year int, illness text,
    FOREIGN KEY (person, site) REFERENCES data.members (person, site));
INSERT INTO data.members SELECT i % 3, i, 'region ' || i % 4 FROM generate_series(1, 80) AS i;
INSERT INTO data.claims SELECT i, 1 + i % 80, (1 + i % 80) % 3, 2000 + i % 9, 'code ' || i % 7
    FROM generate_series(1, 240) AS i
"""


@pytest.fixture(scope="module")
def two_tables(parties: Parties) -> Functions:
    for statement in TWO_TABLES.split(";"):
        fetch(parties.publisher, statement)
    return Functions(parties.publisher)


@pytest.mark.parametrize(
    ("relation", "view", "roles", "registered"),
    [
        (
            'data."their Stays"', 'data."their Stays_patients"',
            {
                "stay": "identifier", "subject": "entity", "full name": "identifier",
                "insurance_code": "identifier", "born": "quasi-identifier", "admitted": "arrival",
                "diagnosis": "sensitive", "patients_admitted": "none",
            },
            ("subject", "first", "diagnosis"),
        ),
        (
            "data.census", "data.census_households",
            {
                "hhid": "entity", "member": "identifier", "age": "quasi-identifier",
                "region": "quasi-identifier", "income": "sensitive",
            },
            ("hhid", "random", "income"),
        ),
        (
            "data.claims", "data.claims_members",
            {
                "person_site": "entity", "claim": "identifier", "region": "quasi-identifier",
                "illness": "sensitive",
            },
            ("person_site", "random", "illness"),
        ),
    ],
)  # fmt: skip
def test_people_and_their_records_become_one_view(
    parties: Parties, two_tables: Functions, relation: str, view: str, roles: dict[str, str],
    registered: tuple[str, ...],
) -> None:  # fmt: skip
    """What is written runs as it is, names nobody, and registers whom a record is about."""
    whole, *columns = two_tables.rows("inspect_relation", relation)
    found = {row["name"]: row["role"] for row in columns}
    assert {name: found[name] for name in roles} == roles
    assert "a view of both without identifiers" in whole["notes"]
    create, register = whole["sql"].splitlines()
    assert create.startswith(f"CREATE VIEW {view} AS SELECT ")
    fetch(parties.publisher, create)
    number = value(parties.publisher, register)
    kept = fetch(
        parties.publisher,
        "SELECT entity, keep, sensitive, columns FROM kanon.source WHERE source_id = $1", number,
    )[0]  # fmt: skip
    assert kept[:3] == registered
    assert not {name for name, role in found.items() if role == "identifier"} & {*kept[3]}
    name = whole["command"].split()[2].strip("'")
    two_tables.of_kind("generalized", view, "joined", k=3, method="mondrian")
    two_tables.drop("joined")
    done = command("inspect", relation, dsn=parties.publisher.info.dsn)
    assert done.returncode == 0, done.stderr
    assert "First, in SQL: CREATE VIEW " in done.stdout
    assert name in done.stdout or "their Stays" in name
    assert not any(text in str([whole, *columns]) for text in ("Anna Maier", "region 1", "K12"))


def test_tables_that_refer_to_people_are_named(parties: Parties, two_tables: Functions) -> None:
    whole, *columns = two_tables.rows("inspect_relation", "data.patients")
    assert "data.their Stays refers to it by subject: inspect that table" in whole["notes"]
    assert {row["name"]: row["role"] for row in columns}["insurance_code"] == "identifier"
    assert "300 records" not in whole["notes"]
    (stays, *_) = two_tables.rows("inspect_relation", 'data."their Stays"')
    assert "3 records are of nobody in data.patients" in stays["notes"]
    fetch(parties.admin, "CREATE SCHEMA hidden; CREATE TABLE hidden.persons (id int PRIMARY KEY)")
    fetch(parties.admin, f'GRANT USAGE ON SCHEMA hidden TO "{parties.publisher.info.user}"')
    fetch(
        parties.admin,
        "CREATE TABLE hidden.visits AS SELECT i, i % 9 AS person, 'ill' AS sick"
        " FROM generate_series(1, 50) AS i",
    )
    key = "FOREIGN KEY (person) REFERENCES hidden.persons NOT VALID"
    fetch(parties.admin, f"ALTER TABLE hidden.visits ADD {key}")
    fetch(parties.admin, f'GRANT SELECT ON hidden.visits TO "{parties.publisher.info.user}"')
    (visits, *_) = two_tables.rows("inspect_relation", "hidden.visits")
    assert "CREATE VIEW" not in str(visits["sql"])
    fetch(parties.admin, "DROP SCHEMA hidden CASCADE")


def test_the_page_shows_what_is_written(parties: Parties) -> None:
    page = PAGES / "start" / "choosing.md"
    (typed,) = (text for text in blocks(page, "sql") if "CREATE TABLE patients" in text)
    *statements, asked = typed.strip().removesuffix(";").split(";")
    for statement in statements:
        fetch(parties.admin, statement)
    assert [value(parties.admin, asked)] == [text.strip() for text in blocks(page, "text")]
    fetch(parties.admin, "DROP TABLE visits, patients")
