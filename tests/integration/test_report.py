"""A report says what was measured, is whole, and cannot be made by others."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

import kanon_db
from kanon_db.errors import KanonError
from kanon_db.reporting.facts import gather
from kanon_db.reporting.page import ATTACKS
from tests.integration.parties import Functions, Parties, create_source, create_table, fetch, value

BAD = "<script>alert('1')</script> & co"
REASON = "because <b>we</b> & they said so"
GIVEN: dict[str, tuple[str, dict[str, object]]] = {
    "buckets": ("publish_buckets", {"privacy": '{"l": 3}', "assignment": "local",
                                    "accept": json.dumps({"uninformed_reader": REASON})}),
    "generalized": ("publish_generalized", {"k": 3, "method": "mondrian", "refine": False}),
    "freeform": ("publish_freeform", {"k": 3, "options": '{"refine": false}'}),
    "suppressed": ("publish_suppressed", {"k": 3}),
    "model": ("publish_model", {"label": "<i>ill", "members": 3, "options": '{"steps": 5}',
                                "accept": json.dumps({"model_without_budget": REASON})}),
}  # fmt: skip
SECTIONS = {"promise", "published", "infer", "attacks", "use", "releases", "parameters", "check"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module", autouse=True)
def published(parties: Parties) -> None:
    rows = [(i % 41, i % 3, f"ill {i % 7}", BAD if i % 2 else "note") for i in range(300)]
    columns = f'age int, sex int, "<i>ill" text, "{"n" * 40}" text'
    create_table(parties.publisher, "data.patients", columns, rows)
    kanon = Functions(parties.publisher)
    kanon.register("data.patients", ["age", "sex"], "<i>ill")
    for kind, (function, given) in GIVEN.items():
        kanon.call(function, "data.patients", kind, **given)


@pytest.fixture(scope="module")
def publisher(parties: Parties) -> Iterator[kanon_db.Kanon]:
    dsn = make_conninfo(parties.dsn, user=parties.publisher.info.user)
    with kanon_db.connect(dsn) as kanon:
        yield kanon


@pytest.fixture(scope="module")
def reports(publisher: kanon_db.Kanon) -> dict[str, str]:
    """The page of each kind."""
    return {kind: publisher.report(kind) for kind in GIVEN}


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


@pytest.mark.parametrize("kind", GIVEN)
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
    if kind == "buckets":
        assert REASON in page.text
        assert "uninformed_reader" in page.text


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


def test_only_for_who_published(parties: Parties) -> None:
    dsn = make_conninfo(parties.dsn, user=parties.analyst.info.user)
    with (
        kanon_db.connect(dsn) as analyst,
        pytest.raises(KanonError, match="only the role that published"),
    ):
        analyst.report("generalized")


def test_rows_are_not_called_people(parties: Parties, publisher: kanon_db.Kanon) -> None:
    """Where several rows are about one person."""
    rows = [(i // 2, i // 2 % 9, f"ill {i % 4}") for i in range(120)]
    kanon = create_source(
        parties.publisher, "data.visits", "who int, age int, ill text", rows, ["age"], "ill",
        entity="who",
    )  # fmt: skip
    kanon.suppress("data.visits", "visits", k=3)
    text = Page(publisher.report("visits")).text
    assert "120 rows in the source" in text
    assert "Of all rows" in text
    assert "1 in 3" not in text  # k people have more than k rows


def test_a_publication_that_was_changed(parties: Parties, publisher: kanon_db.Kanon) -> None:
    fetch(parties.admin, "ALTER MATERIALIZED VIEW published.suppressed OWNER TO postgres")
    try:
        with pytest.raises(KanonError):
            publisher.report("suppressed")
    finally:
        fetch(parties.admin, "ALTER MATERIALIZED VIEW published.suppressed OWNER TO kanon_owner")


# -- in a browser ---------------------------------------------------------------------------------


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
@pytest.mark.parametrize(("kind", "width"), [*((kind, 390) for kind in GIVEN), ("buckets", 1280)])
def test_in_a_browser(reports: dict[str, str], tmp_path: Path, kind: str, width: int) -> None:
    """Nothing is wider than the window, and axe finds nothing to object to."""
    axe = Path(str(pytest.importorskip("axe_core_python").__file__)).with_name("axe.min.js")
    # The policy of the page forbids scripts, also those of a test.
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", reports[kind])
    run = (
        "axe.run(document).then(found => { const out = parent.document.createElement('pre');"
        " out.id = 'found'; out.textContent = JSON.stringify([document.documentElement.scrollWidth,"
        " found.violations.map(v => [v.id, v.impact, v.nodes.map(n => n.html)])]);"
        " parent.document.body.append(out); })"
    )
    page = tmp_path / "report.html"
    page.write_text(
        text.replace("</body>", f"<script>{axe.read_text()}</script><script>{run}</script></body>")
    )
    # A window cannot be narrower than 500 pixels; a frame can.
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<iframe src="report.html" style="border:0" width="{width}" height="900"></iframe>'
    )
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000",
        "--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1300,1000", "--dump-dom", frame.as_uri(),
    ]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    match = re.search(r'<pre id="found">(.*?)</pre>', dom, flags=re.DOTALL)
    assert match is not None
    wide, violations = json.loads(
        match[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    )
    assert violations == []
    assert wide <= width


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
