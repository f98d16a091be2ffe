"""Tables of people, with columns of many types, NULLs, and values that go together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.integration.parties import Connection, Functions, fetch

SCHEMA: Final = "meaning"
EXACT: Final = "exactly"
"""A schema with a sum of `real` in double precision: PostgreSQL's own adds up rounding errors."""


@dataclass(frozen=True)
class Table:
    """A source.

    Attributes
    ----------
    name : str
    columns : dict of str to str
        SQL for the value of each column, from ``i``, the uniform ``u`` and ``w``, and ``s``, on
        which several columns depend.
    kinds : dict of str to str
        What the grammar does with a column: ``number``, ``moment``, ``text``, ``boolean``, ``enum``
        or ``other``.
    quasi_identifiers : tuple of str
    insensitive : tuple of str
    attributes : dict of str to dict
        How columns are registered: numbers that are published as sets, and what is coarsened.
    """

    name: str
    columns: Mapping[str, str]
    kinds: Mapping[str, str]
    quasi_identifiers: tuple[str, ...]
    insensitive: tuple[str, ...] = ()
    attributes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def _sometimes(value: str, share: float = 0.05) -> str:
    return f"CASE WHEN random() >= {share} THEN {value} END"


_MIXED: Final = Table(
    "mixed",
    {
        "age": _sometimes("18 + floor(power(u, 1.5) * 60)::int"),
        "hours": _sometimes("floor(power(w, 3) * 80)::smallint", 0.1),
        "born": _sometimes("date '1940-01-01' + floor(u * 20000)::int"),
        "seen": _sometimes("timestamp '2020-01-01' + (floor(w * 900) / 4) * interval '1 hour'"),
        "called": "timestamptz '2021-03-01 12:00+01' + floor(w * 60) * interval '1 day'",
        "married": _sometimes("u + random() > 1"),
        "grade": f"(ARRAY['low', 'middle', 'high'])[1 + floor(s * 3)::int]::{SCHEMA}.grade",
        "region": _sometimes("'region ' || chr(97 + floor(u * 7)::int)"),
        "sick": _sometimes("'illness ' || floor(least(0.99, (s + random()) / 2) * 9)::int", 0.03),
    },
    {
        "age": "number", "hours": "number", "born": "moment", "seen": "moment",
        "called": "moment", "married": "boolean", "grade": "enum", "region": "text", "sick": "text",
    },
    ("age", "hours", "born", "seen", "called", "married", "grade", "region"),
)  # fmt: skip

_EXACT: Final = Table(
    "exact",
    {
        "wage": _sometimes(
            "round((exp(1.2 * w) * 1000 * (1 + power(random(), 8) * 9))::numeric, 2)"
        ),
        "height": _sometimes("round((150 + 40 * u)::numeric, 1)::real", 0.02),
        "score": "floor(w * 11) / 10",
        "level": _sometimes("(floor(s * 5))::numeric(3, 1)"),
        "zip": "lpad(floor(u * 40)::int::text, 3 + floor(w * 2)::int, '0')::char(5)",
        "code": _sometimes("('c' || floor(w * 6))::varchar(9)"),
        "big": _sometimes("3000000000 + floor(s * 50)::int8"),
        "cost": _sometimes("floor(100 * exp(2 * random() + s))::int", 0.04),
    },
    {
        "wage": "number", "height": "number", "score": "number", "level": "number", "zip": "text",
        "code": "text", "big": "number", "cost": "number",
    },
    ("wage", "height", "score", "level", "zip", "code", "big"),
    attributes={"level": {"kind": "categorical"}},
)  # fmt: skip

_SPARSE: Final = Table(
    "sparse",
    {
        "day": _sometimes("date '2020-01-01' + floor(power(u, 4) * 40)::int", 0.5),
        "flag": _sometimes("w > 0.9", 0.6),
        "one": "'always'::text",
        "none": "NULL::int",
        "n": "floor(s * 4)::bigint",
        "stay": _sometimes("floor(w * 14) * interval '1 mon' - floor(s * 3) * interval '15 days'"),
        "woke": "time '21:00' + floor(u * 40) * interval '20 minutes'",
        "note": _sometimes("'note ' || floor(u * 3)", 0.3),
        "result": _sometimes("s > 0.5 + random() / 4", 0.2),
    },
    {
        "day": "moment", "flag": "boolean", "one": "text", "none": "number", "n": "number",
        "stay": "other", "woke": "other", "note": "text", "result": "boolean",
    },
    ("day", "flag", "one", "none", "n", "stay", "woke"),
    ("note",),
)  # fmt: skip

_FOLDED: Final = Table(
    "folded",
    {
        "mail": _sometimes("(ARRAY['a@x', 'B@x', 'c@X', 'd@x'])[1 + floor(u * 4)::int]::citext"),
        "n": "floor(w * 9)::int",
        "tag": _sometimes("(ARRAY['One', 'two', 'Three'])[1 + floor(s * 3)::int]::citext"),
    },
    {"mail": "text", "n": "number", "tag": "text"},
    ("mail", "n"),
)

_COARSE: Final = Table(
    "coarse",
    {
        **{name: _MIXED.columns[name] for name in ("age", "hours", "born", "seen", "called")},
        **{name: _EXACT.columns[name] for name in ("wage", "height", "big")},
        "ratio": _sometimes("(w - 0.5) * 40"),
        "sick": _MIXED.columns["sick"],
    },
    {**_MIXED.kinds, "wage": "number", "height": "number", "big": "number", "ratio": "number"},
    ("age", "hours", "born", "seen", "called", "wage", "height", "big", "ratio"),
    attributes={
        "age": {"round": 7, "top": 70, "bottom": 20},
        "hours": {"top": 40},
        "born": {"round": "quarter", "top": "1990-02-01"},
        "seen": {"round": "day", "bottom": "2020-01-03 12:00"},
        "called": {"round": "week"},
        "wage": {"round": 250, "top": 3000},
        "height": {"round": 0.5, "bottom": 155.1},
        "big": {"round": 20},
        "ratio": {"round": 2.5, "top": 11},
    },
)

_GRADES: Final = ("low", "middle", "high", "unused")
_LABELLED: Final = Table(
    "labelled",
    {
        **{name: _MIXED.columns[name] for name in ("age", "married", "grade", "region", "sick")},
        **{name: _EXACT.columns[name] for name in ("level", "zip")},
        "always": "'one'::text",
    },
    {**_MIXED.kinds, "level": "number", "zip": "text", "always": "text"},
    ("age", "married", "grade", "region", "level", "zip", "always"),
    attributes={
        "age": {"round": 5},
        "married": {"hierarchy": {"t": ["known"], "f": ["known"]}},
        "grade": {"hierarchy": {g: ["low" if g == "low" else "better", "any"] for g in _GRADES}},
        "region": {
            "hierarchy": {
                f"region {a}": [f"{'north' if a in 'adg' else 'south'}", "land", "*"]
                for a in "abcdefghi"
            }
        },
        "level": {"hierarchy": {f"{i}.0": ["few" if i < 2 else "many"] for i in range(7)}},
        "zip": {
            "hierarchy": {
                f"{i:0{n}}": [f"{i // 10:0{n - 1}}*", f"{n} digits"]
                for i in range(40)
                for n in (3, 4)
            }
        },
        "always": {"hierarchy": {"one": ["*"]}},
    },
)

TABLES: Final[dict[str, tuple[Table, str]]] = {
    "mixed": (_MIXED, "sick"),
    "exact": (_EXACT, "cost"),
    "sparse": (_SPARSE, "result"),
    "folded": (_FOLDED, "tag"),
    "coarse": (_COARSE, "sick"),
    "labelled": (_LABELLED, "sick"),
}
"""The tables with their sensitive attributes."""

_PRIVACY: Final = '{"default": 0.7, "null": 0.9}'
WAYS: Final[dict[str, tuple[str, dict[str, object]]]] = {
    "cells": ("buckets", {"privacy": _PRIVACY}),
    "random": ("buckets", {"privacy": _PRIVACY, "assignment": "random"}),
    "mondrian": ("generalized", {"k": 5, "method": "mondrian", "refine": False}),
    "classes": ("generalized", {"k": 3, "method": "greedy_search", "max_suppressed": "0.05"}),
    "freeform": ("freeform", {"k": 5, "options": '{"refine": false}'}),
    "suppressed": ("suppressed", {"k": 4}),
    "joined": ("suppressed", {"k": 4, "options": '{"left_over": "join"}'}),
}
"""How each table is published, under the name of the way and of the table."""
WITHOUT_SOME_VALUES: Final = {"classes", "suppressed", "joined"}
"""Ways that leave out records, or suppress cells: a value may be in none of the others."""


def make_schemas(publisher: Connection) -> None:
    """Create the schemas, and the types and functions of tables and questions."""
    fetch(publisher, f"CREATE SCHEMA {SCHEMA}")
    fetch(publisher, f"GRANT USAGE ON SCHEMA {SCHEMA} TO PUBLIC")
    fetch(publisher, f"CREATE SCHEMA {EXACT}")
    fetch(
        publisher,
        f"CREATE FUNCTION {EXACT}.added(float8, real) RETURNS float8 LANGUAGE sql IMMUTABLE"
        " AS 'SELECT coalesce($1 + $2, $1, $2)'",
    )
    fetch(publisher, f"CREATE AGGREGATE {EXACT}.sum(real) (SFUNC = {EXACT}.added, STYPE = float8)")
    fetch(publisher, f"CREATE TYPE {SCHEMA}.grade AS ENUM ('low', 'middle', 'high', 'unused')")


def make_tables(publisher: Connection, n_records: int) -> None:
    """Create and register the tables, each with so many records; the draws are always the same."""
    make_schemas(publisher)
    fetch(publisher, "SELECT setseed(0.15)")
    for table, sensitive in TABLES.values():
        columns = ", ".join(f"{value} AS {name}" for name, value in table.columns.items())
        fetch(
            publisher,
            f"CREATE TABLE {SCHEMA}.{table.name} AS SELECT {columns} FROM (SELECT i, u, w,"
            " least(0.999, (u + w + random()) / 3) AS s FROM (SELECT i, random() AS u,"
            f" random() AS w FROM generate_series(1, {n_records}) AS i) AS drawn) AS people",
        )
        Functions(publisher).register(
            f"{SCHEMA}.{table.name}",
            table.quasi_identifiers,
            sensitive,
            attributes=json.dumps(table.attributes),
            insensitive=table.insensitive,
        )


def ways_of(table: str) -> list[str]:
    """How a table is published: citext cannot be part of a set, nor a bin of buckets."""
    with_coarse = ("generalized", "freeform")
    kinds = {"folded": ("buckets", "suppressed"), "coarse": with_coarse, "labelled": with_coarse}
    return [way for way, (kind, _) in WAYS.items() if kind in kinds.get(table, (kind,))]


def publish(publisher: Connection, way: str, table: str) -> str:
    """Publish a table, unless it is published in that way; the name of the publication."""
    name = f"{way}_{table}"
    if name not in Functions(publisher).publications():
        kind, given = WAYS[way]
        Functions(publisher).call(f"publish_{kind}", f"{SCHEMA}.{table}", name, **given)
    return name


def publish_all(publisher: Connection, table: str) -> list[str]:
    """Publish a table in every way; the names of the publications."""
    return [publish(publisher, way, table) for way in ways_of(table)]
