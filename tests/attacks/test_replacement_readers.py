"""Readers during a replacement get the old answer or the new one: security pitfall 23.

This is the quick form of ``python -m benchmarks load``, whose figures docs/reliability.md has.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from psycopg import sql

from benchmarks.load.analysts import MODES, RETRYABLE, RIGHT
from benchmarks.load.crowd import let_them_ask
from benchmarks.load.releases import Publisher, Release
from tests.integration.parties import Connection


@pytest.mark.pitfall(23)
def test_readers_see_the_old_or_the_new(
    database: str,
    connect_as: Callable[[str, str], Connection],
    new_role: Callable[..., str],
) -> None:
    """Analysts who ask all the time, while publications are replaced, get no wrong answer."""
    roles = {"publisher": new_role("kanon_publisher"), "analyst": new_role("kanon_analyst")}
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(
                sql.Identifier(admin.info.dbname), sql.Identifier(roles["publisher"])
            )
        )
    crowd = let_them_ask(
        lambda who: connect_as(database, roles[who]),
        n_analysts=len(MODES),
        n_records=2_000,
        seconds=4,
        publisher_pause=0.1,
        analyst_pause=0.02,
        is_watched=False,
    )
    assert min(map(len, crowd.publisher.releases.values())) > 2
    assert {asked.mode for asked in crowd.asked} == set(MODES)
    assert crowd.publisher.errors.keys() <= RETRYABLE
    assert [asked for asked in crowd.asked if asked.outcome not in {RIGHT, *RETRYABLE}] == []


def test_whose_answer_is_right(database: str) -> None:
    """A release may be seen from the begin of its call to the end of the next one's."""
    with psycopg.connect(database) as connection:
        publisher = Publisher(connection, pause=0)
        publisher.releases["p"] = [
            Release("even", 0, 2), Release("odd", 10, 12), Release("even", 20, float("inf"))
        ]  # fmt: skip
        assert publisher.sides("p", 5, 6) == {"even"}
        assert publisher.sides("p", 5, 11) == {"even", "odd"}
        assert publisher.sides("p", 11.5, 11.6) == {"even", "odd"}
        assert publisher.sides("p", 13, 14) == {"odd"}
        assert publisher.sides("p", 25, 26) == {"even", "odd"}
