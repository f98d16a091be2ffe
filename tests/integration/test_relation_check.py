"""`check_relation` says of any relation what its rows say: in counts, with the caller's rights."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import kanon_db
from kanon_db.errors import KanonError
from tests.acceptance.commands import kanon as command
from tests.integration.parties import (
    Functions,
    Parties,
    create_table,
    fetch,
    sqlstate_of,
    value,
)

Row = tuple[Any, ...]
FORBIDDEN, INVALID, WRONG_TYPE, INFEASIBLE = "42501", "22023", "42804", "KN002"
COLUMNS = "age text, place text, sick text, person int, weight numeric"
HIDDEN = "unspeakable"


def people(seed: int, n: int = 90) -> list[Row]:
    """Rows as any tool may have made them: NULL, empty texts, markers, ranges and sets."""
    draw = np.random.default_rng(seed)
    ages = [None, "", "*", "[20,30)", "25", "NULL", '(,"")']
    places = [None, "*", "{a,b}", "a"]
    sick = [None, "flu", "cold", HIDDEN, "flu"]
    return [
        (
            ages[draw.integers(len(ages))], places[draw.integers(len(places))],
            sick[draw.integers(len(sick))], int(draw.integers(n // 2)),
            float(draw.integers(1, 60)) / 4,
        )
        for _ in range(n)
    ]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def relations(parties: Parties) -> None:
    for seed in range(3):
        create_table(parties.publisher, f"data.others_{seed}", COLUMNS, people(seed))
    fetch(parties.publisher, "CREATE VIEW data.seen AS SELECT * FROM data.others_0")
    fetch(parties.publisher, f'GRANT USAGE ON SCHEMA data TO "{parties.analyst.info.user}"')


def expected(
    rows: Sequence[Row], *, is_of_people: bool, k: int, l: int, t: Fraction
) -> dict[str, tuple[float, int | None, int | None]]:
    """The same in plain Python: of each measure its value, and the classes and records beyond."""
    classes: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        classes[row[:2]].append(row)

    def size(some: Sequence[Row]) -> int:
        return len({row[3] for row in some}) if is_of_people else len(some)

    def beyond(violates: Any) -> tuple[int, int]:
        those = [some for some in classes.values() if violates(some)]
        return len(those), sum(map(size, those))

    def distinct(some: Sequence[Row]) -> int:
        return len({row[2] for row in some} - {None})

    def frequent(some: Sequence[Row]) -> Fraction:
        of_value = [[row for row in some if row[2] == one] for one in {row[2] for row in some}]
        return Fraction(max(map(size, of_value)), size(some))

    everywhere = Counter(row[2] for row in rows)

    def distance(some: Sequence[Row]) -> Fraction:
        here = Counter(row[2] for row in some)
        return sum(
            (abs(Fraction(here[v], len(some)) - Fraction(everywhere[v], len(rows)))
             for v in everywhere), Fraction(0),
        ) / 2  # fmt: skip

    sizes = [size(some) for some in classes.values()]
    n, alone = sum(sizes), sizes.count(1)
    return {
        "people" if is_of_people else "records": (n, None, None),
        "classes": (len(sizes), None, None),
        "smallest class (k)": (min(sizes), *beyond(lambda some: size(some) < k)),
        "share of unique records": (alone / n, alone, alone),
        "prosecutor risk, highest": (1 / min(sizes), None, None),
        "prosecutor risk, average": (len(sizes) / n, None, None),
        "marketer risk": (len(sizes) / n, None, None),
        "distinct values of sick (l)": (
            min(map(distinct, classes.values())), *beyond(lambda some: distinct(some) < l),
        ),
        "1 / share of the most frequent sick (l)": (
            float(min(1 / frequent(some) for some in classes.values())),
            *beyond(lambda some: frequent(some) * l > 1),
        ),
        "distance of sick (t)": (
            float(max(map(distance, classes.values()))), *beyond(lambda some: distance(some) > t),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_of_people", [False, True], ids=["rows", "people"])
def test_measures_are_those_of_the_rows(parties: Parties, seed: int, is_of_people: bool) -> None:
    rows = people(seed)
    given = {"entity": "person"} if is_of_people else {}
    found = Functions(parties.publisher).rows(
        "check_relation", f"data.others_{seed}", quasi_identifiers=["age", "place"],
        sensitive=["sick"], k=4, l=2, t="0.35", **given,
    )  # fmt: skip
    by_name = {row["measure"]: row for row in found}
    wanted = expected(rows, is_of_people=is_of_people, k=4, l=2, t=Fraction("0.35"))
    for name, (measured, classes, records) in wanted.items():
        row = by_name.pop(name)
        assert row["value"] == pytest.approx(measured, rel=1e-12), name
        assert (row["classes"], row["records"]) == (classes, records), name
        assert row["holds"] == (None if row["bound"] is None else classes == 0)
    assert all(name.startswith("classes of ") for name in by_name)
    assert sum(row["classes"] for row in by_name.values()) == wanted["classes"][0]
    total = wanted["people" if is_of_people else "records"][0]
    assert sum(row["records"] for row in by_name.values()) == total


def test_weights_stand_for_the_population(parties: Parties) -> None:
    rows = people(0)
    found = Functions(parties.publisher).rows(
        "check_relation", "data.seen", quasi_identifiers=["age", "place"], survey_weight="weight"
    )
    risk = {row["measure"]: row["value"] for row in found}
    classes: dict[Row, list[float]] = defaultdict(list)
    for row in rows:
        classes[row[:2]].append(row[4])
    population = {key: max(sum(some), len(some)) for key, some in classes.items()}
    to_population = sum(len(classes[key]) / population[key] for key in classes) / len(rows)
    assert risk["journalist risk, highest, by weights"] == 1 / min(population.values())
    assert risk["marketer risk, by weights"] == pytest.approx(to_population)
    assert risk["journalist risk, average, by weights"] == pytest.approx(
        max(to_population, len(classes) / sum(population.values()))
    )
    assert "marketer risk" not in risk


def test_without_bounds_nothing_is_judged(parties: Parties) -> None:
    found = Functions(parties.publisher).rows(
        "check_relation", "data.others_0", quasi_identifiers=["age"], sensitive=["sick", "place"]
    )
    assert {row["holds"] for row in found} == {None}
    assert {row["bound"] for row in found} == {None}


def test_any_reader_may_check_and_nobody_else(parties: Parties) -> None:
    """It is the caller's own SELECT: on the columns named, of all rows, and of no superuser's."""
    analyst, user = Functions(parties.analyst), parties.analyst.info.user
    ask = lambda *names: analyst.rows(
        "check_relation", "data.others_1", quasi_identifiers=list(names)
    )
    assert sqlstate_of(lambda: ask("age")) == FORBIDDEN
    fetch(parties.publisher, f'GRANT SELECT (age, place) ON data.others_1 TO "{user}"')
    assert ask("age", "place")
    assert sqlstate_of(lambda: ask("age", "sick")) == FORBIDDEN
    fetch(parties.publisher, "CREATE TABLE data.hidden AS SELECT * FROM data.others_1")
    fetch(parties.publisher, f'GRANT SELECT ON data.hidden TO "{user}"')
    fetch(parties.publisher, "ALTER TABLE data.hidden ENABLE ROW LEVEL SECURITY")
    fetch(parties.publisher, "CREATE POLICY few ON data.hidden USING (age = '25')")
    call = lambda who: Functions(who).rows(
        "check_relation", "data.hidden", quasi_identifiers=["age"]
    )
    assert sqlstate_of(lambda: call(parties.analyst)) == FORBIDDEN
    assert sqlstate_of(lambda: call(parties.admin)) == FORBIDDEN
    assert call(parties.publisher)
    assert sqlstate_of(lambda: call(parties.stranger)) == FORBIDDEN


REFUSED = {
    "no column": ({"quasi_identifiers": ["age", "plac"]}, INVALID),
    "two roles": ({"quasi_identifiers": ["age"], "sensitive": ["age"]}, INVALID),
    "twice": ({"quasi_identifiers": ["age", "age"]}, INVALID),
    "nothing known": ({"quasi_identifiers": []}, INVALID),
    "nothing sensitive": ({"quasi_identifiers": ["age"], "l": 2}, INVALID),
    "texts as weights": ({"quasi_identifiers": ["age"], "survey_weight": "sick"}, WRONG_TYPE),
    "k of none": ({"quasi_identifiers": ["age"], "k": 0}, INVALID),
    "t above one": ({"quasi_identifiers": ["age"], "sensitive": ["sick"], "t": "1.1"}, INVALID),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(parties: Parties, name: str) -> None:
    given, state = REFUSED[name]
    call = lambda: Functions(parties.publisher).rows("check_relation", "data.others_0", **given)
    assert sqlstate_of(call) == state


def test_missing_weights_and_people_are_refused_and_counted(parties: Parties) -> None:
    fetch(parties.publisher, "CREATE TABLE data.gaps AS SELECT * FROM data.others_0")
    fetch(parties.publisher, "UPDATE data.gaps SET weight = 'NaN', person = NULL WHERE age = '*'")
    n = value(parties.publisher, "SELECT count(*) FROM data.gaps WHERE age = '*'")
    with kanon_db.connect(parties.publisher.info.dsn) as kanon:
        for column, said in (("survey_weight", "a weight above 0"), ("entity", "an entity")):
            name = "weight" if column == "survey_weight" else "person"
            with pytest.raises(KanonError, match=f"some rows have not {said}") as refused:
                kanon.check_relation("data.gaps", quasi_identifiers=["place"], **{column: name})
            assert refused.value.detail == f"{n} of 90 rows"
    fetch(parties.publisher, "CREATE TABLE data.nobody AS SELECT * FROM data.gaps WHERE false")
    call = lambda: Functions(parties.publisher).rows(
        "check_relation", "data.nobody", quasi_identifiers=["age"]
    )
    assert sqlstate_of(call) == INFEASIBLE


def test_cells_are_compared_as_they_are_written(parties: Parties) -> None:
    """Also where the type says that they are equal, or cannot say it at all."""
    fetch(
        parties.publisher,
        "CREATE TABLE data.odd AS SELECT * FROM (VALUES"
        " (1.0, '{\"a\": 1}'::json, int4range(1, 3)), (1.00, '{\"a\":  1}', '[1,2]'))"
        " AS s (number, document, range)",
    )
    for column, n in (("number", 2), ("document", 2), ("range", 1)):
        found = Functions(parties.publisher).rows(
            "check_relation", "data.odd", quasi_identifiers=[column]
        )
        (classes,) = (row["value"] for row in found if row["measure"] == "classes")
        assert classes == n, column


def test_a_failing_view_quotes_no_value(parties: Parties) -> None:
    fetch(
        parties.publisher,
        "CREATE VIEW data.failing AS SELECT sick::int AS sick, age FROM data.others_0",
    )
    with kanon_db.connect(parties.publisher.info.dsn) as kanon, pytest.raises(KanonError) as error:
        kanon.check_relation("data.failing", quasi_identifiers=["sick"])
    told = f"{error.value.message} {error.value.detail} {error.value.hint}"
    assert not [word for word in ("flu", "cold", HIDDEN) if word in told]


def test_it_reads_only(parties: Parties) -> None:
    with parties.publisher.transaction():
        fetch(parties.publisher, "SET TRANSACTION READ ONLY")
        assert Functions(parties.publisher).rows(
            "check_relation", "data.seen", quasi_identifiers=["age"], sensitive=["sick"]
        )


def test_the_command_fails_where_a_bound_does(parties: Parties) -> None:
    dsn = parties.publisher.info.dsn
    words = ("check", "data.others_0", "--quasi-identifiers", "age,place", "--sensitive", "sick")
    assert command(*words, dsn=dsn).returncode == 0
    assert command(*words, "--k", "1", dsn=dsn).returncode == 0
    done = command(*words, "--k", "50", "--t", "1", dsn=dsn)
    assert done.returncode == 1
    assert "smallest class (k)" in done.stdout
    assert HIDDEN not in done.stdout
    found = json.loads(command(*words, "--json", dsn=dsn).stdout)["measures"]
    assert found[0] == {
        "measure": "records", "value": 90, "bound": None, "classes": None, "records": None,
        "holds": None,
    }  # fmt: skip
