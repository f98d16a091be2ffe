"""Candidates are few, take no known risk, and protect what they say."""

from __future__ import annotations

import itertools
import json
import shlex
from fractions import Fraction

import click
import pytest

from kanon_db.advice.publication_candidates import (
    ORDER,
    PROTECTIONS,
    PURPOSES,
    Candidate,
    SourceTraits,
    candidates_for,
    publication_name,
    shell_command,
    sql_call,
)
from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.interfaces.cli import main
from kanon_db.publications.registry import KINDS

COUNTS = {
    "even": [10] * 20,
    "two": [50, 50],
    "skewed": [90, 5, 3, 2],
    "nearly one": [995, 5],
    "many": [1] * 500,
}
TABLES = [
    SourceTraits("sick", counts, has_entities=has_entities)
    for counts, has_entities in itertools.product(COUNTS.values(), (False, True))
] + [SourceTraits(None, has_entities=has_entities) for has_entities in (False, True)]

ALL = list(itertools.product(PURPOSES, PROTECTIONS, TABLES))


@pytest.mark.parametrize("of", ALL, ids=lambda of: f"{of[0]}-{of[1]}")
def test_no_candidate_takes_a_risk(of: tuple[str, str, SourceTraits]) -> None:
    """Nothing that must be accepted by name, no k of 1, no threshold of 1."""
    purpose, protection, data = of
    found = candidates_for(purpose, PROTECTIONS[protection], data)
    assert 1 <= len(found) <= 5
    for candidate in found:
        declared = KINDS[candidate.kind]
        request = declared.operation.read(
            {"source": "people", "publication": "out", **candidate.given, **candidate.trial}
        )
        assert list(declared.load().risks(request)) == []
        assert not request.unused_options
        assert "accept" not in candidate.given
        assert candidate.protects in ORDER[purpose]
        assert candidate.given.get("k", 2) >= 2
        if data.has_entities:
            assert declared.load().counts_entities
        for given in (candidate.given.get("privacy"), candidate.given.get("constraints")):
            if given is not None:
                check_privacy(given, data.counts)


def check_privacy(given: dict[str, object], counts: list[int]) -> None:
    """Each threshold lies above the value's frequency, and below 1."""
    specification = PrivacySpecification.parse(json.dumps(given))
    thresholds = specification.thresholds(list(map(str, range(len(counts)))), counts).thresholds
    for threshold, count in zip(thresholds, counts, strict=True):
        assert Fraction(count, sum(counts)) < threshold < 1


@pytest.mark.parametrize("data", TABLES, ids=str)
def test_what_bounds_values_is_tried_first(data: SourceTraits) -> None:
    found = candidates_for("counts", PROTECTIONS["standard"], data)
    kinds = [candidate.kind for candidate in found]
    if data.sensitive is not None and not data.has_entities:
        assert kinds[0] == "buckets"
        assert "freeform" not in kinds
    else:
        assert "buckets" not in kinds


def test_stricter_words_are_stricter_numbers() -> None:
    basic, standard, strict = PROTECTIONS.values()
    for weaker, stronger in ((basic, standard), (standard, strict)):
        assert weaker.k < stronger.k
        assert weaker.theta > stronger.theta
        assert weaker.cap > stronger.cap
    for one in PROTECTIONS.values():
        assert f"any of {one.k} people's" in one.sentence


NASTY = 'pub"lic."it\'s; drop $(x)'


def all_candidates() -> list[Candidate]:
    found = [candidates_for(*(of[0], PROTECTIONS[of[1]], of[2])) for of in ALL]
    return list({candidate.title: candidate for some in found for candidate in some}.values())


@pytest.mark.parametrize("candidate", all_candidates(), ids=lambda one: one.title)
def test_the_shell_command_means_the_candidate(candidate: Candidate) -> None:
    words = shlex.split(shell_command(NASTY, "o'ut", candidate))
    assert words[:3] == ["kanon", "publish", candidate.kind]
    publish = main.commands["publish"]
    assert isinstance(publish, click.Group)
    command = publish.commands[candidate.kind]
    declared = KINDS[candidate.kind].operation
    names = {item.name for item in declared.parameters}
    with command.make_context(candidate.kind, words[3:]) as ctx:
        given = {
            name: value
            for name, value in ctx.params.items()
            if name in names and value not in (None, [], ())
        }
    found = declared.read(given)
    wanted = declared.read({"source": NASTY, "publication": "o'ut", **candidate.given})
    assert (found.source, found.publication) == (NASTY, "o'ut")
    for name in {"method", "k", "privacy", "constraints", "assignment"} & names:
        assert getattr(found, name) == getattr(wanted, name)


def test_texts_are_quoted_in_sql() -> None:
    candidate = Candidate("buckets", "", "value", "", {"privacy": {"l": 3}}, "b")
    call = sql_call("it's", "o'ut", candidate, lambda text: "'" + text.replace("'", "''") + "'")
    assert call == (
        "SELECT * FROM kanon.publish_buckets('it''s', 'o''ut', privacy => '{\"l\": 3}');"
    )


def test_a_long_name_is_cut_between_characters() -> None:
    candidate = Candidate("buckets", "", "value", "", {}, "b")
    name = publication_name("\u00e4" * 60, candidate)
    assert name == "\u00e4" * 20 + "_b"
