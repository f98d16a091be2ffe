"""Texts that are more than a value: remarks that name people, and cells that list codes."""

from __future__ import annotations

from typing import Any

import pytest

from kanon_db.errors import RiskError
from kanon_db.transfer.cell_texts import ListedParts
from tests.checks import NEEDED
from tests.integration.parties import (
    Functions,
    Parties,
    create_table,
    register_and_hear,
    sqlstate_of,
    value,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

COLUMNS = "id int, age int, sex text, remark text, reply text, codes text, ill text"
NAMES = ("Anna Maier", "Bernd Huber", "Clara Weber", "Doris Lang")
REPLIES = ("neither agree nor disagree with it", "strongly agree with all of it", "I do not know")
PEOPLE = [
    (
        i, 20 + i % 30, "fm"[i % 2],
        f"{NAMES[i % 4]} called on day {i} about pain" if i % 10 == 0 else "none",
        REPLIES[i % 3], ("I10", "E11;I10", "B20", "B20;E11", "I10;B20", "J44")[i % 6],
        f"d{i % 5}",
    )
    for i in range(120)
]  # fmt: skip
REMARKS = "12 of 120 texts have 5 words or more and occur once"
LISTS = '60 of 120 cells list several values between ";" (4 different ones)'


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_table(parties.publisher, "data.people", COLUMNS, PEOPLE)


def register(parties: Parties, sensitive: str = "ill", **given: Any) -> list[str]:
    """Register the table; the warnings of it."""
    known = ["age", "sex"]
    return register_and_hear(parties.publisher, "data.people", known, sensitive, **given)


@pytest.mark.pitfall(73)
@pytest.mark.parametrize("kind", ["generalized", "freeform", "suppressed"])
def test_remarks_that_name_people_are_not_published_unnoticed(parties: Parties, kind: str) -> None:
    said = register(parties, insensitive=["remark"])
    assert any('column "remark" has free texts' in text and REMARKS in text for text in said)
    functions = Functions(parties.publisher)
    given: dict[str, Any] = {"k": 5, **NEEDED.get(kind, {})}
    publish = lambda **more: functions.call(f"publish_{kind}", "data.people", "p", **given, **more)
    assert sqlstate_of(publish) == RiskError.sqlstate
    publish(accept='{"free_text": "remarks were read by two people"}')
    checks = functions.rows("verify", "p")
    assert any(check["check"] == "accepted risk: free_text" for check in checks)


@pytest.mark.pitfall(73)
def test_remarks_as_the_sensitive_column_are_asked_for_too(parties: Parties) -> None:
    assert any("free texts" in text for text in register(parties, "remark"))
    call = lambda: Functions(parties.publisher).call(
        "publish_buckets", "data.people", "p", privacy='{"default": 0.95}'
    )
    assert sqlstate_of(call) == RiskError.sqlstate


def test_labels_of_many_words_are_no_free_texts(parties: Parties) -> None:
    """Answers of a questionnaire recur, however long they are; nothing asks about them."""
    assert register(parties, "ill", insensitive=["reply"]) == []
    Functions(parties.publisher).call("publish_generalized", "data.people", "p", k=5)


@pytest.mark.pitfall(73)
def test_remarks_of_a_batch_are_asked_for_too(parties: Parties) -> None:
    create_table(
        parties.publisher, "data.came", COLUMNS, [(*row[:3], "none", *row[4:]) for row in PEOPLE]
    )
    functions = Functions(parties.publisher)
    functions.register("data.came", ["age", "sex"], "ill", insensitive=["remark"], entity="id")
    functions.call("publish_generalized", "data.came", "p", k=5)
    value(
        parties.publisher,
        "WITH new AS (INSERT INTO data.came SELECT id + 1000, age, sex, 'seen by Dr Anna Maier on '"
        " || id, reply, codes, ill FROM data.people RETURNING 1) SELECT count(*) FROM new",
    )
    assert sqlstate_of(lambda: functions.call("refresh", "p")) == RiskError.sqlstate
    functions.call("refresh", "p", accept='{"free_text": "read before"}')


@pytest.mark.pitfall(66)
def test_a_bound_on_lists_of_codes_is_said_to_be_on_the_whole_cell(parties: Parties) -> None:
    (said,) = register(parties, "codes")
    assert 'sensitive column "codes" has cells with several values' in said
    assert LISTS in said
    assert "whatever is bounded is the whole cell" in said
    assert register(parties, "ill") == []


CELLS = {
    "codes": (["E11", "E11;I10", "I10;J44", "J44;E11"], ";"),
    "ends alike": (["E11.9, I10", "I10, J44", "J44, B20", "B20, E11.9"], ","),
    "bars": (["heart|pain", "heart|failure", "lung|pain", "lung|failure"], "|"),
    "select multiple": (["fever", "pain", "rash", "fever pain", "pain rash", "rash fever"], " "),
    "json": (['["a"]', '["a","b"]', '["b","c"]', '["c","a"]'], ","),
    "sorted paths": (["heart^pain", "heart^failure", "lung^pain", "lung^failure"], "^"),
    "array": (["{a}", "{a,b}", "{b,c}", "{c,a}"], ","),
}
PLAIN = {
    "towns": ["Boston, MA", "Lowell, MA", "Salem, MA", "Reno, NV", "Elko, NV"],
    "names": ["Maier, Anna", "Maier, Bernd", "Huber, Anna", "Huber, Bernd"],
    "answers": [
        "agree",
        "strongly agree",
        "disagree",
        "strongly disagree",
        "neither agree nor not",
    ],
    "grades": ["very good", "good", "fair", "poor", "very poor"],
    "jobs": ["Farm worker", "Sales worker", "Farm manager", "Sales manager"],
    "pressures": ["120/80", "130/80", "120/90", "130/90"],
    "numbers": ["1,5", "2,5", "1,7", "2,7"],
    "dates": ["01/02/2020", "01/03/2020", "02/02/2020", "02/03/2020"],
    "peoples": ["Black/African", "White", "Asian/Pacific", "Other"],
    "statuses": ["Married, spouse absent", "Married, spouse present"],
    "no values": [],
}


@pytest.mark.pitfall(66)
@pytest.mark.parametrize("name", CELLS)
def test_cells_that_list_values_are_recognized(name: str) -> None:
    cells, separator = CELLS[name]
    lists = ListedParts.of([*cells, None], [3] * (len(cells) + 1))
    assert lists is not None
    assert lists.separator == separator


@pytest.mark.parametrize("name", PLAIN)
def test_cells_of_one_value_are_no_lists(name: str) -> None:
    assert ListedParts.of(PLAIN[name], [3] * len(PLAIN[name])) is None
