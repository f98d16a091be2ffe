"""Several releases of the same people: refused where a reader could set them against each other.

Of rows, and of rows and buckets, with figures: what they tell together is looked up here.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest

from tests.integration.parties import (
    KINDS,
    Connection,
    Functions,
    Parties,
    create_source,
    drop_all,
    fetch,
    forget_draws,
    holds,
    sqlstate_of,
    value,
)

RISK = "combined_releases"
REASON = json.dumps({RISK: "both teams are the same people"})
NAMES = (f"p{number}" for number in itertools.count())
REPLACED = ", if nobody was replaced"
K = 3


@pytest.fixture(autouse=True)
def refused_by_default(parties: Parties) -> Iterator[None]:
    fetch(parties.admin, "DELETE FROM kanon.setting WHERE name = 'combined_releases'")
    yield
    drop_all(parties)


@pytest.fixture
def source(parties: Parties) -> str:
    """Everybody has an age of their own, so that releases can be linked; rows show a job, too."""
    return created(parties, list(range(120)))


def crowded(parties: Parties) -> str:
    """Some have the same age, and some of these the same sex; few have the same job."""
    draw = random.Random(12)  # noqa: S311  # made-up data
    return created(parties, [draw.randrange(40) for _ in range(120)], n_jobs=30)


def created(parties: Parties, ages: Sequence[int], n_jobs: int = 3) -> str:
    draw = random.Random(11)  # noqa: S311  # made-up data
    rows = [
        (age, "fm"[i % 2], f"disease {draw.randrange(5)}", f"job {draw.randrange(n_jobs)}")
        for i, age in enumerate(ages)
    ]
    columns = "age int, sex text, sick text, job text"
    return made(parties, columns, rows, ["age", "sex"], insensitive=["job"])


def made(
    parties: Parties, columns: str, rows: Sequence[Sequence[object]], qi: list[str],
    sensitive: str | None = "sick", **roles: Any,
) -> str:  # fmt: skip
    """Make a source of a name of its own."""
    name = f"data.{next(NAMES)}"
    create_source(parties.publisher, name, columns, rows, qi, sensitive, **roles)
    return name


def described(parties: Parties, view: str, qi: list[str], sensitive: str = "sick") -> str:
    """Make a view of a name of its own, and describe it."""
    name = f"data.{next(NAMES)}"
    fetch(parties.publisher, f"CREATE VIEW {name} AS {view}")
    Functions(parties.publisher).register(name, qi, sensitive)
    return name


@pytest.fixture
def guests(parties: Parties, new_role: Callable[..., str]) -> Iterator[list[str]]:
    """Three roles that may use the schema of publications."""
    roles = [new_role() for _ in range(3)]
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA published TO {', '.join(roles)}")
    yield roles
    fetch(parties.admin, f"DROP OWNED BY {', '.join(roles)}")


def publish(parties: Parties, kind: str, source: str, name: str, **given: Any) -> dict[str, Any]:
    if kind == "buckets":  # otherwise the same request is the same, and tells nothing more
        forget_draws(parties.admin)
    return Functions(parties.publisher).of_kind(kind, source, name, **given)


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


def check(parties: Parties, source: str, draft: str) -> dict[str, dict[str, Any]]:
    """What a draft would tell together with the others, by the names of the checks."""
    kanon = Functions(parties.publisher)
    found = kanon.rows("check_release", source, draft, readers=["kanon_analyst"])
    for row in found:
        assert row["check"].endswith(REPLACED) == (row["result"] in ("exact", "sound"))
    return {row["check"].removesuffix(REPLACED): row for row in found}


@pytest.mark.long
@pytest.mark.pitfall(13, 30)
def test_two_kinds(parties: Parties) -> None:
    """Buckets and rows of the same people leave fewer values than either; so do two of rows."""
    for first, second in zip(KINDS, [*list(KINDS)[1:], *KINDS], strict=False):
        source = crowded(parties)
        publish(parties, first, source, "first")
        assert "first" in refusal(parties, second, source, "second")
        assert [name for name, *_ in releases(parties, source)] == ["first"]
        assert publish(parties, second, source, "second", accept=REASON)["records"] == 120
        checks = Functions(parties.analyst).verify("second")
        assert f"accepted risk: {RISK}" in [check for check, *_ in checks]
        drop_all(parties)


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
    found = {one["check"]: one for one in measured["findings"]}["intersection"]
    assert found["certain"] > 10  # some 33 of 120, who were in buckets of two, as they are drawn
    Functions(parties.publisher).drop("first")
    assert "was dropped" in refusal(parties, "buckets", source, "other")


def test_what_cannot_be_compared_hides_no_release(parties: Parties) -> None:
    """Values of json link no records; and no release follows from another that shows some."""
    rows = [(i % 20, f"ill {i % 4}", '{"stay": 1}') for i in range(60)]
    source = made(parties, "age int, sick text, notes json", rows, ["age"], insensitive=["notes"])
    publish(parties, "generalized", source, "first")
    for kind in KINDS:
        assert "first" in refusal(parties, kind, source, "second")
    publish(parties, "generalized", source, "second", accept=REASON, k=5)


def test_a_dropped_draft_costs_no_acceptance(parties: Parties, source: str) -> None:
    """Nobody can have kept a copy of what nobody could read."""
    publish(parties, "buckets", source, "trial", readers=[])
    Functions(parties.publisher).drop("trial")
    publish(parties, "buckets", source, "trial")
    assert [state for _, state, *_ in releases(parties, source)] == ["dropped", "live"]


def test_a_draft_costs_no_acceptance(parties: Parties, source: str) -> None:
    """What nobody could read counts from the moment it is granted, which is checked."""
    publish(parties, "buckets", source, "draft", readers=[])
    publish(parties, "buckets", source, "draft", readers=[], replace=True)
    publish(parties, "buckets", source, "first")
    assert [state for _, state, *_ in releases(parties, source)] == ["replaced", "draft", "live"]
    kanon = Functions(parties.publisher)
    found = kanon.rows("check_release", source, "draft", readers=["kanon_analyst"])
    assert {row["result"] for row in found} == {"exact"}
    assert not all(row["holds"] for row in found)
    grant = lambda **given: kanon.rows(
        "grant_publication", "draft", readers=["kanon_analyst"], **given
    )
    with pytest.raises(psycopg.Error, match=RISK):
        grant()
    assert sqlstate_of(lambda: Functions(parties.analyst).verify("draft")) == "42704"
    grant(accept=REASON)
    assert holds(parties.analyst, "draft")
    assert releases(parties, source)[1][1] == "live"


DISGUISES = {
    "view": "CREATE VIEW {other} AS SELECT * FROM {source}",
    "view of view": "CREATE VIEW {other}_ AS SELECT age, sex, sick FROM {source};"
    " CREATE VIEW {other} AS SELECT * FROM {other}_",
    "renamed": "ALTER TABLE {source} RENAME TO {new}",
    "made again": "CREATE TABLE {other} AS SELECT * FROM {source}; DROP TABLE {source};"
    " ALTER TABLE {other} RENAME TO {old}",
}


def test_the_same_source(parties: Parties) -> None:
    for how, disguise in DISGUISES.items():
        source = created(parties, range(120))
        publish(parties, "buckets", source, "first")
        other = f"data.{next(NAMES)}"
        names = {"source": source, "old": source[5:], "other": other, "new": other[5:]}
        for statement in disguise.format(**names).split("; "):
            fetch(parties.publisher, statement)
        other = source if how == "made again" else other
        Functions(parties.publisher).drop("first")
        Functions(parties.publisher).register(other, ["age", "sex"], "sick")
        assert "first" in refusal(parties, "buckets", other, "second"), how


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
        f"INSERT INTO published.second_qit SELECT age, sex, {coarse} FROM published.first_qit",
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
    view = described(parties, f"SELECT age, job FROM {source}", ["age"], "job")
    assert "another sensitive attribute" in refusal(parties, "buckets", view, "second")


@pytest.mark.long
def test_two_at_a_time(
    parties: Parties, source: str, connect_as: Callable[[str, str], psycopg.Connection[Any]]
) -> None:
    """Of two who publish at once, and do not see each other, the second is refused."""
    with connect_as(parties.dsn, parties.publisher.info.user) as other:
        second = lambda: sqlstate_of(
            lambda: Functions(other).publish(source, "second", privacy='{"l": 2}')
        )
        with parties.publisher.transaction():
            publish(parties, "buckets", source, "first")
            fetch(other, "SET lock_timeout = '300ms'")
            assert second() in ("55P03", "40001")
        fetch(other, "BEGIN ISOLATION LEVEL REPEATABLE READ")
        fetch(other, f"SELECT count(*) FROM {source}")
        publish(parties, "buckets", source, "third", readers=[])
        Functions(parties.publisher).drop("third")
        assert second() in ("KN005", "40001")
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
        refused = sqlstate_of(lambda text=statement: fetch(parties.publisher, text))
        assert refused in ("42501", "55000"), statement
    # How far the source has moved on, only the publisher sees.
    moved = "SELECT source_changes FROM kanon.publications WHERE name = 'first'"
    fetch(parties.publisher, f"UPDATE {source} SET job = job WHERE age < 40")
    fetch(parties.publisher, "SELECT pg_stat_force_next_flush()")
    assert value(parties.publisher, moved) >= 40
    assert value(parties.analyst, moved) is None


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
        for suffix in ("_val", "_cod")
    ]
    assert digest == " ".join(own)


def test_granting_by_hand(
    parties: Parties, source: str, guests: list[str], connect_as: Callable[[str, str], Connection]
) -> None:
    """GRANT is watched: it is noted in the ledger, or refused where releases could be combined.

    Also of whoever may grant what the publisher published, with SET ROLE and without.
    """
    guest, group, member = guests
    publisher = parties.publisher.info.user
    publish(parties, "buckets", source, "first", readers=[guest])
    publish(parties, "buckets", source, "second", readers=[])
    grants = (
        f"GRANT SELECT ON published.second TO {guest}",
        f"GRANT SELECT (age) ON published.second_qit TO {guest}",
        "GRANT SELECT ON published.second TO PUBLIC",
        "GRANT SELECT ON ALL TABLES IN SCHEMA published TO PUBLIC",
        f"CREATE SCHEMA another GRANT SELECT ON published.second TO {guest}",
    )
    for grant in grants:
        refused = sqlstate_of(lambda text=grant: fetch(parties.publisher, text))
        assert refused == "KN005" or (refused == "42501" and " ALL " in grant), grant
    fetch(parties.admin, f"GRANT {publisher} TO {member}")
    with connect_as(parties.dsn, member) as connection:
        for role in ("NONE", publisher):
            fetch(connection, f"SET ROLE {role}")
            assert sqlstate_of(lambda: fetch(connection, grants[0])) == "KN005"
    fetch(parties.admin, f"REVOKE {publisher} FROM {member}")
    fetch(parties.publisher, f"GRANT SELECT ON published.second TO {group}")
    assert [n for *_, n, _ in releases(parties, source)] == [1, 1]
    # Whoever becomes a member later is found when something else is released.
    fetch(parties.admin, f"GRANT {group} TO {guest}")
    assert guest in refusal(parties, "suppressed", source, "third", readers=[guest])
    fetch(parties.publisher, f"REVOKE SELECT ON published.second FROM {group}")
    assert guest in refusal(parties, "suppressed", source, "third", readers=[guest])
    # Nor does having been a reader open it again, as a whole or a column of it.
    for grant in grants[:2]:
        assert sqlstate_of(lambda text=grant: fetch(parties.publisher, text)) == "KN005", grant
    fetch(parties.publisher, f"GRANT SELECT ON {source} TO PUBLIC")


def test_grants_of_others_never_fail(parties: Parties, source: str, guests: list[str]) -> None:
    """A command of somebody unconcerned is not refused, whatever the ledger has not noticed."""
    guest, one, two = guests
    publish(parties, "buckets", source, "first", readers=[one])
    publish(parties, "buckets", source, "second", readers=[two])
    fetch(parties.admin, f"GRANT {one}, {two} TO {guest}")
    fetch(parties.admin, f"GRANT SELECT ON published.second_sat TO {one} WITH GRANT OPTION")
    fetch(parties.admin, "CREATE TABLE IF NOT EXISTS public.theirs (i int)")
    fetch(parties.admin, f"ALTER TABLE public.theirs OWNER TO {parties.stranger.info.user}")
    fetch(parties.stranger, "GRANT SELECT ON public.theirs TO PUBLIC")
    fetch(parties.admin, "DROP TABLE public.theirs")


def test_readers_who_cannot_log_in_or_come_later(
    parties: Parties, source: str, guests: list[str]
) -> None:
    """A role is a reader though it has no login for a moment; an acceptance is for its readers."""
    guest = guests[0]
    publish(parties, "buckets", source, "first", readers=[guest])
    fetch(parties.admin, f"ALTER ROLE {guest} NOLOGIN")
    assert guest in refusal(parties, "buckets", source, "second", readers=[guest])
    fetch(parties.admin, f"ALTER ROLE {guest} LOGIN")
    publish(parties, "buckets", source, "second")
    publish(parties, "suppressed", source, "third", accept=REASON)
    grant = f"GRANT SELECT ON published.third TO {guest}"
    assert sqlstate_of(lambda: fetch(parties.publisher, grant)) == "KN005"


# -- rows ------------------------------------------------------------------------------------------

Row = tuple[Any, ...]
OF = {"generalized": K, "suppressed": 2}
"""The k of the first release of rows."""


def rows_of(parties: Parties, name: str, *, suppressed: bool = False) -> list[tuple[Row, Row]]:
    """The published rows: what tells whose they may be, and what they show besides."""
    columns = "lower(age), upper(age) - 1, sex, sick, job"
    if suppressed:
        columns = "coalesce(age, 0), coalesce(age, 10000), ARRAY[sex], sick, job"
    found = fetch(
        parties.analyst if name[0] != "d" else parties.admin,
        f"SELECT {columns} FROM published.{name}",
    )
    return [((low, high, tuple(sexes)), shown) for low, high, sexes, *shown in found]


def covers(cells: Row, age: int, sex: str) -> bool:
    low, high, sexes = cells
    return low <= age <= high and (sex in sexes or None in sexes)


@pytest.mark.pitfall(13, 30)
@pytest.mark.parametrize("first", ["suppressed", "generalized"])
def test_two_of_rows(parties: Parties, first: str) -> None:
    """Refused, with what of it is not measured: how few rows may be somebody's."""
    source = crowded(parties)
    publish(parties, first, source, "first", k=OF[first])
    detail = refusal(parties, "suppressed", source, "second", k=K + 1)
    assert "not measured: how few rows may be somebody's" in detail
    publish(parties, "suppressed", source, "draft", readers=[], k=K + 1)
    found = check(parties, source, "draft")
    assert found["intersection"]["result"] == "sound"
    assert found["intersection"]["certain"] <= 120
    publish(parties, "suppressed", source, "second", accept=REASON, k=K + 1)
    *_, measured = releases(parties, source)[-1]
    assert {one["result"] for one in measured["findings"]} == {"sound", "not measured"}


def test_rows_beside_buckets(parties: Parties, source: str) -> None:
    """The bound of buckets is the one that is measured, whichever comes first."""
    publish(parties, "buckets", source, "b", privacy='{"l": 2}')
    assert "certain" in refusal(parties, "generalized", source, "g")
    publish(parties, "generalized", source, "draft", readers=[])
    found = check(parties, source, "draft")
    qit = dict(fetch(parties.analyst, "SELECT age, bucket_id FROM published.b_qit"))
    sat = fetch(parties.analyst, "SELECT bucket_id, sick FROM published.b_sat")
    rows = rows_of(parties, "draft")
    certain = 0
    for age in range(120):
        fitting = {sick for cells, (sick, _) in rows if covers(cells, age, "fm"[age % 2])}
        certain += len({sick for bucket, sick in sat if bucket == qit[age]} & fitting) == 1
    assert found["intersection"]["certain"] == certain > 0
    assert found["intersection"]["bound"] == 0.5
    assert found["intersection"]["result"] == "exact"
    Functions(parties.publisher).drop("draft")
    Functions(parties.publisher).drop("b")
    assert "b was dropped" not in refusal(parties, "suppressed", source, "s", k=K)


def test_people_who_came(parties: Parties) -> None:
    """Nothing is claimed of those who may be in a class or not."""
    source = crowded(parties)
    publish(parties, "generalized", source, "first")
    publish(parties, "generalized", source, "before", readers=[], k=4)
    unknown = lambda draft: [
        row for name, row in check(parties, source, draft).items() if "not known who" in name
    ]
    assert unknown("before") == []
    fetch(parties.publisher, f"INSERT INTO {source} VALUES (20, 'f', 'disease 0', 'job 1')")
    publish(parties, "generalized", source, "draft", readers=[], k=4)
    (row,) = unknown("draft")
    assert (row["result"], row["holds"]) == ("not measured", False)
    assert "it is not known who" in refusal(parties, "generalized", source, "second")


def test_a_newcomer_is_found_by_differencing(parties: Parties) -> None:
    """Of whoever came between two releases, readers know the row, whatever the classes."""
    rows = [(i // 4, f"disease {i % 4}") for i in range(40)]
    name = made(parties, "age int, sick text", rows, ["age"], "sick")
    publish(parties, "suppressed", name, "first", k=K, patterns=["."])
    fetch(parties.publisher, f"INSERT INTO {name} SELECT 77, 'new' FROM generate_series(1, 3)")
    publish(parties, "suppressed", name, "draft", readers=[], k=K, patterns=["."])
    came = check(parties, name, "draft")["differencing: who came"]
    assert (came["certain"], came["share"]) == (3, 1.0)


def test_what_was_promised_is_measured(parties: Parties) -> None:
    """Of thresholds, the threshold; of others, and of l-diverse classes, certainty."""
    source = crowded(parties)
    for constraints, bound in (({"l": 3}, 1.0), ({"default": 0.6}, 0.6), (None, 1.0)):
        given = {} if constraints is None else {"constraints": json.dumps(constraints)}
        publish(parties, "generalized", source, "first", **given, accept=REASON)
        publish(parties, "suppressed", source, "draft", readers=[], k=2)
        assert check(parties, source, "draft")["intersection"]["bound"] == pytest.approx(bound)
        Functions(parties.publisher).drop("first")
        Functions(parties.publisher).drop("draft")


def test_without_a_sensitive_attribute(parties: Parties) -> None:
    """Nothing is measured; it is refused all the same."""
    name = made(parties, "age int", [(i,) for i in range(30)], ["age"], None)
    publish(parties, "generalized", name, "first")
    detail = refusal(parties, "generalized", name, "second", k=5, method="k_member")
    assert "not measured: how few rows may be somebody's" in detail


def test_each_reason_is_said_once(parties: Parties, source: str) -> None:
    publish(parties, "freeform", source, "f", k=K)
    publish(parties, "freeform", source, "f", k=K, replace=True, accept=REASON)
    publish(parties, "freeform", source, "f", k=K, replace=True, accept=REASON)
    detail = refusal(parties, "generalized", source, "g")
    assert detail.count("it was replaced") == 1
    assert detail.count("freeform rows") == 1
    for kind in ("generalized", "suppressed"):
        assert detail.count("f: ") == 2, kind


def test_another_source_of_the_same_people(parties: Parties, source: str) -> None:
    """Where the columns are not those that were published, it is refused without figures."""
    publish(parties, "generalized", source, "first")
    view = described(parties, f"SELECT age::bigint, sick FROM {source}", ["age"])
    detail = refusal(parties, "generalized", view, "second")
    assert "first: not measured: the source's columns are not those" in detail
    publish(parties, "generalized", view, "second", accept=REASON)


def test_what_follows_is_allowed(parties: Parties) -> None:
    """Classes of another release that were put together need no word, if nothing else changed."""
    rows = [(i // 4, f"disease {i % 7}") for i in range(40)]
    name = made(parties, "age int, sick text", rows, ["age"], "sick")
    publish(parties, "suppressed", name, "first", k=K, patterns=["."])
    publish(parties, "suppressed", name, "coarser", k=K, patterns=["*"])
    publish(parties, "generalized", name, "draft", readers=[], k=4, method="mondrian")
    assert check(parties, name, "draft") == {}
    kanon = Functions(parties.publisher)
    kanon.rows("grant_publication", "draft", readers=["kanon_analyst"])
    fetch(parties.publisher, f"UPDATE {name} SET sick = 'another' WHERE age = 3")
    detail = refusal(parties, "suppressed", name, "later", k=K, patterns=["*"])
    assert "first" in detail
    fetch(parties.publisher, f"DELETE FROM {name} WHERE age = 3")
    assert "first" in refusal(parties, "suppressed", name, "later", k=K, patterns=["*"])


def test_rows_in_batches(parties: Parties) -> None:
    """Rows of two batches look alike, but a copy of the first one tells them apart."""
    first = [(1, 20, "f", "A"), (2, 30, "f", "B"), (3, 30, "f", "C"), (4, 30, "f", "D")]
    columns = "id int, age int, sex text, sick text"
    name = made(parties, columns, first, ["age", "sex"], arrival="id")
    kanon = Functions(parties.publisher)
    publish(parties, "suppressed", name, "batched", k=4, patterns=["*."])
    fetch(
        parties.publisher,
        f"INSERT INTO {name} VALUES (5, 20, 'f', 'E'), (6, 20, 'f', 'F'), (7, 20, 'f', 'G'),"
        " (8, 30, 'f', 'H')",
    )
    assert kanon.call("refresh", "batched")["added"] == 4
    told = refusal(parties, "suppressed", name, "finer", k=4, patterns=[".."])
    assert "rows in several batches" in told


def test_a_renamed_reader_is_known_after_a_restore(
    parties: Parties, source: str, new_role: Callable[..., str]
) -> None:
    """By the name that the role had when anybody last published; the publisher, too."""
    reader, publisher = new_role("kanon_user"), new_role("kanon_publisher")
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA data TO {publisher}")
    fetch(parties.admin, f"GRANT SELECT ON {source} TO {publisher}")
    fetch(parties.admin, f"SET ROLE {publisher}")
    Functions(parties.admin).of_kind("buckets", source, "first", readers=[reader])
    Functions(parties.admin).drop("first")
    fetch(parties.admin, "RESET ROLE")
    for role in (reader, publisher):
        fetch(parties.admin, f"ALTER ROLE {role} RENAME TO {role}_renamed")
    publish(parties, "suppressed", source, "draft", readers=[])
    fetch(parties.admin, "SELECT kanon.come_home(true)")
    # This would find the first one by the number that the role has had before.
    refused = refusal(parties, "suppressed", source, "second", readers=[f"{reader}_renamed"])
    assert f"{reader}_renamed could also read first" in refused
    assert (f"{publisher}_renamed",) * 2 in fetch(
        parties.admin,
        "SELECT released_by, publisher::regrole::text FROM kanon.release WHERE name = 'first'",
    )
