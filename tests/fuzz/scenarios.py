"""Tables, and ways to publish them, that follow from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from tests.integration.parties import Connection, Functions, fetch
from tests.meaning.tables import SCHEMA, Table

INCOMPARABLE: Final = "incomparable"
"""The kind of columns of which only NULL can be told."""

_TYPES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "smallint": ("number", ("floor({u} * {n})::smallint", "(floor({u} * {n}) - 5)::smallint")),
    "int": ("number", ("floor({u} * {n})::int", "(floor({u} * {n}) * 1000 - 7000)::int")),
    "bigint": ("number", ("(3000000000 + floor({u} * {n}))::int8", "-floor({u} * {n})::int8",
                          "(1500000000000 + floor({u} * {n}) * 86400000)::int8")),
    "numeric": ("number", ("round(({u} * {n})::numeric, 2)", "floor({u} * {n})::numeric(6, 1)",
                           "round(({u} * {n} / 7)::numeric, 9)")),
    "real": ("number", ("(floor({u} * {n}) / 10)::real", "({u} * {n})::real",
                        "(floor({u} * {n}) / 7)::real")),
    "float8": ("number", ("floor({u} * {n}) / 10", "({u} - 0.5) * {n}", "1.1 * floor({u} * {n})")),
    "odd float8": ("number", ("CASE WHEN {u} > 0.9 THEN float8 'NaN' ELSE floor({u} * {n}) END",
                              "CASE WHEN {u} > 0.9 THEN float8 'Infinity' ELSE {u} END",
                              "floor({u} * {n}) * 1e300")),
    "odd real": ("number", ("CASE WHEN {u} > 0.9 THEN real 'NaN' ELSE ({u} * {n})::real END",
                            ("CASE WHEN {u} < 0.1 THEN real '-Infinity' ELSE (0.1 * {n})::real"
                            " END"))),
    "date": ("moment", ("date '1990-01-01' + floor({u} * {n})::int",
                        "date '1990-01-01' + 31 * floor({u} * {n})::int")),
    "timestamp": ("moment", ("timestamp '2020-01-01' + floor({u} * {n}) * interval '7 hours'",)),
    "timestamptz": ("moment",
                    ("timestamptz '2021-03-01 12:00+01' + floor({u} * {n}) * interval '1 day'",)),
    "text": ("text", ("'value ' || floor({u} * {n})", "chr(97 + floor({u} * least({n}, 26))::int)",
                      "(ARRAY['x', 'X', 'x ', '', 'é', 'it''s', 'a%b'])[1 + floor({u} * 7)::int]")),
    "varchar": ("text", ("('c' || floor({u} * {n}))::varchar(9)",)),
    "char": ("text", ("lpad(floor({u} * {n})::int::text, 3, '0')::char(5)",)),
    "boolean": ("boolean", ("{u} > 0.5", "{u} > 0.95")),
    "enum": ("enum", ((f"(ARRAY['low', 'middle', 'high'])[1 + floor({{u}} * 3)::int]"
                      f"::{SCHEMA}.grade"),)),
    "uuid": ("other", ("md5(floor({u} * {n})::text)::uuid",)),
    "inet": ("other", ("inet '10.0.0.0' + floor({u} * {n})::int",)),
    "time": ("other", ("time '06:00' + floor({u} * {n}) * interval '11 minutes'",)),
    "interval": ("other", ("floor({u} * {n}) * interval '1 day'",)),
    "bytea": ("other", ("decode(md5(floor({u} * {n})::text), 'hex')",)),
    "jsonb": ("other", ("jsonb_build_object('n', floor({u} * {n}))",)),
    "json": (INCOMPARABLE, ("json_build_object('n', floor({u} * {n}))",)),
    "point": (INCOMPARABLE, ("point({u}, 1)",)),
}  # fmt: skip
"""Each type with what the grammar does with it, and values of ``{u}``, of about ``{n}`` kinds."""

_AXES: Final = ("u", "w", "s", "power(u, 3)", "power(w, 4)", "random()", "least(0.999, (u+s)/2)")
_KIND_OF_ROLE: Final = ("number", "moment", "text", "boolean", "enum", "other")


@dataclass(frozen=True)
class Scenario:
    """A table, how it is registered and published, and who is true to it.

    Attributes
    ----------
    setup : list of str
        The statements that make the table.
    truth : str
        The relation of the records that the publication is about.
    lists_all : bool
        Whether every group is listed.
    """

    seed: int
    kind: str
    table: Table
    sensitive: str
    setup: list[str]
    truth: str
    registered: dict[str, Any]
    published: dict[str, Any]
    more: list[str] = field(default_factory=list)

    @property
    def lists_all(self) -> bool:
        """Whether all values are published: no cell is suppressed, no record left out."""
        return self.kind in ("buckets", "freeform") or (
            self.kind == "generalized" and "max_suppressed" not in self.published
        )

    @property
    def name(self) -> str:
        """The name of the publication."""
        return f"fuzz_{self.seed}_p"

    def described(self) -> str:
        """Write all that is needed to see it again."""
        given = ", ".join(f"{key} => {value!r}" for key, value in self.published.items())
        return "\n".join([
            *(f"{statement};" for statement in self.setup),
            f"-- register {json.dumps(self.registered)}",
            f"-- publish_{self.kind}({given})",
            *(f"{statement};  -- then refresh" for statement in self.more),
        ])  # fmt: skip


def draw_scenario(seed: int, n_records: int | None = None) -> Scenario:
    """Draw a scenario; the same seed gives the same one."""
    draw = random.Random(seed)  # noqa: S311  # to be drawn again
    kind = draw.choice(["buckets", "buckets", "generalized", "generalized", "freeform",
                        "suppressed", "suppressed"])  # fmt: skip
    n = draw.choice([12, 40, 90, 150])
    n = n if n_records is None else n_records
    name = f"{SCHEMA}.fuzz_{seed}"
    columns: dict[str, str] = {}
    kinds: dict[str, str] = {}

    def column(types: Sequence[str], share: float | None = None) -> str:
        type_ = draw.choice(types)
        of_kind, forms = _TYPES[type_]
        own = f"c{len(columns)}"
        value = draw.choice(forms).format(
            u=f"({draw.choice(_AXES)})", n=draw.choice([2, 3, 6, 11, 40, 300])
        )
        nulls = draw.choice([0, 0, 0.05, 0.3, 0.9]) if share is None else share
        columns[own] = f"CASE WHEN random() >= {nulls} THEN {value} END" if nulls else value
        if type_ == "char":  # CASE loses its length
            columns[own] = f"({columns[own]})::char(5)"
        kinds[own] = of_kind
        return own

    comparable = [type_ for type_, (of_kind, _) in _TYPES.items() if of_kind != INCOMPARABLE]
    quasi = [column(comparable) for _ in range(draw.choice([1, 2, 2, 3, 4]))]
    sensitive = column([t for t in comparable if not t.startswith("odd")], 0)
    also, insensitive, attributes = [], [], {}
    if kind == "buckets":
        if draw.random() < 0.3:
            also = [column(["int", "text", "boolean", "real", "enum"], 0)]
    else:
        numbers = ["smallint", "numeric", "real", "real", "float8", "odd real", "odd float8"]
        insensitive = [column([*_TYPES, *numbers]) for _ in range(draw.choice([1, 1, 2, 3]))]
        if kind in ("generalized", "freeform"):
            attributes = {one: given for one in quasi if (given := _coarse(draw, columns[one]))}
    entity = keep = None
    setup, truth = [], name
    drawn = f"SELECT setseed({(seed % 1999 - 999) / 1000})"
    listed = ", ".join(f"{value} AS {own}" for own, value in columns.items())
    extra = ""
    if draw.random() < 0.25:
        entity = "who"
        if draw.random() < 0.7:
            keep = draw.choice(["latest by seq", "first by seq"])
            extra = ", 1 + i * 7 % greatest(1, n / 2) AS who, i AS seq"
        else:
            extra = ", i AS who, i AS seq"
    setup.append(drawn)
    setup.append(
        f"CREATE TABLE {name} AS SELECT {listed}{extra} FROM (SELECT i, n, u, w,"
        " least(0.999, (u + w + random()) / 3) AS s FROM (SELECT i, random() AS u, random() AS w,"
        f" {n} AS n FROM generate_series(1, {n}) AS i) AS drawn) AS people"
    )
    if keep is not None:
        order = "seq DESC" if keep.startswith("latest") else "seq"
        truth = f"{name}_kept"
        setup.append(
            f"CREATE VIEW {truth} AS SELECT DISTINCT ON (who) * FROM {name} ORDER BY who, {order}"
        )
    registered: dict[str, Any] = {
        "quasi_identifiers": quasi, "sensitive": sensitive, "insensitive": insensitive,
        "also_sensitive": also, "attributes": json.dumps(attributes), "entity": entity,
        "keep": keep, "arrival": None,
    }  # fmt: skip
    published = _ways(draw, kind, has_several=bool(also))
    more = []
    if kind == "buckets" and entity and keep is None and not also and draw.random() < 0.7:
        registered["arrival"] = "seq"
        later = extra.replace("i AS", "i + 100000 AS")
        more = [
            drawn,
            (
                f"INSERT INTO {name} SELECT {listed}{later} FROM (SELECT i, n, u, w,"
                " least(0.999, (u + w + random()) / 3) AS s FROM (SELECT i, random() AS u, random()"
                f" AS w, {n} AS n FROM generate_series(1, {n}) AS i) AS drawn) AS people"
            ),
        ]
    table = Table(f"fuzz_{seed}", columns, kinds, (*quasi, *insensitive, *also))
    return Scenario(seed, kind, table, sensitive, setup, truth, registered, published, more)


def _coarse(draw: random.Random, value: str) -> dict[str, Any]:
    """Draw how a quasi-identifier is coarsened, if it is."""
    if draw.random() < 0.65 or "NaN" in value or "Infinity" in value or "1e300" in value:
        return {}
    if "::int" in value.split("END")[0][-20:] and "date" not in value and "::inet" not in value:
        return draw.choice([{"kind": "categorical"}, {"round": 5}, {"top": 20}, {"bottom": 3}])
    if value.startswith(("date", "timestamp '")):
        return draw.choice([{"round": "month"}, {"round": "year"}])
    return {}


def _ways(draw: random.Random, kind: str, *, has_several: bool) -> dict[str, Any]:
    match kind:
        case "buckets":
            given: dict[str, Any] = {"privacy": '{"default": 0.7, "null": 0.9}'}
            given["assignment"] = draw.choice(["cells", "random"])
            if not has_several:
                given["method"] = draw.choice(["two_size", "multi_size", "optimal"])
            if draw.random() < 0.3:
                given["estimates"] = "paper"
            return given
        case "generalized":
            given = {"k": draw.choice([2, 3, 5]), "refine": draw.random() < 0.3}
            given["method"] = draw.choice(["mondrian", "greedy_search", "k_member", "auto"])
            if draw.random() < 0.3:
                given["max_suppressed"] = "0.1"
            return given
        case "freeform":
            method = draw.choice(["sort_greedy", "greedy", "ring"])
            return {"k": draw.choice([2, 3, 5]), "method": method}
    given = {"k": draw.choice([2, 4])}
    if draw.random() < 0.3:
        given["options"] = '{"left_over": "join"}'
    return given


def make(publisher: Connection, scenario: Scenario) -> str | None:
    """Make the table, and publish it; the reason if it is refused."""
    functions = Functions(publisher)
    for statement in scenario.setup:
        fetch(publisher, statement)
    relation = f"{SCHEMA}.{scenario.table.name}"
    try:
        functions.register(relation, **scenario.registered)
        functions.call(
            f"publish_{scenario.kind}", relation, scenario.name,
            **scenario.published,
        )  # fmt: skip
        if scenario.more:
            for statement in scenario.more:
                fetch(publisher, statement)
            functions.call("refresh", scenario.name)
            ((n_waiting,),) = fetch(
                publisher,
                f"SELECT (SELECT count(*) FROM {relation}) - rows FROM kanon.publications"
                " WHERE name = $1",
                scenario.name,
            )
            if n_waiting:
                return "some wait"
    except psycopg.Error as error:
        if (error.sqlstate or "").startswith("KN000") or not error.diag.message_hint:
            raise
        return str(error.diag.message_primary)
    return None


def forget(publisher: Connection, scenario: Scenario) -> None:
    """Drop a scenario's publication and table."""
    functions = Functions(publisher)
    if scenario.name in functions.publications():
        functions.drop(scenario.name)
    relation = f"{SCHEMA}.{scenario.table.name}"
    fetch(publisher, f"DROP TABLE IF EXISTS {relation} CASCADE")
