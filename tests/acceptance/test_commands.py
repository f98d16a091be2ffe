"""The whole way with the command line: install, load, register, publish, query, drop."""

from __future__ import annotations

import csv
import gzip
import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import kanon_db
from kanon_db.interfaces.console import format_range
from tests.acceptance.commands import KANON, installed_kanon, kanon
from tests.integration.test_progress import read_until

N_RECORDS = 400
OCCUPATIONS = ("Sales", "Teaching", "Farming", "Repair", "Cooking")
COUNT = "SELECT COUNT(*) FROM people_b WHERE age BETWEEN 30 AND 49 AND occupation = 'Sales'"


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Microdata of 400 people, 80 in each occupation."""
    path = tmp_path_factory.mktemp("data") / "people.csv.gz"
    with gzip.open(path, "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", "age", "gender", "occupation"])
        for i in range(N_RECORDS):
            writer.writerow([f"p{i}", 20 + i * 7 % 60, "FM"[i % 2], OCCUPATIONS[i * 3 % 5]])
    return path


@pytest.fixture(scope="module")
def published(module_database: str, people: Path) -> str:
    """A database with people loaded, registered and published as people_b."""
    dsn = module_database
    loaded = kanon("load", people, "people", "--json", dsn=dsn).json()
    assert loaded["records"] == N_RECORDS
    assert {"name": "age", "type": "integer"} in loaded["columns"]
    registered = kanon(
        "register", "public.people", "--quasi-identifiers", "age,gender",
        "--sensitive", "occupation", "--identifiers", "name", "--json", dsn=dsn,
    )  # fmt: skip
    assert registered.json()["source_id"] > 0
    publication = kanon(
        "publish", "buckets", "public.people", "people_b", "--privacy", '{"l": 4}', "--json",
        dsn=dsn,
    ).json()  # fmt: skip
    assert publication["name"] == "people_b"
    assert publication["records"] == N_RECORDS
    return dsn


def check_revisions(dsn: str) -> None:
    """alembic's commands show where the catalog is, what would run, and take one's word for it."""
    assert kanon("db", "history").stdout.startswith("<base> -> 0001 (head), The catalog")
    assert kanon("db", "upgrade", "--sql", dsn=dsn).stdout.strip() == ""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE kanon.alembic_version SET version_num = '0000'")
        assert kanon("db", "upgrade", "--sql", dsn=dsn).returncode == 1
        assert kanon("db", "stamp", "0002", dsn=dsn).returncode == 1
        assert kanon("db", "stamp", "0001", dsn=dsn).returncode == 0
    assert kanon("db", "current", "--json", dsn=dsn).json() == {"revision": "0001", "is_head": True}


@pytest.mark.slow("installs several times, each a process")
def test_installation_is_repeatable_and_sound(new_database: Callable[..., str]) -> None:
    dsn = new_database(installed=False)
    refused = kanon("publications", dsn=dsn)
    assert refused.returncode == 1
    assert "kanon install" in refused.stderr
    assert "CREATE TABLE kanon.setting" in kanon("db", "upgrade", "--sql", dsn=dsn).stdout

    for how in ("--compile", "--no-compile"):
        assert kanon("install", how, "--json", dsn=dsn).json()["actions"]
        with psycopg.connect(dsn) as connection:  # what is tried to compile leaves nothing
            left = "SELECT count(*) FROM kanon.publications", "SELECT count(*) FROM kanon.releases"
            assert [connection.execute(one).fetchone() for one in left] == [(0,), (0,)]
            assert connection.execute("SELECT count(*) FROM kanon.source").fetchone() == (0,)
    doctor = kanon("doctor", "--json", dsn=dsn)
    assert doctor.returncode == 0
    assert {finding["state"] for finding in doctor.json()["findings"]} <= {"ok", "warning"}

    check_revisions(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP VIEW kanon.publications CASCADE")
    assert kanon("doctor", dsn=dsn).returncode == 1

    # What cannot be compiled does not keep it from being installed.
    little = "INSERT INTO kanon.setting (name, value) VALUES ('publish_memory', '1 kB')"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(little)
    installed = kanon("install", "--compile", dsn=dsn)
    assert installed.returncode == 0
    assert "searches not compiled" in installed.stdout
    assert "is installed" in installed.stdout
    assert kanon("doctor", dsn=dsn).returncode == 0
    uninstalled = kanon("uninstall", "--json", dsn=dsn).json()
    assert uninstalled["uninstalled"]
    assert any("plpython3u" in left for left in uninstalled["left"])
    assert kanon("publications", dsn=dsn).returncode == 1


@pytest.mark.long
def test_publication_is_listed_measured_and_verified(published: str) -> None:
    listed = kanon("publications", "--json", dsn=published).json()["publications"]
    assert [entry["name"] for entry in listed] == ["people_b"]
    # The manifest of docs/howto/operation.md.
    assert listed[0].keys() == {
        "publication_id", "name", "kind", "source", "method", "parameters", "rows", "guarantee",
        "metrics", "layout", "published_at", "published_by", "state", "promise",
    }  # fmt: skip
    assert listed[0]["state"] == "whole"
    assert listed[0]["parameters"]["privacy"] == {"l": 4}
    told = kanon("publications", dsn=published).stdout
    guarantee = listed[0]["guarantee"]
    assert listed[0]["promise"]["short"] in told
    assert len(listed[0]["promise"]["short"]) < 60 < len(guarantee)
    assert guarantee not in " ".join(told.split())
    one = kanon("publications", "people_b", dsn=published).stdout
    assert guarantee in " ".join(one.split())
    assert kanon("publications", "people_c", dsn=published).returncode == 1
    assert "people_b: count with sum(weight) in other tools, never with count(*)" in " ".join(
        told.split()
    )

    checks = kanon("verify", "people_b", "--json", dsn=published)
    assert checks.returncode == 0
    assert checks.json()["checks"]
    assert all(check["holds"] for check in checks.json()["checks"])

    metrics = kanon("metrics", "people_b", "--json", dsn=published).json()["metrics"]
    assert metrics["records"] == N_RECORDS
    assert "400" in kanon("metrics", "people_b", dsn=published).stdout


@pytest.mark.long
def test_attacks_are_printed(published: str) -> None:
    shown = kanon("attack", "people_b", dsn=published)
    assert shown.returncode == 0
    heading, *lines = shown.stdout.splitlines()
    assert heading.split() == ["attack", "bound", "base_rate", "rate", "people"]
    (line,) = [line for line in lines if line.startswith("most frequent value")]
    assert line.split()[-4:] == ["0.25", "0.2", line.split()[-2], "400"]
    attacks = kanon("attack", "people_b", "--json", dsn=published).json()["attacks"]
    assert [attack.keys() for attack in attacks] == [set(heading.split())] * len(lines)
    (found,) = [attack for attack in attacks if attack["attack"] == "most frequent value"]
    assert (found["people"], found["bound"]) == (N_RECORDS, 0.25)
    assert kanon("attack", "nothing", dsn=published).returncode == 1


ANSWER = ["estimate", "std_error", "lower_bound", "upper_bound", "likely_low", "likely_high"]


@pytest.mark.long
def test_query(published: str) -> None:
    with psycopg.connect(published) as connection:
        row = connection.execute(COUNT.replace("people_b", "people")).fetchone()
    assert row is not None
    answer = installed_kanon("query", COUNT, "--json", dsn=published).json()
    assert list(answer) == ANSWER
    assert answer["lower_bound"] <= row[0] <= answer["upper_bound"]
    assert answer["lower_bound"] <= answer["likely_low"] < answer["estimate"]
    assert answer["estimate"] < answer["likely_high"] <= answer["upper_bound"]

    shown = kanon("query", COUNT, "--explain", dsn=published).stdout
    # What is likely comes first, then what is certain.
    lines = [line.split("  ")[0] for line in shown.splitlines()[:3]]
    assert lines == ["estimate", "likely range", "certain bounds"]
    assert format_range(answer["likely_low"], answer["likely_high"]) in shown.splitlines()[1]
    assert f"{answer['lower_bound']:,} to {answer['upper_bound']:,}" in shown.splitlines()[2]
    assert "FROM published.people_b" in shown
    explained = kanon("query", COUNT, "--explain", "--json", dsn=published).json()
    parts = [line["part"] for line in explained["explain"]]
    assert parts == ["publication", "condition", "condition", "aggregate", "plan", "estimator"]
    assert "FROM published.people_b" in explained["sql"]
    aggregate = explained["explain"][3]
    assert aggregate["accuracy"].startswith("estimated")
    assert aggregate["std_error"] == explained["std_error"]
    assert kanon("query", COUNT, "--csv", "--json", dsn=published).returncode == 2


def test_groups(published: str) -> None:
    """The same numbers from SQL, the command line and Python."""
    query = (
        "SELECT gender, COUNT(*), AVG(age) FROM people_b WHERE occupation = 'Sales' GROUP BY gender"
    )
    with psycopg.connect(published) as connection:
        by_sql = connection.execute(
            "SELECT group_key ->> 'gender', aggregate, estimate, std_error, lower_bound,"
            " upper_bound, likely_low, likely_high FROM kanon.estimate(%s)",
            [query],
        ).fetchall()
    by_command = kanon("query", query, "--json", dsn=published).json()["rows"]
    assert [tuple(row.values()) for row in by_command] == by_sql
    with kanon_db.connect(published) as opened:
        frame = opened.count(query)
    assert [tuple(row) for row in frame.itertuples(index=False)] == by_sql
    lines = kanon("query", query, "--csv", dsn=published).stdout.splitlines()
    assert lines[0] == ",".join(["gender", "aggregate", *ANSWER])
    assert len(lines) == 1 + len(by_sql)
    shown = kanon("query", query, dsn=published).stdout.splitlines()
    assert re.split("  +", shown[0].strip()) == [
        "gender", "aggregate", "estimate", "likely range", "certain bounds",
    ]  # fmt: skip
    assert format_range(*by_sql[0][6:]) in shown[1]
    rows = [line for line in shown if line and not line.startswith("Note: ")]
    assert len(rows) == 1 + len(by_sql)


def test_suppressed(published: str) -> None:
    rules = '[{"never": ["gender"]}, {"outliers": "suppress"}]'
    shown = kanon("patterns", "public.people", "--rules", rules, "--json", dsn=published).json()
    assert [row["pattern"] for row in shown["patterns"]] == ["..", "*.", "**"]
    assert shown["patterns"][1]["suppressed"] == ["age"]
    assert "age, gender" in kanon("patterns", "public.people", dsn=published).stdout
    publish = ("publish", "suppressed", "public.people", "people_p", "--k")
    done = kanon(*publish, 5, "--rules", rules, dsn=published)
    assert done.returncode == 0
    assert "5-anonymity" in done.stdout
    again = kanon(
        *publish, 3, "--method", "optimal", "--options", '{"time_limit": 20}', "--patterns",
        "..,.*,**", "--weights", '{"age": 2}', "--replace", "--json", dsn=published,
    ).json()  # fmt: skip
    assert again["records"] == N_RECORDS
    assert again["metrics"]["smallest_class"] >= 3
    assert kanon("verify", "people_p", dsn=published).returncode == 0


RECODED = {
    "generalized": [
        "--method", "mondrian", "--no-refine", "--constraints", '{"l": 2}',
        "--max-suppressed", "0.01",
    ],
    "freeform": ["--method", "hungarian", "--options", '{"partition_size": 100}'],
}  # fmt: skip


@pytest.mark.long
def test_ranges_and_sets(published: str) -> None:
    for kind, options in RECODED.items():
        command = ["publish", kind, "public.people", kind, "--k", 4, *options]
        done = kanon(*command, "--weights", '{"age": 2}', dsn=published)
        assert done.returncode == 0
        assert "k-anonymity" in done.stdout or "4-anonymity" in done.stdout
        again = kanon(*command, "--replace", "--json", dsn=published).json()
        assert again["records"] == N_RECORDS
        assert 0 <= again["metrics"]["gcp"] < 0.5
        assert kanon("verify", kind, dsn=published).returncode == 0
        counted = kanon(
            "query", f"SELECT COUNT(*) FROM {kind} WHERE gender = 'F'", "--json", dsn=published
        ).json()
        assert counted["lower_bound"] <= N_RECORDS // 2 <= counted["upper_bound"]


REFUSED = (
    ["query", "SELECT name FROM people_b"],
    ["verify", "absent"],
    ["drop", "absent"],
    ["register", "absent", "--quasi-identifiers", "age"],
    ["publish", "buckets", "public.people", "people_b", "--privacy", '{"l": 4}'],
    ["publish", "buckets", "public.people", "p", "--privacy", "not json"],
    ["publish", "suppressed", "public.people", "p", "--k", "0"],
    ["patterns", "public.people", "--rules", "not json"],
    ["publish", "generalized", "public.people", "p", "--k", "2", "--constraints", "{"],
    ["publish", "freeform", "public.people", "p", "--k", "2", "--method", "k_concealment"],
)


def test_refusals(published: str, people: Path, tmp_path: Path) -> None:
    for arguments in REFUSED:
        refused = kanon(*arguments, dsn=published)
        assert refused.returncode == 1, arguments
        assert refused.stdout == ""
        assert refused.stderr.startswith("error: ")
        error = kanon(*arguments, "--json", dsn=published).json()["error"]
        assert f"error: {error['message']}\n" in refused.stderr
        assert len(error["sqlstate"]) == 5
    refused = kanon("load", people, "people", dsn=published)
    assert refused.returncode == 1
    assert "exists" in refused.stderr
    # A file that does not exist is wrong usage.
    assert kanon("load", tmp_path / "absent.csv", "t", dsn=published).returncode == 2


@pytest.mark.long
def test_hostile_names(database: str, tmp_path: Path) -> None:
    columns = ['a,"b"', "select", "$$; DROP TABLE x; --", "ünïcode %s", "or'der", "who--"]
    table = 'public."Hostile ""table"""'
    path = tmp_path / "hostile.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([i % 7, i % 2, i, OCCUPATIONS[i % 5], i % 3, i // 2] for i in range(50))
    assert kanon("load", path, table, dsn=database).returncode == 0
    # A name with a comma or a quote is quoted as in CSV; the rest of the shell's text is literal.
    registered = kanon(
        "register", table, "--quasi-identifiers", '"a,""b""",select',
        "--identifiers", columns[2], "--sensitive", columns[3], "--json", dsn=database,
    )  # fmt: skip
    assert registered.returncode == 0, registered.stdout
    published = kanon(
        "publish", "buckets", table, "hostile_b", "--privacy", '{"l": 4}',
        "--json", dsn=database,
    )  # fmt: skip
    assert published.returncode == 0, published.stdout
    assert kanon("drop", "hostile_b", dsn=database).returncode == 0
    registered = kanon(
        "register", table, "--quasi-identifiers", '"a,""b""",select', "--insensitive", columns[4],
        "--entity", columns[5], "--json", dsn=database,
    )  # fmt: skip
    assert registered.returncode == 0, registered.stdout
    published = kanon(
        "publish", "suppressed", table, "hostile_b", "--k", "3", "--json", dsn=database
    )
    assert "3 times, for as many different people" in published.json()["guarantee"]
    assert kanon("verify", "hostile_b", dsn=database).returncode == 0
    assert kanon("drop", "hostile_b", dsn=database).returncode == 0
    register = (
        "register", table, "--quasi-identifiers", "select", "--entity", columns[5],
        "--sensitive", columns[3], "--json",
    )  # fmt: skip
    rule = 'Latest by "a,""b""", min of select'
    assert kanon(*register, "--keep", rule, dsn=database).returncode == 0
    published = kanon(
        "publish", "buckets", table, "hostile_b", "--privacy", '{"l": 3}', "--json", dsn=database
    )
    assert published.json()["records"] == 25
    assert 'the latest by a,"b", with the least select' in published.json()["guarantee"]
    assert kanon("drop", "hostile_b", dsn=database).returncode == 0
    refused = kanon(*register, "--keep", "newest by select", dsn=database)
    assert refused.returncode == 1
    assert "latest, first, earliest, random" in refused.stdout + refused.stderr


@pytest.mark.long
def test_from_the_file_to_the_drop(database: str, people: Path) -> None:
    """Interrupted, nothing is published; uninstalling keeps publications unless told."""
    load = ("load", people, "people")
    register = (
        "register", "public.people", "--quasi-identifiers", "age", "--sensitive", "occupation",
    )  # fmt: skip
    publish = ("publish", "buckets", "public.people", "people_b", "--privacy", '{"l": 4}')
    for arguments in (load, register):
        assert kanon(*arguments, dsn=database).returncode == 0, arguments
    # A run in the background may ignore SIGINT, and the command would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stopped = "stopped: nothing was published or changed"
    printed, said = interrupted(database, *publish, "--json")
    assert json.loads(printed)["error"]["message"] == stopped
    assert said == ""
    assert interrupted(database, *publish) == ("", f"{stopped}\n")
    assert kanon("publications", "--json", dsn=database).json() == {"publications": []}
    # Each of these in a process of its own.
    for arguments in (publish, (*publish, "--replace"), ("drop", "people_b")):
        assert installed_kanon(*arguments, dsn=database).returncode == 0, arguments
    refused = installed_kanon("drop", "people_b", "--json", dsn=database)
    assert refused.returncode == 1
    assert refused.json()["error"]["sqlstate"] == "42704"
    assert kanon(*publish, dsn=database).returncode == 0
    assert kanon("uninstall", dsn=database).returncode == 1
    assert kanon("uninstall", "--drop-publications", dsn=database).returncode == 1  # cannot ask
    assert kanon("verify", "people_b", dsn=database).returncode == 0
    assert kanon("uninstall", "--drop-publications", "--yes", dsn=database).returncode == 0


def interrupted(dsn: str, *arguments: object) -> tuple[str, str]:
    """Send SIGINT to a command that waits for the people; what it prints and says."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock'"
    )
    with psycopg.connect(dsn) as blocker, psycopg.connect(dsn, autocommit=True) as watcher:
        blocker.execute("LOCK TABLE people IN ACCESS EXCLUSIVE MODE")
        with subprocess.Popen(
            [KANON, *map(str, arguments), "--dsn", dsn],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as publisher:  # fmt: skip
            for _ in range(1500):
                if watcher.execute(waiting).fetchone() == (1,):
                    break
                time.sleep(0.02)
            publisher.send_signal(signal.SIGINT)
            found = publisher.communicate()
        assert publisher.returncode == 1
        assert watcher.execute(waiting).fetchone() == (0,)
    return found


def test_password_is_not_shown() -> None:
    dsn = "host=127.0.0.1 port=1 user=u password=canary_password"
    for flags in ([], ["--json"]):
        refused = kanon("publications", *flags, dsn=dsn)
        assert refused.returncode == 1
        assert "canary_password" not in refused.stdout + refused.stderr
    refused = kanon("publications", "--json", dsn="this is no dsn")
    assert refused.returncode == 1
    assert refused.json()["error"]["message"]


@pytest.mark.slow("the demo's 6,366 people")
def test_demo(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    try:
        shown = kanon("demo", "--json", "--dir", folder)
        assert shown.returncode == 0, shown.stderr
        result = shown.json()
        assert result["publication"]["records"] == 6366
        assert all(check["holds"] for check in result["checks"])
        assert not any("accepted" in check["check"] for check in result["checks"])
        assert len(result["answers"]) == 10
        for answer in result["answers"]:
            estimate = answer["estimate"]
            assert estimate["lower_bound"] <= answer["true_count"] <= estimate["upper_bound"]
        with psycopg.connect(result["dsn"], autocommit=True) as connection:
            connection.execute("CREATE ROLE reader LOGIN IN ROLE kanon_analyst")
        # Who reads may have kept a copy of what the second run replaces.
        again = kanon("demo", "--dir", folder)
        assert again.returncode == 0, again.stderr
        assert "kanon query" in again.stdout
        assert 'accept => \'{"combined_releases": ' in again.stdout
    finally:
        kanon("local", "destroy", "--yes", "--dir", folder)


@pytest.mark.long
def test_a_source_is_replaced_by_other_columns_only_if_somebody_says_so(
    module_database: str, tmp_path: Path
) -> None:
    """A question on a terminal, or the option; the same columns need neither."""
    dsn = module_database
    first, same, other = (tmp_path / f"{name}.csv" for name in ("first", "same", "other"))
    first.write_text("age,ill\n20,a\n30,b\n40,-\n")
    same.write_text("Years;ill\n50;NA\n60;-\n")
    other.write_text("age,ill,sex\n20,a,f\n")
    loaded = kanon("load", first, "visits", "--null", "-", "--json", dsn=dsn).json()
    assert loaded["missing"] == {"ill": 1}
    kanon("register", "visits", "--quasi-identifiers", "age", "--sensitive", "ill", dsn=dsn)
    options = ["--rename", "Years=age", "--null", "-", "--null", "NA"]
    assert kanon("load", same, "visits", "--replace", *options, dsn=dsn).returncode == 0
    refused = kanon("load", other, "visits", "--replace", dsn=dsn)
    assert refused.returncode == 1
    assert "with sex" in refused.stderr
    assert "--anew" in refused.stderr
    for answer, code in (b"n\n", 1), (b"y\n", 0):
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [KANON, "load", other, "visits", "--replace", "--dsn", dsn],
            stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
        ) as process:  # fmt: skip
            os.close(theirs)
            said = read_until(ours, "[y/N]")
            os.write(ours, answer)
            read_until(ours, "\0")
        os.close(ours)
        assert "Make the table anew?" in said
        assert process.returncode == code
    again = kanon("load", other, "visits", "--replace", "--anew", dsn=dsn)
    assert again.returncode == 0
