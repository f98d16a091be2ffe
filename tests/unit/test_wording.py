"""Hints of the command line are commands, hints of SQL are SQL."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kanon_db.wording import for_python, for_shell

PACKAGE = Path(__file__).parents[2] / "kanon_db"
COMMANDS_ONLY = ("cluster", "installation", "cli", "demo.py", "psycopg_session.py")
"""Rooms whose hints are about commands in every language: there is no other way to do it."""


def hints() -> Iterator[tuple[Path, str]]:
    """Every hint, warning and notice in the code, with … for what is filled in."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                named = [word.value for word in node.keywords if word.arg == "hint"]
                said = isinstance(node.func, ast.Attribute) and node.func.attr in ("warn", "tell")
                for value in [*named, *(node.args if said else [])]:
                    yield path, _text(value)


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return "…"


def test_hints_are_written_once_in_sql() -> None:
    found = list(hints())
    assert len(found) > 200
    for path, text in found:
        if not set(path.relative_to(PACKAGE).parts) & set(COMMANDS_ONLY):
            assert not re.search(r"(^|\s)--[a-z]|kanon (register|publish|query|grant)", text), text


def test_the_shell_gets_no_sql() -> None:
    translated = [for_shell(text) for _, text in hints()]
    assert [text for text in translated if "=>" in text] == []
    # Those that the command line has no command for; the administrator's setting is a table.
    left = re.findall(r"\bkanon\.[a-z_]+", " ".join(translated))
    assert set(left) <= {"kanon.setting", "kanon.source", "kanon.estimator"}


def test_python_gets_no_sql() -> None:
    assert [text for _, text in hints() if "=>" in for_python(text)] == []


@pytest.mark.parametrize(
    ("sql", "shell", "python"),
    [
        ("refine => false", "--no-refine", "refine=False"),
        ("sensitive => ...", "--sensitive ...", "sensitive=..."),
        ("method => 'auto'.", "--method auto.", 'method="auto".'),
        (
            """accept => '{"a": "it''s"}'""",
            """--accept '{"a": "it'"'"'s"}'""",
            """accept={"a": "it's"}""",
        ),
        ("TABLE kanon.publications lists", "kanon publications lists",
         "kanon.publications() lists"),
        ("kanon.estimate_count or kanon.setting", "kanon query or kanon.setting",
         "kanon.estimate_count or kanon.setting"),
        ("kanon.publish_buckets()", "kanon publish buckets", "kanon.publish_buckets()"),
    ],
)  # fmt: skip
def test_words(sql: str, shell: str, python: str) -> None:
    assert for_shell(sql) == shell
    assert for_python(sql) == python
