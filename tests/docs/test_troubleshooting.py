"""docs/howto/troubleshooting.md: what newcomers type, what they are told, and what works instead.

It is written from what the commands say, and compared with that.
``KANON_WRITE_PAGES=1 pytest tests/docs/test_troubleshooting.py`` writes the page.
"""

from __future__ import annotations

import os
import re
import shlex
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import kanon_db
from kanon_db.errors import KanonError
from kanon_db.interfaces.demo import write_fair
from tests.acceptance.commands import kanon
from tests.docs.mistakes import FILES, SECTIONS, Mistake

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "troubleshooting.md"
# bi is of another page, whose examples this server may have run
ANALYST = r"(?:bi\b|kanon_test_\w+)"
ANALYSTS = re.compile(rf"\b{ANALYST}(?:(?:, | and )(?:{ANALYST}|\d+ more roles))*")
"""Every test of the pages makes another one."""

FIGURES = re.compile(r"(?:differencing|intersection)\b.*\((?:exact|sound)\)\.")
"""Buckets are drawn at random, so that every test measures others."""

PROMPTS = {"shell": "$ ", "sql": "=> ", "python": ">>> "}
INTRODUCTION = """\
# Troubleshooting

What newcomers type, what they are told, and what works instead. Written by the tests, which type \
it (`tests/docs/test_troubleshooting.py`; the data are the demo's, and a table `tiny` of three \
people). `$` stands before commands, `=>` before SQL, `>>>` before Python. No message contains a \
value of the data.

If something else is wrong, `kanon doctor` looks at the installation and says how to mend it, and \
the [reference](../reference/reference.md#errors) lists the SQLSTATEs.
"""


@dataclass(frozen=True)
class Day:
    """A first day: where everybody's commands go, and the folder with their files."""

    dsns: dict[str, str]
    folder: Path
    names: dict[str, str]
    """What the page calls what has another name in each run."""

    def told(self, mistake: Mistake, text: str) -> tuple[bool, str]:
        """Type something, and return whether it worked, and what it said."""
        dsn = self.dsns.get(mistake.who)
        works, said = getattr(self, f"_{mistake.way}")(text, dsn)
        for name, shown in self.names.items():
            said = said.replace(name, shown)
        said = FIGURES.sub("[figures]", ANALYSTS.sub("carol", said))
        return works, "\n".join(line.rstrip() for line in said.strip().splitlines())

    def _shell(self, text: str, dsn: str | None) -> tuple[bool, str]:
        answer = kanon(*shlex.split(text)[1:], dsn=dsn, cwd=self.folder)
        return answer.returncode == 0, answer.stderr + answer.stdout

    def _sql(self, text: str, dsn: str | None) -> tuple[bool, str]:
        with psycopg.connect(dsn or "", autocommit=True) as connection:
            try:
                connection.execute(text.encode())
            except psycopg.Error as error:
                said = error.diag
                parts = {
                    "ERROR": said.message_primary,
                    "DETAIL": said.message_detail,
                    "HINT": said.message_hint,
                }
                return False, "\n".join(f"{key}:  {part}" for key, part in parts.items() if part)
        return True, ""

    def _python(self, text: str, dsn: str | None) -> tuple[bool, str]:
        with kanon_db.connect(dsn) as connected:
            try:
                eval(text, {"kanon": connected})  # noqa: S307  # our own examples
            except (KanonError, TypeError) as error:
                return False, "".join(traceback.format_exception_only(error))
        return True, ""


@pytest.fixture
def day(
    database: str,
    new_database: Callable[..., str],
    new_role: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Day:
    monkeypatch.delenv("COLUMNS", raising=False)  # tables as wide as in a pipe
    write_fair(tmp_path / "fair.csv")
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    stranger, publisher = new_role(), new_role("kanon_publisher")
    with kanon_db.connect(database) as connected:
        connected.load(tmp_path / "tiny.csv", "tiny")
        connected.register_source("tiny", quasi_identifiers=["age", "town"], sensitive="disease")
    empty = new_database(installed=False)
    return Day(
        {
            "owner": database,
            "newcomer": empty,
            "stranger": make_conninfo(database, user=stranger),
            "publisher": make_conninfo(database, user=publisher),
        },
        tmp_path,
        {
            stranger: "alice",
            publisher: "bob",
            f"{tmp_path}/": "",
            str(conninfo_to_dict(empty)["dbname"]): "data",
        },
    )


def written(day: Day) -> str:
    """Live through the day, and write the page."""
    parts = [INTRODUCTION]
    number = 0
    for section, mistakes in SECTIONS.items():
        parts.append(f"## {section}\n")
        for mistake in mistakes:
            number += 1
            _, said = day.told(mistake, mistake.typed)
            assert said, mistake.title
            parts.append(f"### {number}. {mistake.title}\n")
            prompt = PROMPTS[mistake.way]
            parts.append(f"```text\n{prompt}{mistake.typed}\n{said}\n```\n")
            if mistake.more:
                parts.append(f"{mistake.more}\n")
            if mistake.instead:
                works, said = day.told(mistake, mistake.instead)
                assert works, f"{mistake.instead}\n{said}"
                parts.append(f"Instead:\n\n```text\n{prompt}{mistake.instead}\n```\n")
    return "\n".join(parts)


@pytest.mark.long
def test_the_page_shows_what_is_said(day: Day) -> None:
    page = re.sub(r"in \d+\.\d\d seconds", "in 0.01 seconds", written(day))
    if "KANON_WRITE_PAGES" in os.environ:
        PAGE.write_text(page, encoding="utf-8")
    assert page == PAGE.read_text(encoding="utf-8")


def test_every_error_says_what_to_type() -> None:
    page = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    is_error, has_hint = (
        re.compile(pattern, re.MULTILINE)
        for pattern in (r"^(error|ERROR|kanon_db\S+):", "^(hint|HINT):")
    )
    errors = [block for block in blocks if is_error.search(block)]
    assert len(errors) >= 25
    assert [block for block in errors if not has_hint.search(block)] == []
