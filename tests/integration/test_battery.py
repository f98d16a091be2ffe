"""Every check of `tests.checks`, for every kind of publication and every method."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.checks import Case, checks
from tests.integration.parties import Functions, Parties, create_table

pytestmark = pytest.mark.usefixtures("nothing_left")

# NULLs, ties and duplicates; few enough for the methods that prove an optimum.
PEOPLE = [
    (
        i, f"name {i}", f"note {i % 2}", f"person {i}", None if i % 7 == 3 else 20 + i * 5 % 25,
        "mf"[i % 2], None if i == 4 else f"disease {i % 4}",
    )
    for i in range(24)
]  # fmt: skip

COLUMNS = "number int, name text, note text, person text, age int, sex text, sick text"


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_table(
        parties.publisher,
        "data.people",
        COLUMNS,
        PEOPLE,
    )
    # The same, but each person has one to seven records.
    visits = [(*row[:3], f"person {i * i // 40}", *row[4:]) for i, row in enumerate(PEOPLE)]
    create_table(parties.publisher, "data.visits", COLUMNS, visits)
    for table in ("people", "visits"):
        Functions(parties.publisher).register(
            f"data.{table}", ["age", "sex"], "sick", ["name"], insensitive=["number"],
            entity="person",
        )  # fmt: skip


@pytest.mark.slow("a model is trained several times")
@pytest.mark.parametrize(
    ("case", "check"), [pytest.param(*one, id=f"{one[0]}-{one[1].__name__}") for one in checks()]
)
def test_battery(parties: Parties, case: Case, check: Callable[[Parties, Case], None]) -> None:
    check(parties, case)
