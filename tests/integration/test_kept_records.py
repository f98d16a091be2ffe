"""Publishing one record of each person, which a rule chooses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import product
from typing import Any

import psycopg
import pytest

from kanon_db.interfaces.python import Kanon
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.growing import Source
from tests.integration.parties import (
    KINDS,
    Functions,
    Package,
    Parties,
    create_table,
    fetch,
    hearing,
    holds,
    quoted,
    sqlstate_of,
    value,
)
from tests.profiles import long_but

INVALID, UNKNOWN, MISMATCH, DENIED, IN_USE = "22023", "42704", "42804", "42501", "55006"
COLUMNS = "stay int, patient int, admission date, age int, sex text, sick text, cost numeric(8,2)"
FIRST = date(2025, 1, 1)

# 90 patients have one to four stays, each at another age, day and cost, at times with another
# disease. Some days of a patient are the same.
STAYS = [
    (stay, patient, FIRST + timedelta(days=stay * 37 % 300 // 150 * (1 + patient % 3)),
     20 + patient * 7 % 40 + stay % 3, "fm"[patient % 2], f"d{(patient + stay % 2) % 6}",
     100 * (stay % 17))
    for stay, patient in enumerate(
        patient for patient in range(90) for _ in range(1 + patient * patient % 4)
    )
]  # fmt: skip
OF_PATIENT: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
for row in STAYS:
    OF_PATIENT[row[1]].append(row)
N_PATIENTS = len(OF_PATIENT)

ROLES: dict[str, Any] = {
    "quasi_identifiers": ["age", "sex"], "sensitive": "sick", "insensitive": ["stay", "cost"],
    "entity": "patient",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def stays(parties: Parties) -> None:
    create_table(parties.publisher, "data.stays", COLUMNS, STAYS)


@pytest.fixture
def kanon(parties: Parties) -> Iterator[Functions]:
    functions = Functions(parties.publisher)
    yield functions
    for name in functions.publications():
        functions.drop(name)


def register(kanon: Functions | Package, keep: str | None, **given: Any) -> None:
    kanon.register("data.stays", **{**ROLES, "keep": keep, **given})


def published(parties: Parties, name: str = "p") -> list[tuple[Any, ...]]:
    """The stays that are published, with what stands in them."""
    return fetch(parties.publisher, f"SELECT stay, sick, cost FROM published.{name} ORDER BY stay")


def chosen(key: Any) -> list[int]:
    """The stays that a rule without ties chooses."""
    return sorted(max(rows, key=key)[0] for rows in OF_PATIENT.values())


RULES: dict[str, str | None] = {
    "latest by admission": None,
    "FIRST  by admission": None,
    'earliest by "admission"': None,
    "latest": None,
    "first": None,
    "random": None,
    "random, max of cost": None,
    "latest by age, max of cost, count of stay, mean of age": None,
    "latest by stay, max of sick": None,  # it is what is protected
    "": INVALID,
    " , ": INVALID,
    "latest by admission,": INVALID,
    "latest by": INVALID,
    "latest of admission": INVALID,
    "latest admission": INVALID,
    "latest by admission desc": INVALID,
    "latest by admission, stay": INVALID,
    "random by admission": INVALID,
    "newest by admission": INVALID,
    "last": INVALID,
    "latest by admission; DROP TABLE data.stays": INVALID,
    'latest by "admission" DESC, (SELECT 1)': INVALID,
    'latest by "admission"" DESC --"': UNKNOWN,
    "latest by admission)": UNKNOWN,
    "latest by admission'": UNKNOWN,
    'latest by "admission': INVALID,
    'latest by ""': INVALID,
    "latest by admision": UNKNOWN,
    "latest by Admission": UNKNOWN,
    "latest by ctid": UNKNOWN,
    "latest by sick": INVALID,
    "latest by patient": INVALID,
    "random, max of cost, min of cost": INVALID,
    "random, median of cost": INVALID,
    "random, max by cost": INVALID,
    "random, max of patient": INVALID,
    "random, max of admission": INVALID,  # which is not published
    "random, sum of sick": MISMATCH,
    "random, count of sick": MISMATCH,
    "random, max of costs": UNKNOWN,
    "random, max(cost) of cost": INVALID,
}
"""Rules, and the SQLSTATE of their refusal."""


@pytest.mark.parametrize("way", [Functions, Package])
def test_rules(parties: Parties, way: type[Functions | Package]) -> None:
    kanon = way(parties.publisher)
    for rule, sqlstate in RULES.items():
        found = sqlstate_of(lambda rule=rule: register(kanon, rule, arrival="admission"))
        assert found == sqlstate, rule
    assert sqlstate_of(lambda: register(kanon, "latest")) == INVALID  # there is no arrival
    assert sqlstate_of(lambda: register(kanon, "random", entity=None)) == INVALID
    register(kanon, 'Earliest  by "admission" ,MAX of "cost"')
    assert value(parties.publisher, "SELECT keep FROM kanon.source") == (
        "first by admission, max of cost"
    )


def test_types_and_names(kanon: Functions, parties: Parties) -> None:
    """Columns have to have an order; their names may be anything."""
    fetch(parties.publisher, "CREATE TYPE data.mood AS ENUM ('well', 'ill')")
    columns = 'who int, notes json, flag boolean, mood data.mood, "a ""b"", c" int, age int'
    rows = [(i // 2, "{}", i % 2, "well", i, 30) for i in range(8)]
    create_table(parties.publisher, "data.odd", columns, rows)
    roles: dict[str, Any] = {
        "quasi_identifiers": ["age"],
        "sensitive": None,
        "insensitive": ["flag", "mood", 'a "b", c'],
        "entity": "who",
    }
    for rule, sqlstate in {
        "latest by notes": MISMATCH,
        "latest by mood": MISMATCH,  # the order of whose type is somebody's
        "latest by flag": None,
        "latest by age, max of flag": MISMATCH,  # there is no max of boolean
        "latest by age, max of mood": MISMATCH,
        'latest by "a ""b"", c", sum of "a ""b"", c"': None,
    }.items():
        given = {**roles, "keep": rule}
        assert sqlstate_of(lambda given=given: kanon.register("data.odd", **given)) == sqlstate
    found = kanon.generalize("data.odd", "p", k=4)
    assert (found["records"], 'the latest by a "b", c' in found["guarantee"]) == (4, True)
    name = quoted('a "b", c')
    sums = fetch(parties.publisher, f"SELECT {name} FROM published.p ORDER BY 1")
    assert sums == [(1,), (5,), (9,), (13,)]


def test_every_kind_publishes_kept_records(kanon: Functions, parties: Parties) -> None:
    register(kanon, "latest by stay", insensitive=["stay", "cost"])
    expected = chosen(lambda row: row[0])
    of_stay = {row[0]: row for row in STAYS}
    for kind in KINDS:
        with hearing(parties.publisher) as heard:
            draft = kanon.of_kind(kind, "data.stays", "p", dry_run=True)
            found = kanon.of_kind(kind, "data.stays", "p")
        told = f"{len(STAYS) - N_PATIENTS} of {len(STAYS)} rows are not published"
        assert sum(told in line for line in heard) == 2
        left_out = found["metrics"].get("suppressed_records", 0)
        assert found["records"] + left_out == draft["records"] + left_out == N_PATIENTS
        assert "each person is published with one record, the latest by stay" in found["guarantee"]
        if kind == "buckets":
            values = fetch(parties.publisher, "SELECT sick, sum(count)::int FROM published.p_sat"
                           " GROUP BY sick")  # fmt: skip
            assert dict(values) == Counter(of_stay[stay][5] for stay in expected)
            assert all(row[-1] is not None for row in kanon.evaluate("p", queries=20))
        else:
            rows = published(parties)
            assert {row[0] for row in rows} <= set(expected)
            assert len(rows) == N_PATIENTS - left_out
            assert all((sick, cost) == of_stay[stay][5:] for stay, sick, cost in rows)
        assert holds(parties.publisher, "p")
        assert all(rate is None or 0 <= rate <= 1 for *_, rate, _ in kanon.attack("p"))
        parameters, use = fetch(
            parties.publisher,
            "SELECT parameters, obj_description('published.p'::regclass) FROM kanon.publications",
        )[0]
        assert parameters["kept"] == "the latest by stay"
        assert parameters["not_kept"] == len(STAYS) - N_PATIENTS
        note = "These are kept records: each person has one, the latest by stay; "
        assert (
            f"{note}{len(STAYS) - N_PATIENTS} records of the same people are not published." in use
        )
        kanon.drop("p")


def kept_of(kanon: Functions, parties: Parties, keep: str, **given: Any) -> list[tuple[Any, ...]]:
    """The stays that are kept, with what stands in them."""
    register(kanon, keep, **given)
    kanon.suppress("data.stays", "p", k=2, options='{"left_over": "publish"}', accept=LEFT_OVER)
    found = published(parties)
    kanon.drop("p")
    return found


LEFT_OVER = '{"left_over_records": "it is a test"}'


@pytest.mark.long
def test_which_records_are_kept(kanon: Functions, parties: Parties) -> None:
    for keep, key in {
        "latest by stay": lambda row: row[0],
        "first by stay": lambda row: -row[0],
    }.items():
        assert [stay for stay, *_ in kept_of(kanon, parties, keep)] == chosen(key)
    # On the same day, any of them: the same one whatever the order of the table is.
    latest = kept_of(kanon, parties, "latest by admission")
    of_stay = {row[0]: row for row in STAYS}
    for stay, *_ in latest:
        assert of_stay[stay][2] == max(row[2] for row in OF_PATIENT[of_stay[stay][1]])
    drawn = kept_of(kanon, parties, "random")
    assert len(drawn) == N_PATIENTS
    assert drawn not in (latest, kept_of(kanon, parties, "first by admission"))
    with parties.publisher.transaction(force_rollback=True):
        fetch(
            parties.publisher,
            "CREATE TABLE data.other AS TABLE data.stays ORDER BY cost, stay DESC",
        )
        fetch(parties.publisher, "TRUNCATE data.stays")
        fetch(parties.publisher, "INSERT INTO data.stays TABLE data.other")
        fetch(parties.publisher, "SET LOCAL datestyle = 'German'")
        fetch(parties.publisher, "SET LOCAL extra_float_digits = 0")
        assert kept_of(kanon, parties, "latest by admission") == latest
        assert kept_of(kanon, parties, "random") == drawn


def test_which_record_is_kept_does_not_depend_on_sensitive_values(
    kanon: Functions, parties: Parties
) -> None:
    """Unless records are alike in all that is published as it is; then the value is any of them."""
    before = kept_of(kanon, parties, "random"), kept_of(kanon, parties, "latest by admission")
    with parties.publisher.transaction(force_rollback=True):
        fetch(parties.publisher, "UPDATE data.stays SET sick = 'd' || stay * 7 % 6")
        after = kept_of(kanon, parties, "random"), kept_of(kanon, parties, "latest by admission")
        assert [[row[0] for row in rows] for rows in after] == [
            [row[0] for row in rows] for rows in before
        ]
    with parties.publisher.transaction(force_rollback=True):
        fetch(parties.publisher, "UPDATE data.stays SET stay = 0, age = 20, cost = 1, admission ="
              " '2025-01-01', sick = (SELECT min(sick) FROM data.stays AS o WHERE o.stay <"
              " stays.stay) WHERE patient < 5")  # fmt: skip
        fetch(parties.publisher, "UPDATE data.stays SET sick = 'd' || patient WHERE stay = 0")
        fetch(parties.publisher, "INSERT INTO data.stays SELECT stay, patient, admission, age, sex,"
              " sick || 'b', cost FROM data.stays WHERE stay = 0")  # fmt: skip
        values = [sick for stay, sick, _ in kept_of(kanon, parties, "random") if stay == 0]
        assert sorted(value.removesuffix("b") for value in values) == [f"d{i}" for i in range(5)]


@pytest.mark.long
def test_aggregates(kanon: Functions, parties: Parties) -> None:
    for function, of in {
        "max": max, "min": min, "sum": sum, "count": len,
        "mean": lambda costs: round(sum(costs) / len(costs), 2),
    }.items():  # fmt: skip
        found = kept_of(kanon, parties, f"latest by stay, {function} of cost")
        of_stay = {row[0]: row[1] for row in STAYS}
        for stay, _, cost in found:
            costs = [row[6] for row in OF_PATIENT[of_stay[stay]]]
            assert round(float(cost), 2) == of(costs), function
    register(kanon, "latest by stay, count of stay")
    kanon.of_kind("generalized", "data.stays", "p")
    assert sorted(stay for stay, *_ in published(parties)) == sorted(
        len(rows) for rows in OF_PATIENT.values()
    )
    types = fetch(
        parties.publisher,
        "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid ="
        " 'published.p'::regclass AND attname IN ('stay', 'cost') ORDER BY 1",
    )
    assert types == [("integer",), ("numeric",)]


def test_records_without_an_entity_are_refused(kanon: Functions, parties: Parties) -> None:
    register(kanon, "latest by admission")
    with parties.publisher.transaction(force_rollback=True):
        fetch(parties.publisher, "UPDATE data.stays SET patient = NULL WHERE patient < 3")
        for kind in KINDS:
            with (
                pytest.raises(psycopg.Error, match="some records have no entity") as caught,
                parties.publisher.transaction(),
            ):
                kanon.of_kind(kind, "data.stays", "p")
            n_records = sum(row[1] < 3 for row in STAYS)
            assert f"is NULL in {n_records} records" in str(caught.value.diag.message_detail)


def test_a_rule_cannot_be_changed_while_it_is_published(kanon: Functions) -> None:
    register(kanon, "latest by admission")
    kanon.of_kind("buckets", "data.stays", "p")
    for other in ("first by admission", "latest by admission, max of cost", None):
        assert sqlstate_of(lambda other=other: register(kanon, other)) == IN_USE
    register(kanon, "latest by admission")


def test_only_what_the_publisher_may_read(kanon: Functions, parties: Parties) -> None:
    """Columns that a rule names have to be readable, and no others are read."""
    fetch(parties.admin, "CREATE SCHEMA others")
    fetch(parties.admin, "CREATE TABLE others.stays AS TABLE data.stays")
    publisher = quoted(parties.publisher.info.user)
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA others TO {publisher}")
    fetch(parties.admin, f"GRANT SELECT (patient, age, sex, sick) ON others.stays TO {publisher}")
    given = {**ROLES, "insensitive": []}
    call = lambda keep: kanon.register("others.stays", **given, keep=keep)
    assert sqlstate_of(lambda: call("latest by admission")) == DENIED
    assert sqlstate_of(lambda: call("random, max of cost")) == INVALID
    call("random")
    fetch(parties.admin, f"GRANT SELECT (admission) ON others.stays TO {publisher}")
    call("latest by admission")
    fetch(parties.admin, f"REVOKE SELECT (admission) ON others.stays FROM {publisher}")
    # Described by another role than the owner's, the source is the publisher's own affair.
    assert sqlstate_of(lambda: kanon.of_kind("buckets", "others.stays", "p")) == DENIED


def test_a_rule_in_the_catalog_is_read_as_strictly(kanon: Functions, parties: Parties) -> None:
    """Whoever writes it with an errand of their own gains nothing."""
    register(kanon, "random")
    for rule, sqlstate in {
        "latest by sick": INVALID,
        "latest by (SELECT 1)": INVALID,
        "latest by passwd": UNKNOWN,
        "random; DROP TABLE data.stays": INVALID,
    }.items():
        fetch(parties.admin, "UPDATE kanon.source SET keep = $1::text", rule)
        for call in (
            lambda: kanon.of_kind("buckets", "data.stays", "p"),
            lambda: kanon.rows("unicity", "data.stays"),
            lambda: kanon.rows("recommend", "data.stays"),
        ):
            assert sqlstate_of(call) == sqlstate


def test_a_view_of_stays(kanon: Functions, parties: Parties) -> None:
    fetch(
        parties.publisher,
        "CREATE VIEW data.women AS SELECT * FROM data.stays WHERE sex = 'f'",
    )
    kanon.register("data.women", **{**ROLES, "quasi_identifiers": ["age"]}, keep="latest by stay")
    kanon.of_kind("generalized", "data.women", "p")
    women = [max(rows)[0] for rows in OF_PATIENT.values() if rows[0][4] == "f"]
    assert [stay for stay, *_ in published(parties)] == sorted(women)


@pytest.mark.long
def test_whatever_reads_the_source_reads_kept_records(kanon: Functions, parties: Parties) -> None:
    register(kanon, "latest by stay")
    kept = [max(rows) for rows in OF_PATIENT.values()]
    found = kanon.rows("unicity", "data.stays")
    numbers = Counter((row[3], row[4]) for row in kept)
    assert found[0]["records"] == sum(n == 1 for n in numbers.values())
    candidates = kanon.rows("recommend", "data.stays", purpose="both")
    assert {row["records"] for row in candidates} == {N_PATIENTS}
    assert any(row["place"] for row in candidates if "bucket" in row["sql"])
    kanon.of_kind("buckets", "data.stays", "p")
    kanon.of_kind("buckets", "data.stays", "q", readers="{}")
    assert kanon.rows("check_release", "data.stays", "q")
    page = Kanon(PsycopgSession(parties.publisher)).report("p")
    assert "each with one record: the latest by stay" in page
    assert f"{len(STAYS) - N_PATIENTS} other rows of theirs are not published" in page


class Stays(Source):
    """A table whose people have several records."""

    def __init__(self, parties: Parties, keep: str, *, arrival: bool = True) -> None:
        super().__init__(parties, 0, arrival=arrival)
        self.kanon.register(
            self.name, ["age", "sex"], "sick", entity="id", arrival="came" if arrival else None,
            keep=keep,
        )  # fmt: skip
        self.add(0, ids=[one for one in range(120) for _ in range(1 + one % 3)])

    def ages(self) -> list[int]:
        return sorted(
            age for (age,) in fetch(self.parties.publisher, "SELECT age FROM published.grows_qit")
        )


@pytest.mark.long
@pytest.mark.usefixtures("refused_by_default")
@pytest.mark.parametrize(
    ("kind", "arrival"),
    long_but(
        [("buckets", True), ("generalized", False)],
        product(["buckets", "generalized", "suppressed", "freeform"], [False, True]),
    ),
)
def test_later_records_of_who_is_published_are_not_new(
    parties: Parties, kind: str, *, arrival: bool
) -> None:
    source = Stays(parties, "latest by came", arrival=arrival)
    published = source.publish(kind)
    assert published["records"] + published["metrics"].get("suppressed_records", 0) == 120
    clause = "each person is published with one record, the latest by came"
    before = source.ages() if kind == "buckets" else []
    source.add(0, day=5, ids=[1, 2, 3, 3])
    row = source.refresh()
    # Another record would stand in the place of theirs by now.
    assert (row["added"], row["waiting"]) == (0, 3)
    assert row["waits"].keys() == {"corrected"}
    assert "another record of theirs is kept by now" in row["missing"]
    source.add(0, day=9, ids=[one for one in range(200, 260) for _ in range(1 + one % 3)])
    source.add(0, day=10, ids=[4, 200, 201])
    row = source.refresh()
    assert (row["waiting"], row["waits"].keys()) == (4, {"corrected"})
    assert row["added"] + row["metrics"].get("suppressed_records", 0) >= 60
    assert row["guarantee"].count(clause) == 1
    parameters = value(parties.publisher, "SELECT parameters FROM kanon.publications")
    rows, people = fetch(
        parties.publisher, f"SELECT count(*), count(DISTINCT id) FROM {source.name}"
    )[0]
    assert parameters["not_kept"] == rows - people
    if kind == "buckets":
        new = fetch(
            parties.publisher,
            f"SELECT DISTINCT ON (id) age, id IN (200, 201) FROM {source.name} WHERE id >= 200"
            " ORDER BY id, came DESC",
        )
        # Who came before is published as before; of who has two records of one day, any of them.
        assert len(source.ages()) == 180
        assert not Counter(before) - Counter(source.ages())
        assert not Counter(age for age, is_alone in new if is_alone) - Counter(source.ages())
    source.check_answers([])


@pytest.mark.usefixtures("refused_by_default")
def test_people_who_may_leave_need_a_record_that_stays(parties: Parties) -> None:
    for keep in ("latest by came", "random", "first by came, max of age"):
        assert sqlstate_of(lambda keep=keep: Stays(parties, keep).publish("m-invariant")) == INVALID
    source = Stays(parties, "first by came")
    assert source.publish("m-invariant")["records"] == 120
    source.add(0, day=5, ids=list(range(60)))
    assert source.refresh()["added"] == 0
    source.add(0, day=6, ids=[*range(300, 330), *range(300, 330)])
    source.run("DELETE FROM {} WHERE id IN (3, 4)")
    row = source.refresh()
    assert row["records"] == 120 - row["withdrawn"] + row["added"]
    assert row["added"] >= 15
    source.check_answers([])
