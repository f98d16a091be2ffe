"""Ctrl-C while the command is being loaded."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import click
import pytest

from kanon_db.errors import UndoneInterrupt
from kanon_db.interfaces import start
from kanon_db.interfaces.cli.command_base import connected


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
        start.main()
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
