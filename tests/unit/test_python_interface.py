"""What the Python interface says where nobody catches an error."""

from __future__ import annotations

import traceback

import pytest

import kanon_db
from kanon_db.errors import ServerError


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
