"""Thresholds that say nothing: readers see for whom, and a cap leaves none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import psycopg
import pytest

from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from tests.integration.parties import (
    Functions,
    Parties,
    create_source,
    fetch,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

VALUES = ["flu"] * 96 + ["cold"] * 20 + ["hiv"] * 2 + [None] * 2
PEOPLE = [(20 + i % 9, sick) for i, sick in enumerate(VALUES)]
UNBOUNDED = "share of the records whose value has a threshold of 1"
OF_RELEASES = "the same readers can read other publications of this source"
CERTAIN = "people whose sensitive value is certain, in buckets of one value"


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_source(parties.publisher, "data.people", "age int, sick text", PEOPLE)


@contextmanager
def heard(parties: Parties) -> Iterator[list[str]]:
    """The warnings that the publisher hears, but that the same people are published again."""
    messages: list[str] = []

    def listen(notice: psycopg.errors.Diagnostic) -> None:
        text = str(notice.message_primary)
        if notice.severity_nonlocalized == "WARNING" and not text.startswith(OF_RELEASES):
            messages.append(text)

    parties.publisher.add_notice_handler(listen)
    yield messages
    parties.publisher.remove_notice_handler(listen)


def verified(parties: Parties, check: str) -> str:
    """What an analyst's verification measures."""
    (line,) = [line for line in Functions(parties.analyst).verify("p") if line[0] == check]
    assert line[3]
    return str(line[2])


def publish(parties: Parties, privacy: dict[str, Any], **given: Any) -> dict[str, Any]:
    kanon = Functions(parties.publisher)
    return kanon.publish("data.people", "p", privacy=json.dumps(privacy), **given)


@pytest.mark.pitfall(32)
def test_verify_says_for_which_share_the_threshold_is_1(parties: Parties) -> None:
    published = publish(parties, {"theta": 2, "base": 0.02})
    assert verified(parties, UNBOUNDED) == "80.0%: 96 of 120 records"
    assert published["metrics"]["unbounded_share"] == pytest.approx(0.8)
    assert Functions(parties.analyst).metrics("p")["unbounded_share"] == pytest.approx(0.8)
    assert "the threshold is 1 for 80.0% of the records" in published["guarantee"]


def test_own_thresholds_of_1_are_counted(parties: Parties) -> None:
    publish(parties, {"default": 0.9, "values": {"cold": 1}, "null": 1})
    assert verified(parties, UNBOUNDED) == "18.3%: 22 of 120 records"


@pytest.mark.pitfall(32)
def test_a_cap_leaves_nobody_certain(parties: Parties) -> None:
    """With theta alone, the most frequent value fills whole buckets; see test_promises."""
    privacy = {"theta": 8, "base": 0.02}
    with heard(parties) as messages:
        before = publish(parties, privacy)
    assert before["metrics"]["certain_records"] > 0
    assert len(messages) == 2
    with heard(parties) as messages:
        published = publish(parties, {**privacy, "cap": 0.85}, replace=True)
    assert messages == []
    assert published["metrics"]["certain_records"] == 0
    assert published["metrics"]["unbounded_share"] == 0
    assert "(theta 8, base 0.02, cap 0.85)" in published["guarantee"]
    assert "certain" not in published["guarantee"]
    assert verified(parties, CERTAIN) == "0 people"
    assert verified(parties, UNBOUNDED) == "0.0%: 0 of 120 records"


def test_the_server_judges_by_the_same_thresholds(parties: Parties) -> None:
    """What was published under other thresholds is judged by those in the catalog."""
    publish(parties, {"default": 0.9})
    names: list[str | None] = ["flu", "cold", "hiv", None]
    counts = [VALUES.count(name) for name in names]  # type: ignore[arg-type]
    rows = fetch(
        parties.analyst,
        "SELECT sick, count, (sum(count) OVER (PARTITION BY bucket_id))::int8 AS size"
        " FROM published.p_sat",
    )
    other: list[dict[str, Any]] = [
        {"cap": 0.5},
        {"cap": "1/3", "default": 0.9},
        {"cap": 0.9, "theta": 2},
        {"cap": 0.01, "default": 1, "values": {"hiv": 1, "cold": 0.5}},
        {"cap": 0.01, "null": 1, "default": 1},
        {"theta": 2, "values": {"flu": 1, "cold": 0.02}, "null": 0.001},
        {"theta": 8, "base": 0.02},
        {"l": 3, "theta": 2, "base": 0.1, "cap": 0.75},
    ]
    for privacy in other:
        fetch(
            parties.admin,
            "UPDATE kanon.publication SET parameters = parameters || jsonb_build_object('privacy',"
            " $1::text::jsonb)",
            json.dumps(privacy),
        )
        found = PrivacySpecification.parse(privacy).thresholds(names, counts).thresholds
        thresholds = dict(zip(names, found, strict=True))
        ratios = [Fraction(n, size) / thresholds[sick] for sick, n, size in rows]
        exceeding = sum(ratio > 1 for ratio in ratios)
        checks = Functions(parties.analyst).verify("p")
        (line,) = [line for line in checks if line[0].startswith("F'-privacy")]
        measured = f"{exceeding} exceed it, largest ratio {float(max(ratios)):.6g}"
        assert (line[2], line[3]) == (measured, exceeding == 0), privacy
        unbounded = sum(n for name, n in zip(names, counts, strict=True) if thresholds[name] == 1)
        assert verified(parties, UNBOUNDED).endswith(f": {unbounded} of 120 records"), privacy


def test_classes_say_for_which_share_the_threshold_is_1(parties: Parties) -> None:
    generalize = lambda constraints: Functions(parties.publisher).generalize(
        "data.people", "p", k=3, constraints=json.dumps(constraints),
        options='{"time_limit": 1}', replace=True,
    )  # fmt: skip
    with heard(parties) as messages:
        published = generalize({"theta": 2, "base": 0.02})
    assert "the threshold is 1 for 80.0% of the records: no bound" in messages
    assert published["guarantee"].endswith("; the threshold is 1 for 80.0% of the records")
    assert verified(parties, UNBOUNDED) == "80.0%: 96 of 120 records"
    published = generalize({"theta": 2, "base": 0.02, "cap": 0.9})
    assert "threshold is 1" not in published["guarantee"]
    assert verified(parties, UNBOUNDED) == "0.0%: 0 of 120 records"
    broken = "UPDATE published.p_row SET sick = 'flu'"
    with parties.admin.transaction(force_rollback=True):
        fetch(parties.admin, broken)
        fetch(parties.admin, "REFRESH MATERIALIZED VIEW published.p")
        failed = [check for check, *_, holds in Functions(parties.admin).verify("p") if not holds]
        assert sorted(failed) == [
            "F'-privacy: frequency in class <= threshold",
            "the numbers of the cells are those of the rows",
        ]


def test_constraints_are_promised_to_readers_who_do_not_know_the_method(parties: Parties) -> None:
    """Classes then depend on sensitive values, so that the method itself tells something."""
    generalize = lambda **given: Functions(parties.publisher).generalize(
        "data.people", "p", k=3, options='{"time_limit": 1}', replace=True, **given
    )
    guarantee = generalize()["guarantee"]
    assert "who do not know" not in guarantee
    guarantee = generalize(constraints='{"l": 2}')["guarantee"]
    assert "by readers who do not know how classes were formed" in guarantee
    check = "constraints bound inferences by readers who do not know how classes were formed"
    assert verified(parties, check)
