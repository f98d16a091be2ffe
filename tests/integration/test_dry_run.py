"""A dry run measures what publishing would make, refuses the same, and leaves nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from itertools import product
from typing import Any

import psycopg
import pytest

from tests.acceptance.commands import kanon as command
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_source,
    everything,
    fetch,
    hearing,
    sqlstate_of,
    value,
)

KINDS: dict[str, dict[str, Any]] = {
    "buckets": {"privacy": '{"l": 12}', "method": "anatomy", "assignment": "random"},
    "generalized": {"k": 3, "method": "mondrian", "refine": False},
    "freeform": {"k": 3, "method": "ring"},
    "suppressed": {"k": 3},
}
"""Buckets of twelve values of twelve records each: there is only one bucket."""

RISK = "combined_releases"
REFUSED = "KN005"

DETERMINED = ("linking a row", "homogeneity", "most frequent value")
"""Attacks that draw nothing at random."""


pytestmark = pytest.mark.usefixtures("refused_by_default")
NAMES = (f"data.p{number}" for number in itertools.count())


@pytest.fixture
def source(parties: Parties) -> str:
    """A table that nothing was published from yet, as the ledger knows it."""
    name = next(NAMES)
    rows = [(20 + i % 5, "mf"[i % 2], f"disease {i}") for i in range(12)]
    create_source(parties.publisher, name, "age int, sex text, sick text", rows)
    return name


def in_sql(parties: Parties, kind: str, source: str, **given: Any) -> dict[str, Any]:
    return Functions(parties.publisher).call(f"publish_{kind}", source, "out", **given)


def in_python(parties: Parties, kind: str, source: str, **given: Any) -> dict[str, Any]:
    return Package(parties.publisher).call(f"publish_{kind}", source, "out", **given)


def in_the_shell(parties: Parties, kind: str, source: str, **given: Any) -> dict[str, Any]:
    options: list[object] = []
    for name, one in given.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(one, bool):
            options.append(flag if one else f"--no-{flag[2:]}")
        else:
            options += [flag, one]
    dsn = parties.publisher.info.dsn
    answer: dict[str, Any] = command(
        "publish", kind, source, "out", *options, "--json", dsn=dsn
    ).json()
    return answer


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "dry_run"),
    [("buckets", in_sql), ("generalized", in_python), ("freeform", in_sql),
     ("suppressed", in_the_shell)],
)  # fmt: skip
def test_nothing_is_left(
    parties: Parties, source: str, kind: str, dry_run: Callable[..., dict[str, Any]]
) -> None:
    """And its figures are those of the publication, where a setting leaves nothing to chance."""
    before = everything(parties.admin)
    tried = dry_run(parties, kind, source, **KINDS[kind], dry_run=True)
    assert tried["publication_id"] is None
    assert everything(parties.admin) == before
    locked = (
        "SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)"
        " WHERE a.usename = $1 AND l.locktype IN ('relation', 'advisory', 'object')"
    )
    assert value(parties.admin, locked, parties.publisher.info.user) == 0
    publisher = Functions(parties.publisher)
    published = in_sql(parties, kind, source, **KINDS[kind])
    figures = tried["metrics"].pop("figures")
    fixed = ("guarantee", "records", "metrics")
    assert [tried[name] for name in fixed] == [published[name] for name in fixed]
    chosen = [
        [row for row in rows if row["attack"] in DETERMINED]
        for rows in (figures["attacks"], publisher.rows("attack", "out"))
    ]
    assert chosen[0] == chosen[1]
    assert len(chosen[0]) > 1
    asked = publisher.rows("evaluate_counts", "out", seed=1) if kind == "buckets" else []
    assert figures["counts"] == asked
    assert not asked or asked[-1]["mean_relative_error"] > 0


@pytest.mark.long
def test_a_risk_that_would_be_refused_is_reported(parties: Parties, source: str) -> None:
    """By the row, by a warning, and by the command, which prints the figures."""
    in_sql(parties, "buckets", source, **KINDS["buckets"])
    before = everything(parties.admin)
    call = lambda **given: Functions(parties.publisher).call(
        "publish_generalized", source, "second", **KINDS["generalized"], **given
    )
    with hearing(parties.publisher) as warned:
        tried = call(dry_run=True)
    with pytest.raises(psycopg.Error) as refused:
        call()
    assert refused.value.sqlstate == REFUSED
    assert tried["metrics"]["figures"]["risks"] == [
        {
            "risk": RISK, "is_refused": True, "accepted": None,
            "meaning": refused.value.diag.message_detail,
        }
    ]  # fmt: skip
    assert f"publishing it would be refused: {refused.value.diag.message_primary}" in warned
    accepted = call(dry_run=True, accept=json.dumps({RISK: "one team"}))
    assert accepted["metrics"]["figures"]["risks"][0] | {"meaning": ""} == {
        "risk": RISK, "is_refused": False, "accepted": "one team", "meaning": "",
    }  # fmt: skip
    dsn = parties.publisher.info.dsn
    done = command("publish", "suppressed", source, "tried", "--k", 3, "--dry-run", dsn=dsn)
    assert done.returncode == 0, done.stderr
    for shown in ("linking a row", RISK, "Tried and verified, nothing kept"):
        assert shown in done.stdout
    assert "publishing it would be refused" in done.stderr
    assert everything(parties.admin) == before


def test_what_is_refused_is_refused(
    parties: Parties,
    source: str,
    new_role: Callable[..., str],
    connect_as: Callable[[str, str], psycopg.Connection[Any]],
) -> None:
    """It gives no right that publishing does not: every column of the source must be readable."""
    both = (True, False)
    for kind, given, expected in (
        ("buckets", {"privacy": '{"l": 2}', "estimates": "uncapped"}, REFUSED),
        ("suppressed", {"k": 3, "options": '{"left_over": "publish"}'}, REFUSED),
        ("buckets", {"privacy": '{"l": 13}'}, "KN001"),
        ("generalized", {"k": 13}, "22023"),
        ("suppressed", {"k": 3, "readers": ["no such role"]}, "42704"),
    ):
        for dry_run in both:
            call = lambda: in_sql(parties, kind, source, **given, dry_run=dry_run)
            assert sqlstate_of(call) == expected
    other = new_role("kanon_publisher")
    fetch(parties.publisher, f'GRANT USAGE ON SCHEMA data TO "{other}"')
    fetch(parties.publisher, f'GRANT SELECT (age, sex) ON {source} TO "{other}"')
    with connect_as(parties.dsn, other) as publisher:
        for connection, dry_run in product((parties.analyst, parties.stranger, publisher), both):
            call = lambda: Functions(connection).call(
                "publish_suppressed", source, "out", k=3, dry_run=dry_run
            )
            assert sqlstate_of(call) == "42501"
    fetch(parties.admin, f'DROP OWNED BY "{other}"')


@pytest.mark.long
def test_what_there_is_no_room_for_is_not_measured(parties: Parties) -> None:
    """A thousand questions about very many values take more memory than publishing does."""
    fetch(
        parties.publisher,
        "CREATE TABLE data.many AS SELECT i AS age, i % 5 AS sick FROM generate_series(1, 75000) i",
    )
    Functions(parties.publisher).register("data.many", ["age"], "sick")
    fetch(parties.admin, "INSERT INTO kanon.setting VALUES ('publish_memory', '145 MB')")
    try:
        tried = Functions(parties.publisher).publish(
            "data.many", "out", privacy='{"l": 3}', assignment="random", dry_run=True
        )
    finally:
        fetch(parties.admin, "DELETE FROM kanon.setting WHERE name = 'publish_memory'")
    figures = tried["metrics"]["figures"]
    assert figures["counts"] is None
    assert "reading needs more room than it may have" in figures["not_measured"]["counts"]
    assert figures["attacks"]
