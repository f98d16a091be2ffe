"""One database for all tests of meaning: its publications are made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.integration.parties import Connection, Parties, fetch, gathered
from tests.meaning.tables import TABLES, make_tables, publish_all

N_RECORDS = 400


@pytest.fixture(scope="package")
def parties(
    new_database: Callable[[], str],
    connect_as: Callable[[str, str], Connection],
    new_role: Callable[..., str],
) -> Iterator[Parties]:
    """Parties, and every table published in every way."""
    with gathered(new_database(), connect_as, new_role) as parties:
        fetch(parties.publisher, "CREATE SCHEMA data")
        fetch(parties.admin, "CREATE EXTENSION citext SCHEMA public")
        make_tables(parties.publisher, N_RECORDS)
        for table in TABLES:
            publish_all(parties.publisher, table)
        yield parties
