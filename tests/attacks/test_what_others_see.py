"""What a role that may only connect sees of publishing, and requests that only look like others."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from kanon_db.catalog.entries import run_errand
from kanon_db.installation.install import install
from kanon_db.publications import pipeline
from kanon_db.session import Session
from tests.attacks.test_drafts import COLUMNS, PEOPLE, everything
from tests.integration.parties import (
    KINDS,
    Connection,
    Functions,
    Package,
    Parties,
    create_table,
    fetch,
    value,
)

RANDOM = {"assignment": "random", "privacy": '{"l": 3}'}
IN_OTHER_WORDS: Mapping[str, tuple[str, Mapping[str, object], list[Mapping[str, object]]]] = {
    "random": (
        "publish_buckets", RANDOM,
        [
            {"privacy": '{"l": 3.0}'}, {"privacy": '{"default": "1/3"}'},
            {"privacy": '{"cap": "1/3", "l": 2}'}, {"max_bucket_size": 51},
            {"method": "optimal", "options": '{"time_limit": 7}'},
            {"accept": '{"uninformed_reader": "why not"}'},
        ],
    ),
    "cells": (
        "publish_buckets", {"privacy": '{"l": 3}'},
        [
            {"privacy": '{"cap": "1/3", "l": "3"}'},
            {"max_bucket_size": 50, "options": "{}"},
        ],
    ),
    "m_invariant": (
        "publish_buckets", {"assignment": "m_invariant", "privacy": '{"l": 3}'},
        [{"method": "multi_size"}, {"max_bucket_size": 77}],
    ),
    "freeform": (
        "publish_freeform", {"k": 3},
        [
            {"options": '{"partition_size": 1000}'}, {"options": '{"workers": 1}'},
            {"weights": '{"age": 2, "sex": 2}'},
        ],
    ),
    "suppressed": (
        "publish_suppressed", {"k": 3, "options": '{"left_over": "join"}'},
        [{"weights": '{"age": 1, "sex": 1.0}'}],
    ),
}  # fmt: skip


@pytest.fixture
def source(parties: Parties) -> Iterator[str]:
    create_table(parties.publisher, "data.seen", COLUMNS, PEOPLE)
    Functions(parties.publisher).register("data.seen", ["age", "sex"], "ill", ["number"])
    yield "data.seen"
    for name in Functions(parties.publisher).publications():
        Functions(parties.publisher).drop(name)
    fetch(parties.publisher, "RESET ALL")
    fetch(parties.publisher, "DROP TABLE data.seen")


def shown(connection: Connection, name: str) -> dict[str, list[tuple[Any, ...]]]:
    """What readers see of buckets or rows, in the order in which it lies there."""
    found = everything(connection, name)
    return {suffix: rows for suffix, rows in found.items() if suffix in ("", "_qit", "_sat")}


@pytest.mark.long
@pytest.mark.pitfall(41)
@pytest.mark.parametrize("kind", IN_OTHER_WORDS)
def test_the_same_request_in_other_words_draws_nothing_new(
    parties: Parties, source: str, kind: str
) -> None:
    """Other spellings, limits that bind nobody, more identifiers, and settings of the session."""
    function, given, others = IN_OTHER_WORDS[kind]
    publisher, functions = parties.publisher, Functions(parties.publisher)

    def published(**changed: object) -> dict[str, list[tuple[Any, ...]]]:
        functions.call(function, source, "draft", **{**given, **changed})
        found = shown(publisher, "draft")
        functions.drop("draft")
        return found

    first = published()
    for other in others:
        assert published(**other) == first, other
    fetch(publisher, "SET timezone = 'Asia/Tokyo'")
    fetch(publisher, "SET extra_float_digits = -3")
    fetch(publisher, "SET work_mem = '64kB'")
    fetch(publisher, "SET max_parallel_workers_per_gather = 0")
    assert published() == first
    fetch(publisher, "RESET ALL")
    fetch(publisher, "ALTER TABLE data.seen ADD COLUMN constant int DEFAULT 1")
    functions.register(source, ["age", "sex"], "ill", ["number", "constant"])
    assert published() == first


@pytest.mark.pitfall(41)
def test_the_order_of_columns_draws_no_other_buckets(parties: Parties, source: str) -> None:
    publisher, functions = parties.publisher, Functions(parties.publisher)
    buckets = set()
    for order in (["age", "sex"], ["sex", "age"]):
        functions.register(source, order, "ill", ["number"])
        functions.publish(source, "draft", **RANDOM)  # type: ignore[arg-type]
        rows = fetch(publisher, "SELECT age, sex, bucket_id FROM published.draft_qit")
        buckets.add(tuple(sorted(rows)))
        functions.drop("draft")
    assert len(buckets) == 1


@pytest.mark.pitfall(41)
def test_a_dump_without_the_key_gets_another(parties: Parties) -> None:
    """Installing keeps the key that there is."""
    key = "SELECT key FROM kanon.draw_key"
    before = value(parties.admin, key)
    install(parties.dsn)
    assert value(parties.admin, key) == before
    fetch(parties.admin, "DELETE FROM kanon.draw_key")
    install(parties.dsn)
    assert value(parties.admin, key) != before


@pytest.mark.long
@pytest.mark.pitfall(41)
def test_recommend_foretells_no_draw(
    parties: Parties, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """What it tries is drawn without the seed that a publication of the same is drawn from."""
    asked = []

    def noting(session: Session, task: str, **given: Any) -> Any:
        asked.append(task)
        return run_errand(session, task, **given)

    monkeypatch.setattr(pipeline, "run_errand", noting)
    kanon = Package(parties.publisher)
    assert len(kanon.kanon.recommend(source, time_limit=5.0)) > 0
    assert asked == []
    kanon.publish(source, "draft", **RANDOM)  # type: ignore[arg-type]
    assert asked == ["seed"]


def comments(connection: Connection, name: str) -> list[str]:
    """All comments that a role reads of what belongs to a publication."""
    return [
        text
        for (text,) in fetch(
            connection, "SELECT d.description FROM pg_description AS d JOIN pg_class AS c"
            " ON c.oid = d.objoid AND d.classoid = 'pg_class'::regclass"
            " WHERE c.relnamespace = 'published'::regnamespace"
            " AND starts_with(c.relname, $1::text)", name,
        )
    ]  # fmt: skip


def without_marks(connection: Connection, name: str) -> list[str]:
    """The same, without the publication's number, in alphabetical order."""
    mark = re.compile(r"^publication \d+ of kanon_db: ")
    return sorted(mark.sub("", text) for text in comments(connection, name))


@pytest.mark.long
@pytest.mark.pitfall(42)
@pytest.mark.parametrize("kind", KINDS)
def test_comments_of_drafts_say_nothing(parties: Parties, source: str, kind: str) -> None:
    """A mark, by which relations are told from others; once somebody may read it, how to use it."""
    functions = Functions(parties.publisher)
    row = functions.of_kind(kind, source, "draft", readers=[])
    mark = f"publication {row['publication_id']} of kanon_db: "
    assert set(comments(parties.stranger, "draft")) == {mark}
    fetch(parties.publisher, "SELECT kanon.grant_publication('draft', '{kanon_analyst}')")
    granted = comments(parties.stranger, "draft")
    assert any("How to use" in text for text in granted)
    functions.drop("draft")
    functions.of_kind(kind, source, "draft")
    assert without_marks(parties.stranger, "draft") == sorted(
        text.removeprefix(mark) for text in granted
    )


@pytest.mark.long
@pytest.mark.pitfall(42)
@pytest.mark.parametrize("kind", KINDS)
def test_comments_have_no_figure(parties: Parties, source: str, kind: str) -> None:
    """Of other records, k, and records that are left out, they say the same, and no guarantee."""
    functions = Functions(parties.publisher)
    functions.of_kind(kind, source, "draft")
    before = without_marks(parties.stranger, "draft")
    fetch(parties.publisher, "DELETE FROM data.seen WHERE number > 100")
    fetch(parties.publisher, "INSERT INTO data.seen VALUES (200, 99, 'M', 3)")
    changed = {"privacy": '{"l": 3}'} if kind == "buckets" else {"k": 4}
    row = functions.of_kind(kind, source, "draft", **changed, replace=True)
    assert without_marks(parties.stranger, "draft") == before
    assert not any(row["guarantee"] in text for text in before)


@pytest.mark.pitfall(42)
def test_names_of_sessions_say_nothing_of_their_work(
    parties: Parties, connect_as: Callable[[str, str], Connection], source: str
) -> None:
    """What a stranger sees of a session that publishes, at any time, is what it sees of any other.

    Which columns of `pg_stat_activity` are left is what docs/understand/privacy.md says of it.
    """
    seen: set[str] = set()
    columns: dict[str, bool] = {}
    with connect_as(parties.dsn, parties.publisher.info.user) as connection:
        fetch(connection, "SET application_name = 'own'")
        done = threading.Event()

        def publish() -> None:
            try:
                Functions(connection).of_kind("freeform", source, "draft", readers=[])
            finally:
                done.set()

        running = threading.Thread(target=publish)
        running.start()
        look = "SELECT to_jsonb(a) FROM pg_stat_activity AS a WHERE pid = $1::int"
        while not done.is_set():
            for (row,) in fetch(parties.stranger, look, connection.info.backend_pid):
                seen.add(row["application_name"])
                for name, one in row.items():
                    columns[name] = columns.get(name, False) or one not in (None, "")
            time.sleep(0.005)
        running.join()
    assert seen == {"own"}
    hidden = {"state", "xact_start", "query_start", "state_change", "wait_event", "backend_start"}
    assert not any(columns[name] for name in hidden)
    assert value(parties.stranger, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE"
                 " '%publish_freeform%' AND pid <> pg_backend_pid()") == 0  # fmt: skip
    Functions(parties.publisher).drop("draft")
