"""Rows of sources with several sensitive attributes: each is protected, checked and attacked."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import pytest

import kanon_db
from kanon_db.errors import InvalidParameterError, VerificationError
from kanon_db.publications.generalized import kind as generalized
from kanon_db.reporting.facts import gather
from kanon_db.reporting.page import ATTACKS, write_page
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_source,
    failed_checks,
    fetch,
    sqlstate_of,
)

INVALID, INELIGIBLE, FORBIDDEN, RISK = "22023", "KN001", "42501", "KN005"
# The cost follows from sex and age, so that similar people have the same; illnesses do not.
PEOPLE = [
    (
        i,
        20 + i // 5,
        "mf"[i % 2],
        f"town {i % 3}",
        f"ill {i * 7 % 5}",
        100 * (i % 2) + 1000 * (i // 60),
    )
    for i in range(120)
]
COLUMNS = "number int, age int, sex text, town text, ill text, cost int"
KINDS: dict[str, dict[str, Any]] = {
    "generalized": {"method": "mondrian", "refine": False, "constraints": '{"l": 2}'},
    "freeform": {"options": '{"refine": false}'},
    "suppressed": {},
}
BOTH = ("ill", "cost")


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_source(
        parties.publisher, "data.people", COLUMNS, PEOPLE, ["age", "sex", "town"], "ill",
        insensitive=["number"], also_sensitive=["cost"],
    )  # fmt: skip


def publish(kanon: Functions, kind: str, **given: Any) -> dict[str, Any]:
    return kanon.call(
        f"publish_{kind}", "data.people", "p", **{"k": 4, "replace": True, **KINDS[kind], **given}
    )


def classes(parties: Parties) -> list[list[tuple[Any, ...]]]:
    """The people of each class."""
    found: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    rows = fetch(parties.publisher, "SELECT ROW(age, sex, town)::text, number FROM published.p")
    for cells, number in rows:
        found[cells].append(PEOPLE[number])
    return list(found.values())


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(kanon: Functions | Package, parties: Parties, kind: str) -> None:
    tried = publish(kanon, kind, dry_run=True)
    assert tried["guarantee"]
    published = publish(kanon, kind)
    shown = fetch(parties.publisher, "SELECT number, ill, cost FROM published.p ORDER BY 1")
    assert set(shown) <= {(row[0], *row[4:]) for row in PEOPLE}
    assert len(shown) + published["metrics"].get("suppressed_records", 0) == len(PEOPLE)
    assert all(holds for *_, holds in Functions(parties.analyst).verify("p"))
    notes = fetch(
        parties.analyst,
        "SELECT a.attname::text, col_description(a.attrelid, a.attnum) FROM pg_attribute AS a"
        " WHERE a.attrelid = 'published.p'::regclass AND a.attnum > 0",
    )
    told = {name for name, note in notes if "sensitive attribute" in note}
    assert told == set(BOTH)
    attacks = {attack: rest for attack, *rest in kanon.attack("p")}
    for name in ("homogeneity", "most frequent value", "unusual people: most frequent value",
                 "deFinetti", "correlations of the source"):  # fmt: skip
        assert {f"{name} of {one}" in attacks for one in BOTH} == {True}
        assert name not in attacks
    assert {"linking a row"} <= attacks.keys()
    n, *_ = Functions(parties.analyst).estimate(
        "SELECT COUNT(*) FROM p WHERE cost >= 500 AND ill = 'ill 1'"
    )
    truth = sum(row[5] >= 500 and row[4] == "ill 1" for row in PEOPLE)
    assert n == pytest.approx(truth, abs=8)


def test_what_is_certain_of_each(kanon: Functions | Package, parties: Parties) -> None:
    """Classes of people of one age: their cost is certain, and their illness is not."""
    publish(kanon, "generalized", constraints=None)
    rates = {attack: rate for attack, _, _, rate, _ in kanon.attack("p")}
    for place, name in ((4, "ill"), (5, "cost")):
        certain = sum(len(c) for c in classes(parties) if len({row[place] for row in c}) == 1)
        assert rates[f"homogeneity of {name}"] == pytest.approx(certain / len(PEOPLE))
    assert rates["homogeneity of cost"] > 0.5 > rates["homogeneity of ill"]


def largest_share(rows: list[tuple[Any, ...]], place: int) -> Fraction:
    return Fraction(max(Counter(row[place] for row in rows).values()), len(rows))


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "refine"),
    [("mondrian", True), ("greedy_search", True), ("split_carry", False), ("k_member", False),
     ("initial", False), ("auto", True)],
)  # fmt: skip
def test_constraints_hold_for_each(parties: Parties, method: str, refine: bool) -> None:
    kanon, rules = (
        Functions(parties.publisher),
        '{"l": 3, "attributes": {"cost": {"default": 0.5}}}',
    )
    given = {"method": method, "refine": refine, "options": '{"time_limit": 1}'}
    published = publish(kanon, "generalized", constraints=rules, **given)
    for rows in classes(parties):
        assert len({row[4] for row in rows}) >= 3
        assert largest_share(rows, 5) <= Fraction(1, 2)
    bounds = "with distinct 3-diversity of ill and a bound on guessing (F'-privacy) of cost in each"
    assert bounds in published["guarantee"]
    checks = [check for check, *_ in kanon.verify("p")]
    assert "distinct l-diversity of every class of ill" in checks
    assert "F'-privacy: frequency in class <= threshold of cost" in checks
    assert not any("diversity" in check and "cost" in check for check in checks)


def test_a_constraint_on_the_second_is_not_lost(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes that fulfil it for the first attribute only are found out before they are shown."""
    kanon = Package(parties.publisher)
    of_first = lambda constraints: constraints[0]
    monkeypatch.setattr(generalized, "constraint_of_each", of_first)
    with pytest.raises(VerificationError) as caught:
        publish(kanon, "generalized")
    assert "of cost" in str(caught.value.detail)
    assert "of ill" not in str(caught.value.detail)


def test_one_value_tells_another(parties: Parties) -> None:
    """Rows show both: whoever knows one of two that go together knows the other."""
    rows = [(*row[:5], row[4].replace("ill", "cost of")) for row in PEOPLE]
    kanon = create_source(
        parties.publisher, "data.alike", COLUMNS.replace("cost int", "cost text"), rows,
        ["age", "sex", "town"], "ill", also_sensitive=["cost"],
    )  # fmt: skip
    told = kanon.generalize("data.alike", "alike", k=4, **KINDS["generalized"])["guarantee"]
    assert "what one sensitive value of a person tells about another is not bounded" in told
    assert set(fetch(parties.publisher, "SELECT cost, ill FROM published.alike")) == {
        (f"cost of {i}", f"ill {i}") for i in range(5)
    }


def test_closeness_of_each(parties: Parties) -> None:
    kanon = Functions(parties.publisher)
    rules = '{"attributes": {"ill": {"t": 0.3}, "cost": {"t": 0.2, "distance": "ordered"}}}'
    publish(kanon, "generalized", constraints=rules)
    for rows in classes(parties):
        for place, t in ((4, Fraction(3, 10)), (5, Fraction(1, 5))):
            own, whole = (Counter(row[place] for row in some) for some in (rows, PEOPLE))
            moved, running = [], Fraction(0)
            for value in sorted(whole):
                gap = Fraction(own[value], len(rows)) - Fraction(whole[value], len(PEOPLE))
                running += gap
                moved.append(abs(running) if place == 5 else abs(gap))
            assert sum(moved) / (len(whole) - 1 if place == 5 else 2) <= t
    assert failed_checks(parties.analyst, "p") == []
    assert {"t-closeness (equal distance) of every class of ill",
            "t-closeness (ordered distance) of every class of cost"} <= {
        check for check, *_ in kanon.verify("p")}  # fmt: skip


@pytest.mark.parametrize("column", BOTH)
def test_tampering_is_noticed(parties: Parties, column: str) -> None:
    publish(Functions(parties.publisher), "generalized")
    with parties.admin.transaction(force_rollback=True):
        fetch(
            parties.admin,
            f"UPDATE published.p_row SET {column} = (SELECT min({column}) FROM published.p_row)"
            " WHERE kanon_number = (SELECT min(kanon_number) FROM published.p_row)",
        )
        fetch(parties.admin, "REFRESH MATERIALIZED VIEW published.p")
        broken = failed_checks(parties.admin, "p")
    assert set(broken) == {
        f"distinct l-diversity of every class of {column}",
        "the numbers of the cells are those of the rows",
    }


REFUSED = (
    ({"constraints": '{"attributes": {"ill": {"l": 2}}}'}, INVALID, "has no constraint"),
    ({"constraints": '{"l": 2, "attributes": {"costs": {"l": 2}}}'}, INVALID, "is not known"),
    ({"constraints": '{"l": 2, "attributes": {"age": {"l": 2}}}'}, INVALID, "is not known"),
    ({"constraints": '{"l": 2, "attributes": {"cost": {}}}'}, INVALID, "are empty"),
    ({"constraints": '{"l": 2, "attributes": {"cost": {"l": 1}}}'}, INVALID, "above 1"),
    ({"constraints": '{"l": 2, "attributes": {"cost": 3}}'}, INVALID, "an object for each"),
    ({"constraints": '{"l": 2, "attributes": [3]}'}, INVALID, "an object for each"),
    ({"constraints": '{"attributes": {}}'}, INVALID, "are empty"),
    ({"constraints": '{"default": 0.5, "values": {"ill 1": 0.4}}'}, INVALID, "which attribute"),
    ({"constraints": '{"l": 6}'}, INELIGIBLE, "no equivalence classes"),
    (
        {"constraints": '{"l": 2, "attributes": {"cost": {"l": 11}}}'}, INELIGIBLE,
        "no equivalence classes can satisfy the constraint on the sensitive attribute cost",
    ),
    (
        {"constraints": '{"l": 2, "attributes": {"cost": {"t": 0.5}}}', "max_suppressed": "0.1"},
        INVALID, "cannot be combined",
    ),
)  # fmt: skip


def test_refusals(parties: Parties) -> None:
    kanon = Functions(parties.publisher)
    for given, sqlstate, message in REFUSED:
        with pytest.raises(Exception, match=message) as caught:
            publish(kanon, "generalized", **given)
        assert getattr(caught.value, "sqlstate", None) == sqlstate, given
    with pytest.raises(InvalidParameterError) as named:
        publish(Package(parties.publisher), "generalized", constraints=REFUSED[1][0]["constraints"])
    assert "did you mean cost?" in str(named.value.hint)


def test_thresholds_of_single_values_are_named(parties: Parties) -> None:
    rules = '{"default": 0.6, "attributes": {"ill": {"default": 1, "values": {"ill 1": 0.3}}}}'
    published = publish(Functions(parties.publisher), "generalized", constraints=rules)
    assert "the threshold is 1 for" in published["guarantee"]
    for rows in classes(parties):
        assert Counter(row[4] for row in rows)["ill 1"] * 10 <= 3 * len(rows)
        assert largest_share(rows, 5) <= Fraction(3, 5)


def test_one_attribute_may_be_named(parties: Parties) -> None:
    """It is the same request, so the same publication is drawn."""
    create_source(
        parties.publisher, "data.one", COLUMNS, PEOPLE, ["age", "sex", "town"], "ill",
        insensitive=["number", "cost"],
    )  # fmt: skip
    found = []
    for rules in ('{"l": 3}', '{"attributes": {"ill": {"l": 3}}}'):
        given = {**KINDS["generalized"], "constraints": rules}
        Functions(parties.publisher).generalize("data.one", "one", k=4, **given)
        found.append(fetch(parties.publisher, "SELECT o::text FROM published.one AS o"))
        Functions(parties.publisher).drop("one")
    assert found[0] == found[1]


@pytest.mark.long
def test_people_with_several_rows(parties: Parties) -> None:
    rows = [(f"p{i % 40}", *row[1:]) for i, row in enumerate(PEOPLE)]
    columns = COLUMNS.replace("number int", "person text")
    kanon = create_source(
        parties.publisher, "data.visits", columns, rows, ["age", "sex", "town"], "ill",
        entity="person", also_sensitive=["cost"],
    )  # fmt: skip
    rules = '{"l": 2, "default": 0.7, "attributes": {"cost": {"default": 0.6}}}'
    published = kanon.generalize("data.visits", "visits", k=4, constraints=rules)
    assert "counting people" in published["guarantee"]
    assert all(holds for *_, holds in kanon.verify("visits"))
    with pytest.raises(Exception, match="count records"):
        kanon.generalize(
            "data.visits", "other", k=4, constraints='{"l": 2, "attributes": {"cost": {"t": 0.5}}}'
        )
    kanon.suppress("data.visits", "shown", k=4, accept='{"combined_releases": "it is a test"}')
    assert all(holds for *_, holds in kanon.verify("shown"))


def test_people_are_counted_for_each(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"p{i % 40}", *row[1:]) for i, row in enumerate(PEOPLE)]
    columns = COLUMNS.replace("number int", "person text")
    create_source(
        parties.publisher, "data.visits2", columns, rows, ["age", "sex", "town"], "ill",
        entity="person", also_sensitive=["cost"],
    )  # fmt: skip
    monkeypatch.setattr(generalized, "constraint_of_each", lambda constraints: constraints[0])
    with pytest.raises(VerificationError) as caught:
        Package(parties.publisher).generalize(
            "data.visits2", "visits2", k=2, constraints='{"default": 0.75}', method="mondrian",
            refine=False,
        )  # fmt: skip
    assert "by entities, <= threshold of cost" in str(caught.value.detail)


@pytest.mark.long
def test_new_people_join(parties: Parties) -> None:
    """Each batch keeps what is promised of each, and refuses what it cannot keep."""
    kanon = create_source(
        parties.publisher, "data.grows", COLUMNS, PEOPLE[:80], ["age", "sex", "town"], "ill",
        arrival="number", also_sensitive=["cost"],
    )  # fmt: skip
    kanon.generalize("data.grows", "grows", k=4, **KINDS["generalized"])
    for row in PEOPLE[80:]:
        fetch(parties.publisher, "INSERT INTO data.grows VALUES ($1, $2, $3, $4, $5, $6)", *row)
    refreshed = kanon.call("refresh", "grows")
    assert "distinct 2-diversity of ill, cost in each" in refreshed["guarantee"]
    assert fetch(parties.publisher, "SELECT count(*) FROM published.grows") == [(len(PEOPLE),)]
    assert failed_checks(parties.analyst, "grows") == []
    rates = {attack: rate for attack, _, _, rate, _ in kanon.attack("grows")}
    assert {rates[f"homogeneity of {name}"] for name in BOTH} == {0.0}


@pytest.mark.long
def test_what_is_recommended(parties: Parties) -> None:
    found = Functions(parties.publisher).rows("recommend", "data.people", purpose="rows")
    (best,) = (row for row in found if row["place"] == 1)
    assert "nobody's ill" in best["guarantee"]
    assert "cost" in best["guarantee"]
    assert best["certain_people"] == 0


@pytest.mark.long
def test_report(parties: Parties) -> None:
    publish(Functions(parties.publisher), "generalized")
    dsn = parties.dsn_of("publisher")
    with kanon_db.connect(dsn) as kanon, kanon._operation() as session:
        facts = gather(session, "p")
    ((name, before, after),) = facts.others
    assert name == "cost"
    rates = {line.attack: line.rate for line in facts.attacks}
    assert after.certain == rates["homogeneity of cost"] == 0.0
    assert facts.after.certain == rates["homogeneity of ill"]
    groups: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for row in PEOPLE:
        groups[row[1:4]].append(row[5])
    certain = sum(len(group) for group in groups.values() if len(set(group)) == 1)
    assert before.certain == pytest.approx(certain / len(PEOPLE))
    roles = {column.name: column.role for column in facts.columns}
    assert [roles[name] for name in BOTH] == ["sensitive"] * 2
    page = write_page(facts)
    assert "have a value of cost that is certain" in page
    assert page.count(ATTACKS["homogeneity"]) == 2


@pytest.mark.long
def test_a_model_may_be_published(parties: Parties) -> None:
    """What answers tell is bounded for all columns alike."""
    kanon = Functions(parties.publisher)
    model = {"label": "ill", "members": 3, "options": '{"steps": 5}'}
    accepted = '{"model_without_budget": "it is a test"}'
    assert kanon.call("publish_model", "data.people", "m", **model, accept=accepted)["guarantee"]
    kanon.drop("m")


def test_the_second_needs_a_privilege_too(parties: Parties) -> None:
    """Whoever publishes must be able to read each of them."""
    fetch(parties.admin, "CREATE SCHEMA IF NOT EXISTS other")
    fetch(parties.admin, "CREATE TABLE other.people AS SELECT age, sex, ill, cost FROM data.people")
    role = parties.publisher.info.user
    fetch(parties.admin, f"GRANT USAGE ON SCHEMA other TO {role}")
    fetch(parties.admin, f"GRANT SELECT (age, sex, ill) ON other.people TO {role}")
    register = lambda: Functions(parties.publisher).register(
        "other.people", ["age", "sex"], "ill", also_sensitive=["cost"]
    )
    assert sqlstate_of(register) == FORBIDDEN
    fetch(parties.admin, "DROP SCHEMA other CASCADE")


@pytest.mark.long
@pytest.mark.usefixtures("refused_by_default")
def test_releases(parties: Parties) -> None:
    """What is set against others is so for each attribute; what follows from others is allowed."""
    create_source(
        parties.publisher, "data.again", COLUMNS, PEOPLE, ["age", "sex"], "ill",
        also_sensitive=["cost"],
    )  # fmt: skip
    kanon = Functions(parties.publisher)
    given = {"method": "mondrian", "refine": False, "constraints": '{"l": 2}'}
    # Classes that do not overlap: it is known who is in which.
    kanon.generalize("data.again", "first", k=4, **{**given, "constraints": None})
    kanon.generalize("data.again", "coarse", k=20, **{**given, "constraints": None})
    kanon.drop("coarse")
    second = lambda **more: kanon.generalize(
        "data.again", "second", k=6, **{**given, "method": "initial", **more}
    )
    assert sqlstate_of(second) == RISK
    second(readers=[])
    found = kanon.rows("check_release", "data.again", "second")
    checks = {row["check"] for row in found}
    for name in BOTH:
        assert any(check.endswith(f"({name})") for check in checks)
    kanon.drop("second")
