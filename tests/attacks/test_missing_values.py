"""A missing value protects nobody: whoever is known to have a value has the only one there is."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import pytest

from tests.integration.parties import Functions, Parties, create_source, fetch, holds
from tests.profiles import long_but

DISTINCT, ENTROPY = '{"l": 2}', '{"entropy_l": 1.2}'

PEOPLE = [
    *((20 + i, "hiv") for i in range(3)), (23, None),
    *((30 + i, None) for i in range(4)),
    *((40 + i, "flu") for i in range(3)), (43, "hiv"),
    *((50 + i, "hiv") for i in range(3)), (53, None),
]  # fmt: skip


@pytest.fixture(scope="module")
def people(parties: Parties) -> str:
    create_source(parties.publisher, "data.missing", "age int, sick text", PEOPLE)
    return "data.missing"


@pytest.mark.pitfall(47)
@pytest.mark.parametrize(("constraint", "method"), long_but(
    [(ENTROPY, "mondrian")],
    product([DISTINCT, ENTROPY], ["mondrian", "greedy_search", "optimal"]),
))  # fmt: skip
def test_a_class_of_one_value_and_none(
    parties: Parties, people: str, constraint: str, method: str
) -> None:
    Functions(parties.publisher).generalize(
        people, "missing", k=4, method=method, constraints=constraint, replace=True
    )
    found = defaultdict(set)
    for age, sick in fetch(parties.publisher, "SELECT age::text, sick FROM published.missing"):
        found[age].add(sick)
    assert all(len(values - {None}) >= 2 for values in found.values())
    assert holds(parties.publisher, "missing")


@pytest.mark.pitfall(47)
def test_verify_counts_no_missing_value(parties: Parties, people: str) -> None:
    """Classes of three people with one value and one with none, said to be diverse."""
    kanon = Functions(parties.publisher)
    kanon.generalize(people, "undiverse", k=4, method="initial", refine=False)
    both = '{"l": 2, "entropy_l": 1.2}'
    promised = "UPDATE kanon.publication SET parameters = parameters || $1::text::jsonb"
    fetch(parties.admin, f"{promised} WHERE name = 'undiverse'", f'{{"constraints": {both}}}')
    measured = {name: found for name, _, found, _ in kanon.verify("undiverse")}
    for name in ("distinct", "entropy"):
        assert measured[f"{name} l-diversity of every class"].startswith("3 violate it")


@pytest.mark.pitfall(47)
def test_a_table_of_one_value_and_none_is_refused(parties: Parties) -> None:
    rows = [(i, "hiv" if i % 2 else None) for i in range(12)]
    create_source(parties.publisher, "data.one_value", "age int, sick text", rows)
    with pytest.raises(Exception, match="no equivalence classes can satisfy"):
        Functions(parties.publisher).generalize("data.one_value", "p", k=4, constraints=DISTINCT)
