"""Records that are drawn from a publication, and the view of its weights for plain SQL."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import psycopg
import pytest

import kanon_db
from kanon_db.publications.draws import DRAWS
from kanon_db.query.layout import RARITY
from tests.expected_counts import Weighted
from tests.integration.frozen import N_DRAWN, PRIVACY, RELATED, draw_related, parties
from tests.integration.parties import (
    Parties,
    create_source,
    failed_checks,
    fetch,
    sqlstate_of,
    value,
)
from tests.integration.test_weights import NAME, QUESTIONS, published

__all__ = ["parties", "published"]

HOSTILE = "a \"b'$1%s\\"


def drawn(parties: Parties, name: str = NAME, seed: int | None = 1) -> list[dict[str, Any]]:
    rows = fetch(parties.analyst, "SELECT record FROM kanon.draw($1, $2::text::int8)", name,
                 None if seed is None else str(seed))  # fmt: skip
    return [one for (one,) in rows]


# -- the view --------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", QUESTIONS)
def test_plain_sql_adds_up_weights(parties: Parties, published: Weighted, question: str) -> None:
    """Also of NULLs; no function of kanon_db's but one of PL/pgSQL takes part."""
    records, values = QUESTIONS[question](published)
    expected = (published.levels[records] / published.parts)[:, values].sum()
    statement = f"SELECT sum(weight) FROM published.{NAME}_wgt WHERE {question}"
    assert value(parties.analyst, statement) == pytest.approx(expected)
    called = fetch(
        parties.admin,
        "SELECT DISTINCT p.proname::text, l.lanname::text FROM pg_rewrite r"
        " JOIN pg_depend d ON d.objid = r.oid JOIN pg_proc p ON p.oid = d.refobjid"
        " JOIN pg_language l ON l.oid = p.prolang"
        " WHERE d.refclassid = 'pg_proc'::regclass AND r.ev_class = $1::text::regclass",
        f"published.{NAME}_wgt",
    )
    assert called == [("require_visible", "plpgsql")]


def test_without_weights_it_is_the_share_of_the_bucket(parties: Parties) -> None:
    both = [
        fetch(parties.analyst, f"SELECT age, sex, ill, weight FROM published.{name}")
        for name in ("by_paper", "by_paper_wgt")
    ]
    assert Counter(both[0]) == Counter(both[1])


def test_verify_finds_records_with_the_weights_of_others(
    parties: Parties, published: Weighted
) -> None:
    assert failed_checks(parties.analyst, NAME) == []
    layout = "SELECT layout::text FROM kanon.publication WHERE name = $1"
    before = value(parties.admin, layout, NAME)
    changed = json.loads(before)
    changed["placed_by"] = changed["placed_by"][::-1]
    update = "UPDATE kanon.publication SET layout = $1::text::jsonb WHERE name = $2"
    fetch(parties.admin, update, json.dumps(changed), NAME)
    try:
        failed = failed_checks(parties.analyst, NAME)
    finally:
        fetch(parties.admin, update, before, NAME)
    assert "codes repeat QIT and SAT" in failed


def test_texts_of_any_collation(parties: Parties) -> None:
    """Upper and lower case are one value to one column, and in another order to the other."""
    fetch(
        parties.admin,
        "CREATE COLLATION IF NOT EXISTS public.alike"
        " (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    )
    rows = [
        ("aBbA"[i % 4], "aBbAc"[i * 7 % 5], None if i % 11 == 0 else "xyzuv"[i % 4 + i % 2])
        for i in range(2_000)
    ]
    columns = "name text COLLATE public.alike, town text, ill text"
    own = create_source(parties.publisher, "data.cased", columns, rows)
    own.publish("data.cased", "cased", privacy='{"default": 0.7}', assignment="random")
    assert failed_checks(parties.analyst, "cased") == []
    query = "SELECT count(*) FROM cased WHERE town = 'B' AND ill = 'x'"
    estimate = value(parties.analyst, "SELECT estimate FROM kanon.estimate_count($1)", query)
    plain = query.replace("count(*) FROM cased", "sum(weight) FROM published.cased_wgt")
    assert value(parties.analyst, plain) == pytest.approx(estimate)


# -- draws -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_draws_use_each_value_as_often_as_its_bucket_has_it(
    parties: Parties, published: Weighted
) -> None:
    records = drawn(parties)
    assert [list(one) for one in records[:1]] == [["age", "ill", "sex"]]  # jsonb's own order
    known = fetch(parties.analyst, f"SELECT age, sex FROM published.{NAME}_qit")
    assert Counter((one["age"], one["sex"]) for one in records) == Counter(known)
    values = fetch(
        parties.analyst, f"SELECT ill, sum(count)::int FROM published.{NAME}_sat GROUP BY 1"
    )
    assert Counter(one["ill"] for one in records) == Counter(dict(values))


@pytest.mark.pitfall(50)
def test_no_value_is_drawn_that_the_bucket_lacks(parties: Parties) -> None:
    """Everybody has an age of their own, which tells the bucket."""
    rows = [(i, "m", i % 7 if i % 3 else i * 5 % 7) for i in range(300)]
    own = create_source(parties.publisher, "data.single", RELATED, rows)
    own.publish("data.single", "single", privacy='{"default": 0.5}', assignment="random")
    of_buckets = Counter(
        (bucket, ill)
        for one in drawn(parties, "single", None)
        for ((bucket, ill),) in [
            fetch(
                parties.analyst,
                "SELECT q.bucket_id, $2::text::int FROM published.single_qit q"
                " WHERE q.age = $1::text::int",
                str(one["age"]), str(one["ill"]),
            )
        ]
    )  # fmt: skip
    published = fetch(parties.analyst, "SELECT bucket_id, ill, count FROM published.single_sat")
    assert of_buckets == Counter({(bucket, ill): n for bucket, ill, n in published})


def test_draws_follow_the_weights(parties: Parties, published: Weighted) -> None:
    """Young people have a young illness drawn more often than the paper's shares say."""
    draws = [one for seed in range(5) for one in drawn(parties, seed=seed)]
    found = sum(one["age"] is not None and one["age"] < 30 and one["ill"] == 2 for one in draws) / 5
    where = "WHERE age < 30 AND ill = 2"
    likely, paper = (
        value(parties.analyst, f"SELECT sum(weight) FROM published.{NAME}{suffix} {where}")
        for suffix in ("_wgt", "")
    )
    assert likely > 1.15 * paper
    assert abs(found - likely) < 0.25 * (likely - paper)


def test_seeds(parties: Parties, published: Weighted) -> None:
    assert drawn(parties, seed=7) == drawn(parties, seed=7) != drawn(parties, seed=8)
    assert drawn(parties, seed=None) != drawn(parties, seed=None)
    for seed in ("-1", "9223372036854775808", "x"):
        refused = lambda seed=seed: fetch(
            parties.analyst, "SELECT kanon.draw($1, $2::text::int8)", NAME, seed
        )
        assert sqlstate_of(refused)[:2] == "22"


@pytest.mark.pitfall(50)
def test_draws_need_nothing_but_the_publication(parties: Parties) -> None:
    """The same draw, once the source is gone; an analyst reads no more than the publication."""
    own = create_source(parties.publisher, "data.gone", RELATED, draw_related(400))
    own.publish("data.gone", "remains", privacy=PRIVACY, assignment="random")
    before = drawn(parties, "remains")
    fetch(parties.publisher, "DROP TABLE data.gone")
    assert drawn(parties, "remains") == before
    fetch(parties.admin, "REVOKE SELECT ON published.remains_qit FROM kanon_analyst")
    assert sqlstate_of(lambda: drawn(parties, "remains")) == "42501"


def test_every_draw_says_that_it_is_one(parties: Parties, published: Weighted) -> None:
    told: list[str] = []
    parties.analyst.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
    drawn(parties)
    assert told == [DRAWS]
    heard: list[str] = []
    with kanon_db.connect(parties.dsn, on_warning=heard.append) as kanon:
        frame = kanon.draw(NAME, seed=1)
    assert heard == [DRAWS]
    assert frame.attrs["guarantee"] == DRAWS
    assert list(frame.columns) == ["age", "sex", "ill"]
    assert len(frame) == N_DRAWN


def test_hostile_names(parties: Parties) -> None:
    quoted = HOSTILE.replace('"', '""')
    rows = [(i % 9, f"{HOSTILE}{i % 5}") for i in range(400)]
    columns = f'"{quoted}" int, "{quoted}ill" text'
    own = create_source(
        parties.publisher, "data.hostile_draw", columns, rows, [HOSTILE], f"{HOSTILE}ill"
    )
    own.publish("data.hostile_draw", HOSTILE, privacy='{"default": 0.6}', assignment="random")
    records = drawn(parties, HOSTILE)
    assert Counter(one[f"{HOSTILE}ill"] for one in records) == Counter(ill for _, ill in rows)
    total = value(parties.analyst, f'SELECT sum(weight) FROM published."{quoted}_wgt"')
    assert total == pytest.approx(400)


def test_cells(parties: Parties) -> None:
    """What is drawn from a range or a set is one of its values."""
    own = create_source(parties.publisher, "data.in_cells", RELATED, draw_related(600))
    own.generalize("data.in_cells", "generalized_draws", k=5)
    records = drawn(parties, "generalized_draws")
    assert records == drawn(parties, "generalized_draws")
    assert len(records) == 600
    assert {type(one["age"]) for one in records} <= {int, type(None)}
    ages = {one["age"] for one in records} - {None}
    assert 20 <= min(ages) <= max(ages) < 60
    ((inside,),) = fetch(
        parties.analyst,
        "SELECT bool_and(EXISTS (SELECT FROM published.generalized_draws p WHERE p.age @> a))"
        " FROM unnest($1::text::int[]) AS a",
        "{" + ",".join(map(str, sorted(ages))) + "}",
    )
    assert inside


@pytest.mark.parametrize(
    ("type_name", "low", "high"),
    [
        ("date", "0100-01-01 BC", "12000-01-01"), ("date", "2000-01-01", "infinity"),
        ("timestamp", "-infinity", "2000-01-01"), ("float8", "-1e308", "1e308"),
    ],
)  # fmt: skip
def test_ranges_that_python_cannot_write(
    parties: Parties, type_name: str, low: str, high: str
) -> None:
    """The server writes what lies in them; of infinite ones, the ends."""
    rows = [(low if n % 2 else high, "ab"[n % 2]) for n in range(12)]
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.wide")
    own = create_source(parties.publisher, "data.wide", f"a {type_name}, b text", rows, ["a"], "b")
    own.generalize("data.wide", "wide", k=12, replace=True, draws=True)
    outside = (
        f"SELECT count(*) FROM published.wide_draws WHERE a NOT BETWEEN $1::text::{type_name}"
        f" AND $2::text::{type_name} OR num_nulls(a) > 0"
    )
    assert value(parties.analyst, outside, low, high) == 0
    assert failed_checks(parties.analyst, "wide") == []


def test_largest_whole_numbers_are_drawn(parties: Parties) -> None:
    """Places are double precision: the one nearest to the last of them is beyond it."""
    ends = [2**63 - 1, -(2**63), 0, 5]
    rows = [(ends[n % 4], n % 3, f"ill {n % 4}") for n in range(12)]
    columns = "a bigint, b int, c text"
    own = create_source(parties.publisher, "data.largest", columns, rows, ["a", "b"], "c")
    own.freeform("data.largest", "largest", k=2, draws=True)
    assert {one["a"] for one in drawn(parties, "largest")} >= {2**63 - 1}
    assert failed_checks(parties.analyst, "largest") == []


def test_suppressed_cells_have_values_that_others_keep(parties: Parties) -> None:
    """Each value as often as estimates take it to be there, whoever has which: by chance alone."""
    values = [*("9" for _ in range(40)), *("10" for _ in range(12)), *(None for _ in range(8))]
    values += [str(n) for n in range(20, 50)]
    rows = [(one, "xyz"[n % 3], "uv"[n % 2]) for n, one in enumerate(values)]
    own = create_source(parties.publisher, "data.starred", "a int, b text, ill text", rows)
    own.of_kind("suppressed", "data.starred", "starred", k=2, patterns=["..", "*.", "**"])
    shown = fetch(parties.analyst, "SELECT a, b, left(pattern, 1) = '*' FROM published.starred")
    kept = Counter(a for a, _, hidden in shown if not hidden)
    hidden = Counter(b for _, b, hidden in shown if hidden)
    total = sum(n**RARITY for n in kept.values())
    n_draws, of_value = 20, Counter[tuple[str | None, int | None]]()
    for seed in range(n_draws):
        records = drawn(parties, "starred", seed)
        filled = Counter(one["a"] for one in records)
        filled.subtract(kept)
        assert filled.keys() == kept.keys() == {9, 10, None}
        for a, n in kept.items():
            assert abs(filled[a] - hidden.total() * n**RARITY / total) < 1
        of_value.update((one["b"], one["a"]) for one in records)
    for b, n_hidden in hidden.items():
        for a, n in kept.items():
            n_shown = sum(row[:2] == (a, b) and not row[2] for row in shown)
            share = n**RARITY / total
            error = (n_draws * n_hidden * share * (1 - share)) ** 0.5
            found = of_value[b, a] - n_draws * n_shown
            assert abs(found - n_draws * n_hidden * share) < 5 * error, (a, b)


def test_several_sensitive_attributes_and_what_is_refused(parties: Parties) -> None:
    own = create_source(parties.publisher, "data.pairs", RELATED, draw_related(400))
    own.register("data.pairs", ["age"], "ill", also_sensitive=["sex"])
    own.publish("data.pairs", "pairs", privacy='{"attributes": {"ill": {"default": 0.7},'
                ' "sex": {"default": 0.9}}}', assignment="random")  # fmt: skip
    both = fetch(parties.analyst, "SELECT ill, sex, sum(count)::int FROM published.pairs_sat"
                 " GROUP BY 1, 2")  # fmt: skip
    found = Counter((one["ill"], one["sex"]) for one in drawn(parties, "pairs"))
    assert found == Counter({(ill, sex): n for ill, sex, n in both})
    assert sqlstate_of(lambda: drawn(parties, "no such publication")) == "42704"


def test_a_cancel_is_heard(parties: Parties, published: Weighted) -> None:
    with psycopg.connect(parties.dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = '30ms'")
        started = time.monotonic()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("SELECT count(*) FROM kanon.draw(%s)", [NAME])
        assert time.monotonic() - started < 20
