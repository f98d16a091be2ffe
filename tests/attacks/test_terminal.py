"""Attacks by data and names on whoever reads what commands print: terminals, spreadsheets."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from kanon_db.interfaces.console import visible
from tests.acceptance.commands import KANON, kanon
from tests.integration.parties import Functions, Parties, create_table

ILLNESSES = (
    "\x1b]52;c;Y3VybCBldmlsfHNo\x07", "\x1b[2J\x1b[1;1HAll checks hold", "=cmd|' /C calc'!A0",
    "+1+1", "-2+3", "@SUM(1)", "\tx", "a\u202eb\x85c", "two\nlines", "-5", "1e3", "a;=1+1",
)  # fmt: skip
COLUMN = "ill ]0;x"
QUERY = f'SELECT "{COLUMN}", COUNT(*) FROM odd GROUP BY "{COLUMN}"'
ACTING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What may act on a terminal: all but tabs and ends of lines."""


@pytest.fixture(scope="module", autouse=True)
def odd(parties: Parties) -> None:
    rows = [(i % 4, ILLNESSES[i % len(ILLNESSES)]) for i in range(40 * len(ILLNESSES))]
    create_table(parties.publisher, "data.odd", f'age int, "{COLUMN}" text', rows)
    functions = Functions(parties.publisher)
    functions.register("data.odd", ["age"], COLUMN)
    functions.publish("data.odd", "odd", privacy='{"l": 2}')


def on_a_terminal(*arguments: str, dsn: str) -> str:
    """Run a command whose output and errors are a terminal, and return what reaches it."""
    ours, its = pty.openpty()
    colors = {"TERM": "dumb", "NO_COLOR": "1", "KANON_DSN": dsn}
    command = subprocess.Popen(
        [KANON, *arguments], stdin=subprocess.DEVNULL, stdout=its, stderr=its,
        env={**os.environ, **colors},
    )  # fmt: skip
    os.close(its)
    read = bytearray()
    try:
        while block := os.read(ours, 65536):
            read += block
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    assert command.wait() == 0, read.decode()
    # The bar that says how far it is erases itself, in one line.
    return re.sub(r"\x1b\[[0-9]*[AKhlm]|\x1b\[\?25[hl]", "", read.decode()).replace("\r", "")


@pytest.mark.long
@pytest.mark.pitfall(39)
@pytest.mark.parametrize("how", [(), ("--json",), ("--explain",), ("--csv",)])
def test_nothing_of_the_data_acts_on_a_terminal(how: tuple[str, ...], parties: Parties) -> None:
    shown = on_a_terminal("query", QUERY, *how, "--quiet", dsn=parties.dsn)
    assert r"\u001b]52;c;" in shown
    assert r"\u202e" in shown
    assert not ACTING.search(shown)


@pytest.mark.long
@pytest.mark.pitfall(39)
@pytest.mark.parametrize(
    "command", ["publications --json", "verify odd --quiet", "metrics odd --quiet"]
)
def test_other_commands(command: str, parties: Parties) -> None:
    assert not ACTING.search(on_a_terminal(*command.split(), dsn=parties.dsn))


@pytest.mark.pitfall(39)
def test_errors_stay_on_their_lines(parties: Parties) -> None:
    """A name cannot pretend to be a hint, or anything else that a command says."""
    refused = kanon("metrics", "x\nhint: \x1b[2Jall is well", dsn=parties.dsn)
    assert refused.returncode == 1
    assert not ACTING.search(refused.stderr)
    assert not re.search(r"^hint: .*all is well", refused.stderr, flags=re.MULTILINE)


@pytest.mark.pitfall(39)
def test_json_means_the_same(parties: Parties) -> None:
    answer = kanon("query", QUERY, "--json", dsn=parties.dsn).json()
    assert {row[COLUMN] for row in answer["rows"]} == set(ILLNESSES)


@pytest.mark.pitfall(39)
def test_spreadsheets_run_nothing(parties: Parties) -> None:
    """Texts that are formulas are marked; others, and numbers, reach a program as they are."""
    printed = kanon("query", QUERY, "--csv", dsn=parties.dsn)
    header, *rows = csv.reader(io.StringIO(printed.stdout, newline=""))
    assert header[0] == COLUMN
    formulas = {text for text in ILLNESSES if text[0] in "=+-@\t"} - {"-5"}
    assert {row[0] for row in rows} == {*set(ILLNESSES) - formulas, *(f"'{f}" for f in formulas)}
    # Some spreadsheets take a semicolon for the end of a cell.
    assert '"a;=1+1",' in printed.stdout
    numbers = kanon("query", "SELECT COUNT(*) FROM odd WHERE age = 1", "--csv", dsn=parties.dsn)
    assert all(float(cell) >= 0 for cell in numbers.stdout.splitlines()[1].split(","))


@pytest.mark.pitfall(39)
@pytest.mark.parametrize("text", ["naïve Ω 漢字 😀", "क\u200dष", "👩\u200d💻", "=1+1"])
def test_what_shows_stays(text: str) -> None:
    assert visible(text) == text


@pytest.mark.pitfall(39)
def test_what_is_written_instead_is_json() -> None:
    every = "".join(chr(code) for code in (*range(0x20), 0x7F, 0x9B, 0xAD, 0x202E, 0xE0041))
    shown = visible(every)
    assert shown.isprintable()
    assert json.loads(f'"{shown}"') == every


@pytest.mark.pitfall(39)
def test_everything_is_printed_in_one_place() -> None:
    """No module but the console's writes to a terminal."""
    package = Path(__file__).parents[2] / "kanon_db"
    elsewhere = [
        path.name
        for path in package.rglob("*.py")
        if path not in (package / "interfaces/console.py", package / "interfaces/__init__.py")
        and re.search(
            r"click\.echo|sys\.std(out|err)\.write|(?<![\w.>] )\bprint\(", path.read_text()
        )
        and not re.search(r">>> .*print\(|\.\.\. .*print\(", path.read_text())
    ]
    assert elsewhere == []
