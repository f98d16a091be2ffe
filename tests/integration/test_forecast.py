"""What publishing will need is said before it begins, and refused where it is too much."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import kanon_db
from tests.checks import NEEDED
from tests.integration.parties import (
    Functions,
    Parties,
    create_table,
    fetch,
    remains,
    value,
)
from tests.profiles import long_but

INFEASIBLE = "KN002"
NEEDS = r"needs some \d+ MB of memory and \d+ MB of disk"
KINDS = ("buckets", "generalized", "freeform", "suppressed")
LIMITS = ("publish_memory", "publish_disk") * 2


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    rows = [(f"person {i}", i * 7 % 40, f"d{i % 5}") for i in range(2000)]
    create_table(parties.publisher, "data.people", "name text, age int, sick text", rows)
    fetch(parties.publisher, "ANALYZE data.people")
    Functions(parties.publisher).register("data.people", ["name", "age"], "sick")


@contextmanager
def setting(parties: Parties, **settings: str) -> Iterator[None]:
    for name, size in settings.items():
        fetch(parties.admin, "INSERT INTO kanon.setting VALUES ($1, $2)", name, size)
    yield
    fetch(parties.admin, "DELETE FROM kanon.setting WHERE name LIKE 'publish\\_%%'")


def published(parties: Parties, kind: str, source: str = "data.people", **given: Any) -> None:
    needed = NEEDED.get(kind, {"k": 2})
    Functions(parties.publisher).call(f"publish_{kind}", source, "out", **{**needed, **given})


def refused(parties: Parties, kind: str, source: str = "data.people", **given: Any) -> str:
    """Publish in vain; what the error says."""
    before = remains(parties.admin)
    with pytest.raises(psycopg.Error) as raised:
        published(parties, kind, source, **given)
    diagnosis = raised.value.diag
    assert diagnosis.sqlstate == INFEASIBLE
    assert remains(parties.admin) == before
    return f"{diagnosis.message_primary}: {diagnosis.message_detail} ({diagnosis.message_hint})"


@pytest.fixture
def notices(parties: Parties) -> Iterator[list[str]]:
    """What the server tells the publisher."""
    heard: list[str] = []

    def listen(diagnostic: psycopg.errors.Diagnostic) -> None:
        heard.append(f"{diagnostic.severity_nonlocalized}: {diagnostic.message_primary}")

    parties.publisher.add_notice_handler(listen)
    yield heard
    parties.publisher.remove_notice_handler(listen)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name"), [*zip(KINDS, LIMITS, strict=True)])
def test_it_is_said_before(parties: Parties, kind: str, name: str, notices: list[str]) -> None:
    """And refused, where it is too much."""
    published(parties, kind, dry_run=True)
    (told,) = (text for text in notices if text.startswith("NOTICE: publishing"))
    assert re.fullmatch(f"NOTICE: publishing about 2,000 rows of \\d+ bytes {NEEDS}", told)
    with setting(parties, **{name: "10 kB"}):
        said = refused(parties, kind)
    assert "publishing needs more room than it may have: data.people, about 2,000 rows" in said
    assert f"{name} is 0 MB" in said or f"{name} 0 MB" in said
    assert "kanon.setting" in said


def test_from_outside_the_server_it_is_told_too(parties: Parties) -> None:
    told: list[str] = []
    fetch(parties.admin, "CREATE TABLE own AS SELECT i % 40 AS age FROM generate_series(1, 2000) i")
    fetch(parties.admin, "ANALYZE own")
    with kanon_db.connect(parties.dsn, on_notice=told.append) as kanon:
        kanon.register_source("public.own", quasi_identifiers=["age"])
        kanon.publish_suppressed("public.own", "out", k=2, dry_run=True)
    assert len(told) == 1
    assert "publishing about 2,000 rows" in told[0]


def make_view(parties: Parties, name: str, *, expected: int, rows: int) -> str:
    """Make a source of which the planner expects so many rows, and which has others."""
    call = f"data.{name}_rows()"
    fetch(
        parties.publisher,
        f"CREATE FUNCTION {call} RETURNS SETOF int LANGUAGE plpgsql ROWS {expected} AS"
        f" 'BEGIN RETURN QUERY SELECT generate_series(1, {rows}); END'",
    )
    fetch(
        parties.publisher,
        f"CREATE VIEW data.{name} AS"
        f" SELECT i % 9 AS age, 'd' || i % 4 AS sick FROM {call} AS r (i)",
    )
    Functions(parties.publisher).register(f"data.{name}", ["age"], "sick")
    return f"data.{name}"


@pytest.mark.long
def test_a_planner_that_expects_too_few_rows_does_not_matter(parties: Parties) -> None:
    source = make_view(parties, "underestimated", expected=1, rows=30_000)
    with setting(parties, publish_disk="1 MB"):
        said = refused(parties, "suppressed", source)
    assert "the source has too many rows" in said
    published(parties, "suppressed", source, dry_run=True)


def test_wider_rows_than_expected_are_refused(parties: Parties) -> None:
    fetch(
        parties.publisher,
        "CREATE TABLE data.wide AS SELECT i % 9 AS age, repeat(md5(i::text), 50) AS sick"
        " FROM generate_series(1, 2000) AS i",
    )
    fetch(parties.publisher, "ALTER TABLE data.wide SET (autovacuum_enabled = off)")
    Functions(parties.publisher).register("data.wide", ["age"], "sick")
    with setting(parties, publish_disk="4 MB"):
        said = refused(parties, "suppressed", "data.wide")
    assert "publishing needs more room than it may have" in said


@pytest.mark.long
def test_sets_of_very_many_values_are_refused(parties: Parties) -> None:
    """A bit for each of 60,000 names in each class: how many there are is known after reading."""
    fetch(
        parties.publisher,
        "CREATE TABLE data.many AS SELECT 'person ' || i AS name, 'd' || i % 5 AS sick"
        " FROM generate_series(1, 60000) AS i",
    )
    Functions(parties.publisher).register("data.many", ["name"], "sick")
    quick = {"method": "mondrian", "refine": False}
    with setting(parties, publish_memory="300 MB"):
        for kind, given in (
            ("generalized", {**quick, "constraints": '{"l": 2}'}),
            ("generalized", {**quick, "max_suppressed": "0.1"}),
            ("freeform", {"options": '{"partition_size": 60000}'}),
        ):
            said = refused(parties, kind, "data.many", **given)
            assert "sets of 60,000 values" in said
            assert "leave out quasi-identifiers with very many values" in said


@pytest.mark.long
@pytest.mark.parametrize("kind", long_but(["suppressed"], ["buckets", "suppressed"]))
def test_texts_that_compress_are_as_long_as_they_are(parties: Parties, kind: str) -> None:
    """Texts of 45 kB, which the server stores in a hundredth of that: all of them were fetched.

    Attacks and evaluations read no more than publishing does.
    """
    source = f"data.stories_{kind}"
    fetch(
        parties.publisher,
        f"CREATE TABLE {source} AS SELECT i % 9 AS age,"
        " rpad('word ' || i % 600, 45000, 'word ') AS sick FROM generate_series(1, 1200) AS i",
    )
    Functions(parties.publisher).register(source, ["age"], "sick")
    if kind == "buckets":
        with setting(parties, publish_memory="150 MB"):
            said = refused(parties, kind, source)
        assert "reading needs more room than it may have" in said
        assert "600 values of 45,000 bytes" in said
        assert "word" not in said
    needed = NEEDED.get(kind, {"k": 2})
    Functions(parties.publisher).call(f"publish_{kind}", source, kind, **needed)
    calls = ["attack"] if kind == "suppressed" else ["attack", "evaluate_counts"]
    with setting(parties, publish_memory="20 MB"):
        for call in calls:
            with pytest.raises(psycopg.Error, match="reading needs more room") as raised:
                fetch(parties.publisher, f"SELECT * FROM kanon.{call}($1)", kind)
            assert raised.value.diag.sqlstate == INFEASIBLE
    assert fetch(parties.publisher, "SELECT * FROM kanon.attack($1)", kind)


@pytest.mark.parametrize("column", ["story", "tags"])
def test_a_long_value_is_refused(parties: Parties, column: str) -> None:
    """The server hears no cancel while it unpacks or compares one, and Python holds it whole."""
    source = f"data.long_{column}"
    fetch(
        parties.publisher,
        # Compressed, such a text fits into a row.
        f"CREATE TABLE {source} AS SELECT repeat('secret ', 7143) AS story,"
        " jsonb_build_array(repeat('secret ', 7143)) AS tags, 'd' || i % 5 AS sick"
        " FROM generate_series(1, 60) AS i",
    )
    Functions(parties.publisher).register(source, [column], "sick")
    for kind in KINDS:
        said = refused(parties, kind, source)
        assert "a value is too long" in said
        assert f'column "{column}"' in said
        assert "secret" not in said


@pytest.mark.long
@pytest.mark.parametrize("n", [150, 1_500])
def test_a_view_of_wide_rows_is_not_copied_whole(parties: Parties, n: int) -> None:
    """The planner takes any computed text for 32 bytes: 160 MB were copied under 20 MB."""
    source = f"data.computed_{n}"
    fetch(
        parties.publisher,
        f"CREATE SEQUENCE {source}_read; CREATE VIEW {source} AS SELECT i % 9 AS age,"
        f" (SELECT string_agg(md5(i::text || j), '') FROM generate_series(1, 300000 / {n}) AS j)"
        f" || left(nextval('{source}_read')::text, 0) AS sick FROM generate_series(1, {n}) AS i",
    )
    Functions(parties.publisher).register(source, ["age"], "sick")
    fetch(parties.publisher, f"SELECT setval('{source}_read', 1)")
    with setting(parties, publish_disk="2 MB"):
        said = refused(parties, "suppressed", source)
    assert "reading needs more room than it may have" in said
    assert f"the copy of {source} takes more than publish_disk, 2 MB" in said
    assert value(parties.publisher, f"SELECT last_value FROM {source}_read") < 0.35 * n


@pytest.mark.long
def test_an_optimum_that_needs_no_program_is_not_refused(
    parties: Parties, notices: list[str]
) -> None:
    """All combinations of eight small columns, as in Nursery: 4.7 GB were foretold, 0.4 taken."""
    names, sizes = "abcdefghs", (3, 5, 4, 4, 3, 2, 3, 3, 1)
    columns = ", ".join(names)
    series = ", ".join(f"generate_series(1, {n}) AS {c}" for c, n in zip(names, sizes, strict=True))
    fetch(parties.publisher, f"CREATE TABLE data.nursery AS SELECT {columns} FROM {series}")
    Functions(parties.publisher).register("data.nursery", list(names[:8]), names[8])
    published(parties, "suppressed", "data.nursery", method="optimal", k=6, dry_run=True)
    (told,) = (text for text in notices if text.startswith("NOTICE: publishing"))
    assert int(re.findall(r"some ([\d,]+) MB", told)[0].replace(",", "")) < 1000


@pytest.mark.long
def test_a_program_that_is_too_large_is_refused(parties: Parties, notices: list[str]) -> None:
    columns = ", ".join(f"(random() ^ 2 * 30)::int AS c{i}" for i in range(6))
    fetch(
        parties.publisher,
        f"CREATE TABLE data.skewed AS SELECT {columns}, 1 AS s FROM generate_series(1, 2000)",
    )
    fetch(parties.publisher, "ANALYZE data.skewed")
    Functions(parties.publisher).register("data.skewed", [f"c{i}" for i in range(6)], "s")
    given = {"method": "optimal", "k": 5, "options": '{"time_limit": 1}'}
    with setting(parties, publish_memory="400 MB"):
        said = refused(parties, "suppressed", "data.skewed", **given)
    assert "publishing needs more room than it may have: an integer program of" in said
    published(parties, "suppressed", "data.skewed", dry_run=True, **given)
    assert any(re.match(r"NOTICE: an integer program of [\d,]+ variables", n) for n in notices)


@pytest.mark.parametrize(
    ("kind", "n_identifying"),
    long_but([("generalized", 6)], [("generalized", 6), ("freeform", 449), ("buckets", 449)]),
)
def test_very_many_columns_are_refused_before_they_are_read(
    parties: Parties, kind: str, n_identifying: int
) -> None:
    """Publishing 1,500 columns did not end; the limit is 400. Buckets show no insensitive ones."""
    names = [f"c{i}" for i in range(450)]
    columns = ", ".join(f"(i % {3 + place % 9})::int2 AS {c}" for place, c in enumerate(names))
    source = f"data.columns_{kind}"
    fetch(
        parties.publisher,
        f"CREATE TABLE {source} AS SELECT {columns} FROM generate_series(1, 60) AS i",
    )
    kanon = Functions(parties.publisher)
    kanon.register(source, names[:n_identifying], names[-1], insensitive=names[n_identifying:-1])
    said = refused(parties, kind, source)
    assert "the source has too many columns to publish" in said
    assert "450 are to be read" in said
    kanon.register(source, names[:6], names[-1], insensitive=names[6:-1])
    published(parties, "buckets", source, dry_run=True)


@pytest.mark.long
def test_many_quasi_identifiers_are_said_to_take_long(parties: Parties, notices: list[str]) -> None:
    """Before anything is read."""
    names = [f"c{i}" for i in range(200)]
    columns = ", ".join(f"{i} AS {name}" for i, name in enumerate(names))
    fetch(parties.publisher, f"CREATE TABLE data.broad AS SELECT {columns}, 'i' AS ill")
    Functions(parties.publisher).register("data.broad", names, "ill")
    for kind in ("generalized", "freeform"):
        notices.clear()
        with pytest.raises(psycopg.Error):  # one row is not k
            published(parties, kind, "data.broad")
        assert any("200 quasi-identifiers take 0.4 minutes or more" in one for one in notices)
