"""Publishing where several records are about the same person: people are counted, not records."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kanon_db.algorithms.generalization import Generalization
from kanon_db.errors import IneligibleError, InvalidParameterError, VerificationError
from kanon_db.publications.generalized import kind as generalized
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_source,
    fetch,
    sqlstate_of,
)
from tests.profiles import examples

INVALID = InvalidParameterError.sqlstate
COLUMNS = "visit int, patient int, age int, sex text, sick text"

# Patients come one to four times, at times at another age, with one disease or two.
VISITS = [
    (visit, patient, 20 + patient * 7 % 40 + visit % 2, "fm"[patient % 2],
     f"d{(patient + (visit % 4 == 0)) % 6}")
    for visit, patient in enumerate(
        patient for patient in range(40) for _ in range(1 + patient * patient % 4)
    )
]  # fmt: skip
PATIENT_OF = {visit: patient for visit, patient, *_ in VISITS}


@pytest.fixture(scope="module", autouse=True)
def visits(parties: Parties) -> None:
    create_source(
        parties.publisher, "data.visits", COLUMNS, VISITS, ["age", "sex"], "sick",
        insensitive=["visit"], entity="patient",
    )  # fmt: skip


ACCEPTED = '{"left_over_records": "it is a test"}'


def classes_of(parties: Parties, name: str) -> list[list[tuple[int, str]]]:
    """The patient and the disease of each row, for all rows that look the same."""
    classes = defaultdict(list)
    for visit, sick, cells in fetch(
        parties.publisher,
        f"SELECT visit, sick, (to_jsonb(p) - 'visit' - 'sick')::text FROM published.{name} AS p",
    ):
        classes[cells].append((PATIENT_OF[visit], sick))
    return list(classes.values())


def test_generalized_rows_count_people(kanon: Functions | Package, parties: Parties) -> None:
    published = kanon.generalize("data.visits", "p", k=4)
    assert published["records"] == len(VISITS)
    assert all(len({patient for patient, _ in rows}) >= 4 for rows in classes_of(parties, "p"))
    assert all(holds for *_, holds in kanon.verify("p"))


def test_thresholds_are_for_shares_of_people(kanon: Functions | Package, parties: Parties) -> None:
    """Whoever has a disease in any row of a class counts once, however many rows they have."""
    published = kanon.generalize("data.visits", "p", k=3, constraints='{"l": 3, "default": "0.4"}')
    assert published["guarantee"].count("in each, counting people") == 1
    for rows in classes_of(parties, "p"):
        people = {patient for patient, _ in rows}
        assert len(people) >= 3
        assert len({sick for _, sick in rows}) >= 3
        for disease in {sick for _, sick in rows}:
            ill = {patient for patient, sick in rows if sick == disease}
            assert Fraction(len(ill), len(people)) <= Fraction(2, 5)
    checks = kanon.verify("p")
    assert all(holds for *_, holds in checks)
    assert not any("F'-privacy" in check for check, *_ in checks)


def test_people_may_be_left_out(kanon: Functions | Package, parties: Parties) -> None:
    published = kanon.generalize("data.visits", "p", k=4, max_suppressed="0.2")
    classes = classes_of(parties, "p")
    assert all(len({patient for patient, _ in rows}) >= 4 for rows in classes)
    assert sum(map(len, classes)) + published["metrics"]["suppressed_records"] == len(VISITS)
    assert all(holds for *_, holds in kanon.verify("p"))


def test_suppressed_rows_count_people(kanon: Functions | Package, parties: Parties) -> None:
    published = kanon.suppress("data.visits", "p", k=4)
    assert "4 times, for as many different people" in published["guarantee"]
    classes = classes_of(parties, "p")
    assert all(len({patient for patient, _ in rows}) >= 4 for rows in classes)
    left_out = published["metrics"]["suppressed_records"]
    assert sum(map(len, classes)) + left_out == len(VISITS)
    assert all(holds for *_, holds in kanon.verify("p"))


def test_what_counts_records_is_refused(kanon: Functions | Package) -> None:
    """There are more than 41 records, but only 40 people."""
    for call, options in (
        ("generalize", {"constraints": '{"t": 0.3}'}),
        ("generalize", {"constraints": '{"entropy_l": 1.5}'}),
        ("generalize", {"constraints": '{"theta": 2}'}),
        ("suppress", {"method": "optimal"}),
        ("suppress", {"options": '{"left_over": "join"}'}),
        ("suppress", {"options": '{"left_over": "publish"}', "accept": ACCEPTED}),
        ("generalize", {"k": 41}),
        ("suppress", {"k": 41}),
    ):
        publish = lambda: getattr(kanon, call)("data.visits", "p", **{"k": 4, **options})
        assert sqlstate_of(publish) == INVALID
    publish = lambda: kanon.generalize("data.visits", "p", k=3, constraints='{"default": 0.05}')
    assert sqlstate_of(publish) == IneligibleError.sqlstate  # no class can have it


def test_people_are_counted_again_before_anything_is_published(
    kanon: Functions | Package, parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An algorithm that counts records is caught by SQL that has nothing to do with it."""

    def unchecked(_table: object, classes: np.ndarray, *_: object, **__: object) -> Generalization:
        return Generalization(classes)

    monkeypatch.setattr(generalized, "enforce", unchecked)
    monkeypatch.setattr(generalized, "one_of_each", lambda table, who: (table, np.arange(who.size)))
    publish = lambda **given: kanon.generalize("data.visits", "p", k=4, refine=False, **given)
    with pytest.raises(VerificationError, match="failed their verification") as caught:
        publish()
    assert "is that of k entities" in str(caught.value.detail)
    with pytest.raises(VerificationError) as caught:
        publish(constraints='{"default": 0.4}')
    assert "by entities, <= threshold" in str(caught.value.detail)


@pytest.mark.long
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from([None, 1, 2, 3]), st.sampled_from(["x", "y"])),
        min_size=1,
        max_size=30,
    ),
    k=st.integers(2, 4),
    call=st.sampled_from(["generalize", "suppress"]),
)
@settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_random_tables(
    parties: Parties, rows: list[tuple[int, int | None, str]], k: int, call: str
) -> None:
    """Against counting by sets, whatever people's records are."""
    kanon = Package(parties.publisher)
    with parties.publisher.transaction(force_rollback=True):
        numbered = [(number, *row) for number, row in enumerate(rows)]
        create_source(
            parties.publisher, "data.random", "number int, who int, a int, b text", numbered,
            ["a", "b"], None, insensitive=["number"], entity="who",
        )  # fmt: skip
        options = {"refine": False} if call == "generalize" else {}

        def publish() -> None:
            with parties.publisher.transaction():
                getattr(kanon, call)("data.random", "random", k=k, **options)

        if len({who for who, *_ in rows}) < k:
            assert sqlstate_of(publish) == INVALID
            return
        publish()
        classes = defaultdict(set)
        shown = "SELECT number, to_jsonb(p) - 'number' FROM published.random AS p"
        for number, row in fetch(parties.publisher, shown):
            classes[str(row)].add(rows[number][0])
        assert all(len(people) >= k for people in classes.values())
        assert all(holds for *_, holds in kanon.verify("random"))
