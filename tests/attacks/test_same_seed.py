"""Two results of one seed: readers of both must not know more than of two that were drawn apart.

A search that ends by the clock may find two results for one request, and so may the same request of
a column in another collation. Whoever could lay one beside the other, row by row or bucket by
bucket, would join what was published about each person.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from kanon_db.publications import pipeline
from kanon_db.session import Session
from tests.integration.parties import Functions, Package, Parties, create_table, fetch

SIGMAS = 7
PEOPLE = [(i, 20 + i * 7 % 40, "FM"[i * 5 % 2], "aBcDeFg"[i % 7]) for i in range(700)]
OTHER = '"und-x-icu"'
"""A collation that orders the values in another way than "C" does."""


@pytest.fixture(autouse=True)
def one_seed(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is asked for has the same seed."""
    asked = pipeline.run_errand

    def run_errand(session: Session, task: str, **given: Any) -> Any:
        return "5e" * 32 if task == "seed" else asked(session, task, **given)

    monkeypatch.setattr(pipeline, "run_errand", run_errand)
    for name, collation in (("data.first", '"C"'), ("data.second", OTHER)):
        columns = f"number int, age int, sex text, ill text COLLATE {collation}"
        create_table(parties.publisher, name, columns, PEOPLE)
    yield
    for name in Functions(parties.publisher).publications():
        Functions(parties.publisher).drop(name)
    fetch(parties.publisher, "DROP TABLE data.first, data.second")


ROWS: Mapping[str, Callable[[Package, str, int], object]] = {
    "generalized": lambda kanon, name, k: kanon.generalize(
        "data.first", name, k=k, method="mondrian", refine=False
    ),
    "suppressed": lambda kanon, name, k: kanon.suppress("data.first", name, k=k),
    "freeform": lambda kanon, name, k: kanon.freeform(
        "data.first", name, k=k, options='{"refine": false}'
    ),
}


@pytest.mark.pitfall(41)
@pytest.mark.parametrize("kind", ROWS)
def test_rows_do_not_lie_side_by_side(parties: Parties, kind: str) -> None:
    """Of two sets of classes, the rows at one place are a person's by chance only."""
    kanon = Package(parties.publisher)
    kanon.register("data.first", ["age", "sex"], "ill", insensitive=["number"])
    orders = []
    for name, k in (("some", 3), ("others", 40)):
        ROWS[kind](kanon, name, k)
        orders.append(
            fetch(parties.publisher, f"SELECT number FROM published.{name} ORDER BY ctid")
        )
    assert orders[0] != orders[1]
    same = sum(one == other for one, other in zip(*orders, strict=False))
    assert same <= 1 + SIGMAS * math.sqrt(2)


@pytest.mark.long
@pytest.mark.pitfall(41)
@pytest.mark.parametrize("assignment", ["random", "cells", "m_invariant"])
def test_buckets_do_not_have_the_same_numbers(parties: Parties, assignment: str) -> None:
    """Where values have another order, nobody stays in a bucket but by chance."""
    kanon = Package(parties.publisher)
    buckets = []
    for table in ("data.first", "data.second"):
        kanon.register(table, ["number", "age", "sex"], "ill")
        name = table.removeprefix("data.")
        kanon.publish(table, name, privacy='{"l": 3}', assignment=assignment)
        rows = fetch(parties.publisher, f"SELECT number, bucket_id FROM published.{name}_qit")
        buckets.append(dict(rows))
    same = sum(buckets[0][person] == buckets[1][person] for person in buckets[0])
    expected = 3 * 2  # n people in n / 3 buckets, and some more where there are few cells
    assert same <= expected + SIGMAS * math.sqrt(expected)
