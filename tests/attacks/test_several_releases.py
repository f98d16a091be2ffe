"""Several releases of the same people: refused where a reader could set them against each other."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import psycopg
import pytest

from tests.integration.parties import (
    Connection,
    Functions,
    Parties,
    create_table,
    fetch,
    forget_draws,
    sqlstate_of,
    value,
)

KINDS: dict[str, dict[str, Any]] = {
    "buckets": {"privacy": '{"l": 2}'},
    "generalized": {"k": 3, "method": "mondrian", "refine": False},
    "freeform": {"k": 3},
    "suppressed": {"k": 3},
}
RISK = "combined_releases"
REASON = json.dumps({RISK: "both teams are the same people"})
NAMES = (f"p{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def refused_by_default(parties: Parties) -> Iterator[None]:
    fetch(parties.admin, "DELETE FROM kanon.setting WHERE name = 'combined_releases'")
    yield
    for name in Functions(parties.publisher).publications():
        Functions(parties.publisher).drop(name)


@pytest.fixture
def source(parties: Parties) -> str:
    """Everybody has an age of their own, so that releases can be linked."""
    return created(parties, ["age"])


def created(parties: Parties, quasi_identifiers: list[str], n_ages: int = 300) -> str:
    name = f"data.{next(NAMES)}"
    draw = random.Random(7)  # noqa: S311  # made-up data
    rows = [
        (i % n_ages, f"disease {draw.randrange(5)}", f"job {draw.randrange(6)}") for i in range(300)
    ]
    create_table(parties.publisher, name, "age int, sick text, job text", rows)
    Functions(parties.publisher).register(name, quasi_identifiers, "sick")
    return name


def publish(parties: Parties, kind: str, source: str, name: str, **given: Any) -> dict[str, Any]:
    forget_draws(parties.admin)  # otherwise the same request is the same, and tells nothing more
    return Functions(parties.publisher).call(
        f"publish_{kind}", source, name, **{**KINDS[kind], **given}
    )


def refusal(parties: Parties, kind: str, source: str, name: str, **given: Any) -> str:
    """The detail of the refusal under the risk's name."""
    with pytest.raises(psycopg.Error) as raised:
        publish(parties, kind, source, name, **given)
    assert raised.value.sqlstate == "KN005"
    assert RISK in str(raised.value.diag.message_primary)
    return str(raised.value.diag.message_detail)


def releases(parties: Parties, source: str) -> list[tuple[Any, ...]]:
    return fetch(
        parties.publisher,
        "SELECT name, state, jsonb_array_length(readers), measured FROM kanon.releases"
        " WHERE source = $1::text ORDER BY release_id",
        source,
    )


@pytest.mark.pitfall(13, 30)
@pytest.mark.parametrize(("first", "second"), list(permutations(KINDS, 2)))
def test_two_kinds(parties: Parties, first: str, second: str) -> None:
    """Buckets and rows of the same people leave fewer values than either; so do two of rows."""
    source = created(parties, ["age", "job"], n_ages=60)
    publish(parties, first, source, "first")
    assert "first" in refusal(parties, second, source, "second")
    assert [name for name, *_ in releases(parties, source)] == ["first"]
    accepted = publish(parties, second, source, "second", accept=REASON)
    checks = {check: bound for check, bound, *_ in Functions(parties.analyst).verify("second")}
    assert f"accepted risk: {RISK}" in checks
    assert accepted["records"] == 300


@pytest.mark.pitfall(13, 30)
def test_replacing_is_a_second_release(parties: Parties, source: str) -> None:
    """Readers may have kept a copy of what was replaced, or dropped."""
    publish(parties, "buckets", source, "first")
    detail = refusal(parties, "buckets", source, "first", replace=True)
    assert "certain" in detail
    assert [state for _, state, *_ in releases(parties, source)] == ["live"]
    publish(parties, "buckets", source, "first", replace=True, accept=REASON)
    ((_, old, *_), (_, new, _, measured)) = releases(parties, source)
    assert (old, new) == ("replaced", "live")
    forced = {one["check"]: one for one in measured["findings"]}["forced values"]
    assert forced["certain"] > 200  # of 300, who were in buckets of two
    Functions(parties.publisher).drop("first")
    assert "was dropped" in refusal(parties, "buckets", source, "other")


def test_a_draft_costs_no_acceptance(
    parties: Parties, source: str, new_role: Callable[..., str]
) -> None:
    """What nobody could read counts from the moment it is granted, which is checked."""
    publish(parties, "buckets", source, "draft", readers=[])
    publish(parties, "buckets", source, "draft", readers=[], replace=True)
    publish(parties, "buckets", source, "first")
    assert [state for _, state, *_ in releases(parties, source)] == ["replaced", "draft", "live"]
    kanon = Functions(parties.publisher)
    found = kanon.rows("check_release", source, "draft", readers=["kanon_analyst"])
    assert {row["result"] for row in found} >= {"exact", "sound"}
    assert not all(row["holds"] for row in found)
    with pytest.raises(psycopg.Error, match=RISK):
        kanon.rows("grant_publication", "draft", readers=["kanon_analyst"])
    assert sqlstate_of(lambda: Functions(parties.analyst).verify("draft")) == "42704"
    kanon.rows("grant_publication", "draft", readers=["kanon_analyst"], accept=REASON)
    assert all(holds for *_, holds in Functions(parties.analyst).verify("draft"))
    assert releases(parties, source)[1][1] == "live"
    # Somebody who can read neither of the two.
    member = new_role("kanon_analyst")
    publish(parties, "suppressed", source, "third", readers=[], accept=REASON)
    fetch(parties.admin, f"DROP OWNED BY {member}")


def test_readers_of_one_only(parties: Parties, source: str, new_role: Callable[..., str]) -> None:
    """Two teams may have releases of their own, until somebody belongs to both."""
    one, other = new_role(), new_role()
    for role in (one, other):
        fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {role}")
    publish(parties, "buckets", source, "first", readers=[one])
    publish(parties, "buckets", source, "second", readers=[other])
    assert releases(parties, source)[1][3] is None
    fetch(parties.admin, f"GRANT {one} TO {other}")
    assert other in refusal(parties, "buckets", source, "second", readers=[other], replace=True)
    for role in (one, other):
        fetch(parties.admin, f"DROP OWNED BY {role}")


@pytest.mark.parametrize("disguise", ["view", "view of view", "renamed", "made again"])
def test_the_same_source(parties: Parties, source: str, disguise: str) -> None:
    publish(parties, "buckets", source, "first")
    other = f"data.{next(NAMES)}"
    match disguise:
        case "view":
            fetch(parties.publisher, f"CREATE VIEW {other} AS SELECT * FROM {source}")
        case "view of view":
            fetch(parties.publisher, f"CREATE VIEW {other}_ AS SELECT age, sick FROM {source}")
            fetch(parties.publisher, f"CREATE VIEW {other} AS SELECT * FROM {other}_")
        case "renamed":
            fetch(parties.publisher, f"ALTER TABLE {source} RENAME TO {other.split('.')[1]}")
        case "made again":
            fetch(parties.publisher, f"CREATE TABLE {other} AS SELECT * FROM {source}")
            fetch(parties.publisher, f"DROP TABLE {source}")
            fetch(parties.publisher, f"ALTER TABLE {other} RENAME TO {source.split('.')[1]}")
            other = source
    Functions(parties.publisher).drop("first")
    Functions(parties.publisher).register(other, ["age"], "sick")
    assert "first" in refusal(parties, "buckets", other, "second")


def test_what_tells_nothing_new(parties: Parties, source: str) -> None:
    """A release of coarser buckets, made by hand of another one, needs no word."""
    kanon = Functions(parties.publisher)
    publish(parties, "buckets", source, "first")
    n_buckets = value(parties.publisher, "SELECT max(bucket_id) FROM published.first_qit")
    publish(parties, "buckets", source, "second", readers=[])
    # As if the second had the buckets of the first, two by two.
    coarse = f"least((bucket_id + 1) / 2, {n_buckets // 2})"
    layout = {"n_buckets": n_buckets // 2, "sizes": [4], "first_bucket_ids": [1]}
    fetch(
        parties.admin,
        "UPDATE kanon.publication SET layout = layout || $1::text::jsonb WHERE name = 'second'",
        json.dumps(layout),
    )
    for suffix in ("qit", "sat"):
        fetch(parties.admin, f"TRUNCATE published.second_{suffix}")
    fetch(
        parties.admin,
        f"INSERT INTO published.second_qit SELECT age, {coarse} FROM published.first_qit",
    )
    fetch(
        parties.admin,
        "INSERT INTO published.second_sat (bucket_id, sick, count)"
        f" SELECT {coarse}, sick, sum(count) FROM published.first_sat GROUP BY 1, 2",
    )
    found = kanon.rows("check_release", source, "second", readers=["kanon_analyst"])
    assert found == []


def test_another_sensitive_attribute(parties: Parties, source: str) -> None:
    """In other buckets, it is refused: it cannot be measured."""
    publish(parties, "buckets", source, "first")
    view = f"data.{next(NAMES)}"
    fetch(parties.publisher, f"CREATE VIEW {view} AS SELECT age, job FROM {source}")
    Functions(parties.publisher).register(view, ["age"], "job")
    assert "another sensitive attribute" in refusal(parties, "buckets", view, "second")


def test_two_at_a_time(
    parties: Parties, source: str, connect_as: Callable[[str, str], psycopg.Connection[Any]]
) -> None:
    """Of two who publish at once, and do not see each other, the second is refused."""
    publisher = parties.publisher.info.user
    with connect_as(parties.dsn, publisher) as other:
        other.autocommit = True
        with parties.publisher.transaction():
            publish(parties, "buckets", source, "first")
            fetch(other, "SET lock_timeout = '300ms'")
            state = sqlstate_of(
                lambda: Functions(other).publish(source, "second", privacy='{"l": 2}')
            )
            assert state in ("55P03", "40001")
        fetch(other, "BEGIN ISOLATION LEVEL REPEATABLE READ")
        fetch(other, f"SELECT count(*) FROM {source}")
        publish(parties, "buckets", source, "third", readers=[])
        Functions(parties.publisher).drop("third")
        assert sqlstate_of(
            lambda: Functions(other).publish(source, "second", privacy='{"l": 2}')
        ) in ("KN005", "40001")
        fetch(other, "ROLLBACK")


def test_the_ledger_is_closed(parties: Parties, source: str) -> None:
    """Publishers see their own releases, analysts none; nobody changes it."""
    publish(parties, "buckets", source, "first")
    assert len(releases(parties, source)) == 1
    assert sqlstate_of(lambda: fetch(parties.analyst, "TABLE kanon.releases")) == "42501"
    for statement in (
        "DELETE FROM kanon.release", "UPDATE kanon.release SET ended = 'dropped'",
        "TRUNCATE kanon.release_reader", "DELETE FROM kanon.releases",
        "INSERT INTO kanon.base VALUES (1)",
    ):  # fmt: skip
        assert sqlstate_of(lambda text=statement: fetch(parties.publisher, text)) in (  # type: ignore[misc]
            "42501", "55000",
        )  # fmt: skip


def test_the_digest_can_be_checked(parties: Parties, source: str) -> None:
    """As docs/howto/releases.md says, with SQL alone; the session's settings do not matter."""
    fetch(parties.publisher, "SET datestyle = 'German, DMY'")
    publish(parties, "buckets", source, "first")
    fetch(parties.publisher, "RESET datestyle")
    digest = value(parties.publisher, "SELECT digest FROM kanon.releases WHERE source = $1", source)
    half = "coalesce(sum(hashtextextended(r::text, {})), 0)"
    own = [
        value(
            parties.analyst,
            f"SELECT count(*) || ':' || md5({half.format(0)} || ':' || {half.format(1)})"
            f" FROM published.first{suffix} AS r",
        )
        for suffix in ("_qit", "_sat")
    ]
    assert digest == " ".join(own)


def test_granting_by_hand(parties: Parties, source: str, new_role: Callable[..., str]) -> None:
    """GRANT is watched: it is noted in the ledger, or refused where releases could be combined."""
    guest, group = new_role(), new_role()
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {guest}, {group}")
    publish(parties, "buckets", source, "first", readers=[guest])
    publish(parties, "buckets", source, "second", readers=[])
    for grant in (
        f"SELECT ON published.second TO {guest}",
        f"SELECT (age) ON published.second_qit TO {guest}",
        "SELECT ON published.second TO PUBLIC",
        "SELECT ON ALL TABLES IN SCHEMA published TO PUBLIC",
    ):
        assert sqlstate_of(lambda text=grant: fetch(parties.publisher, f"GRANT {text}")) in (  # type: ignore[misc]
            "KN005", "42501",
        ), grant  # fmt: skip
    fetch(parties.publisher, f"GRANT SELECT ON published.second TO {group}")
    assert [n for *_, n, _ in releases(parties, source)] == [1, 1]
    # Whoever becomes a member later is found when something else is released.
    fetch(parties.admin, f"GRANT {group} TO {guest}")
    assert guest in refusal(parties, "suppressed", source, "third", readers=[guest])
    fetch(parties.publisher, f"REVOKE SELECT ON published.second FROM {group}")
    assert guest in refusal(parties, "suppressed", source, "third", readers=[guest])
    fetch(parties.publisher, "GRANT SELECT ON data.p0 TO PUBLIC")
    for role in (guest, group):
        fetch(parties.admin, f"DROP OWNED BY {role}")


def test_how_far_the_source_has_moved(parties: Parties, source: str) -> None:
    """The publisher sees it, as the server counts it; readers do not."""
    publish(parties, "buckets", source, "first")
    moved = "SELECT source_changes FROM kanon.publications WHERE name = 'first'"
    fetch(parties.publisher, f"UPDATE {source} SET job = job WHERE age < 40")
    fetch(parties.publisher, "SELECT pg_stat_force_next_flush()")
    assert value(parties.publisher, moved) >= 40
    assert value(parties.analyst, moved) is None


def test_grants_of_others_never_fail(
    parties: Parties, source: str, new_role: Callable[..., str]
) -> None:
    """A command of somebody unconcerned is not refused, whatever the ledger has not noticed."""
    guest, one, two = new_role(), new_role(), new_role()
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {guest}, {one}, {two}")
    publish(parties, "buckets", source, "first", readers=[one])
    publish(parties, "buckets", source, "second", readers=[two])
    fetch(parties.admin, f"GRANT {one}, {two} TO {guest}")
    fetch(parties.admin, f"GRANT SELECT ON published.second_sat TO {one} WITH GRANT OPTION")
    fetch(parties.admin, "CREATE TABLE IF NOT EXISTS public.theirs (i int)")
    fetch(parties.admin, f"ALTER TABLE public.theirs OWNER TO {parties.stranger.info.user}")
    fetch(parties.stranger, "GRANT SELECT ON public.theirs TO PUBLIC")
    fetch(parties.admin, "DROP TABLE public.theirs")
    for role in (guest, one, two):
        fetch(parties.admin, f"DROP OWNED BY {role}")


def test_create_schema_grants_too(
    parties: Parties, source: str, new_role: Callable[..., str]
) -> None:
    guest = new_role()
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {guest}")
    publish(parties, "buckets", source, "first", readers=[guest])
    publish(parties, "buckets", source, "second", readers=[])
    grant = f"CREATE SCHEMA another GRANT SELECT ON published.second TO {guest}"
    assert sqlstate_of(lambda: fetch(parties.publisher, grant)) == "KN005"
    fetch(parties.admin, f"DROP OWNED BY {guest}")


def test_a_reader_who_cannot_log_in_for_a_moment(
    parties: Parties, source: str, new_role: Callable[..., str]
) -> None:
    guest = new_role()
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {guest}")
    publish(parties, "buckets", source, "first", readers=[guest])
    fetch(parties.admin, f"ALTER ROLE {guest} NOLOGIN")
    assert guest in refusal(parties, "buckets", source, "second", readers=[guest])
    fetch(parties.admin, f"DROP OWNED BY {guest}")


def test_what_was_accepted_for_some_is_not_for_others(
    parties: Parties, source: str, new_role: Callable[..., str]
) -> None:
    guest = new_role()
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {guest}")
    publish(parties, "buckets", source, "first", readers=[guest])
    publish(parties, "buckets", source, "second")
    publish(parties, "suppressed", source, "third", accept=REASON)
    grant = f"GRANT SELECT ON published.third TO {guest}"
    assert sqlstate_of(lambda: fetch(parties.publisher, grant)) == "KN005"
    fetch(parties.admin, f"DROP OWNED BY {guest}")


def test_members_of_the_publisher(
    parties: Parties,
    source: str,
    new_role: Callable[..., str],
    connect_as: Callable[[str, str], Connection],
) -> None:
    """Who may grant what the publisher published, without SET ROLE, is refused as the publisher."""
    guest, member = new_role(), new_role()
    publisher = parties.publisher.info.user
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {guest}")
    fetch(parties.admin, f"GRANT {publisher} TO {member}")
    publish(parties, "buckets", source, "first", readers=[guest])
    publish(parties, "buckets", source, "second", readers=[])
    grant = f"GRANT SELECT ON published.second TO {guest}"
    with connect_as(parties.dsn, member) as connection:
        assert sqlstate_of(lambda: fetch(connection, grant)) == "KN005"
        fetch(connection, f"SET ROLE {publisher}")
        assert sqlstate_of(lambda: fetch(connection, grant)) == "KN005"
    fetch(parties.admin, f"REVOKE {publisher} FROM {member}")
    fetch(parties.admin, f"DROP OWNED BY {guest}")
