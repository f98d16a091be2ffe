"""Attacks on what is counted: answers from before a change, NULLs that are nobody, empty tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from kanon_db.errors import InfeasibleError
from tests.integration.parties import (
    KINDS,
    Connection,
    Functions,
    Parties,
    create_table,
    fetch,
    holds,
    make_whole,
    sqlstate_of,
    value,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

# Two people have no age and no town: fewer than k, so that they must not be a class of their own.
PEOPLE = [(20 + i % 4, f"town {i % 3}", f"disease {i % 4}") for i in range(48)]
PEOPLE += [(None, None, "disease 0"), (None, None, "disease 1")]
COLUMNS = "age int, town text, sick text"


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    kanon = Functions(parties.publisher)
    for table, rows in {"people": PEOPLE, "empty": []}.items():
        create_table(parties.publisher, f"data.{table}", COLUMNS, rows)
        kanon.register(f"data.{table}", ["age", "town"], "sick")


def publish(parties: Parties, kind: str, source: str = "data.people", **given: Any) -> None:
    Functions(parties.publisher).of_kind(kind, source, "p", **given)


@pytest.fixture
def admin(parties: Parties) -> Iterator[Connection]:
    """A superuser, in a transaction that is rolled back; plans are kept as they are."""
    with parties.admin.transaction(force_rollback=True):
        fetch(parties.admin, "SET LOCAL plan_cache_mode = force_generic_plan")
        yield parties.admin
    fetch(parties.admin, "DEALLOCATE ALL")


@pytest.mark.long
@pytest.mark.pitfall(15)
@pytest.mark.parametrize("kind", ["buckets", "generalized"])
def test_a_prepared_plan_sees_what_was_changed_meanwhile(
    parties: Parties, admin: Connection, kind: str
) -> None:
    """In one transaction, with one plan: what was verified and counted before is not repeated."""
    publish(parties, kind)
    query = "SELECT COUNT(*) FROM p WHERE sick = ''disease 3''"
    for statement in (
        "PREPARE holds AS SELECT bool_and(holds) FROM kanon.verify('p')",
        f"PREPARE counted AS SELECT estimate FROM kanon.estimate_count('{query}')",
    ):
        fetch(admin, statement)
    assert fetch(admin, "EXECUTE holds") == [(True,)]
    assert fetch(admin, "EXECUTE counted") == [(12,)]
    for relation in ("sat", "bit") if kind == "buckets" else ("row", "cls"):
        fetch(admin, f"DELETE FROM published.p_{relation} WHERE sick = 'disease 3'")
    if kind != "buckets":
        fetch(admin, "REFRESH MATERIALIZED VIEW published.p")
        make_whole(admin, "p", ["published.p", "published.p_row"])
    assert fetch(admin, "EXECUTE holds") == [(False,)]
    if kind == "buckets":
        assert fetch(admin, "EXECUTE counted") == [(0,)]
    else:
        with pytest.raises(psycopg.Error, match="have changed since they were published"):
            fetch(admin, "EXECUTE counted")


@pytest.mark.pitfall(15)
def test_one_statement_does_not_keep_an_answer_for_another_argument(parties: Parties) -> None:
    """A planner that folds a call, or a cache that forgets its argument, would say one number."""
    publish(parties, "buckets")
    found = fetch(
        parties.analyst,
        "SELECT (kanon.estimate_count(format('SELECT COUNT(*) FROM p WHERE age < %s', n))).estimate"
        " FROM generate_series(20, 24) AS n ORDER BY n",
    )
    assert found == [(0,), (12,), (24,), (36,), (48,)]


@pytest.mark.pitfall(15)
@pytest.mark.parametrize("kind", ["generalized", "freeform", "suppressed"])
def test_nulls_are_values_that_few_people_may_have(parties: Parties, kind: str) -> None:
    """Two people without an age and a town are not published as a class of two."""
    publish(parties, kind)
    shown = "age::text, town::text" + ", pattern" * (kind == "suppressed")
    sizes = fetch(parties.analyst, f"SELECT {shown}, count(*) FROM published.p GROUP BY {shown}")
    in_clear = [row for row in sizes if row[:2] == (None, None) and row[2] != "**"]
    assert in_clear == []
    if kind != "freeform":  # where each row has cells of its own
        assert min(row[-1] for row in sizes) >= 3


@pytest.mark.pitfall(15)
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_is_not_published(parties: Parties, kind: str) -> None:
    """An empty table keeps every promise, and is refused."""
    refused = sqlstate_of(lambda: publish(parties, kind, "data.empty"))
    assert refused == InfeasibleError.sqlstate


@pytest.mark.pitfall(15)
def test_when_everything_is_suppressed_nothing_is_told(parties: Parties) -> None:
    """All rows are alike; a question about what they hide is refused, and not answered by 0."""
    publish(parties, "suppressed", patterns=["**"], k=len(PEOPLE))
    assert fetch(parties.analyst, "SELECT DISTINCT age, town, pattern FROM published.p") == [
        (None, None, "**")
    ]
    assert holds(parties.analyst, "p")
    kanon = Functions(parties.analyst)
    assert sqlstate_of(lambda: kanon.estimate("SELECT COUNT(*) FROM p WHERE age = 20")) == "0A000"
    assert kanon.estimate("SELECT COUNT(*) FROM p") == (len(PEOPLE), 0, len(PEOPLE), len(PEOPLE))
    assert value(parties.analyst, "SELECT count(*) FROM published.p") == len(PEOPLE)
    Functions(parties.publisher).drop("p")
    refused = sqlstate_of(
        lambda: publish(parties, "suppressed", patterns=["**"], k=len(PEOPLE) + 1)
    )
    assert refused == "22023"
