"""Publishing freeform rows: what is published, along which assignment, what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kanon_db.errors import VerificationError
from kanon_db.publications.rows.distinct_cells import CellTable
from kanon_db.publications.rows.recoded_cells import write_cells
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    failed_checks,
    fetch,
    forget_draws,
    holds,
    keep_cells_with_rows,
    sqlstate_of,
)
from tests.integration.row_checks import (
    PEOPLE,
    QUASI_IDENTIFIERS,
    check_freeform,
    covers,
    people,
)

__all__ = ["people"]

INVALID = "22023"
# Refined, the records may come to lie in classes: then each row of a class shows the same.
QUICK: dict[str, Any] = {"k": 5, "options": '{"refine": false}'}


def test_the_draw_is_random(kanon: Functions | Package, parties: Parties) -> None:
    """Drawn with another key, the same cells belong to other people."""
    found = []
    for _ in range(2):
        forget_draws(parties.admin)
        kanon.freeform("data.people", "people", **QUICK, replace=True)
        rows = fetch(parties.publisher, "SELECT number, age, sex, town, born FROM published.people")
        found.append({number: str(cells) for number, *cells in rows})
    first, second = found
    # The cells are the same, but of those who share them by chance few keep them: 1 / 5 or so.
    assert Counter(first.values()) == Counter(second.values())
    assert sum(first[number] == second[number] for number in first) < 0.6 * len(PEOPLE)


def test_nothing_tells_the_graph(kanon: Functions | Package, parties: Parties) -> None:
    kanon.freeform("data.people", "people", **QUICK)
    ((parameters, layout),) = fetch(
        parties.admin, "SELECT parameters, layout FROM kanon.publication WHERE name = 'people'"
    )
    assert set(parameters) == {"k", "weights", "options", "readers", "accept", "figures", "draws"}
    assert set(layout) == {
        "quasi_identifiers", "sensitive", "others", "columns", "types", "digest", "shares",
        "at_once", "store", "number",
    }  # fmt: skip


TAMPERED = {
    "a cell is widened": "SET age = '(,)' WHERE number = 5",
    "a cell is another's": "SET town = (SELECT town FROM published.people_row WHERE town <> t.town"
    " LIMIT 1) WHERE number = 5",
    "a sensitive value": "SET sick = 'disease 9' WHERE number = 5",
    "two rows change places": "SET number = 11 - number WHERE number IN (5, 6)",
}


def test_tampering_is_found(kanon: Functions | Package, parties: Parties) -> None:
    """Nobody can check the matches afterwards, but whether the rows are those of then."""
    kanon.freeform("data.people", "people", **QUICK)
    for case, change in TAMPERED.items():
        with parties.admin.transaction(force_rollback=True):
            keep_cells_with_rows(parties.admin, "people")
            fetch(parties.admin, f"UPDATE published.people_row AS t {change}")
            fetch(parties.admin, "REFRESH MATERIALIZED VIEW published.people")
            failed = failed_checks(parties.admin, "people")
        assert failed == [
            "the rows are those whose matches were checked when they were published",
            "the numbers of the cells are those of the rows",
        ], case
    with parties.admin.transaction(force_rollback=True):
        keep_cells_with_rows(parties.admin, "people")
        for relation in ("people_row", "people_val"):  # the rows with their codes
            change = (
                "SET sick = translate(sick, '01', '10') WHERE sick IN ('disease 0', 'disease 1')"
            )
            fetch(parties.admin, f"UPDATE published.{relation} {change}")
        fetch(parties.admin, "REFRESH MATERIALIZED VIEW published.people")
        assert (
            "the rows are those whose matches were checked when they were published"
            in failed_checks(parties.admin, "people")
        )
    with parties.admin.transaction(force_rollback=True):
        digest = """layout || '{"digest": "0 0"}'"""
        fetch(parties.admin, f"UPDATE kanon.publication SET layout = {digest}")
        assert failed_checks(parties.admin, "people") == [
            "the rows are those whose matches were checked when they were published"
        ]
    fetch(parties.analyst, "SET timezone = 'Asia/Tokyo'; SET datestyle = 'SQL, DMY'")
    assert holds(parties.analyst, "people")


def test_a_row_too_few_is_found(kanon: Functions | Package, parties: Parties) -> None:
    kanon.freeform("data.people", "people", replace=True, **QUICK)
    with parties.admin.transaction(force_rollback=True):
        fetch(parties.admin, "DELETE FROM published.people_row WHERE number = 5")
        fetch(parties.admin, "REFRESH MATERIALIZED VIEW published.people")
        assert "every record is published once" in failed_checks(parties.admin, "people")


@pytest.mark.parametrize("kind", ["freeform", "generalized"])
def test_other_cells_than_those_that_were_checked_are_not_published(
    parties: Parties, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Here each combination has the first cell of another one."""

    def shifted(*given: Any) -> CellTable:
        table = write_cells(*given)
        name, column = next(iter(table.columns.items()))
        moved = replace(column, of_combination=np.roll(column.of_combination, 1))
        return replace(table, columns={**table.columns, name: moved})

    monkeypatch.setattr("kanon_db.publications.rows.row_kind.write_cells", shifted)
    with pytest.raises(VerificationError) as failed:
        Package(parties.publisher).of_kind(kind, "data.people", "shifted", k=5)
    assert "the cells that were made are published" in failed.value.detail


def test_symmetric(kanon: Functions | Package, parties: Parties) -> None:
    fetch(parties.publisher, "CREATE TABLE data.few AS SELECT * FROM data.people LIMIT 8")
    kanon.register("data.few", QUASI_IDENTIFIERS, "sick", ["name"], insensitive=["number"])
    published = kanon.freeform("data.few", "few", k=3, options='{"symmetric": true}')
    assert published["guarantee"].endswith("matches are mutual, which does not change that")
    check_freeform(parties.publisher, "data.few", "few", QUASI_IDENTIFIERS, 3)


def test_k_concealment_is_said_to_be_weaker(kanon: Functions | Package, parties: Parties) -> None:
    given: dict[str, Any] = {"k": 4, "method": "k_concealment"}
    refused = lambda: kanon.freeform("data.people", "people", **given)
    assert sqlstate_of(refused) == INVALID
    options = '{"allow_weaker": true}'
    published = kanon.freeform("data.people", "people", options=options, **given)
    assert "weaker than k-anonymity" in published["guarantee"]
    originals = [(row[2], row[3], row[4]) for row in PEOPLE]
    rows = fetch(parties.publisher, "SELECT age, sex, town FROM published.people")
    for original in originals:
        assert sum(all(map(covers, cells, original)) for cells in rows) >= 4
