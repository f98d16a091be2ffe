"""The numbers of cells: equal values written in several ways, ranges that have their ends in place
of numbers, changes of cells of any type, and what has no numbers.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from datetime import date, timedelta
from types import ModuleType

import psycopg
import pytest

from kanon_db.answers.estimates import answer
from kanon_db.answers.rows import cell_evidence, coded_rows, stored_types
from kanon_db.errors import UnsupportedQueryError
from kanon_db.publications.codes import HASHES, StoredColumn
from kanon_db.publications.rows import cell_codes, cell_columns, distinct_cells
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_table,
    failed_checks,
    fetch,
    holds,
    keep_cells_with_rows,
    value,
)

CHECK = "the numbers of the cells are those of the rows"


def numbers_hold(parties: Parties, name: str) -> bool:
    return CHECK not in failed_checks(parties.admin, name)


@contextmanager
def changing(parties: Parties, name: str) -> Iterator[str]:
    """The table of a publication's rows, which have their cells themselves, until the end."""
    with parties.admin.transaction(force_rollback=True):
        keep_cells_with_rows(parties.admin, name)
        yield f"published.{name}_row"


def refresh(parties: Parties, name: str) -> None:
    fetch(parties.admin, f"REFRESH MATERIALIZED VIEW published.{name}")


def asked(parties: Parties, query: str) -> list[tuple[object, ...]]:
    session = PsycopgSession(parties.analyst)
    with session.transaction():
        return [astuple(row) for row in answer(session, query).rows]


def assert_same(found: list[tuple[object, ...]], wanted: list[tuple[object, ...]]) -> None:
    # A row ends with the names of its groups.
    assert [(*one[:2], one[-1]) for one in found] == [(*one[:2], one[-1]) for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one[2:-1] == pytest.approx(other[2:-1], abs=1e-6)


@pytest.mark.long
@pytest.mark.pitfall(4)
@pytest.mark.parametrize(
    ("name", "order"),
    [
        *((name, order) for name in ("wide", "few")
          for order in ("price::text, ctid", "price::text DESC, ratio::text DESC")),
        ("wide_classes", "wage, born"), ("wide_graph", "wage, born"),
    ],
)  # fmt: skip
def test_equal_cells_have_one_text_in_any_order(parties: Parties, name: str, order: str) -> None:
    """1.0 and 1.00 have one number; which text it has must not tell of the order of the rows."""
    with changing(parties, name) as rows:
        fetch(parties.admin, f"CREATE TEMP TABLE t ON COMMIT DROP AS TABLE {rows}")
        fetch(parties.admin, f"DELETE FROM {rows}")
        fetch(parties.admin, f"INSERT INTO {rows} SELECT * FROM t ORDER BY {order}")
        refresh(parties, name)
        assert numbers_hold(parties, name)


# -- equal values that are written in several ways ------------------------------------------------

COLUMNS = (
    "age int, price numeric, ratio numeric, score float8, span interval, note jsonb, ends text,"
    " list numeric[], pair data.pair, sick text"
)


@pytest.fixture(scope="module", autouse=True)
def spelled(parties: Parties) -> None:
    fetch(parties.publisher, "CREATE TYPE data.pair AS (a int, b text)")
    rows = [
        (
            20 + i // 4 if i < 58 else 50, ("1.0", "1.00", "2")[i % 3], ("7", "7.0")[i % 2],
            ("0", "-0", "NaN")[i % 3], ("1 day", "24:00:00")[i % 2],
            ('{"a": 1.0}', '{"a": 1.00}', None)[i % 3], ("a", "b ")[i % 2],
            ("{1.0}", "{1.00}", "{}", None)[i % 4], ("(,)", None)[i % 2],
            "flu" if i % 3 else "cold",
        )
        for i in range(60)
    ]  # fmt: skip
    create_table(parties.publisher, "data.spelled", COLUMNS, rows)
    kanon = Functions(parties.publisher)
    kanon.register(
        "data.spelled", ["age", "ratio"], "sick",
        insensitive=["price", "score", "span", "note", "ends", "list", "pair"],
    )  # fmt: skip
    kanon.generalize("data.spelled", "wide", k=4, method="mondrian")
    kanon.suppress("data.spelled", "few", k=4)


@pytest.mark.long
def test_an_average_of_records_that_are_not_expected(parties: Parties) -> None:
    """A suppressed cell may have any value: the average lies within bounds, but is not known."""
    found = asked(parties, "SELECT AVG(price) FROM few WHERE age = 99 AND price < 5")
    assert found[0][2:4] == (None, None)
    assert found[0][4:6] == (pytest.approx(1), pytest.approx(2))


MANY = (
    "SELECT age, COUNT(*) FROM wide WHERE age <> 24 AND (sick = 'flu' OR age > 30) GROUP BY 1",
    "SELECT COUNT(*) FROM wide WHERE age <> 24 AND age <> 27 OR sick = 'flu' AND age < 30",
    "SELECT age, sick, COUNT(*), AVG(age) FROM wide WHERE age > ratio + 20 GROUP BY 1, 2",
    "SELECT sick, COUNT(*), AVG(price) FROM wide WHERE price > score AND age > 24 GROUP BY 1",
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "limit", "most"),
    [
        (stored_types, "_COLUMN_BYTES", 1 << 40), (stored_types, "_FEW", 1),
        (stored_types, "MOST_COMBINED", 1), (coded_rows, "_MOST_DENSE", 1),
    ],
)  # fmt: skip
def test_what_is_too_much_at_once_is_counted_in_another_way(
    parties: Parties, module: ModuleType, limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks are divided, conditions tried chunk by chunk; groups have numbers as they are met."""
    wanted = [asked(parties, query) for query in MANY]
    monkeypatch.setattr(module, limit, most)
    for query, rows in zip(MANY, wanted, strict=True):
        assert_same(asked(parties, query), rows)


@pytest.mark.slow("publishes the columns of many values that its module asks")
@pytest.mark.parametrize(
    ("module", "limit", "most"),
    [
        (cell_columns, "MOST_LISTED", 3),
        (cell_evidence, "MOST_COMBINED", 2),
        (coded_rows, "_MOST_BYTES", 900),
    ],
)
def test_more_than_is_listed_or_tried_is_refused(
    parties: Parties,
    module: ModuleType,
    limit: str,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, limit, most)
    with pytest.raises(UnsupportedQueryError, match="more values") as refused:
        asked(parties, MANY[0])
    assert refused.value.hint


@pytest.mark.parametrize("name", ["wide", "few"])
def test_rows_that_are_gone_are_found(parties: Parties, name: str) -> None:
    with parties.admin.transaction(force_rollback=True):
        fetch(parties.admin, f"DELETE FROM published.{name}_row")
        refresh(parties, name)
        assert not numbers_hold(parties, name)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "k"), [("generalized", 20), ("suppressed", 4)])
def test_a_class_may_be_larger_than_a_block(
    parties: Parties, kind: str, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read at a time does not grow with the classes."""
    monkeypatch.setattr(distinct_cells, "ROWS_OF_CHUNK", 3)
    kanon = Package(parties.publisher)
    kanon.call(f"publish_{kind}", "data.spelled", "parts", k=k, replace=True)
    sizes = fetch(
        parties.admin, "SELECT length(codes) FROM published.parts_cod WHERE column_no ="
        " (SELECT min(column_no) FROM published.parts_val WHERE sick IS NOT NULL)",
    )  # fmt: skip
    assert max(sizes) == (3,)
    assert all(good for *_, good in kanon.verify("parts"))
    for condition in ("sick = 'flu'", "sick = 'flu' AND score = 0", "price = 1 OR score > 9"):
        (found,) = asked(parties, f"SELECT COUNT(*) FROM parts WHERE {condition}")
        count = f"SELECT COUNT(*) FROM published.parts WHERE {condition}"
        assert found[2] == value(parties.admin, count)


def test_many_values_are_numbered_as_few(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay on the server, whether a sample shows many or few."""
    monkeypatch.setattr(distinct_cells, "_MOST_IN_SAMPLE", 0)
    kanon = Package(parties.publisher)
    kanon.generalize("data.spelled", "many", k=4, method="mondrian")
    assert all(holds for *_, holds in kanon.verify("many"))
    others = ("price", "score", "span", "note", "ends", "list", "pair", "sick")
    listed = " UNION ALL ".join(
        f"SELECT '{one}', kanon_code, {one}::text FROM published.{{0}}_val WHERE column_no ="
        f" (SELECT min(column_no) FROM published.{{0}}_val WHERE num_nulls({one}) = 0)"
        for one in others
    ).replace("kanon_code", "code")
    few, many = ({*fetch(parties.admin, listed.format(name))} for name in ("wide", "many"))
    assert few == many


# -- more ranges than have numbers: where each begins and ends ------------------------------------

WIDE = ("wide_classes", "wide_graph")
ENDED = ["born", "wage"]
CELL = "published.{0}_val WHERE born IS NOT NULL"
CODES = f"WHERE column_no = (SELECT min(column_no) FROM {CELL})"
QUESTIONS = (
    "SELECT COUNT(*) FROM {} WHERE born < '1990-01-01'",
    "SELECT COUNT(*) FROM {} WHERE NOT born BETWEEN '1985-01-01' AND '1990-01-01' AND wage > 5000",
    "SELECT COUNT(*) FROM {} WHERE extract(month FROM born) = 3 OR sick = 'flu'",
    "SELECT COUNT(*) FROM {} WHERE wage % 7 = 2 AND sex = 'f'",
    "SELECT COUNT(*) FROM {} WHERE born IS NULL",
    "SELECT COUNT(*) FROM {} WHERE (born > '1985-05-05') IS UNKNOWN OR wage <> 1234",
    "SELECT COUNT(wage), COUNT(*) FILTER (WHERE wage > 0) FROM {} WHERE sick IS NOT NULL",
    "SELECT sick, COUNT(*) FROM {} WHERE born >= '1988-01-01' GROUP BY sick",
    "SELECT sex, AVG(ward) FROM {} WHERE wage BETWEEN 1000 AND 7000 GROUP BY sex",
    "SELECT COUNT(*) FROM {} WHERE wage < 99999999999 AND born < '2030-01-01'",
    "SELECT COUNT(*) FROM {} WHERE wage > 2000 AND wage % 2 = 0",
    "SELECT COUNT(*) FROM {} WHERE wage IN (1000, 2000, 3000) AND born <> '1990-01-01'",
    "SELECT COUNT(*) FROM {} WHERE CASE WHEN wage < 3000 THEN sick = 'flu' ELSE sex = 'f' END",
    "SELECT AVG(wage) FROM {} WHERE sick = 'flu'",
    "SELECT COUNT(*) FROM {} WHERE wage > ward",
    "SELECT COUNT(*) FROM {} WHERE 9 / (wage + 1) = 0",
    "SELECT MIN(wage), percentile_disc(0.5) WITHIN GROUP (ORDER BY wage) FROM {}",
    "SELECT COUNT(*) FROM {} WHERE wage > 1000 AND extract(year FROM born) = wage",
    "SELECT COUNT(*) FROM {} WHERE ward > 0 AND 9 / ward > 2",
    "SELECT COUNT(*) FROM {} WHERE ward > 0 AND wage / ward > 2000 AND sick = 'flu'",
    "SELECT sex, AVG(9 / ward) FROM {} WHERE ward BETWEEN 1 AND 3 GROUP BY sex",
)


@pytest.fixture(scope="module", autouse=True)
def wide(parties: Parties) -> None:
    draw = random.Random(5)  # noqa: S311  # made-up data
    rows = [
        (
            None if draw.random() < 0.05 else date(1980, 1, 1) + timedelta(draw.randrange(5000)),
            draw.choice([None, draw.randrange(9000), draw.randrange(9000)]),
            draw.choice("fm"),
            draw.randrange(5),
            draw.choice(["flu", "cold", None]),
        )
        for _ in range(160)
    ]
    columns = "born date, wage bigint, sex text, ward int, sick text"
    create_table(parties.publisher, "data.wide", columns, rows)
    kanon = Package(parties.publisher)
    kanon.register("data.wide", ["born", "wage", "sex"], "sick", insensitive=["ward"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell_codes, "MOST_CELLS", 8)  # fewer, as they are
        for suffix, most in (("_few", cell_codes.MOST_RANGES), ("", 9)):
            patch.setattr(cell_codes, "MOST_RANGES", most)
            kanon.generalize("data.wide", f"wide_classes{suffix}", k=3, method="mondrian")
            kanon.freeform("data.wide", f"wide_graph{suffix}", k=3)


def ended(parties: Parties, name: str) -> object:
    """The columns whose ranges are known by their ends."""
    columns = "SELECT layout -> 'store' -> 'columns' FROM kanon.publication WHERE name = $1"
    return [own.name for own in map(StoredColumn.read, value(parties.admin, columns, name))
            if own.by_ends]  # fmt: skip


def test_no_column_has_both_ends_and_shares() -> None:
    assert cell_codes.MOST_CELLS <= cell_codes.MOST_RANGES


@pytest.mark.parametrize("name", WIDE)
def test_ends_are_those_of_the_rows(parties: Parties, name: str) -> None:
    assert ended(parties, name) == ENDED
    assert holds(parties.admin, name)
    whole = f"SELECT daterange(min(lower(born)), max(upper(born))) FROM published.{name}"
    cell = f"SELECT born FROM {CELL}".format(name)
    assert value(parties.admin, cell) == value(parties.admin, whole)


@pytest.mark.long
@pytest.mark.parametrize("name", WIDE)
def test_ends_answer_as_numbers_do(parties: Parties, name: str) -> None:
    same = f"SELECT count(*) FROM (TABLE published.{name} EXCEPT ALL TABLE published.{name}_few) d"
    assert value(parties.admin, same) == 0
    assert ended(parties, f"{name}_few") == []
    for question in QUESTIONS:
        found, wanted = (asked(parties, question.format(one)) for one in (name, f"{name}_few"))
        assert_same(found, wanted)


@pytest.mark.parametrize("name", [one + suffix for one in WIDE for suffix in ("", "_few")])
@pytest.mark.parametrize("column", ENDED)
def test_groups_are_refused_by_the_widest_range(
    parties: Parties, name: str, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = f"max(upper({column}) - lower({column})), bool_or(lower_inf({column}))"
    ((widest, has_endless),) = fetch(parties.admin, f"SELECT {shown} FROM published.{name}")
    for most, is_wide in ((widest - 1, True), (widest, has_endless)):
        monkeypatch.setattr(coded_rows, "MOST_GROUPED", most)
        query = f"SELECT {column}, COUNT(*) FROM {name} GROUP BY {column}"
        if is_wide:
            with pytest.raises(UnsupportedQueryError, match="ranges without an end"):
                asked(parties, query)
        else:
            assert asked(parties, query)


def test_so_many_values_are_not_tried(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    query = QUESTIONS[2].format("wide_classes")
    (wanted,) = asked(parties, query)
    monkeypatch.setattr(cell_columns, "MOST_TABLED", 100)
    (found,) = asked(parties, query)
    assert found[2] == pytest.approx(wanted[2], abs=0.1)  # of wide ranges, some are


CHANGES = (
    *(
        f"WITH c AS (SELECT ctid FROM {CELL}) UPDATE published.{{0}}_val AS v SET {change}"
        " FROM c WHERE c.ctid = v.ctid"
        for change in (
            "born = daterange(lower(born) - 1, upper(born))",
            "born = daterange(lower(born), upper(born) + 1)",
            "born = daterange(lower(born) + 1, upper(born))",
            "born = daterange(lower(born), NULL)",
            "born = NULL",
            "code = 1",
            "wage = int8range(1, 2)",
        )
    ),
    f"DELETE FROM {CELL}",
    f"UPDATE published.{{0}}_cod SET codes = set_byte(codes, 0, 1 + get_byte(codes, 0)) {CODES}",
    f"UPDATE published.{{0}}_cod SET codes = codes || '\\x0000000000000000'::bytea {CODES}",
    f"DELETE FROM published.{{0}}_cod {CODES}",
)
CODED = ("substr(codes, 2)", "set_byte(codes, 7, 255)", "set_byte(codes, 3, 127)", "''::bytea")


@pytest.mark.parametrize("name", WIDE)
def test_what_is_changed_is_found(parties: Parties, name: str) -> None:
    for change in CHANGES:
        with parties.admin.transaction(force_rollback=True):
            fetch(parties.admin, change.format(name))
            assert not numbers_hold(parties, name), change
    for codes in CODED:
        with parties.admin.transaction(force_rollback=True):
            fetch(
                parties.admin,
                f"UPDATE published.{{0}}_cod SET codes = {codes} {CODES}".format(name),
            )
            with pytest.raises(psycopg.Error, match=r"publish again|changed"):
                Functions(parties.admin).estimate(QUESTIONS[0].format(name))


def test_ranges_without_an_end_have_none(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    kanon = Package(parties.publisher)
    fetch(parties.publisher, "CREATE TABLE data.topped AS TABLE data.wide")
    kanon.register(
        "data.topped", ["born", "wage", "sex"], "sick", insensitive=["ward"],
        attributes={"wage": {"top": 8000}},
    )  # fmt: skip
    monkeypatch.setattr(cell_codes, "MOST_RANGES", 9)
    kanon.generalize("data.topped", "endless", k=3, method="mondrian")
    assert ended(parties, "endless") == ["born"]
    assert holds(parties.admin, "endless")


# -- cells of every type --------------------------------------------------------------------------

SORTS = ("ranges", "stars")
CELLS = {
    "age": "int", "born": "date", "wage": "numeric", "job": "text", "code": "bigint",
    "ratio": "float8",
}  # fmt: skip
OTHERS = {
    "small": "smallint", "town": "varchar", "big": "bigint", "is_new": "boolean",
    "seen": "timestamp", "share": "float8", "sick": "text",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def sorts(parties: Parties) -> None:
    draw = random.Random(7)  # noqa: S311  # made-up data

    def maybe(drawn: object) -> object:
        return None if draw.random() < 0.1 else drawn

    rows = [
        tuple(
            maybe(drawn)
            for drawn in (
                20 + draw.randrange(9), f"2000-01-0{1 + draw.randrange(9)}",
                f"{draw.randrange(9)}.{'0' * draw.randrange(3)}", f"job {draw.randrange(4)}",
                # The server folds the halves of such numbers into the same hash.
                draw.choice([1, 2**32]),
                # All of these, as ends of a range, have the same hash.
                draw.choice([0, 1, 2, "-Infinity", "Infinity", "NaN"]),
                draw.randrange(3), f"town {draw.randrange(3)}",
                draw.choice([1, 2**32]), draw.random() < 0.5,
                f"2001-01-01 0{draw.randrange(3)}:00", draw.randrange(3), f"{draw.randrange(3)}",
            )
        )
        for _ in range(200)
    ]  # fmt: skip
    columns = CELLS | OTHERS
    create_table(
        parties.publisher, "data.sorts", ", ".join(f"{c} {t}" for c, t in columns.items()), rows
    )
    kanon = Functions(parties.publisher)
    kanon.register(
        "data.sorts", list(CELLS), "sick", insensitive=[c for c in OTHERS if c != "sick"]
    )
    kanon.generalize("data.sorts", "ranges", k=4, method="mondrian", refine=False)
    kanon.suppress("data.sorts", "stars", k=2)
    for name in SORTS:
        fetch(parties.admin, f"CREATE TABLE data.before_{name} AS TABLE published.{name}")


@pytest.mark.pitfall(4)
@pytest.mark.parametrize("name", SORTS)
def test_cells_that_change_places_are_found(parties: Parties, name: str) -> None:
    """All columns have the same cells as before, and all rows but two are the same."""
    same = (
        f"SELECT count(*) = 0 FROM (TABLE published.{name} EXCEPT ALL"
        f" TABLE data.before_{name}) AS d"
    )
    with changing(parties, name) as rows:
        one = value(parties.admin, f"SELECT min(ctid)::text FROM {rows}")
        for column in (*CELLS, *OTHERS):
            other = (
                f"SELECT max(r.ctid)::text FROM {rows} AS r, {rows} AS o"
                f" WHERE o.ctid = $1::tid AND r.{column} IS DISTINCT FROM o.{column}"
            )
            swap = (
                f"UPDATE {rows} AS r SET {column} = o.{column} FROM {rows} AS o"
                " WHERE r.ctid = ANY ($1::tid[]) AND o.ctid = ANY ($1::tid[]) AND r.ctid <> o.ctid"
            )
            with parties.admin.transaction(force_rollback=True):
                fetch(parties.admin, swap, [one, value(parties.admin, other, one)])
                refresh(parties, name)
                assert numbers_hold(parties, name) == value(parties.admin, same), column


@pytest.mark.parametrize("name", SORTS)
def test_a_cell_that_is_listed_twice_is_found(parties: Parties, name: str) -> None:
    """Half of the rows with a value have another number, of the same value."""
    table = f"published.{name}_val"
    own = f"column_no = (SELECT min(column_no) FROM {table} WHERE town IS NOT NULL)"
    with parties.admin.transaction(force_rollback=True):
        n = value(parties.admin, f"SELECT max(kanon_code) FROM {table} WHERE {own}")
        (last,) = fetch(
            parties.admin, f"SELECT town FROM {table} WHERE {own} AND kanon_code = $1::int4", n
        )
        assert last == (None,)  # NULL comes last
        fetch(
            parties.admin,
            f"UPDATE {table} SET town = NULL WHERE {own} AND kanon_code = $1::int4 - 1",
            n,
        )
        assert not numbers_hold(parties, name)


def test_no_two_numbers_that_are_hashed_always_have_the_same_hash(parties: Parties) -> None:
    """As some of those whose types are looked up have."""
    folded = "SELECT hashint8extended(1, 5) = hashint8extended(4294967296, 5)"
    assert value(parties.admin, folded)
    assert "bigint" not in HASHES
    assert not {"timestamp without time zone", "int8range", "tsrange"} & set(HASHES)


def test_rows_are_summed_up_a_part_at_a_time(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_codes, "_ROWS_AT_ONCE", 7)
    for name in SORTS:
        assert all(good for *_, good in Package(parties.admin).verify(name))
