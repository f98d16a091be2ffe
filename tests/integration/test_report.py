"""A report says what was measured, is whole, and cannot be made by others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo
from psycopg.types.range import Range

import kanon_db
from kanon_db.advice.publication_candidates import PROTECTIONS, SourceTraits, candidates_for
from kanon_db.errors import KanonError
from kanon_db.metrics.disclosure_risk import ReidentificationRisk
from kanon_db.publications.examination import open_target
from kanon_db.publications.lifecycle import Access
from kanon_db.reporting.facts import Counted, RiskFacts, gather, promise_of
from kanon_db.reporting.page import ATTACKS, linking_rows, three_tests, write_page
from tests.integration.parties import Functions, Parties, create_source, create_table, fetch, value
from tests.profiles import long_but

BAD = "<script>alert('1')</script> & co"
COMBINED = {"combined_releases": "a test"}
REASON = "because <b>we</b> & they said so"
GIVEN: dict[str, tuple[str, dict[str, object]]] = {
    "buckets": ("publish_buckets", {"privacy": '{"l": 3}', "estimates": "uncapped",
                                    "accept": json.dumps({"uncapped_estimates": REASON})}),
    "generalized": ("publish_generalized", {"k": 3, "method": "mondrian", "refine": False,
                                            "options": '{"bound_time": 0.2}'}),
    "freeform": ("publish_freeform", {"k": 3, "options": '{"refine": false}'}),
    "suppressed": ("publish_suppressed", {"k": 3}),
    "model": ("publish_model", {"label": "<i>ill", "members": 3, "options": '{"steps": 5}',
                                "accept": json.dumps({"model_without_budget": REASON})}),
}  # fmt: skip
SECTIONS = {"promise", "published", "infer", "attacks", "use", "releases", "parameters", "check"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module", autouse=True)
def patients(parties: Parties) -> Functions:
    rows = [(i % 41, i % 3, f"ill {i % 7}", BAD if i % 2 else "note") for i in range(300)]
    columns = f'age int, sex int, "<i>ill" text, "{"n" * 40}" text'
    create_table(parties.publisher, "data.patients", columns, rows)
    kanon = Functions(parties.publisher)
    kanon.register("data.patients", ["age", "sex"], "<i>ill")
    return kanon


@pytest.fixture(scope="module")
def published(patients: Functions) -> None:
    for kind, (function, given) in GIVEN.items():
        patients.call(function, "data.patients", kind, **given)


@pytest.fixture(scope="module")
def publisher(parties: Parties) -> Iterator[kanon_db.Kanon]:
    dsn = parties.dsn_of("publisher")
    with kanon_db.connect(dsn) as kanon:
        yield kanon


@pytest.fixture(scope="module")
def reports(publisher: kanon_db.Kanon, published: None) -> dict[str, str]:
    """The page of each kind."""
    return {kind: publisher.report(kind) for kind in GIVEN}


@pytest.fixture(scope="module")
def visits(parties: Parties, publisher: kanon_db.Kanon) -> None:
    """Two records of each person: with an entity, without, and with one that is kept."""
    rows = [(i // 2, i // 2 % 9, f"ill {i % 8}") for i in range(120)]
    columns = "who int, age int, ill text"
    given: dict[str, dict[str, Any]] = {
        "visits": {"entity": "who"},
        "untold": {"identifiers": ["who"]},
        "told": {"entity": "who", "keep": "first by age"},
    }
    for name, roles in given.items():
        create_source(parties.publisher, f"data.{name}", columns, rows, ["age"], "ill", **roles)
        publisher.publish_suppressed(f"data.{name}", name, k=3)


class Page(HTMLParser):
    """What a page has: its identifiers, its tags, what it would fetch, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, given in attrs:
            if name == "id":
                self.ids.append(given or "")
            if name in ("src", "href", "xlink:href") and not (given or "").startswith("#"):
                self.fetched.append(given or "")

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.long
@pytest.mark.parametrize("kind", long_but({"buckets", "generalized", "model"}, GIVEN))
def test_it_is_whole_and_says_what_functions_say(
    parties: Parties, reports: dict[str, str], kind: str
) -> None:
    text = reports[kind]
    page = Page(text)
    assert set(page.ids) >= SECTIONS
    assert len(page.ids) == len(set(page.ids))
    assert page.fetched == []
    assert {"script", "link", "img", "iframe"}.isdisjoint(page.tags)
    assert "url(http" not in text
    assert "@import" not in text
    assert page.tags.count("svg") >= (1 if kind == "model" else 2)
    assert "<i>ill" in page.text  # as text
    assert "i" not in page.tags
    guarantee = "SELECT guarantee FROM kanon.publications WHERE name = $1::text"
    assert value(parties.publisher, guarantee, kind) in page.text
    kanon = Functions(parties.publisher)
    for check, *_ in kanon.verify(kind):
        assert check in page.text or check.startswith("accepted risk")
    for attack, *_ in kanon.attack(kind):
        assert attack in page.text
        assert ATTACKS[attack] in page.text
    assert ("It is proven that" in page.text) == (kind == "generalized")
    if kind == "buckets":
        assert REASON in page.text
        assert "uncapped_estimates" in page.text


@pytest.mark.long
@pytest.mark.usefixtures("published")
def test_before_and_after(parties: Parties, publisher: kanon_db.Kanon) -> None:
    """What is said of the source, counted in another way."""
    with publisher._operation() as session:
        facts = {kind: gather(session, kind) for kind in GIVEN}
    rows = fetch(parties.publisher, 'SELECT age, sex, "<i>ill" FROM data.patients')
    people: dict[tuple[int, int], list[str]] = {}
    for age, sex, ill in rows:
        people.setdefault((age, sex), []).append(ill)
    for one in facts.values():
        assert one.before.unique == sum(len(g) == 1 for g in people.values()) / len(rows)
        certain = sum(len(g) for g in people.values() if len(set(g)) == 1)
        assert one.before.certain == pytest.approx(certain / len(rows))
        guessed = sum(max(map(g.count, g)) for g in people.values())
        assert one.before.guessed == pytest.approx(guessed / len(rows))
    for kind, groups in (
        ("generalized", " GROUP BY age, sex"),
        ("buckets", "_qit GROUP BY bucket_id"),
    ):
        sizes = f"SELECT count(*) AS n FROM published.{kind}{groups}"
        counted = f"SELECT n, count(*) FROM ({sizes}) AS c GROUP BY n ORDER BY n"
        assert facts[kind].sizes == fetch(parties.publisher, counted)
    assert facts["freeform"].sizes == []
    assert set(facts["buckets"].losses.values()) == {0.0}
    assert max(facts["generalized"].losses.values()) > 0
    for one in facts.values():
        assert [release.name for release in one.releases] == list(GIVEN)
        assert sum(error.queries for error in one.errors) > 300 or one.kind == "model"
    assert facts["model"].errors == []


@pytest.mark.slow("three sources are published for this module")
def test_only_for_who_published(parties: Parties, visits: None) -> None:
    dsn = parties.dsn_of("analyst")
    with (
        kanon_db.connect(dsn) as analyst,
        pytest.raises(KanonError, match="only the role that published"),
    ):
        analyst.report("told")


def test_records_are_not_called_people(publisher: kanon_db.Kanon, visits: None) -> None:
    """Where several are about one person, or where nothing says whom they are about."""
    for name in ("visits", "untold"):
        page = Page(publisher.report(name))
        assert "120 records in the source" in page.text
        assert "Of all records" in page.text
        assert "one row for each person" not in page.text
        assert "several may be about one person" in page.text
    page = Page(publisher.report("told"))
    assert "60 people in the source" in page.text
    assert "one row for each person" in page.text
    assert "several may be about one person" not in page.text


@pytest.mark.long
def test_the_promise_is_what_recommend_said(
    parties: Parties, publisher: kanon_db.Kanon, visits: None
) -> None:
    """Every candidate, published as it is recommended, is promised in the same words."""
    standard = PROTECTIONS["standard"]
    counts = {"ill": [15] * 8}
    for source, traits, counted in (
        ("data.untold", SourceTraits(counts), Counted.UNKNOWN),
        ("data.visits", SourceTraits(counts, has_entities=True), Counted.SEVERAL),
    ):
        candidates = candidates_for("counts", standard, traits)
        assert any("above 1/3" in one.guarantee for one in candidates)
        for one in candidates:
            request = {"source": source, "publication": "tried", "readers": [], **one.given}
            publisher.perform(f"publish_{one.kind}", request)
            with publisher._operation() as session:
                assert promise_of(open_target(session, "tried"), counted) == one.guarantee
            publisher.drop_publication("tried")
    publisher.publish_generalized("data.untold", "tried", k=3, constraints={"l": 2}, readers=[])
    text = publisher.report("tried")
    first = text.index('class="promise"')
    assert first < text.index("<nav")
    promised = Page(text[first:]).text
    assert "At least 2 different values" not in promised
    assert "every group has at least 2 different values of ill" in promised
    publisher.drop_publication("tried")


@pytest.mark.long
def test_thresholds_of_single_values(parties: Parties, publisher: kanon_db.Kanon) -> None:
    """The sentence does not promise for them what it promises for the others."""
    rows = [(i, "common" if i % 4 else f"rare {i % 16}") for i in range(160)]
    create_source(parties.publisher, "data.rare", "age int, ill text", rows)
    privacy = {"default": "1/5", "values": {"common": "0.9"}}
    publisher.publish_buckets("data.rare", "rare", privacy=privacy)
    text = Page(publisher.report("rare")).text
    assert "obody's ill is inferred with a probability above 20%" in text
    assert "but for 1 value with a bound of its own, that 75% of the records have: 90%" in text
    publisher.drop_publication("rare")


def test_who_can_read_it_now(
    parties: Parties, publisher: kanon_db.Kanon, new_role: Callable[..., str]
) -> None:
    """By the catalog: the ledger does not hear of a new member of a role."""
    publisher.publish_suppressed("data.patients", "seen", k=3, readers=[], accept=COMBINED)

    def access() -> tuple[Access, str]:
        with publisher._operation() as session:
            facts = gather(session, "seen")
        (own,) = (one for one in facts.releases if one.name == "seen")
        return facts.access, own.state

    found, state = access()
    assert (found.granted, found.now, state) == ([], [], "draft")
    team, idle = new_role("kanon_analyst"), new_role("kanon_analyst")
    late, dormant, barred = new_role(team), new_role(), new_role()
    fetch(parties.admin, f"GRANT SELECT ON published.seen TO {team}, {barred}")
    fetch(parties.admin, f"ALTER ROLE {dormant} NOINHERIT; GRANT {team} TO {dormant}")
    fetch(parties.admin, f"ALTER ROLE {late} INHERIT")
    found, state = access()
    now = {reader.name: reader for reader in found.now}
    assert set(now) == {team, late, dormant}
    assert (now[late].through, now[late].hurdle) == ([team], "")
    assert now[team].through == []
    assert now[dormant].hurdle.startswith("SET ROLE")
    assert idle not in now
    assert set(publisher.readers("seen")[team]) == {team, late, dormant}
    assert state == "live"
    besides = {why: names for names, why in found.besides}
    assert barred in besides["granted, but may not connect, or not use the schema"]
    assert any(parties.publisher.info.user in names for names, _ in found.besides)
    assert any(parties.admin.info.user in names for names, _ in found.besides)
    text = Page(publisher.report("seen")).text
    assert late in text
    assert "it is a draft" not in text
    fetch(parties.admin, f"REVOKE SELECT ON published.seen FROM {team}, {barred}")
    found, state = access()
    assert (found.granted, found.now, state) == ([], [], "draft")
    publisher.drop_publication("seen")


@pytest.mark.long
def test_other_releases_are_read_by_whoever_reads_this_one(
    parties: Parties, publisher: kanon_db.Kanon, new_role: Callable[..., str]
) -> None:
    create_source(
        parties.publisher, "data.apart", "age int, ill text",
        [(i % 20, f"ill {i % 6}") for i in range(120)], ["age"], "ill",
    )  # fmt: skip
    counting, reading = new_role("kanon_user"), new_role("kanon_user")
    publisher.publish_buckets("data.apart", "apart_b", privacy={"l": 3}, readers=[counting])
    publisher.publish_generalized("data.apart", "apart_k", k=4, readers=[reading])

    def said() -> str:
        with publisher._operation() as session:
            return next(
                row[3] for row in three_tests(gather(session, "apart_b")) if "Link" in row[0]
            )

    assert said().endswith("these people can be read now, by nobody who reads this one: apart_k")
    fetch(parties.admin, f"GRANT {reading} TO {counting}")
    assert said().endswith("readers can now read other releases of these people as well: apart_k")
    for name in ("apart_b", "apart_k"):
        publisher.drop_publication(name)


@pytest.mark.long
@pytest.mark.pitfall(64)
def test_the_verdict_on_inference_is_that_of_the_worst_attack(
    parties: Parties, publisher: kanon_db.Kanon
) -> None:
    """A bound that learners exceed is said to be exceeded, whichever column it is on."""
    rows = [(i % 60, f"ill {i * 7 % 11}", f"paid {i % 60 // 6}") for i in range(900)]
    create_source(
        parties.publisher, "data.judged", "age int, ill text, paid text", rows, ["age"], "ill",
        also_sensitive=["paid"],
    )  # fmt: skip
    publisher.publish_buckets("data.judged", "judged", privacy={"l": 3}, readers=[])
    with publisher._operation() as session:
        facts = gather(session, "judged")
    names = [one.name for one in facts.inferences]
    assert names == ["paid", "ill"]  # the worst first, not the first that was registered
    paid, ill = facts.inferences
    assert paid.is_bounded
    assert paid.worst is not None
    assert paid.worst.exceeds
    assert not any(line.exceeds for line in ill.attacks if "guesses" not in line.attack)
    assert [line.exceeds for line in facts.attacks] == sorted(
        (line.exceeds for line in facts.attacks), reverse=True
    )
    *_, (_, _, verdict, measured) = three_tests(facts)
    assert verdict.startswith(
        f"paid: bounded for readers who learn nothing; exceeded by {paid.worst.attack} ("
    )
    assert f"the best attack, {paid.worst.attack}, is right for" in measured
    assert "33.3 % is allowed" in measured
    assert "ill: " in verdict
    publisher.drop_publication("judged")


@pytest.mark.long
@pytest.mark.pitfall(64)
def test_a_bound_on_lists_is_not_said_to_bound_their_codes(
    parties: Parties, publisher: kanon_db.Kanon
) -> None:
    """The verdict on inference, and what is not covered, say so, and that records were kept."""
    rows = [(i // 2, i * 7 % 60, f"c{i % 7};c{i % 11 + 3}") for i in range(400)]
    create_source(
        parties.publisher, "data.coded", "who int, age int, codes text", rows, ["age"], "codes",
        entity="who", keep="random",
    )  # fmt: skip
    publisher.publish_buckets("data.coded", "coded", privacy={"l": 3}, readers=[])
    with publisher._operation() as session:
        facts = gather(session, "coded")
    (judged,) = facts.inferences
    assert judged.is_bounded
    *_, (_, _, verdict, _) = three_tests(facts)
    assert ", but not against a part of the value (" in verdict
    others, lists = facts.left_open
    assert "a person's other records" in others
    assert "one code in common has no bound" in lists
    shown = " ".join(unescape(write_page(facts)).split())
    assert all(one in shown for one in facts.left_open)
    publisher.drop_publication("coded")


@pytest.mark.pitfall(64)
def test_a_report_of_a_view_names_the_releases_of_its_table(
    parties: Parties, publisher: kanon_db.Kanon, new_role: Callable[..., str]
) -> None:
    """And an accepted risk names the release, who can read both, and why that was accepted."""
    reader = new_role("kanon_user")
    rows = [(i % 20, f"ill {i % 6}") for i in range(120)]
    columns = "age int, ill text"
    create_source(parties.publisher, "data.based", columns, rows, ["age"], "ill")
    fetch(parties.publisher, "CREATE VIEW data.seen AS SELECT age, ill FROM data.based")
    Functions(parties.publisher).register("data.seen", ["age"], "ill")
    publisher.publish_buckets("data.based", "based_b", privacy={"l": 3}, readers=[reader])
    accept = {"combined_releases": REASON}
    publisher.publish_buckets(
        "data.seen", "seen_b", privacy={"l": 4}, readers=[reader], accept=accept
    )
    page = Page(publisher.report("seen_b"))
    assert "readers can now read other releases of these people as well: based_b" in page.text
    assert "of data.based" in page.text
    accepted = f"{REASON}; {reader} could also read based_b"
    assert accepted in page.text
    checks = publisher.verify("seen_b")
    measured = checks.loc[checks["check"] == "accepted risk: combined_releases", "measured"]
    assert list(measured) == [f"because: {accepted}"]
    kept = "SELECT parameters -> 'combined_with' FROM kanon.releases WHERE name = 'seen_b'"
    assert value(parties.publisher, kept) == [{"name": "based_b", "readers": [reader]}]
    for name in ("seen_b", "based_b"):
        publisher.drop_publication(name)
    fetch(parties.publisher, "DROP VIEW data.seen")


def test_names_are_no_formulas(parties: Parties, publisher: kanon_db.Kanon) -> None:
    """Of columns, in plots: what a plot would take for a formula is drawn as it stands."""
    names = [r"$\frac{a$", "cost_$us$", "a_b^{c}"]
    columns = ", ".join(f'"{name}" int' for name in names)
    rows = [(i % 60, i % 7, i % 5, f"ill {i % 4}") for i in range(120)]
    create_source(parties.publisher, "data.formulas", f"{columns}, ill text", rows, names, "ill")
    publisher.publish_generalized("data.formulas", "formulas", k=4, readers=[])
    plots = re.findall("<svg.*?</svg>", publisher.report("formulas"), re.DOTALL)
    drawn = [unescape(text) for text in re.findall("<text[^>]*>(.*?)</text>", "".join(plots))]
    assert {*names} <= {*drawn}
    publisher.drop_publication("formulas")


@pytest.mark.slow("publishes and reports several times")
def test_risks_of_linking(parties: Parties, publisher: kanon_db.Kanon) -> None:
    """Prosecutor, journalist and marketer risk, counted by hand, with and without a population."""
    rows = [(20 + i // 4, f"ill {i % 5}") for i in range(12)]
    columns = "age int, ill text"
    create_source(parties.publisher, "data.few", columns, rows)
    publisher.publish_generalized("data.few", "few", k=6, readers=[])
    publisher.publish_buckets("data.few", "few_b", privacy={"l": 3}, readers=[])
    sizes = fetch(parties.publisher, "SELECT count(*) FROM published.few GROUP BY age")
    assert sorted(sizes) == [(12,)] or min(sizes) >= (6,)
    # The population has 10 people of 20, 40 of 21, none of 22, and others.
    people = [(20, 10), (21, 40), (50, 1000)]
    create_table(parties.publisher, "data.census", "age int, people int", people)

    def risks(name: str, population: int | str | None = None) -> RiskFacts:
        with publisher._operation() as session:
            return gather(session, name, population).linking

    linking = risks("few_b")
    assert linking.before == linking.after
    assert linking.before.prosecutor == ReidentificationRisk(1 / 4, 1 / 4, 1.0)
    assert linking.before.marketer == 1 / 4
    assert linking.before.journalist is None
    text = Page(publisher.report("few_b")).text
    assert "No population was given, so the journalist risk was not measured" in text

    linking = risks("few_b", 120)  # ten for each
    assert linking.before.journalist is not None
    assert linking.before.journalist.highest == 1 / 40
    assert linking.before.journalist.average == pytest.approx(1 / 40)
    linking = risks("few_b", "data.census")
    assert linking.before.journalist is not None
    # 4 of 10, 4 of 40, and 4 of at least the 4 that are here.
    assert linking.before.journalist.highest == 1 / 4
    assert linking.before.marketer == pytest.approx((4 / 10 + 4 / 40 + 4 / 4) / 12)
    assert linking.misfits == 1
    # By the caller's search path, as other operations find relations.
    given = {"user": parties.publisher.info.user, "options": "-c search_path=data"}
    with kanon_db.connect(make_conninfo(parties.dsn, **given)) as kanon:
        text = Page(kanon.report("few_b", population="census")).text
    assert "1 classes have fewer people there" in text

    linking = risks("few", "data.census")
    assert linking.after is not None
    assert linking.after.journalist is not None
    # Of each class, those people whose ages are in its range.
    ranges = fetch(parties.publisher, "SELECT lower(age), upper(age), count(*) FROM published.few"
                   " GROUP BY age")  # fmt: skip
    shares = [
        (size, max(size, sum(n for age, n in people if low <= age < high)))
        for low, high, size in ranges
    ]
    assert linking.after.journalist.highest == 1 / min(f for _, f in shares)
    assert linking.after.marketer == pytest.approx(sum(n / f for n, f in shares) / 12)
    assert linking.after.prosecutor.highest <= 1 / 6

    create_table(parties.publisher, "data.bad", "age text, sex int", [("20", 1)])
    for population, said in (
        (11, "smaller than the table"),
        ("data.nothing", "does not exist"),
        ("8,000,000", "does not exist"),
        ("data.bad", "does not have the quasi-identifiers"),
    ):
        with pytest.raises(KanonError, match=said):
            publisher.report("few", population=population)
    for name in ("few", "few_b"):
        publisher.drop_publication(name)


def test_a_population_is_counted_in_sets_and_empty_cells(
    parties: Parties, publisher: kanon_db.Kanon
) -> None:
    """As somebody would count it who reads the published rows."""
    rows = [(i % 7, "abc"[i % 3], f"ill {i % 4}") for i in range(60)]
    create_source(parties.publisher, "data.both", "age int, city text, ill text", rows)
    people = [(age, city, 10 + age) for age in range(9) for city in "abcd"]
    columns = "age int, city text, people int"
    create_table(parties.publisher, "data.everybody", columns, people)
    publisher.publish_generalized("data.both", "ranges", k=8, method="mondrian", readers=[])
    publisher.publish_suppressed("data.both", "holes", k=8, readers=[])

    def fits(cell: Any, value: object) -> bool:
        if isinstance(cell, Range):
            return value in cell
        return cell is None or (value in cell if isinstance(cell, list) else value == cell)

    for name in ("ranges", "holes"):
        with publisher._operation() as session:
            linking = gather(session, name, "data.everybody").linking
        alike = f"SELECT age, city, count(*) FROM published.{name} GROUP BY age, city"
        classes = fetch(parties.publisher, alike)
        counted = [
            sum(n for a, c, n in people if fits(age, a) and fits(city, c))
            for age, city, _ in classes
        ]
        assert linking.after is not None
        assert linking.after.journalist is not None
        assert linking.misfits == 0
        assert linking.after.journalist.highest == 1 / min(counted)
        shares = [n / f for (_, _, n), f in zip(classes, counted, strict=True)]
        assert linking.after.marketer == pytest.approx(sum(shares) / 60)
        publisher.drop_publication(name)


def test_of_several_records_of_one_person_only_the_bound_is_said(
    publisher: kanon_db.Kanon, visits: None
) -> None:
    """Classes of rows would count them as several people."""
    with publisher._operation() as session:
        facts = gather(session, "visits")
    assert facts.linking.after is None
    rows = {name: after for name, _, _, after in linking_rows(facts)}
    assert rows["Prosecutor risk, highest"] == "at most 33.3 %"
    assert rows["Marketer risk"] == "not measured"


@pytest.mark.long
def test_the_three_tests_and_weights(parties: Parties, publisher: kanon_db.Kanon) -> None:
    rows = [(i % 20, f"ill {i % 6}", 1 + i / 100 if i < 30 else 2) for i in range(120)]
    columns = "age int, ill text, survey_wt numeric"
    create_source(
        parties.publisher, "data.survey", columns, rows, ["age"], "ill", insensitive=["survey_wt"]
    )
    publisher.publish_generalized("data.survey", "survey", k=4, constraints={"l": 2})
    publisher.publish_buckets("data.survey", "survey_b", privacy={"l": 3}, accept=COMBINED)
    with publisher._operation() as session:
        facts = {name: gather(session, name) for name in ("survey", "survey_b")}
    assert facts["survey"].linking.weights == [("survey_wt", 30 / 120)]
    alone = facts["survey"].linking.alone
    assert alone is not None
    assert alone >= 30 / 120  # by the weight, which is published as it is
    assert facts["survey_b"].linking.weights == []  # buckets publish none
    here = {name: {test: verdict for test, _, verdict, _ in three_tests(one)}
            for name, one in facts.items()}  # fmt: skip
    assert here["survey_b"] == {"Singling out": "not prevented", "Linkability": "not prevented",
                                "Inference": "bounded"}  # fmt: skip
    singled = facts["survey"].line_of("singling out")
    assert singled is not None
    assert (here["survey"]["Singling out"] == "not prevented") == (singled.rate > singled.base_rate)
    for one in facts.values():
        assert "of the rows describe exactly one person, and by chance" in three_tests(one)[0][3]
    # l values in each class bound no probability.
    assert here["survey"]["Inference"] == "not bounded"
    text = publisher.report("survey")
    assert "25.0 % of the records are alone with theirs" in " ".join(Page(text).text.split())
    assert "This report is none" in text
    for name in facts:
        publisher.drop_publication(name)


def test_what_was_not_measured(publisher: kanon_db.Kanon, visits: None) -> None:
    publisher.publish_generalized(
        "data.untold", "tried", k=3, constraints={"default": 0.9}, readers=[]
    )
    checks = publisher.report("tried").partition('id="check"')[2]
    found = re.findall(r">not measured</td><td [^>]*>(.*?)</td>", checks)
    assert found == ['<span class="open">not measured</span>']
    publisher.drop_publication("tried")


def test_a_publication_that_was_changed(
    parties: Parties, publisher: kanon_db.Kanon, visits: None
) -> None:
    fetch(parties.admin, "ALTER MATERIALIZED VIEW published.told OWNER TO postgres")
    try:
        with pytest.raises(KanonError):
            publisher.report("told")
    finally:
        fetch(parties.admin, "ALTER MATERIALIZED VIEW published.told OWNER TO kanon_owner")


# -- in a browser ---------------------------------------------------------------------------------


LOOK = """
const svgs = [...document.querySelectorAll('svg')];
const labels = svgs.flatMap(svg => [...svg.querySelectorAll('text')].map(
    text => parseFloat(getComputedStyle(text).fontSize) * svg.getScreenCTM().a));
const scrolled = [...document.querySelectorAll('.scroll')].filter(
    one => one.scrollWidth > one.clientWidth).map(one => one.ariaLabel);
const look = {
    wide: document.documentElement.scrollWidth, label: Math.min(...labels), scrolled,
    paper: getComputedStyle(document.body).backgroundColor,
    bold: [...document.querySelectorAll('tbody tr')].filter(
        row => row.firstElementChild.getAttribute('role') !== 'rowheader').length};
axe.run(document).then(found => {
    const out = parent.document.createElement('pre'); out.id = 'found';
    look.violations = found.violations.map(v => [v.id, v.impact, v.nodes.map(n => n.html)]);
    out.textContent = JSON.stringify(look); parent.document.body.append(out); });
"""
"""What a browser makes of a page, and what axe objects to."""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
@pytest.mark.parametrize(
    ("kind", "width", "is_dark"),
    [*((kind, 390, False) for kind in GIVEN), ("buckets", 1280, False), ("generalized", 390, True)],
)
def test_in_a_browser(
    reports: dict[str, str], tmp_path: Path, kind: str, width: int, is_dark: bool
) -> None:
    """Nothing is wider than the window, labels are legible, and axe finds nothing to object to."""
    axe = Path(str(pytest.importorskip("axe_core_python").__file__)).with_name("axe.min.js")
    # The policy of the page forbids scripts, also those of a test.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", reports[kind])
    page = tmp_path / "report.html"
    page.write_text(
        text.replace("</body>", f"<script>{axe.read_text()}</script><script>{LOOK}</script></body>")
    )
    # A window cannot be narrower than 500 pixels; a frame can.
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<iframe src="report.html" style="border:0" width="{width}" height="900"></iframe>'
    )
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000",
        "--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}",
        *(["--force-dark-mode"] if is_dark else []),
        "--window-size=1300,1000", "--dump-dom", frame.as_uri(),
    ]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    match = re.search(r'<pre id="found">(.*?)</pre>', dom, flags=re.DOTALL)
    assert match is not None
    found = json.loads(unescape(match[1]))
    assert found["violations"] == []
    assert found["wide"] <= width
    assert found["scrolled"] == []
    assert found["label"] >= 10
    assert found["bold"] == 0
    assert (found["paper"] == "rgb(255, 255, 255)") is not is_dark


@pytest.mark.long
def test_what_waits_is_in_it(parties: Parties, publisher: kanon_db.Kanon) -> None:
    """As of the last refresh, for the publisher: how many of each kind, and since when."""
    stays = [(i, i % 5, f"ill {i % 4}") for i in range(60)]
    columns = "who int, age int, ill text"
    create_source(parties.publisher, "data.held", columns, stays, ["age"], "ill", entity="who")
    publisher.publish_suppressed("data.held", "held", k=2)
    assert "at the last refresh" not in publisher.report("held")
    fetch(parties.publisher, "DELETE FROM data.held WHERE who < 3")
    fetch(parties.publisher, "UPDATE data.held SET ill = 'ill 9' WHERE who = 7")
    found = publisher.refresh("held")
    assert found.waiting == 4
    page = publisher.report("held")
    assert re.search(r"4 records wait: 1 corrected since 2\S+, 3 deleted since 2\d", page)
    listed = publisher.publications().set_index("name").loc["held"]
    assert (listed["waiting"], listed["waits"]["deleted"]["records"]) == (4, 3)
    publisher.drop_publication("held")
