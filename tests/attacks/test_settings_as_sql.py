"""Attacks through settings: where a number, a word or a column's name is expected, stands SQL.

Settings are typed values and names. A text with a parenthesis or a semicolon is neither, and is
refused; where any text may stand (a value of the data, a reason), it is taken as it is. None of it
is ever run, though a superuser calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kanon_db.errors import KanonError
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_source,
    create_table,
    fetch,
    remains,
    sqlstate_of,
    value,
)
from tests.profiles import examples

SPY = "public.spy()"
PEOPLE = [(20 + i % 10, f"town {i % 4}", f"disease {i % 5}") for i in range(60)]


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    """A source of a superuser's, whom nothing would stop."""
    fetch(parties.admin, "CREATE SEQUENCE public.spied")
    spying = "CREATE FUNCTION public.spy() RETURNS bigint RETURN nextval('public.spied')"
    fetch(parties.admin, spying)
    create_source(parties.admin, "public.people", "age int, town text, sick text", PEOPLE)


@pytest.fixture(autouse=True)
def nothing_run(parties: Parties) -> Iterator[None]:
    yield
    assert not value(parties.admin, "SELECT is_called FROM public.spied")
    assert remains(parties.admin) == []


Call = Callable[[Functions | Package, str], object]
PLAIN = {"method", "assignment", "readers", "patterns", "max_suppressed"}
"""Parameters that are not JSON."""


def publishing(kind: str, **places: Callable[[str], Any]) -> Call:
    """Publish with texts in some places of JSON, or in a parameter."""

    def call(kanon: Functions | Package, text: str) -> object:
        given = {name: place(text) for name, place in places.items()}
        for name in given.keys() - PLAIN:
            given[name] = json.dumps(given[name])
        whole = {"k": 3} if kind != "publish" else {"privacy": '{"l": 2}'}
        return getattr(kanon, kind)("public.people", "p", **{**whole, **given})

    return call


def registering(**places: Callable[[str], Any]) -> Call:
    described = {"source": "public.people", "quasi_identifiers": ["age"], "sensitive": "sick"}
    return lambda kanon, text: kanon.register(
        **{**described, **{name: place(text) for name, place in places.items()}}
    )


PLACES: dict[str, Call] = {
    "l": publishing("publish", privacy=lambda x: {"l": x}),
    "theta": publishing("publish", privacy=lambda x: {"theta": x, "base": 0.1}),
    "key of a specification": publishing("publish", privacy=lambda x: {"l": 2, x: 1}),
    "threshold": publishing("publish", privacy=lambda x: {"l": 2, "values": {"disease 1": x}}),
    "nobody's value": publishing("publish", privacy=lambda x: {"l": 2, "values": {x: 0.5}}),
    "method": publishing("publish", method=lambda x: x),
    "assignment": publishing("publish", assignment=lambda x: x),
    "readers": publishing("publish", readers=lambda x: [x]),
    "name of an option": publishing("publish", options=lambda x: {x: 1}),
    "option": publishing("generalize", options=lambda x: {"time_limit": x}),
    "weight": publishing("generalize", weights=lambda x: {"age": x}),
    "column of a weight": publishing("generalize", weights=lambda x: {x: 1}),
    "constraint": publishing("generalize", constraints=lambda x: {"t": x}),
    "distance": publishing("generalize", constraints=lambda x: {"t": 0.5, "distance": x}),
    "share": publishing("generalize", max_suppressed=lambda x: x),
    "pattern": publishing("suppress", patterns=lambda x: [x]),
    "column of a rule": publishing("suppress", rules=lambda x: [{"never": [x]}]),
    "number of a rule": publishing("suppress", rules=lambda x: [{"at_most": x}]),
    "kind of a rule": publishing("suppress", rules=lambda x: [{x: ["age"]}]),
    "what is left over": publishing("suppress", options=lambda x: {"left_over": x}),
    "risk": publishing("suppress", accept=lambda x: {x: "a reason"}),
    "partition": publishing("freeform", options=lambda x: {"partition_size": x}),
    "kind of an attribute": registering(attributes=lambda x: json.dumps({"age": {"kind": x}})),
    "lower bound": registering(attributes=lambda x: json.dumps({"age": {"lower": x}})),
    "quasi-identifier": registering(quasi_identifiers=lambda x: [x]),
    "entity": registering(entity=lambda x: x),
    "source": registering(source=lambda x: x),
}

SQL = [
    SPY,
    f"(SELECT {SPY})",
    f"1); SELECT {SPY}; --",
    f"age), ({SPY}",
    f"'; SELECT {SPY}; --",
    f"2 + {SPY}",
    f'age" , {SPY} AS "age',
]


@pytest.mark.pitfall(6)
def test_sql_in_a_setting_is_refused(parties: Parties) -> None:
    """For a reason of ours, with nothing done, and not as an error in a statement."""
    kanon = Functions(parties.admin)
    for place, call in PLACES.items():
        for text in SQL:
            refused = sqlstate_of(lambda c=call, t=text: c(kanon, t))
            assert refused in REFUSED.get(place, {"22023"}), (place, text)


REFUSED = {
    "nobody's value": {"22023", "KN001", "42704"},
    "share": {"22023", "22P02"},  # PostgreSQL's own, of a parameter that is a number
    "readers": {"42704"},
    "column of a weight": {"22023", "42704"},
    "column of a rule": {"22023", "42704"},
    "quasi-identifier": {"42704"},
    "entity": {"42704"},
    "source": {"42704", "42602", "42601", "22P02", "42P01", "3F000", "0A000"},
}


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@pytest.mark.pitfall(6)
@given(place=st.sampled_from(list(PLACES)), before=TEXT, mark=st.sampled_from("(;"), after=TEXT)
@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_setting_has_a_parenthesis_or_a_semicolon(
    parties: Parties, place: str, before: str, mark: str, after: str
) -> None:
    with pytest.raises(KanonError):
        PLACES[place](Package(parties.admin), before + mark + after)


@pytest.mark.pitfall(6)
def test_texts_that_may_be_anything_are_kept_as_they_are(parties: Parties) -> None:
    """A reason, and a value of the data."""
    kanon = Functions(parties.admin)
    reason, sick = f"1); SELECT {SPY}; --", f"(SELECT {SPY})"
    create_table(
        parties.admin, "public.odd", "age int, sick text",
        [(i % 5, sick if i % 3 else "flu") for i in range(60)],
    )  # fmt: skip
    kanon.register("public.odd", ["age"], "sick")
    privacy = json.dumps({"default": 0.9, "values": {sick: "3/4"}})
    accept = json.dumps({"uncapped_estimates": reason})
    kanon.publish("public.odd", "p", privacy=privacy, estimates="uncapped", accept=accept)
    checks = kanon.verify("p")
    assert all(holds for *_, holds in checks)
    assert reason in str(checks)
    query = f"SELECT COUNT(*) FROM p WHERE sick = '{sick}'"
    assert kanon.estimate(query) == (40, 0, 40, 40)
    assert kanon.attack("p")
    kanon.drop("p")
