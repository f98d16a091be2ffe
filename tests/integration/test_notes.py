"""What comments on published relations and their columns say, for every kind."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import psycopg
import pytest

from kanon_db.publications import KINDS
from tests.integration.parties import Connection, Functions, Parties, create_table, fetch, value

COLUMNS = ("Age %s", "sex's", "day", "count", "weight", "illness", "remark")
QUASI_IDENTIFIERS = COLUMNS[:5]
PUBLISHED = {
    "buckets": 'Odd "b"',
    "generalized": "odd 'k'",
    "freeform": "odd %f",
    "suppressed": "odd -- p",
}


@pytest.fixture(scope="module", autouse=True)
def published(parties: Parties) -> None:
    """A publication of each kind; columns have names that kanon_db would choose itself."""
    draw = random.Random(4)  # noqa: S311  # made-up data
    rows = [
        (
            None if draw.random() < 0.1 else 771_000 + draw.randrange(9),
            draw.choice(["Qfemale", "Qmale", None]),
            f"1907-03-{1 + draw.randrange(9):02}",
            draw.choice(["Qone", "Qtwo"]),
            draw.randrange(3) + 0.25,
            draw.choice(["Qflu", "Qcold", "Qnone"]),
            "Qremark",
        )
        for _ in range(120)
    ]
    types = ("int", "text", "date", "text", "numeric", "text", "text")
    named = ", ".join(f'"{name}" {type_}' for name, type_ in zip(COLUMNS, types, strict=True))
    create_table(parties.publisher, "data.odd", named, rows)
    kanon = Functions(parties.publisher)
    kanon.register("data.odd", list(QUASI_IDENTIFIERS), "illness", insensitive=["remark"])
    kanon.publish("data.odd", PUBLISHED["buckets"], privacy='{"l": 2}')
    kanon.generalize("data.odd", PUBLISHED["generalized"], k=3, method="mondrian")
    kanon.freeform("data.odd", PUBLISHED["freeform"], k=3)
    kanon.suppress("data.odd", PUBLISHED["suppressed"], k=3)


def comments(connection: Connection, name: str) -> dict[str, tuple[str, dict[str, str | None]]]:
    """The comments on each relation of a publication, and on its columns, by its suffix."""
    found = {}
    for suffix, oid, text in fetch(
        connection,
        "SELECT substr(relname, length($1::text) + 1), oid::int8, obj_description(oid, 'pg_class')"
        " FROM pg_class WHERE relnamespace = to_regnamespace('published')"
        " AND starts_with(relname, $1::text) AND relkind IN ('r', 'v', 'm')",
        name,
    ):
        columns = fetch(
            connection,
            "SELECT attname::text, col_description(attrelid, attnum) FROM pg_attribute"
            " WHERE attrelid = $1::int8 AND attnum > 0",
            oid,
        )
        found[suffix] = (text, dict(columns))
    return found


@pytest.mark.parametrize("kind", PUBLISHED)
def test_every_relation_says_how_to_use_it(parties: Parties, kind: str) -> None:
    """In words without a value, and with a query that runs."""
    name = PUBLISHED[kind]
    mark = value(
        parties.admin,
        "SELECT kanon.mark(publication_id) FROM kanon.publication WHERE name = $1::text",
        name,
    )
    found = comments(parties.stranger, name)
    assert sorted(found) == sorted(KINDS[kind].load().suffixes)
    for suffix, (text, columns) in found.items():
        assert text.startswith(mark)
        assert (text == mark) == (suffix in KINDS[kind].load().closed)
        use = text.removeprefix(mark)
        assert "\n" not in use
        said = " ".join([text, *(comment or "" for comment in columns.values())])
        assert re.findall("Q|771|1907|[.]25", said) == []
        assert (None in columns.values()) == (suffix in KINDS[kind].load().closed)
        if use and not use.startswith("Made for kanon_db"):
            assert use.startswith("How to use: ")
            assert use not in columns.values()
    (query,) = re.findall(r"SELECT \* FROM kanon\.estimate_count\(.*\)", found[""][0])
    ((*counted, _, _),) = fetch(parties.analyst, query.replace("...", "true"))
    assert counted == [120, 0, 120, 120]


def test_the_weight_in_the_comment_counts(parties: Parties) -> None:
    """The view's own names, where columns of the source are called `weight` and `count`."""
    found = comments(parties.stranger, PUBLISHED["buckets"])
    (weight,) = re.findall(r"count with (sum\(\w+\)), never with count", found[""][0])
    (count,) = re.findall(r"(sum\(\w+\)), not count", found["_sat"][0])
    for counting, relation in ((weight, 'Odd ""b""'), (count, 'Odd ""b""_sat')):
        counted = value(parties.analyst, f'SELECT {counting} FROM published."{relation}"')
        assert round(counted) == 120


def test_cells_are_told_by_their_kind(parties: Parties) -> None:
    for kind in ("generalized", "freeform"):
        _, columns = comments(parties.stranger, PUBLISHED[kind])[""]
        for name, said in {
            "Age %s": "as a range",
            "sex's": "as a set of texts",
            "day": "as a range",
            "weight": "as a range",
            "illness": "sensitive attribute, as in the source",
            "remark": "as in the source",
        }.items():
            assert said in str(columns[name])
    _, columns = comments(parties.stranger, PUBLISHED["suppressed"])[""]
    assert "where substr(pattern, 2, 1) = '*'" in str(columns["sex's"])
    assert "Age %s, sex's, day, count, weight, in this order" in str(columns["pattern"])


NOTES: list[dict[str, Any]] = [
    {"use": '\'; DROP VIEW published."Odd ""b"""; --'},
    {"use": "%s %I $1 \\", "columns": {"illness": "$$ '' \\' %L"}},
    {"columns": {'illness" IS NULL; --': "x"}},
    {"columns": {"no such column": "x"}},
]


def test_notes_are_never_run(parties: Parties) -> None:
    """Whoever publishes can send any text for them."""
    name = PUBLISHED["buckets"]
    write = (
        "SELECT kanon.owner_note(p, to_regclass('published.' || quote_ident(p.name)),"
        " $2::text::jsonb)::text FROM kanon.publication AS p WHERE p.name = $1::text"
    )
    before = comments(parties.stranger, name)
    for note in NOTES:
        with parties.admin.transaction(force_rollback=True):
            if "use" not in note:
                with pytest.raises(psycopg.errors.UndefinedColumn):
                    fetch(parties.admin, write, name, json.dumps(note))
                continue
            fetch(parties.admin, write, name, json.dumps(note))
            text, columns = comments(parties.admin, name)[""]
            assert text.endswith(note["use"])
            illness = note.get("columns", before[""][1])["illness"]
            assert columns["illness"] == illness
        assert comments(parties.stranger, name) == before
