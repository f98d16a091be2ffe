"""What a publication keeps of the types of its source, and shows to its readers."""

from __future__ import annotations

import json

import pytest

from tests.integration.parties import Functions, Parties, create_table, fetch, value

DESCRIBED = {
    "age": {"type": "integer"},
    "grade": {"labels": ["low", "high", "unused"]},
    "code": {"type": "bpchar", "length": 3},
    "sick": {"type": "text"},
}


@pytest.mark.parametrize("function", ["publish_buckets", "publish_generalized"])
def test_types_with_all_labels_and_nothing_else(parties: Parties, function: str) -> None:
    if not value(parties.admin, "SELECT to_regclass('data.typed') IS NOT NULL"):
        fetch(parties.publisher, "CREATE TYPE data.grade AS ENUM ('low', 'high', 'unused')")
        rows = [(i % 9, ("low", "high")[i % 2], f"c{i % 3}", f"d{i % 4}", i) for i in range(80)]
        columns = "age int, grade data.grade, code char(3), sick text, person int"
        create_table(parties.publisher, "data.typed", columns, rows)
        Functions(parties.publisher).register(
            "data.typed", ["age", "grade", "code"], "sick", entity=None, identifiers=["person"]
        )
    given = {"privacy": '{"l": 3}'} if function == "publish_buckets" else {"k": 4}
    Functions(parties.publisher).call(function, "data.typed", "typed", replace=True, **given)
    layout = value(
        parties.analyst, "SELECT layout::text FROM kanon.publications WHERE name = 'typed'"
    )
    ordered = {name: dict(found) for name, found in json.loads(layout)["types"].items()}
    ordered["grade"].pop("is_ordered", None)
    assert ordered == DESCRIBED
