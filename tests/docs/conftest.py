"""Fixtures of the tests of documentation."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest


@pytest.fixture
def database(database: str, new_role: Callable[..., str]) -> str:
    """A database as readers of the pages have it: somebody reads, and no risk is accepted."""
    new_role("kanon_analyst")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DELETE FROM kanon.setting WHERE name = 'combined_releases'")
    return database
