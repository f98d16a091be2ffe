"""Labels of hierarchies in the place of sets: what is published, and what it tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.acceptance.commands import kanon as command
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_source,
    create_table,
    failed_checks,
    fetch,
    hearing,
    holds,
    value,
)
from tests.integration.row_checks import check_bounds
from tests.profiles import long_but

INVALID, MISMATCH = "22023", "42804"
JOBS = {
    "nurse": ["care", "health", "any"],
    "midwife": ["care", "health", "any"],
    "doctor": ["medicine", "health", "any"],
    "surgeon": ["medicine", "health", "any"],
    "baker": ["food", "trade", "any"],
    "cook": ["food", "trade", "any"],
    "mason": ["mason", "trade", "any"],
    "nobody has this": ["food", "trade", "any"],
}
METHODS = {
    "mondrian": "generalized", "greedy_search": "generalized", "k_member": "generalized",
    "split_carry": "generalized", "initial": "generalized", "sort_greedy": "freeform",
}  # fmt: skip
OF_JOBS = json.dumps({"job": {"hierarchy": JOBS}})
NAMES = [name for name in JOBS if name != "nobody has this"]


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    rows = [
        (
            i, NAMES[i * i // 5 % 7] if i % 13 else None, ("x", "y", "z")[i % 3], 20 + i * 7 % 40,
            f"ill {i % 5}",
        )
        for i in range(240)
    ]  # fmt: skip
    create_table(
        parties.publisher, "data.people", "number int, job text, side char(3), age int, sick text",
        rows,
    )  # fmt: skip


def register(parties: Parties, **attributes: Any) -> Functions:
    kanon = Functions(parties.publisher)
    for name in kanon.publications():
        kanon.drop(name)
    kanon.register(
        "data.people", ["job", "side", "age"], "sick", insensitive=["number"],
        attributes=json.dumps(attributes),
    )  # fmt: skip
    return kanon


def members(label: str | None) -> set[str | None]:
    """The values that a label of the jobs stands for."""
    if label is None:
        return {None}
    if label == "*":
        return {*JOBS, None}
    return {job for job, labels in JOBS.items() if label in (job, *labels)}


@pytest.mark.long
@pytest.mark.parametrize("method", long_but({"mondrian", "sort_greedy"}, METHODS))
def test_labels_cover_the_values(parties: Parties, method: str) -> None:
    kanon = register(parties, job={"hierarchy": JOBS}, age={"round": 10})
    kind = METHODS[method]
    quick = {"options": '{"time_limit": 0.3}'} if kind == "generalized" else {}
    kanon.call(f"publish_{kind}", "data.people", "people", k=4, method=method, **quick)
    rows = fetch(
        parties.publisher,
        "SELECT s.job, c.job FROM data.people AS s JOIN published.people AS c USING (number)",
    )
    assert len(rows) == 240
    for job, label in rows:
        assert label is None or label in {*JOBS, "*"} | {x for its in JOBS.values() for x in its}
        assert job in members(label), (job, label)
    assert {label for _, label in rows} - {*JOBS, None}
    assert holds(parties.analyst, "people")
    assert kanon.attack("people")


def test_the_lowest_label_is_shown(parties: Parties) -> None:
    """With one quasi-identifier, each class can be a label; certain is what it covers whole."""
    kanon = create_source(
        parties.publisher, "data.jobs", "job text, sick text",
        [(job, "ill") for job, n in (("nurse", 9), ("midwife", 2), ("doctor", 1), ("surgeon", 3),
                                     ("baker", 5), ("mason", 2)) for _ in range(n)],
        attributes=OF_JOBS,
    )  # fmt: skip
    with hearing(parties.publisher) as said:
        metrics = kanon.generalize(
            "data.jobs", "jobs", k=4, method="mondrian", options='{"bound_time": 60}'
        )["metrics"]
    assert "gap" not in metrics
    assert any("no bound on the loss is proven" in message for message in said)
    shown = dict(fetch(parties.analyst, "SELECT job, count(*) FROM published.jobs GROUP BY job"))
    assert sum(shown.values()) == 22
    assert set(shown) <= {*JOBS, "care", "medicine", "health", "food", "trade", "any"}
    assert shown.get("medicine") == 4
    analyst = Functions(parties.analyst)
    found = analyst.estimate("SELECT COUNT(*) FROM jobs WHERE job IN ('doctor', 'surgeon')")
    assert found == (4, 0, 4, 4)
    assert analyst.estimate("SELECT COUNT(*) FROM jobs WHERE job IS NULL") == (0, 0, 0, 0)


def test_values_that_nobody_has_are_possible(parties: Parties) -> None:
    """Readers do not learn which of the values of a label occur; NULL and values are anything."""
    kanon = register(parties, job={"hierarchy": {job: ["any"] for job in JOBS}})
    kanon.generalize("data.people", "people", k=100, method="mondrian")
    _, _, lower, upper = Functions(parties.analyst).estimate(
        "SELECT COUNT(*) FROM people WHERE job = 'nobody has this'"
    )
    assert lower == 0 < upper
    kanon = register(parties, job={"hierarchy": JOBS})
    kanon.generalize("data.people", "people", k=240, method="mondrian")
    assert fetch(parties.analyst, "SELECT DISTINCT job FROM published.people") == [("*",)]
    check_bounds(parties, "people", "job IS NULL")


def test_missing_values_are_counted_and_not_named(parties: Parties) -> None:
    some = {job: labels for job, labels in JOBS.items() if job not in ("nurse", "baker")}
    kanon = register(parties, job={"hierarchy": some})
    with pytest.raises(psycopg.Error) as caught:
        kanon.generalize("data.people", "people", k=4)
    assert caught.value.sqlstate == MISMATCH
    assert "2 of 8 distinct values" in str(caught.value.diag.message_detail)
    said = str(caught.value)
    assert "nurse" not in said
    assert "baker" not in said


def test_what_is_no_hierarchy(parties: Parties) -> None:
    """A SQL function reads no file; whatever it is given, it says what to type."""
    for described in (
        {"hierarchy": {}}, {"hierarchy": []}, {"hierarchy": "/etc/passwd"}, {"hierarchy": None},
        {"hierarchy": {"nurse": ["a"], "baker": ["a", "b"]}}, {"hierarchy": JOBS, "round": 5},
        {"hierarchy": JOBS, "kind": "numeric"}, {"hierarchy": JOBS, "lower": "a"},
        {"hierarchy": {"nurse": ["baker"], "baker": ["nurse"]}},
    ):  # fmt: skip
        with pytest.raises(psycopg.Error) as caught:
            register(parties, job=described)
        assert caught.value.sqlstate in (INVALID, "22P02"), described
        assert "passwd" not in str(caught.value)
        assert "root" not in str(caught.value)


def test_batches_have_the_same_labels(parties: Parties) -> None:
    kanon = create_source(
        parties.publisher, "data.grows", "job text, sick text, came date", [],
        ["job"], "sick", arrival="came", attributes=OF_JOBS,
    )  # fmt: skip
    insert = (
        "INSERT INTO data.grows SELECT ($1::text[])[1 + i % cardinality($1::text[])],"
        " 'ill ' || i % 4, date '2026-01-01' + $2::int FROM generate_series(1, 40) AS i"
    )
    fetch(parties.publisher, insert, ["nurse", "doctor"], 0)
    kanon.generalize("data.grows", "grows", k=3, method="mondrian")
    fetch(parties.publisher, insert, ["nurse", "mason", None], 1)
    assert kanon.call("refresh", "grows")["added"] == 40
    assert holds(parties.analyst, "grows")
    for where in ("job = 'nurse'", "job IS NULL", "job = 'mason'"):
        check_bounds(parties, "grows", where)
    fetch(parties.publisher, insert, ["astronaut"], 2)
    with pytest.raises(psycopg.Error, match="lacks values"):
        kanon.call("refresh", "grows")


def test_a_label_that_is_not_known_fails_the_verification(parties: Parties) -> None:
    kanon = register(parties, job={"hierarchy": JOBS})
    kanon.generalize("data.people", "people", k=4, method="mondrian")
    fetch(
        parties.admin,
        "UPDATE kanon.publication SET layout = jsonb_set(layout,"
        " '{quasi_identifiers,1,labels,labels}', '[]') WHERE name = 'people'",
    )
    assert any("hierarchy" in check for check in failed_checks(parties.analyst, "people"))


@pytest.mark.long
def test_it_can_be_tried_and_recommended(parties: Parties) -> None:
    kanon = register(parties, job={"hierarchy": JOBS}, age={"round": 10, "top": 50})
    row = kanon.generalize("data.people", "tried", k=4, method="mondrian", dry_run=True)
    assert row["publication_id"] is None
    assert row["metrics"]["figures"]["attacks"]
    assert 0 < row["metrics"]["loss_of_job"] < 1
    fetch(parties.publisher, "DELETE FROM data.people WHERE number > 40")
    given = {"purpose": "rows", "protection": "basic", "time_limit": 20}
    found = kanon.rows("recommend", "data.people", **given)
    placed = [row for row in found if row["place"] is not None]
    assert placed
    assert all(row["loss"] <= 1 for row in placed)
    refused = [row["objection"] for row in found if row["candidate"].startswith("suppressed")]
    assert all("not coarsened" in why for why in refused)


def test_files(parties: Parties, tmp_path: Path) -> None:
    """Python and the command line read a CSV file as ARX writes it."""
    path = tmp_path / "jobs.csv"
    path.write_text("".join(f"{job};{';'.join(labels)}\n" for job, labels in JOBS.items()))
    attributes = json.dumps({"job": {"hierarchy": str(path)}})
    register(parties)
    Package(parties.publisher).register("data.people", ["job"], "sick", attributes=attributes)
    kept = value(
        parties.publisher,
        "SELECT attributes -> 'job' -> 'hierarchy' FROM kanon.source"
        " WHERE relation_name = 'people'",
    )
    assert kept == JOBS
    fetch(parties.admin, "CREATE TABLE data.own AS TABLE data.people")
    register_own = (
        "register", "data.own", "--quasi-identifiers", "job", "--sensitive", "sick",
        "--attributes", attributes, "--dsn", parties.dsn,
    )  # fmt: skip
    answer = command(*register_own)
    assert answer.returncode == 0, answer.stderr
    path.write_bytes(b"nurse;care\nbaker\n")
    answer = command(*register_own)
    assert answer.returncode != 0
    assert "jobs.csv, line 2" in answer.stderr


def test_a_large_hierarchy(parties: Parties) -> None:
    """Thousands of values are published in their labels, and answered."""
    kanon = Functions(parties.publisher)
    tree = {f"{i:05}": [f"{i // 10:04}_", f"{i // 100:03}__", "*"] for i in range(3_000)}
    fetch(
        parties.publisher,
        "CREATE TABLE data.zips AS SELECT lpad((i * 37 % 3000)::text, 5, '0') AS zip,"
        " 'ill ' || i % 3 AS sick FROM generate_series(1, 1500) AS i",
    )
    kanon.register(
        "data.zips", ["zip"], "sick", attributes=json.dumps({"zip": {"hierarchy": tree}})
    )
    kanon.generalize("data.zips", "zips", k=5, method="mondrian", refine=False)
    for where in ("zip < '01500'", "zip = '00370'"):
        check_bounds(parties, "zips", where)


def test_values_that_are_none(parties: Parties) -> None:
    """They would be published, and no question about them could be answered."""
    for number, (type_, values, message) in enumerate(
        (
            ("numeric", ["1", "2", "NaN"], "must be finite"),
            ("float8", ["1", "2", "Infinity"], "must be finite"),
            ("int", ["1", "2", "age"], "cannot be read as the column's type"),
            ("int", ["1", "2", "02"], "the same value twice"),
            ("date", ["2000-01-01", "2000-02-30"], "cannot be read as the column's type"),
            ("date", ["2000-01-01", "today"], "must not depend on when it is read"),
        )
    ):
        attributes = json.dumps({"v": {"hierarchy": {text: ["any"] for text in values}}})
        with pytest.raises(psycopg.Error, match=message) as refused:
            create_source(
                parties.publisher, f"data.values_{number}", f"v {type_}, sick text", [],
                attributes=attributes,
            )  # fmt: skip
        assert refused.value.sqlstate == INVALID
        assert values[-1] not in str(refused.value)
