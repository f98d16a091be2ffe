"""Every check of `tests.checks`, for every kind of publication and every method."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.checks import CHECKS, Case, cases
from tests.integration.parties import Functions, Parties, create_table, remains

# NULLs, ties and duplicates; few enough for the methods that prove an optimum.
PEOPLE = [
    (
        i, f"name {i}", None if i % 7 == 3 else 20 + i * 5 % 25, "mf"[i % 2],
        None if i == 4 else f"disease {i % 4}",
    )
    for i in range(24)
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_table(
        parties.publisher,
        "data.people",
        "number int, name text, age int, sex text, sick text",
        PEOPLE,
    )
    Functions(parties.publisher).register(
        "data.people", ["age", "sex"], "sick", ["name"], insensitive=["number"]
    )


@pytest.fixture(autouse=True)
def nothing_left(parties: Parties) -> Iterator[None]:
    yield
    publisher = Functions(parties.publisher)
    for name in publisher.publications():
        publisher.drop(name)
    assert remains(parties.admin) == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_battery(parties: Parties, case: Case, check: Callable[[Parties, Case], None]) -> None:
    check(parties, case)
