"""What a promise does not cover is refused, or accepted by name and said.

Each test is named after the finding that it keeps from coming back.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from kanon_db.errors import IneligibleError, InUseError, RiskError
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
REASON = "only our own staff, who do not know the method"


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    columns = "number int, name text, age int, sick text"
    create_table(parties.publisher, "data.people", columns, PEOPLE)
    Functions(parties.publisher).register("data.people", ["age"], "sick", ["name"])


def local(parties: Parties, **given: Any) -> dict[str, Any]:
    return Functions(parties.publisher).publish(
        "data.people", "local", privacy='{"default": 0.9}', assignment="local", **given
    )


@pytest.mark.pitfall(20)
def test_minimality_of_local_buckets_is_a_risk_that_must_be_accepted(parties: Parties) -> None:
    """`local` is refused, with what it does not cover, until the risk is accepted by name."""
    assert sqlstate_of(lambda: local(parties)) == RISK
    assert sqlstate_of(lambda: local(parties, dry_run=True)) == RISK
    with pytest.raises(RiskError, match="uninformed_reader") as refused:
        Package(parties.publisher).kanon.publish_buckets(
            "data.people", "local", privacy={"default": 0.9}, assignment="local"
        )
    assert "do not know how records were put into buckets" in refused.value.detail
    assert """accept => '{"uninformed_reader": """ in refused.value.hint
    assert "--accept" in for_shell(refused.value.hint)
    assert remains(parties.admin) == []


def test_the_guarantee_of_buckets_says_that_correlations_are_not_covered(parties: Parties) -> None:
    """Learners name more than the shares tell: ``kanon.attack`` measures it."""
    published = Functions(parties.publisher).publish(
        "data.people", "said", privacy='{"default": 0.9}', dry_run=True
    )
    assert "what correlations with other columns tell is not covered" in published["guarantee"]


def test_an_accepted_risk_is_kept_and_said(parties: Parties) -> None:
    published = local(parties, accept=f'{{"uninformed_reader": "{REASON}"}}')
    assert "by readers who do not know how records were put into buckets" in published["guarantee"]
    (accepted,) = [
        line for line in Functions(parties.analyst).verify("local") if "accepted risk" in line[0]
    ]
    assert REASON in accepted[2]
    parameters = value(parties.analyst, "SELECT parameters FROM kanon.publications")
    assert parameters["accept"] == {"uninformed_reader": REASON}


def test_a_risk_that_is_not_taken_is_not_kept(parties: Parties) -> None:
    accept = f'{{"uninformed_reader": "{REASON}"}}'
    kanon = Functions(parties.publisher)
    kanon.publish("data.people", "random", privacy='{"default": 0.9}', accept=accept)
    assert value(parties.analyst, "SELECT parameters FROM kanon.publications")["accept"] == {}


@pytest.mark.parametrize(
    "accept",
    ['{"uninformed_raeder": "why"}', '{"uninformed_reader": ""}', '{"uninformed_reader": " "}',
     '{"uninformed_reader": true}', '{"uninformed_reader": "a\\u001b[2J"}',
     '{"uninformed_reader": "two\\nlines"}', '{"uninformed_reader": "\\u200b"}',
     f'{{"uninformed_reader": "{"long" * 251}"}}',
     '["uninformed_reader"]', '"uninformed_reader"'],
)  # fmt: skip
def test_risks_are_accepted_by_name_with_a_reason(parties: Parties, accept: str) -> None:
    assert sqlstate_of(lambda: local(parties, accept=accept)) == INVALID


@pytest.mark.pitfall(32)
@pytest.mark.parametrize(
    "privacy",
    ['{"l": 1}', '{"default": 1}', '{"theta": 50}', '{"theta": 0, "base": 1}', '{"l": "1"}'],
)
def test_thresholds_that_bind_no_value_are_refused(parties: Parties, privacy: str) -> None:
    """Of buckets: `l` of 1, thresholds of 1 for every value."""
    publish = lambda **given: Functions(parties.publisher).publish(
        "data.people", "p", privacy=privacy, **given
    )
    assert sqlstate_of(publish) == INVALID
    assert sqlstate_of(lambda: publish(dry_run=True)) == INVALID


@pytest.mark.pitfall(32)
@pytest.mark.parametrize(
    "constraints",
    ['{"l": 1}', '{"entropy_l": 1}', '{"t": 1}', '{"default": 1}', '{"theta": 50}',
     '{"l": 2, "default": 1}'],
)  # fmt: skip
def test_constraints_that_bind_no_value_are_refused(parties: Parties, constraints: str) -> None:
    """Of generalized rows: `l` of 1, a distance of 1, thresholds of 1 for every value."""
    publish = lambda **given: Functions(parties.publisher).generalize(
        "data.people", "p", k=3, constraints=constraints, options='{"time_limit": 1}', **given
    )
    assert sqlstate_of(publish) == INVALID
    assert sqlstate_of(lambda: publish(dry_run=True)) == INVALID


@pytest.mark.pitfall(32)
@pytest.mark.parametrize("call", ["generalize", "freeform", "suppress"])
def test_a_k_of_one_is_refused(parties: Parties, call: str) -> None:
    """By every kind that has a k."""
    publish = getattr(Functions(parties.publisher), call)
    assert sqlstate_of(lambda: publish("data.people", "p", k=1)) == INVALID


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


@pytest.mark.pitfall(24)
@pytest.mark.parametrize(
    "change",
    ["ADD ssn text", "RENAME name TO full_name", "DROP name"],
    ids=["added", "renamed", "dropped"],
)
def test_columns_that_changed_since_registration_are_not_published(
    parties: Parties, change: str
) -> None:
    """A renamed identifier or a new column would be published in the clear by the row kinds."""
    kanon = Functions(parties.publisher)
    create_table(parties.publisher, "data.changing", "name text, age int, sick text", [])
    try:
        fetch(
            parties.publisher, "INSERT INTO data.changing SELECT name, age, sick FROM data.people"
        )
        kanon.register("data.changing", ["age"], "sick", ["name"])
        fetch(
            parties.publisher, f"ALTER TABLE data.changing {change.replace('DROP', 'DROP COLUMN')}"
        )
        assert sqlstate_of(lambda: kanon.suppress("data.changing", "p", k=3)) == MISMATCH
        publish = lambda: kanon.publish("data.changing", "p", privacy='{"l": 1.2}')
        assert sqlstate_of(publish) == MISMATCH
        identifiers = {"ADD": ["name", "ssn"], "RENAME": ["full_name"], "DROP": []}
        kanon.register("data.changing", ["age"], "sick", identifiers[change.split()[0]])
        kanon.suppress("data.changing", "p", k=3)
    finally:
        fetch(parties.admin, "DROP TABLE data.changing")


@pytest.mark.pitfall(24)
def test_columns_that_swapped_their_names_are_not_published(parties: Parties) -> None:
    """The identifier would be published under the other's name."""
    kanon = Functions(parties.publisher)
    create_table(parties.publisher, "data.swapped", "name text, note text, age int, sick text", [])
    try:
        fetch(
            parties.publisher,
            "INSERT INTO data.swapped SELECT name, 'a', age, sick FROM data.people",
        )
        kanon.register("data.swapped", ["age"], "sick", ["name"])
        for old, new in (("name", "other"), ("note", "name"), ("other", "note")):
            fetch(parties.publisher, f"ALTER TABLE data.swapped RENAME {old} TO {new}")
        assert sqlstate_of(lambda: kanon.suppress("data.swapped", "p", k=3)) == MISMATCH
    finally:
        fetch(parties.admin, "DROP TABLE data.swapped")


def test_new_columns_can_be_identifiers_while_there_are_publications(parties: Parties) -> None:
    """Else one publisher's new column would wait until all others have dropped theirs.

    But no column that a publication shows becomes an identifier: those are never published.
    """
    kanon = Functions(parties.publisher)
    create_table(parties.publisher, "data.growing", "name text, note text, age int, sick text", [])
    register = lambda *identifiers: kanon.register(
        "data.growing", ["age"], "sick", identifiers,
        insensitive=[] if {"note", "remark"} & {*identifiers} else ["note"],
    )  # fmt: skip
    refused = lambda *identifiers: sqlstate_of(lambda: register(*identifiers))
    try:
        fetch(
            parties.publisher,
            "INSERT INTO data.growing SELECT name, 'a', age, sick FROM data.people",
        )
        register("name")
        kanon.suppress("data.growing", "p", k=3)
        fetch(parties.publisher, "ALTER TABLE data.growing ADD ssn text")
        refresh = lambda: kanon.suppress("data.growing", "p", k=3, replace=True)
        assert sqlstate_of(refresh) == MISMATCH
        for identifiers in ([], ["ssn"], ["name", "note"], ["name", "note", "ssn"]):
            assert refused(*identifiers) == InUseError.sqlstate
        register("name", "ssn")
        refresh()
        shown = value(parties.admin, "SELECT to_jsonb(p) FROM published.p LIMIT 1")
        assert "note" in shown
        assert "ssn" not in shown
        fetch(parties.publisher, "ALTER TABLE data.growing RENAME note TO remark")
        assert refused("name", "ssn", "remark") == InUseError.sqlstate
        # Neither unknown columns nor a description that is gone is taken for one without change.
        fetch(
            parties.admin,
            "UPDATE kanon.source SET columns = '{}', identifiers = '{}'"
            " WHERE relation_name = 'growing'",
        )
        assert refused("name", "ssn", "remark") == InUseError.sqlstate
        fetch(parties.admin, "DELETE FROM kanon.source WHERE relation_name = 'growing'")
        assert refused("name", "ssn", "remark") == InUseError.sqlstate
        kanon.drop("p")
    finally:
        fetch(parties.admin, "DROP TABLE data.growing")


@pytest.mark.pitfall(22)
def test_other_publishers_do_not_read_metrics_of_the_source(parties: Parties) -> None:
    """Publishers cannot read the catalog's column of metrics that were measured from the source."""
    Functions(parties.publisher).generalize("data.people", "p", k=5, options='{"time_limit": 1}')
    select = "SELECT source_metrics FROM kanon.publication"
    assert sqlstate_of(lambda: fetch(parties.publisher, select)) == "42501"
    assert sqlstate_of(lambda: fetch(parties.publisher, "TABLE kanon.publication")) == "42501"


def test_an_altered_record_of_accepted_risks_fails_verification(parties: Parties) -> None:
    local(parties, accept=f'{{"uninformed_reader": "{REASON}"}}')
    for altered in ('"x"', "null", "[]"):
        fetch(
            parties.admin,
            "UPDATE kanon.publication SET parameters ="
            f""" parameters || '{{"accept": {altered}}}'::jsonb""",
        )
        assert not holds(parties.analyst, "local")


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
    published = Functions(parties.publisher).generalize(
        "data.people", "p", k=5, options='{"time_limit": 1}'
    )
    hidden = {"gcp", "gcp_ob", "weighted_loss", "loss_of_age"}
    assert hidden <= published["metrics"].keys()
    assert hidden <= Functions(parties.publisher).metrics("p").keys()
    listed = value(parties.publisher, "SELECT metrics FROM kanon.publications")
    assert hidden <= listed.keys()
    assert not hidden & Functions(parties.analyst).metrics("p").keys()
    assert not hidden & value(parties.analyst, "SELECT metrics FROM kanon.publications").keys()
