"""Attacks with the log of a server that writes down every statement, with its parameters.

A publication from outside sends arrays of numbers, which say where each record goes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

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
