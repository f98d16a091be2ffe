"""The commands for a made-up hospital: a year of stays is published, and three quarters follow.

They print what ``docs/start/hospital.md`` shows. The first ones are those of ``README.md``, too:
from nothing to reports on two publications for two groups of readers.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests import hospital
from tests.acceptance.commands import Answer, kanon
from tests.docs.console import PAGES, blocks, commands, says
from tests.hospital import Hospital, Stay

PUBLISHED: Final = ("age", "sex", "postcode", "diagnosis", "cost", "insurance")
ABOUT_SENSITIVE: Final[dict[str, Callable[[Stay], bool]]] = {
    "diagnosis = 'A00'": lambda stay: stay.diagnosis == "A00",
    "cost >= 5000": lambda stay: stay.cost >= 5000,
    "diagnosis = 'A00' AND insurance = 'private'": (
        lambda stay: stay.diagnosis == "A00" and stay.insurance == "private"
    ),
    "diagnosis IN ('A00', 'C00') AND cost < 3000 AND insurance <> 'none'": (
        lambda stay: (
            stay.diagnosis in ("A00", "C00") and stay.cost < 3000 and stay.insurance != "none"
        )
    ),
}
"""Conditions on sensitive columns alone: a bucket keeps which values go together."""

OTHERS: Final[dict[str, Callable[[Stay], bool]]] = {
    "age >= 60 AND diagnosis = 'A00'": lambda stay: stay.age >= 60 and stay.diagnosis == "A00",
    "sex = 'f' AND cost < 2000": lambda stay: stay.sex == "f" and stay.cost < 2000,
    "age < 30 AND cost >= 2000 AND insurance = 'public A'": (
        lambda stay: stay.age < 30 and stay.cost >= 2000 and stay.insurance == "public A"
    ),
}


@dataclass
class Officer:
    """Who types commands, and keeps what they print."""

    dsn: str
    folder: Path
    typed: list[tuple[list[str], str]] = field(default_factory=list)

    def types(self, *words: str) -> str:
        answer = self._run(*words)
        self.typed.append((["kanon", *words], answer.stdout))
        return answer.stdout

    def administers(self, statement: str) -> None:
        """Type SQL as an administrator."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement.encode())
        self.typed.append((["psql", "-c", statement], ""))

    def asks(self, *words: str) -> Any:
        """Type a command for a program."""
        return self._run(*words, "--json").json()

    def _run(self, *words: str) -> Answer:
        answer = kanon(*words, dsn=self.dsn, cwd=self.folder)
        assert answer.returncode == 0, f"{words}\n{answer.stdout}{answer.stderr}"
        return answer

    def check_counts(self, published: Iterable[Stay]) -> None:
        """What is asked of sensitive columns alone is exact; bounds hold for everything."""
        people = list(published)
        for where, holds in {**ABOUT_SENSITIVE, **OTHERS}.items():
            found = self.asks("query", f"SELECT COUNT(*) FROM stays_b WHERE {where}")
            truth = sum(map(holds, people))
            assert found["lower_bound"] <= truth <= found["upper_bound"], where
            if where in ABOUT_SENSITIVE:
                assert found["lower_bound"] == found["upper_bound"] == found["estimate"]
            else:
                assert abs(found["estimate"] - truth) <= 5 * found["std_error"], where


def first_stays(stays: Iterable[Stay]) -> dict[int, Stay]:
    """The first stay of each patient."""
    found: dict[int, Stay] = {}
    for stay in sorted(stays):
        found.setdefault(stay.patient, stay)
    return found


def shown(stay: Stay) -> list[Any]:
    return [getattr(stay, column) for column in PUBLISHED]


def row_of(printed: str) -> dict[str, str]:
    """Read what a command printed as a row."""
    pairs = re.findall(r"^(\S+(?: \S+)*) {2,}(.*?) *$", printed, re.MULTILINE)
    return dict(pairs)


def check_attacks(attacks: Iterable[dict[str, Any]]) -> None:
    """Who knows no value of anybody keeps below the bound; who knows one reads the others.

    Of some people, a learner may be surer than the bound, and rightly so.
    """
    for attack in attacks:
        if attack["bound"] is not None and not attack["attack"].startswith("surer"):
            bound, n = attack["bound"], attack["people"]
            # Of the few who are easily found, chance may make it right a little more often.
            chance = 3 * (bound * (1 - bound) / n) ** 0.5 if "people: " in attack["attack"] else 0
            assert attack["rate"] <= bound + chance, attack
    (knows,) = (
        one["rate"]
        for one in attacks
        if one["attack"] == "knows the value of diagnosis, guesses cost"
    )
    assert knows > 0.9


@pytest.fixture
def officer(database: str, tmp_path: Path) -> Iterator[Officer]:
    yield Officer(database, tmp_path)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP OWNED BY researchers, ann, bob")
        connection.execute("DROP ROLE ann, bob, researchers")


def some_stays() -> list[Stay]:
    """Some of the hospital's stays, so that it takes less time."""
    return list(Hospital().stays.values())[:1_500]


@pytest.fixture
def nothing(tmp_path: Path) -> Iterator[Path]:
    """A folder with the hospital's file, and no server."""
    hospital.write_file(tmp_path / "stays.csv", some_stays())
    yield tmp_path
    kanon("local", "destroy", "--yes", cwd=tmp_path)


def filled_in(line: str, printed: str) -> str:
    """Put what a command has printed in place of …, which README writes."""
    before, dots, after = line.partition("…")
    if not dots:
        return line
    found = re.search(rf"{re.escape(before)}(.+)$", printed, re.MULTILINE)
    assert found is not None, f"nothing that was printed goes on after {before}"
    return before + found[1].removesuffix(after[:1]) + after


@pytest.mark.slow("a hospital's whole story, each command a process")
def test_ten_commands_from_a_file_to_reports_for_two_audiences(nothing: Path) -> None:
    """Each command is README's, and the rest of it was printed by one before."""
    readme = PAGES.parent / "README.md"
    (lines,) = [block.splitlines() for block in blocks(readme, "sh")]
    assert len(lines) <= 10
    printed, dsn = "", ""
    for line in lines:
        # What is recommended is searched for until time is up: here, the sooner. Searches are
        # compiled at an installation in test_commands.py.
        words = shlex.split(filled_in(line, printed).replace("--time-limit 20", "--time-limit 2"))
        if words == ["kanon", "install"]:
            words.append("--no-compile")
        if words[0] == "psql":
            dsn, option, statement = words[1:]
            assert option == "-c"
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(statement.encode())
            continue
        answer = kanon(*words[1:], cwd=nothing)
        assert answer.returncode == 0, f"{line}\n{answer.stdout}{answer.stderr}"
        assert len(answer.stderr.splitlines()) <= 12, answer.stderr
        printed += answer.stdout
    assert "who can read" in printed
    for report in ("stays_b.html", "stays_k.html"):
        assert "<html" in (nothing / report).read_text(encoding="utf-8")

    with psycopg.connect(dsn, autocommit=True) as connection:
        types = dict(
            connection.execute(
                "SELECT attname, atttypid::regtype::text FROM pg_attribute"
                " WHERE attrelid = 'stays'::regclass AND attnum > 0"
            ).fetchall()
        )
        assert (types["admission"], types["cost"]) == ("date", "numeric")
        connection.execute("CREATE ROLE ann LOGIN IN ROLE kanon_analyst")
        connection.execute("CREATE ROLE bob LOGIN IN ROLE researchers")
    published = first_stays(some_stays()).values()
    truth = sum(stay.age >= 60 and stay.diagnosis == "A00" for stay in published)
    for reader, own, other in (("ann", "stays_b", "stays_k"), ("bob", "stays_k", "stays_b")):
        theirs = make_conninfo(dsn, user=reader)
        question = "SELECT COUNT(*) FROM {} WHERE age >= 60 AND diagnosis = 'A00'"
        found = kanon("query", question.format(own), "--json", dsn=theirs, cwd=nothing).json()
        assert found["lower_bound"] <= truth <= found["upper_bound"]
        assert kanon("query", question.format(other), dsn=theirs, cwd=nothing).returncode == 1


@pytest.mark.long
def test_a_year_of_a_hospital(officer: Officer) -> None:
    """Published, asked, attacked and reported; then each quarter's changes are counted."""
    table = Hospital()
    hospital.write_file(officer.folder / "stays.csv", list(table.stays.values()))
    officer.types("load", "stays.csv", "stays")
    officer.types(
        "register", "stays", "--quasi-identifiers", "age,sex,postcode", "--sensitive", "diagnosis",
        "--also-sensitive", "cost,insurance", "--identifiers", "stay", "--entity", "patient",
        "--keep", "first by stay",
    )  # fmt: skip
    recommended = officer.types("recommend", "stays", "--time-limit", "10")
    assert "it is refused" not in recommended
    title = "buckets of several sizes, of similar people"
    found = re.findall(rf"^.  {title}\n.*?^ +(kanon .*?)$", recommended, re.MULTILINE | re.DOTALL)
    (publish,) = found
    officer.administers("CREATE ROLE ann LOGIN IN ROLE kanon_analyst")
    printed = officer.types(*shlex.split(publish)[1:])
    published = first_stays(table.stays.values())
    assert row_of(printed)["records"] == f"{len(published):,}" == f"{hospital.N_PATIENTS:,}"
    assert row_of(printed)["certain_records"] == "0"
    check_researchers(officer)
    assert all(check["holds"] for check in officer.asks("verify", "stays_b")["checks"])

    for where in ("diagnosis = 'A00' AND insurance = 'private'", "age >= 60 AND diagnosis = 'A00'"):
        officer.types("query", f"SELECT COUNT(*) FROM stays_b WHERE {where}")
    officer.check_counts(published.values())

    attacks = officer.asks("attack", "stays_b")["attacks"]
    officer.types("attack", "stays_b")
    officer.types("report", "stays_b", "-o", "stays.html")
    check_attacks(attacks)
    assert "<html" in (officer.folder / "stays.html").read_text(encoding="utf-8")

    since: dict[str, str] = {}
    for n in range(1, 4):
        changes = table.next_quarter()
        with psycopg.connect(officer.dsn) as connection:
            hospital.change(connection, "stays", changes)
        now = first_stays(table.stays.values())
        new = {patient: stay for patient, stay in now.items() if patient not in published}
        # Whoever is published stays as they are, so that changes of all quarters wait.
        held = Counter(
            "deleted" if patient not in now else "corrected"
            for patient, stay in published.items()
            if patient not in now or shown(stay) != shown(now[patient])
        )
        published |= new
        row = row_of(officer.types("refresh", "stays_b"))
        figures = [row[name] for name in ("records", "added", "waiting")]
        assert figures == [f"{n:,}" for n in (len(published), len(new), held.total())]
        assert row["records"] == f"{hospital.N_PATIENTS + 2_400 * n:,}"

        row = row_of(officer.types("refresh", "stays_k"))
        assert [row[name] for name in ("records", "added", "waiting")] == figures

        with psycopg.connect(officer.dsn) as connection:
            listed = connection.execute(
                "SELECT waits FROM kanon.publications WHERE name = 'stays_b'"
            ).fetchone()
        assert listed is not None
        waits = listed[0]
        assert {kind: one["records"] for kind, one in waits.items()} == held
        assert all(one["is_exact"] for one in waits.values())
        now_since = {kind: one["since"] for kind, one in waits.items()}
        assert since.items() <= now_since.items()
        since = now_since
    assert since.keys() == {"corrected", "deleted"}
    assert "records wait: " in officer.types("publications")
    for name in ("stays_b", "stays_k"):
        assert all(check["holds"] for check in officer.asks("verify", name)["checks"])
    officer.check_counts(published.values())
    check_page(officer.typed)


def check_researchers(officer: Officer) -> None:
    """Another group gets rows; each group asks its own publication, and not the other's."""
    officer.administers("CREATE ROLE researchers IN ROLE kanon_user")
    officer.administers("CREATE ROLE bob LOGIN IN ROLE researchers")
    printed = officer.types(
        "publish", "generalized", "public.stays", "stays_k", "--k", "5", "--constraints",
        '{"default": "1/3", "attributes": {"insurance": {"default": 0.6}}}',
        "--readers", "researchers",
    )  # fmt: skip
    assert row_of(printed)["who can read"] == "researchers (bob)"
    for reader, own, other in (("ann", "stays_b", "stays_k"), ("bob", "stays_k", "stays_b")):
        theirs = make_conninfo(officer.dsn, user=reader)
        question = "SELECT COUNT(*) FROM {} WHERE age >= 60"
        assert kanon("query", question.format(own), dsn=theirs).returncode == 0
        assert kanon("query", question.format(other), dsn=theirs).returncode == 1


def check_page(typed: list[tuple[list[str], str]]) -> None:
    """The page shows these commands, in this order, and what they print."""
    page = list(commands(PAGES / "start" / "hospital.md"))
    assert [words for words, _ in page] == [words for words, _ in typed]
    for (words, printed), (_, shown) in zip(typed, page, strict=True):
        assert says(shown, printed) or not shown.strip(), f"{words}\n{printed}"
