"""What docs/howto/spark.md shows runs, on a cluster, and loads into a database."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from kanon_db.interfaces.cli.commands import main

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "spark.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_python_examples_run(spark: Any, people: str, tmp_path: Path, module_database: str) -> None:
    for number, block in enumerate(blocks("python")):
        there = tmp_path / str(number)
        there.mkdir()
        own = block.replace("/data/people", people).replace('"/published', f'"{there}')
        own = re.sub(r'"postgresql:[^"]*"', repr(module_database), own)
        names: dict[str, Any] = {"session": spark}
        if number:
            exec("from kanon_db import spark", names)  # noqa: S102  # as the page did before
        exec(compile(own, "docs/howto/spark.md", "exec"), names)  # noqa: S102  # our own page
        assert list(there.glob("*/manifest.json"))


def commands() -> list[list[str]]:
    """Return the commands of the page, without those that are cut off."""
    text = "\n".join(blocks("console")).replace("\\\n", " ")
    typed = re.findall(r"^\$ (kanon .*)$", text, re.MULTILINE)
    return [shlex.split(line)[1:] for line in typed if not line.endswith("...")]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_commands_are_there(words: list[str]) -> None:
    """Their arguments are read, as they would be; `test_command.py` runs them."""
    command: click.Command = main
    context = None
    while isinstance(command, click.Group):
        name, found, words = command.resolve_command(click.Context(command), words)
        assert found is not None
        command, context = found, click.Context(command, parent=context, info_name=name)
    assert command.make_context("kanon", words, parent=context).params
