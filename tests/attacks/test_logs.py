"""Attacks with the log of a server that writes down every statement, with its parameters.

A publication from outside sends arrays of numbers, which say where each record goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kanon_db.interfaces.python import Kanon
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import WAYS, Connection, Parties, create_source, fetch
from tests.server_log import ServerLog

N_RECORDS = 100
KINDS: dict[str, dict[str, Any]] = {
    "publish": {"privacy": '{"l": 2}'},
    "freeform": {"k": 3},
    "suppress": {"k": 3},
}
EVERYTHING = ["log_min_duration_statement = 0", "log_error_verbosity = 'default'"]


@pytest.mark.pitfall(7, 19)
@pytest.mark.parametrize(
    ("way", "settings"),
    [("sql", EVERYTHING), ("python", [*EVERYTHING, "log_parameter_max_length = 0"])],
)
def test_no_array_of_records_is_logged(
    parties: Parties, new_role: Callable[..., str], connect_as: Callable[[str, str], Connection],
    way: str, settings: list[str],
) -> None:  # fmt: skip
    """SQL functions log their call only; of others, one setting keeps the arrays out."""
    role = new_role("kanon_publisher")
    for setting in settings:
        fetch(parties.admin, f"ALTER ROLE {role} SET {setting}")
    fetch(parties.admin, f"CREATE SCHEMA {role} AUTHORIZATION {role}")
    with connect_as(parties.dsn, role) as connection:
        rows = [(i % 30, f"canary {i % 5}") for i in range(N_RECORDS)]
        create_source(connection, f"{role}.people", "age int, sick text", rows)
        kanon = WAYS[way](connection)
        log = ServerLog(parties.admin)
        if not log.is_readable:
            pytest.skip("the server's log cannot be read from here")
        for call, given in KINDS.items():
            getattr(kanon, call)(f"{role}.people", "logged", **given)
            kanon.drop("logged")
        text = log.text()
    assert "duration: " in text
    assert "canary" not in text
    assert re.findall(rf"[0-9a-f]{{{2 * N_RECORDS}}}", text) == []
    fetch(parties.admin, f"DROP SCHEMA {role} CASCADE")


@pytest.mark.pitfall(7)
def test_errors_of_loading_are_kept_out_by_a_setting(
    parties: Parties, new_role: Callable[..., str], connect_as: Callable[[str, str], Connection],
    tmp_path: Path,
) -> None:  # fmt: skip
    role, path = new_role("kanon_publisher"), tmp_path / "file.csv"
    fetch(parties.admin, f"CREATE SCHEMA {role} AUTHORIZATION {role}")
    path.write_text("at,n\n2020-02-30,1\n2020-01-31,2\n")
    for setting, is_logged in (("warning", True), ("log", False)):
        fetch(parties.admin, f"ALTER ROLE {role} SET log_min_messages = {setting}")
        with connect_as(parties.dsn, role) as connection:
            log = ServerLog(parties.admin)
            if not log.is_readable:
                pytest.skip("the server's log cannot be read from here")
            Kanon(PsycopgSession(connection)).load(path, f"{role}.days", replace=True)
            assert ("2020-02-30" in log.text()) == is_logged
    fetch(parties.admin, f"DROP SCHEMA {role} CASCADE")
