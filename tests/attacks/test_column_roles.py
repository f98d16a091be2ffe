"""Columns show only what their role allows, and k rows of one person are not k people.

Each test is named after the finding that it keeps from coming back.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from kanon_db.errors import InUseError, InvalidParameterError
from kanon_db.publications.registry import KINDS
from tests.checks import NEEDED
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    columns_of,
    create_table,
    failed_checks,
    fetch,
    hearing,
    register_and_hear,
    remains,
    sqlstate_of,
    value,
)
from tests.profiles import long_but

pytestmark = pytest.mark.usefixtures("nothing_left")

INVALID = InvalidParameterError.sqlstate
ASKED: dict[str, dict[str, Any]] = {**NEEDED, "model": {**NEEDED["model"], "label": "sick"}}
COLUMNS = "visit int, patient text, age int, sex text, note text, ward text, sick text"

# One patient was there five times; all others came once, and are of other ages.
VISITS = [(i, "patient 0", 30, "f", f"note {i}", f"ward {i % 2}", "flu") for i in range(5)] + [
    (i, f"patient {i}", 40 + i % 20, "fm"[i % 2], f"note {i}", f"ward {i % 2}", f"d{i % 4}")
    for i in range(5, 65)
]


@pytest.fixture(scope="module", autouse=True)
def visits(parties: Parties) -> None:
    create_table(parties.publisher, "data.visits", COLUMNS, VISITS)


def register(parties: Parties, **given: object) -> None:
    Functions(parties.publisher).register("data.visits", ["age", "sex"], "sick", **given)


@pytest.mark.pitfall(24)
@pytest.mark.parametrize("kind", long_but({"buckets", "generalized"}, KINDS))
def test_a_column_without_a_role_is_published_by_no_kind(parties: Parties, kind: str) -> None:
    """A note on a patient was in clear in every publication of rows."""
    register(parties, insensitive=["ward"], identifiers=["patient"])
    publish = Functions(parties.publisher).call
    publish(f"publish_{kind}", "data.visits", "p", **ASKED.get(kind, {"k": 5}))
    shown = {
        column
        for suffix in KINDS[kind].load().suffixes
        for column in columns_of(parties.admin, f"published.p{suffix}")
    }
    assert not {"visit", "patient", "note"} & shown
    if kind == "model":
        asked = fetch(parties.admin, "SELECT column_name FROM published.p ORDER BY 1")
        assert asked == [("age",), ("sex",), ("sick",), ("ward",)]
        return
    assert ("ward" in shown) == (kind != "buckets")
    assert {"age", "sex", "sick"} <= shown


def test_an_insensitive_column_keeps_its_role_while_it_is_published(parties: Parties) -> None:
    """Neither it nor another column changes its role: readers could tell what was hidden before."""
    register(parties, insensitive=["ward"])
    Functions(parties.publisher).suppress("data.visits", "p", k=5)
    for given in (
        {},
        {"insensitive": ["ward", "note"]},
        {"insensitive": ["ward"], "entity": "patient"},
    ):
        assert sqlstate_of(lambda: register(parties, **given)) == InUseError.sqlstate
    register(parties, insensitive=["ward"])


@pytest.mark.pitfall(15)
@pytest.mark.parametrize("call", ["generalize", "suppress"])
def test_one_patient_with_k_rows_is_not_k_people(parties: Parties, call: str) -> None:
    """The five rows of one patient made a class of their own, which names the only disease."""
    register(parties, insensitive=["visit"], entity="patient")
    publish = getattr(Functions(parties.publisher), call)
    published = publish("data.visits", "p", k=5)
    assert "5 times, for as many different people" in published["guarantee"]
    assert people_of_classes(parties) >= 5
    # The state before: without the entity, the patient's rows are taken for five people.
    Functions(parties.publisher).drop("p")
    register(parties, insensitive=["visit"])
    published = publish("data.visits", "p", k=5)
    assert "people" not in published["guarantee"]
    assert people_of_classes(parties) == 1


def test_rows_of_k_people_that_are_nearly_all_of_one_are_warned_of(parties: Parties) -> None:
    """Of 99 rows of six people, 94 are a dialysis patient's, and everybody knows who comes often.

    The attribute has the name of what is counted.
    """
    often = "SELECT CASE WHEN i < 95 THEN 'often' ELSE 'p ' || i END AS patient, 30 AS n,"
    rows = "CASE WHEN i < 95 THEN 'kidney' ELSE 'flu' END AS sick FROM generate_series(1, 99) AS i"
    fetch(parties.publisher, f"CREATE OR REPLACE VIEW data.often AS {often} {rows}")
    kanon = Functions(parties.publisher)
    kanon.register("data.often", ["n"], "sick", entity="patient")
    with hearing(parties.publisher) as heard:
        kanon.generalize("data.often", "p", k=5)
    (line,) = [text for text in heard if "of one entity" in text]
    assert line.startswith("up to 95% of the rows with the same cells are of one entity")
    assert [bound for name, bound, *_ in kanon.attack("p") if "linking a row" in name] == [None] * 2
    # With as many rows of everybody there is nothing to say.
    kanon.drop("p")
    equal = "SELECT i % 20 AS patient, 30 AS n, 'flu' AS sick FROM generate_series(1, 99) AS i"
    fetch(parties.publisher, f"CREATE OR REPLACE VIEW data.seldom AS {equal}")
    kanon.register("data.seldom", ["n"], "sick", entity="patient")
    with hearing(parties.publisher) as heard:
        kanon.suppress("data.seldom", "p", k=5)
    assert not [text for text in heard if "of one entity" in text]


def people_of_classes(parties: Parties) -> int:
    """The fewest patients of rows that look the same."""
    patient_of = {visit: patient for visit, patient, *_ in VISITS}
    classes = defaultdict(set)
    for visit, row in fetch(
        parties.analyst, "SELECT visit, to_jsonb(p) - 'visit' - 'sick' FROM published.p AS p"
    ):
        classes[json.dumps(row)].add(patient_of[visit])
    return min(map(len, classes.values()))


@pytest.mark.pitfall(15)
def test_kinds_that_count_records_refuse_several_of_one_patient(parties: Parties) -> None:
    """Buckets and freeform rows refuse a table in which somebody has several records."""
    register(parties, entity="patient")
    kanon = Package(parties.publisher)
    once = "CREATE VIEW data.once AS SELECT DISTINCT ON (patient) * FROM data.visits"
    fetch(parties.publisher, once)
    kanon.register("data.once", ["age", "sex"], "sick", entity="patient")
    for kind in ("buckets", "freeform"):
        given = ASKED.get(kind, {"k": 5})
        with pytest.raises(InvalidParameterError, match="several records are about") as refused:
            kanon.call(f"publish_{kind}", "data.visits", "p", **given)
        assert '1 of 61 entities in column "patient" have several records' in refused.value.detail
        assert "patient 0" not in str(refused.value.detail)
        kanon.call(f"publish_{kind}", "data.once", kind, **given)


@pytest.mark.pitfall(15)
def test_a_record_of_nobody_is_refused(parties: Parties) -> None:
    """Rows whose patient is not known may all be one patient's."""
    kanon = Functions(parties.publisher)
    fetch(
        parties.publisher,
        "CREATE VIEW data.unknown AS SELECT DISTINCT ON (patient)"
        " nullif(patient, 'patient 7') AS patient, age, sex, sick FROM data.visits",
    )
    kanon.register("data.unknown", ["age", "sex"], "sick", entity="patient")
    for kind in KINDS:
        publish = lambda: kanon.call(
            f"publish_{kind}", "data.unknown", "p", **ASKED.get(kind, {"k": 5})
        )
        assert sqlstate_of(publish) == INVALID, kind


def test_rows_whose_patients_were_counted_cannot_be_changed_unseen(parties: Parties) -> None:
    """Readers cannot count patients, in no relation and no text; nor are rows changed unseen."""
    register(parties, entity="patient")
    Functions(parties.publisher).generalize("data.visits", "p", k=5)
    entry = value(parties.analyst, "SELECT to_jsonb(p)::text FROM kanon.publications AS p")
    verified = str(Functions(parties.analyst).verify("p"))
    assert "False" not in verified
    assert "patient" not in entry + verified
    assert "61" not in verified
    (rows,) = (name for name in remains(parties.admin) if name.endswith("_row"))
    fetch(parties.admin, f"UPDATE {rows} SET sick = 'flu' WHERE sick = 'd1'")
    fetch(parties.admin, "REFRESH MATERIALIZED VIEW published.p")
    assert sorted(failed_checks(parties.analyst, "p")) == [
        "the numbers of the cells are those of the rows",
        "the rows are those whose entities were counted when they were published",
    ]


def warned(parties: Parties, source: str, **given: object) -> list[str]:
    return register_and_hear(parties.publisher, source, ["age", "sex"], "sick", **given)


def test_an_identifier_that_recurs_may_be_whom_records_are_about(parties: Parties) -> None:
    """The patient's number was called an identifier: five rows of one passed for five people."""
    repeated = "SELECT v.* FROM data.visits AS v, generate_series(1, 2)"
    fetch(parties.publisher, f"CREATE OR REPLACE VIEW data.twice AS {repeated}")
    (line,) = warned(parties, "data.twice", identifiers=["patient"])
    assert line.startswith('identifier "patient" has recurring values (0% of them occur once)')
    assert warned(parties, "data.twice", entity="patient") == []
    assert warned(parties, "data.visits", identifiers=["visit"]) == []


def test_a_number_of_each_patient_is_nearly_unique_although_it_recurs(parties: Parties) -> None:
    """Of two rows with the same insensitive number, neither was unique, but the patient was."""
    repeated = "SELECT v.*, v.visit AS record FROM data.visits AS v, generate_series(1, 2)"
    fetch(parties.publisher, f"CREATE OR REPLACE VIEW data.recorded AS {repeated}")
    (line,) = warned(parties, "data.recorded", insensitive=["record"], entity="patient")
    assert line.startswith('insensitive column "record" is nearly unique (100% of its values are')


def test_unique_values_are_seen_in_json_and_among_nulls(parties: Parties) -> None:
    """Neither values that cannot be compared nor a few among many NULLs were looked at."""
    odd = "CREATE VIEW data.{} AS SELECT *, {} AS odd FROM data.visits"
    for name, unique in (("json", "to_json(visit)"), ("few", "CASE WHEN visit < 4 THEN visit END")):
        fetch(parties.publisher, odd.format(name, unique))
        (line,) = warned(parties, f"data.{name}", insensitive=["odd"])
        assert line.startswith('insensitive column "odd" is nearly unique (100% of its values')
