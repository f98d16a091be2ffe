"""Options of the command line; what the commands do is in tests/acceptance."""

from __future__ import annotations

import shlex
import shutil
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

import kanon_db
from kanon_db import interfaces
from kanon_db.errors import ServerError, UndoneInterrupt
from kanon_db.interfaces import cli, console
from kanon_db.interfaces.cli import command_base
from kanon_db.interfaces.cli.command_base import connected


def commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from commands(command)
        else:
            yield command


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["age"], ["age"]), (["age,gender"], ["age", "gender"]),
        (["age, gender", "education"], ["age", "gender", "education"]),
        (['"a,b",c'], ["a,b", "c"]), (['"say ""x"""'], ['say "x"']), (["'a';--"], ["'a';--"]),
    ],
)  # fmt: skip
def test_names(given: list[str], names: list[str]) -> None:
    seen: list[list[str]] = []

    @click.command()
    @click.option(
        "--columns", type=command_base.Names(), multiple=True, callback=command_base.flatten_names
    )
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    """The line of the docs that a shell reads; docs/howto/operation.md names it for each."""
    page = (Path(__file__).parents[2] / "docs" / "howto" / "operation.md").read_text()
    assert f"_KANON_COMPLETE={shell}_source kanon" in page
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("click asks bash for its version")
    answer = CliRunner().invoke(
        cli.main, prog_name="kanon", env={"_KANON_COMPLETE": f"{shell}_source"}
    )
    assert answer.exit_code == 0
    assert "_KANON_COMPLETE" in answer.output


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("kanon pub", ["publish", "publications"]),
        ("kanon publish gen", ["generalized"]),
        ("kanon publish buckets t n --meth", ["--method"]),
        ("kanon publish generalized t n --method mon", ["mondrian"]),
        ("kanon load --date", ["--date-format"]),
        ("kanon local st", ["start", "stop", "status"]),
    ],
)
def test_completion(words: str, completed: list[str]) -> None:
    environment = {
        "_KANON_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    answer = CliRunner().invoke(cli.main, prog_name="kanon", env=environment)
    found = [line.split(",", 1)[1] for line in answer.output.splitlines()]
    assert sorted(found) == sorted(completed)


def test_folder_of_the_environment(tmp_path: Path) -> None:
    """KANON_DIR stands for --dir, and yields to --dir, --dsn and KANON_DSN."""
    named = {"KANON_DIR": str(tmp_path / "named")}
    answer = CliRunner().invoke(cli.main, ["metrics", "b"], env=named)
    assert answer.exit_code == 1
    assert str(tmp_path / "named") in answer.stderr
    answer = CliRunner().invoke(cli.main, ["metrics", "b", "--dir", str(tmp_path)], env=named)
    assert str(tmp_path / "named") not in answer.stderr
    for arguments, more in (["--dsn", "host=/nowhere"], {}), ([], {"KANON_DSN": "host=/nowhere"}):
        answer = CliRunner().invoke(cli.main, ["metrics", "b", *arguments], env=named | more)
        assert answer.exit_code == 1
        assert "cannot connect" in answer.stderr


class Interrupted(ModuleType):
    """Somebody stops it while it is imported."""

    def __getattr__(self, name: str) -> object:
        if name in ("main", "connect"):
            raise KeyboardInterrupt
        raise AttributeError(name)


def test_nothing_was_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "kanon_db.interfaces.cli", Interrupted("cli"))
    with pytest.raises(SystemExit) as ended:
        interfaces.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "stopped: nothing was published or changed\n"


def test_nothing_was_done_before_it_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kanon_db.interfaces.python", Interrupted("python"))
    with (
        click.Context(click.Command("kanon")),
        pytest.raises(UndoneInterrupt),
        connected("dbname=none", Path(), as_json=True),
    ):
        pass


def test_the_database_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KANON_DSN", raising=False)
    with pytest.raises(ServerError, match="no database is named"):
        kanon_db.connect()
    monkeypatch.setenv("KANON_DSN", "host=/nowhere")
    with pytest.raises(ServerError, match="cannot connect"):
        kanon_db.connect()


def test_a_traceback_ends_with_the_hint() -> None:
    with pytest.raises(ServerError) as refused:
        kanon_db.connect("host=/nowhere")
    shown = "".join(traceback.format_exception(refused.value)).splitlines()
    assert shown[-2].startswith("detail: ")
    assert shown[-1].startswith("hint: check the connection string")
    assert str(refused.value) == "cannot connect to the server"


def test_commands_to_type_next_run_from_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `make demo`, kanon is not on the PATH."""
    own = Path(sys.prefix, "bin", "kanon")
    monkeypatch.setenv("PATH", str(tmp_path))
    for folder in (tmp_path, Path(sys.prefix).parent):
        monkeypatch.chdir(folder)
        typed = console.command_here()
        assert Path(shlex.split(typed)[0]).resolve() == own.resolve()
    assert typed == f"{Path(sys.prefix).name}/bin/kanon"
    monkeypatch.setenv("PATH", str(own.parent))
    assert console.command_here() == "kanon"
