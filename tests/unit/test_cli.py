"""Options of the command line; what the commands do is in tests/acceptance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kanon_db.interfaces import cli
from kanon_db.interfaces.cli import base


def commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from commands(command)
        else:
            yield command


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["age"], ["age"]),
        (["age,gender"], ["age", "gender"]),
        (["age, gender", "education"], ["age", "gender", "education"]),
        (['"a,b",c'], ["a,b", "c"]),
        (['"say ""x"""'], ['say "x"']),
        (["'a';--"], ["'a';--"]),
    ],
)
def test_names(given: list[str], names: list[str]) -> None:
    seen: list[list[str]] = []

    @click.command()
    @click.option("--columns", type=base.Names(), multiple=True, callback=base.flattened)
    def command(columns: list[str]) -> None:
        seen.append(columns)

    arguments = [part for text in given for part in ("--columns", text)]
    assert CliRunner().invoke(command, arguments).exit_code == 0
    assert seen == [names]


@pytest.mark.parametrize("text", ["", "a,,b", "a,", '"a', '"a"b'])
def test_names_malformed(text: str) -> None:
    answer = CliRunner().invoke(cli.main, ["register", "t", "--quasi-identifiers", text])
    assert answer.exit_code == 2
    assert "--quasi-identifiers" in answer.output


def test_every_command_prints_json() -> None:
    for command in commands(cli.main):
        assert "--json" in {flag for option in command.params for flag in option.opts}, command.name


def test_dsn_and_dir_exclude_each_other(tmp_path: Path) -> None:
    arguments = ["metrics", "b", "--dsn", "host=/nowhere", "--dir", str(tmp_path)]
    answer = CliRunner().invoke(cli.main, arguments)
    assert answer.exit_code == 2
    assert "either --dsn or --dir" in answer.output


def test_dir_beats_the_dsn_of_the_environment(tmp_path: Path) -> None:
    arguments = ["metrics", "b", "--dir", str(tmp_path / "absent")]
    answer = CliRunner().invoke(cli.main, arguments, env={"KANON_DSN": "host=/nowhere"})
    assert answer.exit_code == 1
    assert "kanon local start" in answer.stderr


def test_dsn_of_the_environment() -> None:
    answer = CliRunner().invoke(cli.main, ["metrics", "b"], env={"KANON_DSN": "host=/nowhere"})
    assert answer.exit_code == 1
    assert "cannot connect" in answer.stderr


def test_demo_of_a_file_needs_its_columns(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    answer = CliRunner().invoke(cli.main, ["demo", str(tmp_path / "data.csv")])
    assert answer.exit_code == 2
    assert "--quasi-identifiers" in answer.output
