"""What rows show of the quasi-identifiers must not depend on the sensitive values.

Otherwise the way in which rows were formed tells something about these values, which neither
k-anonymity nor freeform's probabilities account for. So the same people, with their sensitive
values shuffled among them, get the same cells from the same random numbers. Classes with
constraints do depend on the values; their guarantee says so, and the same test finds it.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from typing import Any

import numpy as np
import pytest

from kanon_db.randomness import SecureRandom, SeededRandom
from tests.checks import Case, cases
from tests.integration.parties import Functions, Package, Parties, create_table, fetch
from tests.profiles import long_but

pytestmark = pytest.mark.usefixtures("nothing_left")

# NULLs, ties and duplicates; few enough for the methods that prove an optimum.
PEOPLE = [(None if i % 7 == 3 else 20 + i * 5 % 25, "mf"[i % 2]) for i in range(24)]
OWN = [f"value {i}" for i in range(24)]
FEW = [f"value {i % 3 // 2}" for i in range(24)]
ORDER = np.random.default_rng(5).permutation(24).tolist()
ROWS = [case for case in cases() if case.kind not in ("buckets", "model")]  # others show no rows
LEFT_OVER = [
    Case("suppressed", {"method": "greedy", "k": 5, "options": '{"left_over": "withhold"}'}),
    Case("suppressed", {"method": "greedy", "k": 5, "options": '{"left_over": "join"}'}),
    Case("generalized", {"method": "mondrian", "k": 3, "max_suppressed": "0.2"}),
]


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    kanon = Functions(parties.publisher)
    for name, values in {"own": OWN, "few": FEW}.items():
        for suffix, order in {"": range(24), "_shuffled": ORDER}.items():
            rows = [(*person, values[i]) for person, i in zip(PEOPLE, order, strict=True)]
            table = f"data.{name}{suffix}"
            create_table(parties.publisher, table, "age int, sex text, sick text", rows)
            kanon.register(table, ["age", "sex"], "sick")


def published(
    parties: Parties, monkeypatch: pytest.MonkeyPatch, table: str, case: Case
) -> dict[str, list[tuple[Any, ...]]]:
    """Publish with known random numbers; the cells of the rows with each sensitive value."""
    known = np.random.default_rng(1)
    for one in (SecureRandom, SeededRandom):
        monkeypatch.setattr(one, "bytes", lambda _, length: known.bytes(length))
    given = {name: x for name, x in case.given.items() if name != "options"}
    options = json.loads(case.given.get("options", "{}"))
    if case.kind == "generalized":
        options["time_limit"] = 3600  # effort ends the search, not the clock
    publish = getattr(Package(parties.publisher).kanon, f"publish_{case.kind}")
    publish(table, "p", replace=True, options=options, **given)
    rows: dict[str, list[tuple[Any, ...]]] = {}
    columns = "sick, age::text, sex::text" + ", pattern" * (case.kind == "suppressed")
    for sick, *cells in fetch(parties.publisher, f"SELECT {columns} FROM published.p"):
        rows.setdefault(sick, []).append(tuple(cells))
    return rows


@pytest.mark.long
@pytest.mark.pitfall(14)
@pytest.mark.parametrize("case", long_but([*ROWS[::4], *LEFT_OVER], [*ROWS, *LEFT_OVER]), ids=str)
def test_sensitive_values_decide_nothing_about_cells(
    parties: Parties, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    before = published(parties, monkeypatch, "data.own", case)
    after = published(parties, monkeypatch, "data.own_shuffled", case)
    assert len(before) >= 16
    assert len({cells for (cells,) in before.values()}) > 1
    # Of people who are alike, chance decides who gets which of their cells.
    person_of = {OWN[i]: PEOPLE[i] for i in range(24)}
    now = {OWN[i]: PEOPLE[person] for person, i in enumerate(ORDER)}
    assert Counter((now[sick], *cells) for sick, cells in after.items()) == Counter(
        (person_of[sick], *cells) for sick, cells in before.items()
    )


@pytest.mark.parametrize("with_constraints", [False, True])
def test_constraints_make_classes_depend_on_sensitive_values(
    parties: Parties, monkeypatch: pytest.MonkeyPatch, with_constraints: bool
) -> None:
    given: dict[str, Any] = {"method": "greedy_search", "k": 3}
    if with_constraints:
        given["constraints"] = {"l": 2}
    case = Case("generalized", given)
    cells = [
        sorted(map(str, chain(*published(parties, monkeypatch, table, case).values())))
        for table in ("data.few", "data.few_shuffled")
    ]
    assert (cells[0] != cells[1]) == with_constraints
