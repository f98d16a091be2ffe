"""What happens before a PL/Python function does anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kanon_db.interfaces.plpython import _choose_cache


@pytest.mark.parametrize("writable", [True, False])
def test_compiled_code_has_a_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, writable: bool
) -> None:
    home = tmp_path / "home"
    if writable:
        home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    _choose_cache()
    expected = None if writable else str(tmp_path / "kanon_db_cache")
    assert os.environ.get("NUMBA_CACHE_DIR") == expected


def test_a_place_that_is_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/given")
    monkeypatch.setenv("HOME", "/nonexistent")
    _choose_cache()
    assert os.environ["NUMBA_CACHE_DIR"] == "/given"
