"""Candidates are few, take no known risk, and protect what they say."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import inf, nan
from typing import Any

import click
import pytest

from kanon_db.advice.publication_candidates import (
    ORDER,
    PROTECTIONS,
    PURPOSES,
    Candidate,
    Protects,
    SharedTime,
    SourceTraits,
    TrialResult,
    TriedCandidate,
    candidates_for,
    publication_name,
    ranked,
    shell_command,
    sql_call,
    tried_in_time,
)
from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.interfaces.cli import main
from kanon_db.publications.registry import KINDS
from kanon_db.wording import for_shell

COUNTS = {
    "even": [10] * 20,
    "two": [50, 50],
    "skewed": [90, 5, 3, 2],
    "nearly one": [995, 5],
    "many": [1] * 500,
}
TABLES = [
    SourceTraits({"sick": counts}, has_entities=has_entities)
    for counts, has_entities in itertools.product(COUNTS.values(), (False, True))
] + [
    SourceTraits(sensitive, has_entities=has_entities)
    for sensitive in ({}, {"sick": [1] * 9, "cost": [6, 4], "paid": [1] * 8})
    for has_entities in (False, True)
]

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
                check_privacy(given, data.sensitive)


def check_privacy(given: dict[str, object], sensitive: Mapping[str, Sequence[int]]) -> None:
    """Each threshold lies above the value's frequency, and below 1; few attributes need a rule."""
    specification = PrivacySpecification.parse(json.dumps(given))
    assert specification.attributes.keys() <= {"cost"}
    for name, counts in sensitive.items():
        check_thresholds(specification.of_attribute(name, list(sensitive)), counts)


def check_thresholds(specification: PrivacySpecification, counts: Sequence[int]) -> None:
    thresholds = specification.thresholds(list(map(str, range(len(counts)))), counts).thresholds
    for threshold, count in zip(thresholds, counts, strict=True):
        assert Fraction(count, sum(counts)) < threshold < 1


@pytest.mark.parametrize("data", TABLES, ids=str)
def test_what_bounds_values_is_tried_first(data: SourceTraits) -> None:
    found = candidates_for("counts", PROTECTIONS["standard"], data)
    kinds = [candidate.kind for candidate in found]
    if data.sensitive and not data.has_entities:
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
    assert call == "kanon.publish_buckets('it''s', 'o''ut', privacy => '{\"l\": 3}')"


@pytest.mark.parametrize("candidate", all_candidates(), ids=lambda one: one.title)
def test_a_call_in_a_notice_is_the_command_in_a_shell(candidate: Candidate) -> None:
    """Who stops `kanon recommend` can publish the best so far as it was told."""
    call = sql_call("people", "out", candidate, lambda text: "'" + text.replace("'", "''") + "'")
    command = shell_command("people", "out", candidate)
    assert shlex.split(for_shell(call)) == shlex.split(command)


def test_a_long_name_is_cut_between_characters() -> None:
    candidate = Candidate("buckets", "", "value", "", {}, "b")
    name = publication_name("\u00e4" * 60, candidate)
    assert name == "\u00e4" * 20 + "_b"


def tried(
    title: str,
    protects: Protects,
    count_error: float = 0.1,
    loss: float = 0.1,
    certain: int | None = 0,
    *,
    is_sample: bool = False,
) -> TriedCandidate:
    return TriedCandidate(
        Candidate("buckets", title, protects, "", {}, "b"),
        TrialResult(certain, count_error, {"age": loss, "sex": loss}, [], 1.0, 9, is_sample),
    )


def titles(found: list[TriedCandidate], purpose: str) -> list[tuple[int | None, str]]:
    return [(one.place, one.tried.candidate.title) for one in ranked(found, purpose)]


def test_the_same_protection_is_ranked_by_what_it_is_for() -> None:
    some = [
        tried("exact", "row", count_error=0.1, loss=0.5),
        tried("whole", "row", count_error=0.5, loss=0.1),
    ]
    assert titles(some, "counts") == [(1, "exact"), (2, "whole")]
    assert titles(some, "both") == [(1, "exact"), (2, "whole")]
    assert titles(some, "rows") == [(1, "whole"), (2, "exact")]


def test_what_bounds_more_comes_first() -> None:
    some = [
        tried("row", "row", 0.01, 0.01),
        tried("both", "row and value", 0.2, 0.2),
        tried("value", "value", 0.3, 0.3),
    ]
    assert [title for _, title in titles(some, "counts")] == ["value", "both", "row"]
    assert [title for _, title in titles(some, "both")] == ["both", "row", "value"]
    assert [title for _, title in titles(some[:2], "rows")] == ["both", "row"]


def test_nobody_may_be_certain() -> None:
    some = [tried("certain", "value", 0.0, 0.0, certain=1), tried("safe", "row", 0.9, 0.9)]
    for purpose in ("counts", "both"):
        assert titles(some, purpose) == [(1, "safe"), (None, "certain")]
    last = ranked(some, "counts")[-1]
    assert last.objection is not None
    assert last.objection.startswith("the sensitive value of 1 people is certain")


def test_a_sample_shows_of_nobody_that_a_value_is_not_certain() -> None:
    """Unless the guarantee bounds values, or there are none to protect."""
    some = [
        tried("row", "row", 0.0, is_sample=True),
        tried("bounded", "value", 0.5, is_sample=True),
    ]
    assert titles(some, "counts") == [(1, "bounded"), (None, "row")]
    assert "may be certain" in str(ranked(some, "counts")[1].objection)
    nothing = tried("row", "row", certain=None, is_sample=True)
    assert titles([nothing], "counts") == [(1, "row")]


def test_what_was_not_tried_is_said() -> None:
    nothing = TriedCandidate(Candidate("buckets", "slow", "value", "", {}, "b"), failure="too slow")
    found = ranked([nothing, tried("done", "row", nan)], "counts")
    assert [(one.place, one.objection) for one in found] == [(1, None), (None, "too slow")]


def test_the_worst_attack_of_several_columns_gains_most() -> None:
    """A frequent value is guessed often, with or without the publication."""
    rows = [
        {"attack": "deFinetti of paid", "rate": 0.5, "base_rate": 0.49},
        {"attack": "deFinetti of sick", "rate": 0.2, "base_rate": 0.05},
    ]
    found = TrialResult(0, 0.1, {"age": 0.1}, rows, 1.0, 9, is_sample=False).worst_attack
    assert found is rows[1]


@pytest.mark.parametrize(
    ("attacks", "worst"),
    [
        ({"linking a row": 0.9, "deFinetti": 0.2, "most frequent value": 0.3}, 0.3),
        ({"linking a row": 0.2, "downcoding": 0.9}, 0.2),
        ({"linking a row": 0.1, "unusual people: most frequent value": 0.9}, 0.1),
        ({"deFinetti": None}, None),
    ],
)
def test_the_worst_attack_is_on_values_where_there_are_any(
    attacks: dict[str, float | None], worst: float | None
) -> None:
    rows: list[dict[str, Any]] = [
        {"attack": name, "rate": rate, "base_rate": 0.0} for name, rate in attacks.items()
    ]
    found = TrialResult(None, 0.1, {"age": 0.1}, rows, 1.0, 9, is_sample=False).worst_attack
    assert (None if found is None else found["rate"]) == worst


# -- time -----------------------------------------------------------------------------------------


class Trials:
    """Trials that take as long as they are said to, by a clock that they move."""

    def __init__(self, candidates: Sequence[Candidate], seconds: Sequence[float]) -> None:
        self.now = 100.0
        self.seconds = dict(zip((one.title for one in candidates), seconds, strict=True))
        self.refused: set[str] = set()
        self.tried: list[tuple[str, bool]] = []
        self.longest = 0.0

    def clock(self) -> float:
        return self.now

    def attempt(self, one: Candidate, deadline: float, is_brief: bool) -> TriedCandidate:
        """Take a second on a small sample."""
        self.tried.append((one.title, is_brief))
        needed = 1.0 if is_brief else self.seconds[one.title]
        if self.now + needed > deadline:
            self.longest = max(self.longest, deadline - self.now)
            self.now = max(self.now, deadline)
            return TriedCandidate(one, failure="over", is_unfinished=True)
        self.now += needed
        if one.title in self.refused:
            return TriedCandidate(one, failure="refused")
        return TriedCandidate(
            one, TrialResult(0, 0.1, {"age": 0}, [], 1.0, 10, is_sample=True, is_brief=is_brief)
        )


FOUR = candidates_for("counts", PROTECTIONS["standard"], TABLES[0])


def outcome(trials: Trials, seconds: float) -> dict[str, TriedCandidate]:
    """All that is known in the end, as the session keeps it."""
    found: dict[str, TriedCandidate] = {}
    for one in tried_in_time(FOUR, trials.attempt, SharedTime(seconds, trials.clock)):
        if not (one.is_unfinished and one.candidate.title in found):
            found[one.candidate.title] = one
    return found


def test_with_little_time_the_cheapest_is_recommended() -> None:
    cheapest = min(FOUR, key=lambda one: one.cost)
    trials = Trials(FOUR, [1e6] * 4)
    first, *others = ranked(list(outcome(trials, 1).values()), "counts")
    assert (first.place, first.tried.candidate) == (1, cheapest)
    assert {one.tried.is_unfinished for one in others} == {True}

    trials = Trials(FOUR, [1e6] * 4)
    trials.refused.add(cheapest.title)
    first, *others = ranked(list(outcome(trials, 2).values()), "counts")
    assert first.place == 1
    assert first.tried.candidate is sorted(FOUR, key=lambda one: one.cost)[1]


@pytest.mark.parametrize("seconds", [0, 0.5, 1, 2, 7, 60])
def test_nothing_is_tried_after_the_time(seconds: float) -> None:
    """And each candidate is named, tried or not."""
    trials = Trials(FOUR, [1e6] * 4)
    begun = trials.now
    assert outcome(trials, seconds).keys() == {one.title for one in FOUR}
    assert trials.now <= begun + seconds


def test_no_candidate_takes_the_time_of_another() -> None:
    """Whichever of them takes for ever, the others are tried as far as they would have been."""
    for slow in range(4):
        trials = Trials(FOUR, [inf if i == slow else 5.0 for i in range(4)])
        found = outcome(trials, 60)
        for i, one in enumerate(FOUR):
            measured = found[one.title].measured
            assert measured is not None
            assert measured.is_brief == (i == slow)
        assert trials.longest <= 60 / 2
        assert trials.now <= 160


def test_what_lacks_time_gets_a_small_sample() -> None:
    trials = Trials(FOUR, [100.0] * 4)
    found = outcome(trials, 90)
    assert all(one.measured is not None and one.measured.is_brief for one in found.values())
    costs = [one.cost for title, brief in trials.tried if not brief for one in FOUR
             if one.title == title]  # fmt: skip
    assert costs == sorted(costs)


def test_all_are_compared_on_a_busy_machine() -> None:
    """In little time, small samples come before shares that suffice for nothing."""
    trials = Trials(FOUR, [100.0] * 4)
    found = outcome(trials, 8)
    assert [found[one.title].measured is not None for one in FOUR] == [True] * 4
    assert trials.now <= 100 + 8


def test_time_that_is_left_is_passed_on() -> None:
    trials = Trials(FOUR, [5.0, 5.0, 5.0, 40.0])
    assert not any(one.is_unfinished for one in outcome(trials, 100).values())


def test_figures_of_small_samples_come_after_others() -> None:
    values = (FOUR[0], 0.01, True), (FOUR[1], 0.5, False), (FOUR[3], 0.001, False)
    tried = [
        TriedCandidate(
            one, TrialResult(0, error, {"age": 0}, [], 1.0, 10, is_sample=True, is_brief=brief)
        )
        for one, error, brief in values
    ]
    placed = [one.tried.candidate for one in ranked(tried, "counts")]
    assert placed == [FOUR[1], FOUR[0], FOUR[3]]
