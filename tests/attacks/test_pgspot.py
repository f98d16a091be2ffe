"""What administrators run, read by pgspot: code that others could make do something else.

It finds relations, functions, operators and types that a search path could replace, objects that
would be adopted instead of created, and functions whose search path is not fixed. It does not read
PL/Python; the bodies of our functions are an import and a call.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from kanon_db.installation.install import install
from tests.server_log import ServerLog

SQL = Path(__file__).parents[2] / "sql"

ANSWERED = {
    "PS002": "CREATE OR REPLACE FUNCTION in the schema kanon",
    "PS015": "CREATE OR REPLACE VIEW in the schema kanon",
}
"""What pgspot finds in an upgrade, which does not create the schema kanon itself.

An upgrade only begins if the schema and everything in it belong to superusers
(`kanon_db.installation.install`, tested in `test_capture`), so nothing foreign is adopted.
"""

SAID_OTHERWISE = [
    # Its parser writes the name of this column without its quotes, and cannot read it again.
    (r'"position"', '"place"'),
    # It only knows bodies that are texts. The others are parsed once, with the search path that an
    # installation sets.
    (
        r"^RETURN ([^;]*);$",
        r"SET search_path = pg_catalog, pg_temp AS $body$SELECT \1$body$;",
    ),
    (
        r"^BEGIN ATOMIC\n([^;]*);\nEND;$",
        r"SET search_path = pg_catalog, pg_temp AS $body$\1$body$;",
    ),
    # It does not know blocks in Python, in which an installation asks the server's interpreter.
    (r"^DO LANGUAGE plpython3u ' ?(?:[^']|'')*'", "SELECT 1"),
    # Its parser does not know which fields a variable of a table's row type has.
    (r"^( +_\w+ +)kanon\.\w+;$", r"\1record;"),
]
"""What pgspot cannot read, and what means the same."""

TRUSTED_SCHEMA = "SET LOCAL search_path = pg_catalog, pg_temp; CREATE SCHEMA kanon;\n"
"""What precedes the files of `sql/` in an installation."""


def findings(script: str, *, ignored: Iterable[str] = ()) -> str:
    """What pgspot says about a script; nothing if it is clean."""
    for pattern, said in SAID_OTHERWISE:
        script = re.sub(pattern, said, script, flags=re.MULTILINE)
    ignoring = [f"--ignore={code}" for code in ignored]
    command = [sys.executable, "-m", "pgspot", "--ignore-lang=plpython3u", *ignoring]
    done = subprocess.run(command, input=script, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_files_are_clean() -> None:
    files = sorted(SQL.glob("*.sql"))
    script = "\n".join(file.read_text(encoding="utf-8") for file in files)
    assert findings(TRUSTED_SCHEMA + script) == ""


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("LANGUAGE plpgsql", "SECURITY DEFINER LANGUAGE plpgsql", None),
        ("SET search_path = pg_catalog, pg_temp\nAS $function$", "AS $function$", "PS005"),
        ("SET search_path = pg_catalog, pg_temp\nAS $function$", "SECURITY DEFINER\nAS $function$",
         "PS003"),
        ("SET search_path = pg_catalog, pg_temp\nAS $function$",
         "SECURITY DEFINER SET search_path = ''\nAS $function$", "PS004"),
        ("FUNCTION kanon.", "FUNCTION other.", "PS002"),
    ],
)  # fmt: skip
def test_weakened_files_are_not(old: str, new: str, code: str | None) -> None:
    """What pgspot would find, if it were there."""
    text = (SQL / "30_estimate_count.sql").read_text(encoding="utf-8")
    assert old in text
    found = findings(TRUSTED_SCHEMA + text.replace(old, new))
    assert code in found if code else found == ""


@pytest.mark.pitfall(4)
def test_what_an_installation_runs(cluster_dsn: str, new_database: Callable[..., str]) -> None:
    """Every statement, from the server's log: first of an installation, then of an upgrade."""
    dsn = new_database(installed=False)
    for ignored in ((), ANSWERED):
        with psycopg.connect(cluster_dsn) as connection:
            log = ServerLog(connection)
        if not log.is_readable:
            pytest.skip("the server's log cannot be read from here")
        install(make_conninfo(dsn, options="-c log_statement=all -c log_error_verbosity=default"))
        script = statements(log.text())
        assert script.count("LANGUAGE plpython3u") > 10
        assert "GRANT USAGE ON SCHEMA kanon" in script
        assert findings(script, ignored=ignored) == ""


def statements(log: str) -> str:
    """The statements that a server's log names, with the values of their parameters."""
    entries = re.split(r"^\S+ \S+ \S+ \[\d+\] (LOG|DETAIL):  ", log, flags=re.MULTILINE)
    found: list[str] = []
    for kind, text in zip(entries[1::2], entries[2::2], strict=True):
        head, _, body = text.replace("\n\t", "\n").partition(": ")
        if kind == "LOG" and (head == "statement" or head.startswith("execute ")):
            found.append(body)
        elif kind == "DETAIL" and head == "parameters":
            values = dict(re.findall(r"(\$\d+) = ('(?:[^']|'')*'|NULL)", body))
            found[-1] = re.sub(
                r"(\$\d+)(?:::pg_catalog\.text)?",
                lambda match, values=values: values[match[1]],
                found[-1],
            )
    return "".join(f"{text.strip()};\n" for text in found if text.strip())
