"""kanon.surely and kanon.possibly, against the certain bounds that the estimator gives."""

from __future__ import annotations

import random
from dataclasses import dataclass

import psycopg
import pytest

from tests.integration.parties import Functions, Parties, create_table, fetch, value
from tests.profiles import examples

QUASI_IDENTIFIERS = ("age", "big", "pay", "born", "seen", "zoned", "sex")
TYPES = ("int", "bigint", "numeric", "date", "timestamp", "timestamptz", "text")
RANGES = ("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange")
N_RECORDS = 240


@pytest.fixture(scope="module", autouse=True)
def published(parties: Parties) -> None:
    """Every type of cell, with NULLs; cells are suppressed, and records left out."""
    draw = random.Random(8)  # noqa: S311  # made-up data
    rows = [
        (
            *(None if draw.random() < 0.15 else constant(draw, i) for i in range(6)),
            draw.choice(["f", "f", "m", "d", None]),
            draw.choice(["flu", "cold", "none"]),
        )
        for _ in range(N_RECORDS)
    ]
    names = [f"{n} {t}" for n, t in zip(QUASI_IDENTIFIERS, TYPES, strict=True)]
    create_table(parties.publisher, "data.cells", ", ".join([*names, "sick text"]), rows)
    kanon = Functions(parties.publisher)
    kanon.register("data.cells", list(QUASI_IDENTIFIERS), "sick")
    kanon.generalize("data.cells", "classes", k=3, method="k_member", refine=False)
    # Two are like nobody else, and are left out.
    alike = [(r[0] and str(int(r[0]) % 3), r[3], r[6], r[7]) for r in rows[2:]]
    alike += [("90", "2090-01-01", "x", "flu"), ("91", "2091-01-01", "y", "flu")]
    few = ", ".join([names[0], names[3], names[6], "sick text"])
    create_table(parties.publisher, "data.few", few, alike)
    kanon.register("data.few", ["age", "born", "sex"], "sick")
    kanon.suppress("data.few", "kept", k=4, patterns=["...", ".*.", ".**", "***"])


def constant(draw: random.Random, place: int) -> str:
    """A value of a column that has ranges, as a text."""
    day = f"2020-01-{draw.randrange(1, 13):02}"
    return [
        str(draw.randrange(12)),
        str(10**12 + draw.randrange(9)),
        str(draw.randrange(40) / 4),
        day,
        f"{day} 12:00:00",
        f"{day} 12:00:00+00",
    ][place]


@dataclass(frozen=True)
class Asked:
    """A condition for the estimator, and how its bounds are asked of each row."""

    condition: str
    surely: str
    possibly: str

    def negated(self) -> Asked:
        """What is surely not so is not even possibly so."""
        return Asked(f"NOT ({self.condition})", f"NOT ({self.possibly})", f"NOT ({self.surely})")

    def joined(self, operator: str, other: Asked) -> Asked:
        """AND or OR, with conditions on other columns."""
        return Asked(
            *(
                f"({one} {operator} {another})"
                for one, another in (
                    (self.condition, other.condition),
                    (self.surely, other.surely),
                    (self.possibly, other.possibly),
                )
            )
        )


def on_range(draw: random.Random, place: int) -> Asked:
    """A comparison with a constant, or with two."""
    column, type_, cells = QUASI_IDENTIFIERS[place], TYPES[place], RANGES[place]
    low, high = sorted((constant(draw, place) for _ in range(2)), key=lambda v: (len(v), v))
    match draw.randrange(4):
        case 0:
            condition, asked = f"{column} = '{low}'", f"{type_} '{low}'"
        case 1:
            if float(low) > float(high) if place < 3 else low > high:
                low, high = high, low
            condition = f"{column} BETWEEN '{low}' AND '{high}'"
            asked = f"{cells} '[{low},{high}]'"
        case 2:
            condition, asked = f"{column} < '{high}'", f"{cells} '(,{high})'"
        case _:
            condition, asked = f"{column} >= '{low}'", f"{cells} '[{low},)'"
    return of_cell(condition, f"{column}, {asked}")


def of_cell(condition: str, arguments: str) -> Asked:
    return Asked(condition, f"kanon.surely({arguments})", f"kanon.possibly({arguments})")


def on_set(draw: random.Random) -> Asked:
    wanted = draw.sample(["'f'", "'m'", "'d'", "'x'"], draw.randrange(1, 4))
    return of_cell(f"sex IN ({', '.join(wanted)})", f"sex, {', '.join(wanted)}")


def on_kept(draw: random.Random, place: int) -> Asked:
    column = ("age", "born", "sex")[place]
    compared = (
        draw.choice([f"{column} = '{constant(draw, 3 * place)}'", f"{column} IS NULL",
                     f"{column} > '{constant(draw, 3 * place)}'"])
        if place < 2
        else draw.choice(["sex = 'f'", "sex IN ('m', 'd')", "sex IS NOT NULL"])
    )  # fmt: skip
    return of_cell(compared, f"{compared}, pattern, {place + 1}")


def drawn(draw: random.Random, name: str) -> Asked:
    """A condition on one to three columns."""
    n_columns = 3 if name == "kept" else 7
    asked = None
    for place in draw.sample(range(n_columns), draw.randrange(1, 4)):
        if name == "kept":
            one = on_kept(draw, place)
        else:
            one = on_set(draw) if place == 6 else on_range(draw, place)
        if draw.random() < 0.3:
            one = one.negated()
        asked = one if asked is None else asked.joined(draw.choice(["AND", "OR"]), one)
    assert asked is not None
    return asked.negated() if draw.random() < 0.2 else asked


@pytest.mark.long
@pytest.mark.parametrize("name", ["classes", "graph", "kept"])
def test_they_count_the_certain_bounds(parties: Parties, name: str) -> None:
    if name == "graph":
        Functions(parties.publisher).freeform("data.cells", name, k=2)
    draw = random.Random(23)  # noqa: S311  # made-up questions
    left_out = N_RECORDS - value(parties.analyst, f"SELECT count(*) FROM published.{name}")
    widths = set()
    for _ in range(examples(160)):
        asked = drawn(draw, name)
        ((surely, possibly),) = fetch(
            parties.analyst,
            f"SELECT count(*) FILTER (WHERE {asked.surely}),"
            f" count(*) FILTER (WHERE {asked.possibly}) FROM published.{name}",
        )
        bounds = fetch(
            parties.analyst,
            "SELECT lower_bound, upper_bound FROM kanon.estimate_count($1::text)",
            f"SELECT COUNT(*) FROM {name} WHERE {asked.condition}",
        )
        assert bounds == [(surely, possibly + left_out)], asked
        widths.add(possibly - surely)
    assert len(widths) > 5


def test_the_tables_have_every_cell(parties: Parties) -> None:
    """NULL and ranges without bounds, sets with NULL; records that are left out."""
    ((null, anything, mixed),) = fetch(
        parties.analyst,
        "SELECT count(*) FILTER (WHERE age IS NULL), count(*) FILTER (WHERE lower_inf(age)),"
        " count(*) FILTER (WHERE array_position(sex, NULL) > 0 AND cardinality(sex) > 1)"
        " FROM published.classes",
    )
    assert min(null, anything, mixed) > 0
    ((null, suppressed, rows),) = fetch(
        parties.analyst,
        "SELECT count(*) FILTER (WHERE age IS NULL AND substr(pattern, 1, 1) = '.'),"
        " count(*) FILTER (WHERE pattern LIKE '%*%'), count(*) FROM published.kept",
    )
    assert min(null, suppressed) > 0
    assert rows < N_RECORDS


SINGLE: dict[str, tuple[bool | None, bool | None]] = {
    # Surely, and possibly
    "int4range '[3,4)', 3": (True, True),
    "int4range '[3,5)', 3": (False, True),
    "int4range '[3,5)', 5": (False, False),
    "int4range '(,)', 3": (False, True),
    "int4range '(,)', '(,)'": (False, True),
    "NULL::int4range, 3": (None, None),
    "int4range '[2147483646,2147483647)', 2147483647": (False, False),
    "numrange '[2.5,2.5]', 2.50": (True, True),
    "numrange '[1,2]', '[1,2)'": (False, True),
    "daterange '[infinity,infinity]', date 'infinity'": (True, True),
    "ARRAY['f'], 'f'": (True, True),
    "ARRAY['f', 'm'], 'f'": (False, True),
    "ARRAY['f', 'm'], 'm', 'f'": (True, True),
    "ARRAY['f', NULL], 'f'": (None, True),
    "ARRAY['m', NULL], 'f'": (False, None),
    "ARRAY[NULL]::text[], 'f'": (None, None),
    "ARRAY['f'], 'm', NULL": (None, None),
    "ARRAY['f', 'm'], VARIADIC ARRAY['f', 'm']": (True, True),
    "NULL::text[], 'f'": (None, None),
    "NULL, '*.', 1": (False, True),
    "NULL, '*.', 2": (None, None),
    "true, '*.', 2": (True, True),
}


def test_single_cells(parties: Parties) -> None:
    for call, expected in SINGLE.items():
        found = fetch(parties.analyst, f"SELECT kanon.surely({call}), kanon.possibly({call})")
        assert found == [expected], call
    # Lists are not taken for texts.
    with pytest.raises(psycopg.errors.UndefinedFunction):
        fetch(parties.analyst, "SELECT kanon.surely(sex, ARRAY['f', 'm']) FROM published.classes")


def test_they_are_inlined(parties: Parties) -> None:
    """The planner sees PostgreSQL's own operators, whose selectivity it can estimate."""
    plan = fetch(
        parties.analyst,
        "EXPLAIN SELECT FROM published.classes WHERE kanon.surely(age, 3)"
        " AND kanon.possibly(age, '[3,5]') AND kanon.possibly(sex, 'f', 'm')",
    )
    assert "kanon." not in str(plan)


@pytest.mark.pitfall(2)
def test_no_search_path_changes_what_they_mean(parties: Parties) -> None:
    """`kanon.surely` has no fixed one, so that it can be inlined; it looks up no names."""
    always = "RETURNS boolean LANGUAGE sql RETURN true"
    for statement in (
        "CREATE SCHEMA trap",
        f"CREATE FUNCTION trap.wrong(integer, int4range) {always}",
        "CREATE OPERATOR trap.<@ (LEFTARG = integer, RIGHTARG = int4range, FUNCTION = trap.wrong)",
        f"CREATE FUNCTION trap.lower_inf(int4range) {always}",
    ):
        fetch(parties.admin, statement)
    fetch(parties.admin, "SET search_path = trap, pg_catalog")
    try:
        assert value(parties.admin, "SELECT 7 <@ int4range '[3,4)'") is True  # the trap works
        found = fetch(
            parties.admin,
            "SELECT kanon.surely(int4range '[3,4)', 3), kanon.possibly(int4range '[3,4)', 7)",
        )
    finally:
        fetch(parties.admin, "RESET search_path")
    assert found == [(True, False)]
