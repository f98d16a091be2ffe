"""The option `formulation`: each program finds the same optimum, or says what its limit is."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from kanon_db.algorithms import programs
from tests.integration.parties import Functions, Package, Parties, create_source, holds
from tests.profiles import long_but

COLUMNS = "number int, name text, age int, sex text, sick text"
PEOPLE = [
    (i, f"name {i}", 20 + 7 * i % 31, "mf"[i % 2], f"disease {i % 3}")
    for i in range(8)
]  # fmt: skip


class Kind(NamedTuple):
    given: dict[str, Any]
    formulations: tuple[str, ...]
    loss: str


KINDS = {
    "buckets": Kind(
        {"privacy": '{"default": 0.5}', "max_bucket_size": 4, "assignment": "random"},
        ("projected", "paper"), "msbs",
    ),
    "generalized": Kind({"k": 2}, ("set_partition", "paper"), "weighted_loss"),
    "freeform": Kind({"k": 2}, ("match_sets", "paper"), "weighted_loss"),
    "suppressed": Kind({"k": 2}, ("reduced", "paper"), "suppressed_cells"),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_source(
        parties.publisher, "data.people", COLUMNS, PEOPLE, ["age", "sex"], "sick",
        identifiers=["name"], insensitive=["number"],
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("kind", long_but({"buckets", "generalized"}, KINDS))
def test_every_formulation_finds_the_optimum(
    kanon: Functions | Package, parties: Parties, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a table that is too large for that of the paper is refused."""
    given, formulations, loss = KINDS[kind]

    def publish(formulation: str) -> dict[str, Any]:
        return kanon.call(
            f"publish_{kind}", "data.people", formulation, method="optimal",
            options=json.dumps({"formulation": formulation}), **given,
        )  # fmt: skip

    losses = set()
    for formulation in formulations:
        published = publish(formulation)
        assert published["metrics"]["gap"] == 0
        losses.add(round(published["metrics"][loss], 9))
        assert holds(parties.publisher, formulation)
    assert len(losses) == 1
    kanon.drop("paper")
    options = {"formulation": "paper", "solver": "PULP_CBC_CMD"}
    published = kanon.call(
        f"publish_{kind}", "data.people", "paper", method="optimal", options=json.dumps(options),
        **given,
    )  # fmt: skip
    assert (published["metrics"]["gap"], round(published["metrics"][loss], 9)) == (0, *losses)
    assert holds(parties.publisher, "paper")
    monkeypatch.setattr(programs, "MAX_CONSTRAINTS", 5)
    kanon.drop("paper")
    with pytest.raises(Exception, match="too large for the formulation paper") as refused:
        publish("paper")
    assert "leave out the option formulation" in refused.value.hint


def test_the_binary_loss_is_least_by_either_formulation(
    kanon: Functions | Package, parties: Parties
) -> None:
    """Sets of values as attributes of their own: what loses least so is published and measured."""
    given = KINDS["generalized"][0]
    losses = {}
    for number, options in enumerate(
        ({"loss": "binary"}, {"loss": "binary", "formulation": "paper"}, {})
    ):
        metrics = kanon.call(
            "publish_generalized", "data.people", f"by_{number}", method="optimal",
            options=json.dumps(options), **given,
        )["metrics"]  # fmt: skip
        assert metrics["gap"] == 0
        losses[number] = round(metrics["binary_loss"], 9)
    assert losses[0] == losses[1] <= losses[2]
    assert holds(parties.publisher, "by_0")
    with pytest.raises(Exception, match="loss"):
        kanon.call(
            "publish_generalized", "data.people", "p", method="mondrian", k=2,
            options='{"loss": "binary"}',
        )  # fmt: skip


def test_mutual_matches_have_no_program_in_the_paper(parties: Parties) -> None:
    with pytest.raises(Exception, match="cannot be combined with symmetric"):
        Package(parties.publisher).freeform(
            "data.people", "mutual", k=2, method="optimal",
            options='{"formulation": "paper", "symmetric": true}',
        )  # fmt: skip


@pytest.mark.pitfall(18)
def test_only_a_solver_that_is_there_is_named(kanon: Functions | Package) -> None:
    """By PuLP's name for it: no path, and no program of the caller's."""
    for solver, formulation, why, hint in (
        ("bin/solver", "paper", "the solver is not available", "PULP_CBC_CMD, HiGHS"),
        ("GUROBI", "paper", "the solver is not available", "PULP_CBC_CMD, HiGHS"),
        ("PULP_CBC_CMD", "reduced", "for the formulation paper", '"formulation": "paper"'),
    ):
        options = json.dumps({"formulation": formulation, "solver": solver})
        with pytest.raises(Exception, match=why) as refused:
            kanon.call(
                "publish_suppressed", "data.people", "p", k=2, method="optimal", options=options
            )
        assert hint in getattr(refused.value, "hint", refused.value.args[0])
