"""What a promise does not cover is refused, or accepted by name and said.

Each test is named after the finding that it keeps from coming back.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kanon_db.errors import IneligibleError, InUseError, InvalidParameterError, RiskError
from kanon_db.wording import for_shell
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_table,
    fetch,
    hearing,
    holds,
    remains,
    sqlstate_of,
    value,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

INVALID, MISMATCH, RISK = "22023", "42804", RiskError.sqlstate
PEOPLE = [(i, f"name {i}", 20 + i % 9, f"d{0 if i % 5 else i % 3}") for i in range(120)]
REASON = "only our own staff"


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    columns = "number int, name text, age int, sick text"
    create_table(parties.publisher, "data.people", columns, PEOPLE)
    Functions(parties.publisher).register("data.people", ["age"], "sick", ["name"])


def uncapped(parties: Parties, **given: Any) -> dict[str, Any]:
    return Functions(parties.publisher).publish(
        "data.people", "uncapped", privacy='{"default": 0.9}', estimates="uncapped", **given
    )


@pytest.mark.pitfall(20)
def test_local_buckets_are_refused_with_a_way_to_go_on(parties: Parties) -> None:
    """Whoever knows how they are made names the holders of rare values, whatever is accepted."""
    accept = json.dumps({"uninformed_reader": REASON})
    for way in (Functions, Package):
        for dry_run in (True, False):
            given = {"privacy": '{"l": 2}', "assignment": "local", "accept": accept}
            publish = lambda: way(parties.publisher).publish(
                "data.people", "local", **given, dry_run=dry_run
            )
            assert sqlstate_of(publish) == INVALID
    with pytest.raises(InvalidParameterError) as refused:
        Package(parties.publisher).publish("data.people", "local", **given)
    assert "assignment => 'cells'" in refused.value.hint
    assert "--assignment cells" in for_shell(refused.value.hint)
    assert remains(parties.admin) == []


def test_a_risk_must_be_accepted(parties: Parties) -> None:
    """It is refused, with what it is, until it is accepted by name."""
    assert sqlstate_of(lambda: uncapped(parties)) == RISK
    assert sqlstate_of(lambda: uncapped(parties, dry_run=True)) == RISK
    with pytest.raises(RiskError, match="uncapped_estimates") as refused:
        Package(parties.publisher).kanon.publish_buckets(
            "data.people", "uncapped", privacy={"default": 0.9}, estimates="uncapped"
        )
    assert "what a learner finds out" in refused.value.detail
    assert """accept => '{"uncapped_estimates": """ in refused.value.hint
    assert "--accept" in for_shell(refused.value.hint)
    assert remains(parties.admin) == []


def test_an_accepted_risk_is_kept_and_said(parties: Parties) -> None:
    """One that is not taken is not kept; of correlations, the guarantee says that it says nothing.

    Learners name more than the shares tell: ``kanon.attack`` measures it.
    """
    accept = json.dumps({"uncapped_estimates": REASON})
    published = uncapped(parties, accept=accept)
    assert "what correlations with other columns tell is not covered" in published["guarantee"]
    checks = Functions(parties.analyst).verify("uncapped")
    assert [REASON in line[2] for line in checks if "accepted risk" in line[0]] == [True]
    parameters = "SELECT parameters FROM kanon.publications"
    assert value(parties.analyst, parameters)["accept"] == {"uncapped_estimates": REASON}
    for altered in ('"x"', "null", "[]"):
        fetch(
            parties.admin,
            "UPDATE kanon.publication SET parameters ="
            f""" parameters || '{{"accept": {altered}}}'::jsonb""",
        )
        assert not holds(parties.analyst, "uncapped"), altered
    kanon = Functions(parties.publisher)
    kanon.drop("uncapped")
    kanon.publish("data.people", "random", privacy='{"default": 0.9}', accept=accept)
    assert value(parties.analyst, parameters)["accept"] == {}


def test_risks_are_accepted_by_name_with_a_reason(parties: Parties) -> None:
    for accept in (
        '{"uninformed_raeder": "why"}', '{"uninformed_reader": ""}', '{"uninformed_reader": " "}',
        '{"uninformed_reader": true}', '{"uninformed_reader": "a\\u001b[2J"}',
        '{"uninformed_reader": "two\\nlines"}', '{"uninformed_reader": "\\u200b"}',
        f'{{"uninformed_reader": "{"long" * 251}"}}',
        '["uninformed_reader"]', '"uninformed_reader"',
    ):  # fmt: skip
        assert sqlstate_of(lambda one=accept: uncapped(parties, accept=one)) == INVALID, accept


@pytest.mark.pitfall(32)
def test_thresholds_that_bind_no_value_are_refused(parties: Parties) -> None:
    """Of buckets: `l` of 1, thresholds of 1 for every value."""
    for privacy in (
        '{"l": 1}', '{"default": 1}', '{"theta": 50}', '{"theta": 0, "base": 1}', '{"l": "1"}',
        '{"cap": 1}',
    ):  # fmt: skip
        for given in ({}, {"dry_run": True}):
            refused = sqlstate_of(
                lambda p=privacy, g=given: Functions(parties.publisher).publish(
                    "data.people", "p", privacy=p, **g
                )
            )
            assert refused == INVALID, privacy


@pytest.mark.pitfall(32)
def test_constraints_that_bind_no_value_are_refused(parties: Parties) -> None:
    """Of generalized rows: `l` of 1, a distance of 1, thresholds of 1 for every value."""
    for constraints in (
        '{"l": 1}', '{"entropy_l": 1}', '{"t": 1}', '{"default": 1}', '{"theta": 50}',
        '{"l": 2, "default": 1}',
    ):  # fmt: skip
        for given in ({}, {"dry_run": True}):
            refused = sqlstate_of(
                lambda c=constraints, g=given: Functions(parties.publisher).of_kind(
                    "generalized", "data.people", "p", constraints=c, **g
                )
            )
            assert refused == INVALID, constraints


@pytest.mark.pitfall(32)
def test_a_k_of_one_is_refused(parties: Parties) -> None:
    """By every kind that has a k."""
    kanon = Functions(parties.publisher)
    for publish in (kanon.generalize, kanon.freeform, kanon.suppress):
        assert sqlstate_of(lambda p=publish: p("data.people", "p", k=1)) == INVALID


@pytest.mark.pitfall(32)
def test_certain_people_are_counted_and_said(parties: Parties) -> None:
    """With theta 8 the most frequent value has a threshold of 1, and fills whole buckets."""
    with hearing(parties.publisher) as heard:
        published = Functions(parties.publisher).publish(
            "data.people", "p", privacy='{"theta": 2, "base": 0.02}'
        )
    certain = value(
        parties.analyst,
        "SELECT coalesce(sum(count), 0)::int8 FROM (SELECT count, count(*) OVER (PARTITION BY"
        " bucket_id) AS n_values FROM published.p_sat) AS s WHERE n_values = 1",
    )
    assert certain > 0
    assert published["metrics"]["certain_records"] == certain
    share = sum(row[3] == "d0" for row in PEOPLE) / len(PEOPLE)
    assert published["metrics"]["unbounded_share"] == pytest.approx(share)
    assert f"the value of {certain} people is certain" in published["guarantee"]
    assert f"the threshold is 1 for {share:.1%} of the records" in published["guarantee"]
    assert any(f"the value of {certain} people is certain" in text for text in heard)
    assert any(f"the threshold is 1 for {share:.1%} of the records" in text for text in heard)
    (line,) = [
        line for line in Functions(parties.analyst).verify("p") if "value is certain" in line[0]
    ]
    assert line[2] == f"{certain} people"


@contextlib.contextmanager
def changing(parties: Parties) -> Iterator[Callable[[str], object]]:
    """A table of names, notes, ages and illnesses, and a way to alter it."""
    create_table(parties.publisher, "data.changing", "name text, note text, age int, sick text", [])
    fill = "INSERT INTO data.changing SELECT name, 'a', age, sick FROM data.people"
    fetch(parties.publisher, fill)
    yield lambda change: fetch(parties.publisher, f"ALTER TABLE data.changing {change}")
    fetch(parties.publisher, "DROP TABLE data.changing")


@pytest.mark.pitfall(24)
def test_columns_that_changed_since_registration_are_not_published(parties: Parties) -> None:
    """A renamed identifier or a new column would be published in the clear by the row kinds.

    And one that swapped names with an identifier, under the identifier's name.
    """
    kanon = Functions(parties.publisher)
    suppress = lambda: kanon.suppress("data.changing", "p", k=3)
    for changes, identifiers in (
        (["ADD ssn text"], ["name", "ssn"]),
        (["RENAME name TO full_name"], ["full_name"]),
        (["DROP COLUMN name"], []),
        (["RENAME name TO other", "RENAME note TO name", "RENAME other TO note"], ["note"]),
    ):
        with changing(parties) as alter:
            kanon.register("data.changing", ["age"], "sick", ["name"])
            for change in changes:
                alter(change)
            assert sqlstate_of(suppress) == MISMATCH, changes
            publish = lambda: kanon.publish("data.changing", "p", privacy='{"l": 1.2}')
            assert sqlstate_of(publish) == MISMATCH, changes
            kanon.register("data.changing", ["age"], "sick", identifiers)
            suppress()
            kanon.drop("p")


def test_new_columns_can_be_identifiers_while_there_are_publications(parties: Parties) -> None:
    """Else one publisher's new column would wait until all others have dropped theirs.

    But no column that a publication shows becomes an identifier: those are never published.
    """
    kanon = Functions(parties.publisher)
    register = lambda *identifiers: kanon.register(
        "data.changing", ["age"], "sick", identifiers,
        insensitive=[] if {"note", "remark"} & {*identifiers} else ["note"],
    )  # fmt: skip
    refused = lambda *identifiers: sqlstate_of(lambda: register(*identifiers))
    with changing(parties) as alter:
        register("name")
        kanon.suppress("data.changing", "p", k=3)
        alter("ADD ssn text")
        refresh = lambda: kanon.suppress("data.changing", "p", k=3, replace=True)
        assert sqlstate_of(refresh) == MISMATCH
        for identifiers in ([], ["ssn"], ["name", "note"], ["name", "note", "ssn"]):
            assert refused(*identifiers) == InUseError.sqlstate
        register("name", "ssn")
        refresh()
        shown = value(parties.admin, "SELECT to_jsonb(p) FROM published.p LIMIT 1")
        assert ("note" in shown, "ssn" in shown) == (True, False)
        alter("RENAME note TO remark")
        # Neither unknown columns nor a description that is gone is taken for one without change.
        its = "kanon.source {} WHERE relation_name = 'changing'"
        for statement in (
            "SELECT 1", "UPDATE " + its.format("SET columns = '{}', identifiers = '{}'"),
            "DELETE FROM " + its.format(""),
        ):  # fmt: skip
            fetch(parties.admin, statement)
            assert refused("name", "ssn", "remark") == InUseError.sqlstate, statement
        kanon.drop("p")


def test_a_refusal_does_not_advise_what_is_refused(parties: Parties) -> None:
    """With one value in more than half of the records, no whole l above 1 is possible."""
    publish = lambda privacy: Package(parties.publisher).kanon.publish_buckets(
        "data.people", "p", privacy=privacy
    )
    with pytest.raises(IneligibleError) as refused:
        publish({"l": 4})
    advised = re.match(r"lower l to (1\.\d+)\b", refused.value.hint or "")
    assert advised is not None
    publish({"l": advised[1]})


@pytest.mark.pitfall(22)
def test_metrics_of_the_source_are_the_publishers(parties: Parties) -> None:
    """Loss by column gives away a value that is left out: readers see what they could measure."""
    kanon = Functions(parties.publisher)
    published = kanon.of_kind("generalized", "data.people", "p", k=5)
    hidden = {"gcp", "gcp_ob", "weighted_loss", "loss_of_age"}
    listed = "SELECT metrics FROM kanon.publications"
    found = published["metrics"], kanon.metrics("p"), value(parties.publisher, listed)
    assert all(hidden <= metrics.keys() for metrics in found)
    assert not hidden & Functions(parties.analyst).metrics("p").keys()
    assert not hidden & value(parties.analyst, listed).keys()
    # Nor do other publishers read the catalog's column of them.
    for select in ("SELECT source_metrics FROM kanon.publication", "TABLE kanon.publication"):
        assert sqlstate_of(lambda one=select: fetch(parties.publisher, one)) == "42501"
