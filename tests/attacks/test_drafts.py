"""The publisher who draws again until a draft suits them, and publishes that one.

Whoever knows that the best of N drafts was kept, and by which measure, concludes more from it than
any bound allows: of 6 people with 3 values, l = 2, the best of 5 makes somebody's value nearly
certain. So there must be nothing to choose from: the same request of the same records is the same
draw, whatever was looked at, rolled back, dropped, renamed or registered again in between.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations_with_replacement, permutations, product
from typing import Any

import numpy as np
import pytest

from kanon_db.algorithms.ground import computation
from kanon_db.publications import pipeline
from kanon_db.session import Session
from tests.attacks.posterior import tables_of
from tests.integration.parties import (
    Connection,
    Functions,
    Package,
    Parties,
    create_table,
    fetch,
    forget_draws,
    sqlstate_of,
)
from tests.integration.parties import value as value_of
from tests.profiles import long_but

Table = tuple[int, ...]
"""The value of each person."""

Buckets = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""The people and the values of each bucket, in order."""

WORLDS = 24
SIGMAS = 4
HISTOGRAM = (2, 2, 2)
N_DRAFTS = (1, 2, 5, 20)


def outcomes(table: Table, values_of_buckets: Sequence[tuple[int, ...]]) -> Iterator[Buckets]:
    """Deal the people with each value to the buckets that have it, in every way."""
    ways = []
    for value in sorted(set(table)):
        people = [person for person, own in enumerate(table) if own == value]
        slots = [i for i, values in enumerate(values_of_buckets) for one in values if one == value]
        ways.append([list(zip(people, order, strict=True)) for order in permutations(slots)])
    for dealt in product(*ways):
        buckets: list[list[int]] = [[] for _ in values_of_buckets]
        for person, bucket in (pair for way in dealt for pair in way):
            buckets[bucket].append(person)
        people_of = (tuple(sorted(people)) for people in buckets)
        yield tuple(sorted(zip(people_of, values_of_buckets, strict=True)))


def error(table: Table, published: Buckets) -> float:
    """The squared errors of counts of each value, over all ranges of people."""
    total = 0.0
    for first, last in combinations_with_replacement(range(len(table)), 2):
        for value in set(table):
            estimate = sum(
                sum(first <= person <= last for person in people) * values.count(value)
                / len(values)
                for people, values in published
            )  # fmt: skip
            total += (estimate - table[first : last + 1].count(value)) ** 2
    return round(total, 6)


@cache
def likelihoods(
    values_of_buckets: tuple[tuple[int, ...], ...], n_drafts: int
) -> Mapping[Buckets, Mapping[Table, float]]:
    """How likely each table makes each publication, if the best of so many drafts is kept."""
    found: dict[Buckets, dict[Table, float]] = defaultdict(dict)
    for table in tables_of(HISTOGRAM):
        drawn = Counter(outcomes(table, values_of_buckets))
        n = drawn.total()
        errors = {published: error(table, published) for published in drawn}
        for published, own in errors.items():
            no_better = sum(drawn[one] for one in drawn if errors[one] >= own) / n
            worse = sum(drawn[one] for one in drawn if errors[one] > own) / n
            share = drawn[published] / n / (no_better - worse)
            found[published][table] = (no_better**n_drafts - worse**n_drafts) * share
    return found


def surest(published: Buckets, n_drafts: int) -> tuple[float, int, int]:
    """What the reader is surest of: how sure, whom, and which value."""
    values = tuple(values for _, values in published)
    known = likelihoods(tuple(sorted(values)), n_drafts)[published]
    total = sum(known.values())
    guesses = [
        (sum(p for table, p in known.items() if table[person] == value) / total, person, value)
        for person in range(sum(HISTOGRAM))
        for value in range(len(HISTOGRAM))
    ]
    return max(guesses)


def buckets_of(connection: Connection, name: str) -> Buckets:
    """Read a publication as whoever is granted it does."""
    people = fetch(
        connection, f"SELECT bucket_id, array_agg(age ORDER BY age) FROM published.{name}_qit"
        " GROUP BY 1 ORDER BY 1",
    )  # fmt: skip
    values = fetch(
        connection, f"SELECT bucket_id, array_agg(ill ORDER BY ill) FROM published.{name}_sat"
        " GROUP BY 1 ORDER BY 1",
    )  # fmt: skip
    return tuple(
        sorted((tuple(own), tuple(ill)) for (_, own), (_, ill) in zip(people, values, strict=True))
    )


def test_the_reader_is_able_to_use_it() -> None:
    """Without drafts, the bound holds; of those who keep the best of several, more is known."""
    values = ((0, 1), (0, 2), (1, 2))
    sure = {n: max(surest(one, n)[0] for one in likelihoods(values, n)) for n in N_DRAFTS}
    assert sure[1] == pytest.approx(0.5)
    assert sure[2] == pytest.approx(0.85, abs=0.005)
    assert sure[5] > 0.99
    assert sure[20] > 0.999


@pytest.mark.long
@pytest.mark.pitfall(41)
def test_the_best_of_n_drafts_is_the_only_one(parties: Parties) -> None:
    """Through SQL: whatever number of drafts the reader reckons with, one guess in two is right."""
    publisher, functions = parties.publisher, Functions(parties.publisher)
    dice = np.random.default_rng(7)
    right: Counter[int] = Counter()
    for world in range(WORLDS):
        table = [value for value, n in enumerate(HISTOGRAM) for _ in range(n)]
        dice.shuffle(table)
        name = f"data.world_{world}"
        create_table(publisher, name, "age int, ill int", list(enumerate(table)))
        functions.register(name, ["age"], "ill")
        drafts = []
        for draft in range(5 if world == 0 else 1):  # as the next test tries in full
            functions.publish(
                name, f"draft_{draft}", privacy='{"l": 2}', assignment="random", readers=[]
            )
            drafts.append(buckets_of(publisher, f"draft_{draft}"))
            functions.drop(f"draft_{draft}")
        kept = min(drafts, key=lambda one: error(tuple(table), one))
        assert drafts == [kept] * len(drafts)
        for n in N_DRAFTS:
            _, person, value = surest(kept, n)
            right[n] += table[person] == value
    most = WORLDS / 2 + SIGMAS * math.sqrt(WORLDS) / 2
    print({n: f"{right[n]} of {WORLDS} guesses are right" for n in N_DRAFTS})
    assert max(right.values()) <= most


CALLS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "random": ("buckets", {"privacy": '{"l": 3}', "assignment": "random"}),
    "cells": ("buckets", {"privacy": '{"l": 3}'}),
    "m_invariant": ("buckets", {"privacy": '{"l": 3}', "assignment": "m_invariant"}),
    # Refining ends when its time is over, so that it may find something else each time.
    "generalized": ("generalized", {"k": 3, "method": "mondrian", "refine": False}),
    "freeform": ("freeform", {"k": 3, "options": '{"refine": false}'}),
    "suppressed": ("suppressed", {"k": 3, "options": '{"left_over": "join"}'}),
}

PEOPLE = [(i, 20 + i * 7 % 40, "FMX"[i * 5 % 3], i * 11 % 7) for i in range(150)]
COLUMNS = "number int, age int, sex text, ill int"


def everything(connection: Connection, name: str) -> dict[str, list[tuple[Any, ...]]]:
    """All that a publication consists of, in the order in which it lies there."""
    relations = fetch(
        connection, "SELECT relname FROM pg_class WHERE relnamespace = 'published'::regnamespace"
        " AND relkind IN ('r', 'm') AND (relname = $1 OR relname LIKE $1 || '\\_%')"
        " AND relname !~ '_(ledger|counter)' ORDER BY 1", name,
    )  # fmt: skip
    assert relations
    return {
        relation.removeprefix(name): fetch(
            connection, f"SELECT t::text FROM published.{relation} AS t"
        )
        for (relation,) in relations
    }


@pytest.fixture
def source(parties: Parties) -> Iterator[str]:
    create_table(parties.publisher, "data.drafts", COLUMNS, PEOPLE)
    Functions(parties.publisher).register("data.drafts", ["age", "sex"], "ill", ["number"])
    yield "data.drafts"
    fetch(parties.publisher, "DROP TABLE data.drafts")


@pytest.mark.pitfall(41)
@pytest.mark.parametrize("kind", long_but({"cells", "freeform"}, CALLS))
def test_trying_again_changes_nothing(parties: Parties, source: str, kind: str) -> None:
    """Rolled back, looked at, dropped, renamed, replaced, registered again, in another order.

    Also by the Python client, and of a copy of the table with a column of another type of text,
    which the server cannot read as codes: the same records are the same draw.
    """
    publisher, functions = parties.publisher, Functions(parties.publisher)
    function, given = CALLS[kind]

    def call(kanon: Functions | Package, source: str, name: str) -> None:
        kanon.call(f"publish_{function}", source, name, **given)

    with publisher.transaction(force_rollback=True):
        call(functions, source, "draft")
        first = everything(publisher, "draft")

    call(functions, source, "draft")
    fetch(publisher, "SELECT * FROM kanon.metrics('draft')")
    assert everything(publisher, "draft") == first
    functions.drop("draft")

    call(Package(publisher), source, "other_name")
    assert everything(publisher, "other_name") == first
    functions.drop("other_name")

    fetch(publisher, "TRUNCATE data.drafts")
    with publisher.cursor() as cursor:
        cursor.executemany("INSERT INTO data.drafts VALUES (%s, %s, %s, %s)", PEOPLE[::-1])
    functions.register(source, ["age", "sex"], "ill", ["number"])
    call(functions, source, "reversed")
    assert everything(publisher, "reversed") == first
    functions.drop("reversed")

    create_table(publisher, "data.copied", COLUMNS.replace("sex text", "sex name"), PEOPLE)
    functions.register("data.copied", ["age", "sex"], "ill", ["number"])
    call(functions, "data.copied", "copied")
    copied = everything(publisher, "copied")
    assert {
        name: sorted(rows) for name, rows in copied.items() if name in ("_qit", "_sat", "")
    } == {name: sorted(rows) for name, rows in first.items() if name in ("_qit", "_sat", "")}
    functions.drop("copied")
    fetch(publisher, "DROP TABLE data.copied")

    forget_draws(parties.admin)
    call(functions, source, "draft")
    assert everything(publisher, "draft") != first
    functions.drop("draft")


@pytest.mark.pitfall(41)
def test_a_dry_run_foretells_nothing(
    parties: Parties, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its figures are of another draw, and the same each time: trying it on changes nothing."""
    functions = Functions(parties.publisher)
    tried = [
        functions.publish(source, "tried", privacy='{"l": 3}', dry_run=True)["metrics"]["figures"]
        for _ in range(2)
    ]
    assert tried[0]["counts"] == tried[1]["counts"]
    asked: list[bool] = []
    watched = Package(parties.publisher)
    original = pipeline.run_errand

    def run_errand(session: Session, task: str, **given: Any) -> Any:
        asked.append(given["dry_run"])
        return original(session, task, **given)

    monkeypatch.setattr(pipeline, "run_errand", run_errand)
    watched.publish(source, "tried", privacy='{"l": 3}', dry_run=True)
    watched.publish(source, "tried", privacy='{"l": 3}')
    assert asked == [True, False]  # which are other seeds, as the next test says
    watched.drop("tried")


@pytest.mark.pitfall(41)
def test_nobody_has_the_seed_of_anothers_draw(parties: Parties) -> None:
    """The same digest is another seed for another role, and for a dry run; readers get none."""
    ask = (
        "INSERT INTO kanon.errand (task, given) VALUES ('seed', '{\"digest\": \"00\"}'::jsonb ||"
        " jsonb_build_object('dry_run', $1::text::boolean)) RETURNING answer"
    )
    seeds = {
        str(fetch(one, ask, flag))
        for one in (parties.publisher, parties.admin)
        for flag in ("true", "false")
    }
    assert len(seeds) == 4
    for reader in (parties.analyst, parties.stranger):
        assert sqlstate_of(lambda reader=reader: fetch(reader, ask, "true")) == "42501"
    for reader in (parties.publisher, parties.analyst, parties.stranger):
        for statement in ("TABLE kanon.draw_key", "SELECT kanon.owner_seed(1, '{}')"):
            assert sqlstate_of(lambda r=reader, s=statement: fetch(r, s)) == "42501"


@pytest.mark.long
@pytest.mark.pitfall(41)
def test_a_short_time_limit_is_no_other_draw(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever repeats a search when the machine is busy has nothing to choose between."""
    rows = [(i * 37 % 91, i * 53 % 40, i % 7, f"i{i % 11}") for i in range(4000)]
    create_table(parties.publisher, "data.hurried", "age int, zip int, n int, ill text", rows)
    package = Package(parties.publisher)
    package.register("data.hurried", ["age", "zip", "n"], "ill")

    def found(seconds: float, clock: float) -> object:
        monkeypatch.setattr(computation, "monotonic", lambda: time.monotonic() * clock)
        options = json.dumps({"time_limit": seconds})
        package.generalize("data.hurried", "hurried", k=4, method="mondrian", options=options)
        rows = everything(parties.publisher, "hurried")
        package.drop("hurried")
        return rows

    assert found(1.0, 0.02) == found(1.0, 0.5) != found(0.2, 0.02)


# The same request of the same records in other words. Nothing of this is to be another draw.

ANYONE = [
    (i, 7 * i % 101, 20 + i * 7 % 40, i * 13 % 9, "FMX"[i * 5 % 3], i * 11 % 7, i * 3 % 5,
     f"2026-01-{1 + i % 28:02}")
    for i in range(101)
]  # fmt: skip
ROLES: Mapping[str, Any] = {"quasi_identifiers": ["age", "zip", "sex"], "sensitive": "ill"}

DESCRIBED: Sequence[Mapping[str, Any]] = [
    *({"quasi_identifiers": [*order]} for order in [*permutations(["age", "zip", "sex"])][1:]),
    {"identifiers": ["number"]},
    {"identifiers": ["number", "code"]},
    {"entity": "number"},
    {"entity": "code"},
    {"arrival": "number"},
    {"arrival": "code"},
    {"arrival": "came"},
    {"entity": "number", "arrival": "number"},
    {"entity": "code", "arrival": "code"},
    {"entity": "number", "arrival": "came", "identifiers": ["code"]},
    *({"entity": "number", "keep": keep} for keep in (
        "random", "latest by came", "first by came", "latest by code", "first by code",
        "latest by age", "random, max of age", "random, min of zip", "first by came, mean of age",
    )),
    {"entity": "code", "keep": "random"},
    {"entity": "number", "arrival": "came", "keep": "latest"},
    {"attributes": '{"age": {"kind": "numeric"}}'},
    {"attributes": '{"age": {"weight": 1}, "sex": {"weight": 1.0}}'},
    {"attributes": '{"sex": {"kind": "categorical"}}'},
    {"attributes": '{"age": {"upper": 59}}'},
    {"attributes": '{"zip": {"lower": 0}, "age": {"lower": 20, "upper": 59}}'},
]  # fmt: skip
"""Descriptions of people who have one record each."""

SEVERAL: Sequence[Mapping[str, Any]] = [
    {"sensitive": "ill", "also_sensitive": ["ill2", "sex"]},
    {"sensitive": "ill2", "also_sensitive": ["ill", "sex"]},
    {"sensitive": "sex", "also_sensitive": ["ill", "ill2"], "quasi_identifiers": ["zip", "age"]},
    {"sensitive": "sex", "also_sensitive": ["ill2", "ill"], "entity": "number", "keep": "random"},
]

_BUCKETS: Sequence[Mapping[str, Any]] = [
    *({"privacy": privacy} for privacy in (
        '{"l": "2"}', '{"l": 2.0}', '{"l": 1.9999}', '{"default": 0.5}', '{"default": "1/2"}',
        '{"default": 0.500001}', '{"default": 0.500002, "values": {"1": 0.5}}', '{"default": 0.51}',
    )),
    {"estimates": "paper"},
    {"method": "multi_size"},
    {"method": "optimal"},
    {"method": "optimal", "options": '{"time_limit": 77}'},
    {"max_bucket_size": 7},
    {"max_bucket_size": 49, "privacy": '{"default": 0.5, "null": 0.5}'},
    {"readers": "{}"},
]  # fmt: skip
_ROWS: Sequence[Mapping[str, Any]] = [
    {"weights": '{"age": 1}'},
    {"weights": '{"sex": 1.0, "zip": "1"}'},
    {"readers": "{}"},
]

WORDS: Mapping[str, tuple[str, Mapping[str, Any], Sequence[Mapping[str, Any]]]] = {
    "random": ("buckets", {"privacy": '{"l": 2}', "assignment": "random"}, _BUCKETS),
    "cells": ("buckets", {"privacy": '{"l": 2}'}, _BUCKETS),
    "m_invariant": (
        "buckets", {"privacy": '{"l": 2}', "assignment": "m_invariant"},
        [*({"privacy": f'{{"l": {l}}}'} for l in (2.0, '"2"', 1.9999, '"3/2"')),
         {"max_bucket_size": 7}, {"method": "multi_size"}],
    ),
    "several, random": ("buckets", {"privacy": '{"l": 2}', "assignment": "random"}, _BUCKETS[:4]),
    "several, cells": ("buckets", {"privacy": '{"l": 2}'}, _BUCKETS[:4]),
    "generalized": ("generalized", {"k": 3, "method": "mondrian"}, [
        *_ROWS, {"options": '{"time_limit": 99}'}]),
    "freeform": ("freeform", {"k": 3}, [
        *_ROWS, {"options": '{"partition_size": 5000}'}, {"options": '{"workers": 1}'}]),
    "suppressed": ("suppressed", {"k": 3, "options": '{"left_over": "join"}'}, [
        *_ROWS, {"rules": '[{"at_most": 3}]'}, {"weights": '{"age": 2, "zip": 2, "sex": 2}'}]),
    "model": (
        "model",
        {"label": "ill", "members": 2, "options": '{"steps": 20}',
         "accept": '{"model_without_budget": "it is a test"}'},
        [{"features": '{"sex": {}, "zip": {}, "age": {}}'}, {"readers": "{}"}],
    ),
}  # fmt: skip
"""Functions, their parameters, and further ones that find the same."""


def drawn(connection: Connection, name: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of a publication, whatever order columns have; of a model, a digest of its members.

    The server may join rows with cells in either of two orders, both random.
    """
    named = [f"published.{name}{suffix}" for suffix in ("_qit", "_sat", "")]
    found = {
        one: fetch(connection, f"SELECT to_jsonb(t)::text FROM {one} AS t ORDER BY 1")
        for one in named if value_of(connection, "SELECT to_regclass($1) IS NOT NULL", one)
    }  # fmt: skip
    members = "SELECT layout ->> 'digest' FROM kanon.publications WHERE kind = 'model'"
    return {**found, "members": fetch(connection, members)}


def in_other_words(kind: str) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Descriptions and requests: 40 at least, but for several attributes and m-invariance."""
    is_several, (_, _, requests) = kind.startswith("several"), WORDS[kind]
    first = {**SEVERAL[0], "quasi_identifiers": ["age", "zip"]} if is_several else ROLES
    described = SEVERAL if is_several else DESCRIBED
    if kind == "m_invariant":
        described = [one for one in described if "keep" not in one]
    if kind == "suppressed":  # patterns are in the order of the quasi-identifiers
        described = [one for one in described if "quasi_identifiers" not in one]
    return [
        (first, {}),
        *(({**first, **one}, {}) for one in described),
        *((first, one) for one in requests),
    ]


@pytest.fixture(scope="module")
def anyone(parties: Parties) -> str:
    columns = "number int, code int, age int, zip int, sex text, ill int, ill2 int, came date"
    create_table(parties.publisher, "data.anyone", columns, ANYONE)
    return "data.anyone"


def draw_in_words(
    parties: Parties, kind: str, described: Mapping[str, Any], asked: Mapping[str, Any]
) -> dict[str, list[Any]]:
    functions, (function, given, _) = Functions(parties.publisher), WORDS[kind]
    functions.register("data.anyone", **described)
    functions.call(f"publish_{function}", "data.anyone", "worded", **{**given, **asked})
    found = drawn(parties.publisher, "worded")
    functions.drop("worded")
    return found


def differing(
    parties: Parties, kind: str, ways: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The ways that draw something else than the first does."""
    expected, *found = [draw_in_words(parties, kind, *way) for way in ways]
    assert any(expected.values())
    return [way for way, one in zip(ways[1:], found, strict=True) if one != expected]


@pytest.mark.pitfall(62)
@pytest.mark.usefixtures("anyone")
@pytest.mark.parametrize(
    "kind", long_but({"cells", "generalized"}, [kind for kind in WORDS if kind != "model"])
)
def test_other_words_are_no_other_draw(parties: Parties, kind: str) -> None:
    """Other orders, descriptions, rules of keep, thresholds and options: all of them at once."""
    first, _ = in_other_words(kind)[0]
    others: list[dict[str, Any]] = [
        {"entity": "number", "arrival": "number", "attributes": '{"age": {"kind": "numeric"}}'},
        {"entity": "code", "arrival": "came", "keep": "first by came, max of age",
         "identifiers": ["number"]},
    ]  # fmt: skip
    if kind == "m_invariant":
        others[1]["keep"] = "first by came"
    if kind.startswith("several"):
        others[0] |= SEVERAL[1]
        others[1] = {**SEVERAL[3], "identifiers": ["code"], "arrival": "came"}
    elif kind != "suppressed":
        others[0]["quasi_identifiers"] = ["sex", "zip", "age"]
    requests = WORDS[kind][2]
    ways = [(first, {})]
    ways += [({**first, **one}, requests[i]) for i, one in enumerate(others)]
    assert differing(parties, kind, ways) == []


@pytest.mark.pitfall(62)
@pytest.mark.long
@pytest.mark.usefixtures("anyone")
@pytest.mark.parametrize("kind", WORDS)
def test_forty_ways_to_write_a_request_are_one_draw(parties: Parties, kind: str) -> None:
    """So the best of them is no better than one of them."""
    assert differing(parties, kind, in_other_words(kind)) == []


@pytest.mark.slow("publishes dozens of drafts")
@pytest.mark.pitfall(62)
@pytest.mark.usefixtures("anyone")
def test_other_thresholds_are_drafts_to_choose_from(parties: Parties) -> None:
    """How many, for the page on what a publication protects: each finds other buckets."""
    found = {}
    for assignment in ("random", "cells"):
        bounds = ("0.5", "0.48", "0.45", "0.4", "0.36", "0.34")
        asked = [{"privacy": f'{{"default": {bound}}}'} for bound in bounds]
        drafts = [
            json.dumps(draw_in_words(parties, assignment, ROLES, one), sort_keys=True)
            for one in asked
        ]
        found[assignment] = len({*drafts}), len(drafts)
    assert found == {"random": (2, 6), "cells": (2, 6)}
