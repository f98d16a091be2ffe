"""The option `formulation`: each program finds the same optimum, or says what its limit is."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from kanon_db.algorithms import programs
from tests.integration.parties import Functions, Package, Parties, create_table, fetch

COLUMNS = "number int, name text, age int, sex text, sick text"
PEOPLE = [
    (i, f"name {i}", 20 + 7 * i % 31, "mf"[i % 2], f"disease {i % 3}")
    for i in range(8)
]  # fmt: skip


class Kind(NamedTuple):
    call: str
    given: dict[str, Any]
    formulations: tuple[str, ...]
    loss: str


KINDS = {
    "buckets": Kind(
        "publish",
        {"privacy": '{"default": 0.5}', "max_bucket_size": 4, "assignment": "random"},
        ("projected", "paper"), "msbs",
    ),
    "generalized": Kind(
        "generalize", {"k": 2}, ("set_partition", "paper", "bigm"), "weighted_loss"
    ),
    "freeform": Kind("freeform", {"k": 2}, ("match_sets", "paper"), "weighted_loss"),
    "suppressed": Kind("suppress", {"k": 2}, ("reduced", "paper"), "suppressed_cells"),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_table(parties.publisher, "data.people", COLUMNS, PEOPLE)
    Functions(parties.publisher).register(
        "data.people", ["age", "sex"], "sick", ["name"], insensitive=["number"]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_formulation_finds_the_optimum(
    kanon: Functions | Package, parties: Parties, kind: str
) -> None:
    call, given, formulations, loss = KINDS[kind]
    losses = set()
    for formulation in formulations:
        name = f"{kind}_{formulation}"
        published = getattr(kanon, call)(
            "data.people", name, method="optimal",
            options=json.dumps({"formulation": formulation}), **given,
        )  # fmt: skip
        assert published["metrics"]["gap"] == 0
        losses.add(round(published["metrics"][loss], 9))
        assert all(holds for *_, holds in kanon.verify(name))
        fetch(parties.publisher, "SELECT kanon.drop_publication($1)", name)
    assert len(losses) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_is_too_large_is_refused(
    parties: Parties, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MAX_CONSTRAINTS", 5)
    call, given, *_ = KINDS[kind]
    with pytest.raises(Exception, match="too large for the formulation paper") as refused:
        getattr(Package(parties.publisher), call)(
            "data.people", "large", method="optimal",
            options='{"formulation": "paper"}', **given,
        )  # fmt: skip
    assert "leave out the option formulation" in refused.value.hint


def test_mutual_matches_have_no_program_in_the_paper(parties: Parties) -> None:
    with pytest.raises(Exception, match="cannot be combined with symmetric"):
        Package(parties.publisher).freeform(
            "data.people", "mutual", k=2, method="optimal",
            options='{"formulation": "paper", "symmetric": true}',
        )  # fmt: skip
