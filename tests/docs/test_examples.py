"""The examples in README.md and docs/ run, in their order, on the demo's data."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import kanon_db
from kanon_db.algorithms.bucketization.privacy import PrivacySpecification
from kanon_db.declaration import parameters_of
from kanon_db.errors import InvalidParameterError
from kanon_db.interfaces import demo
from kanon_db.operations import operations
from tests.acceptance.commands import kanon
from tests.docs.console import blocks, commands, says

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*/*.md"), key=lambda page: page.name)]
IN_SQL = [page for page in PAGES if page.name != "workers.md"]
RUN = [page for page in IN_SQL if page.name not in ("spark.md", "hospital.md")]
"""Those that need no more than a database and the demo's data; the others run in
``tests/spark/test_page.py``, ``tests/acceptance/test_hospital.py`` and
``tests/integration/test_service.py``."""


_NOT_RUN = ("local", "install")


def _is_run(words: list[str]) -> bool:
    """Whether a command is run: the cluster and its installation are the fixture's."""
    return words[0] == "psql" or (words[0] == "kanon" and words[1] not in _NOT_RUN)


@pytest.mark.long
def test_what_is_shown_is_compared() -> None:
    assert says(
        "likely range  923.3 to 1,035\n…", "likely range   6 to 9\ncertain bounds  1 to 2\n"
    )
    assert not says(
        "likely range  923.3 to 1,035", "likely range   6 to 9\ncertain bounds  1 to 2\n"
    )
    assert not says("likely range  923.3 to 1,035", "estimate  923.3 to 1,035")


def _examples() -> Iterator[str]:
    """Everything that shows a specification: pages, help texts, docstrings, the demo."""
    # Benchmarks say what was measured, the papers' rule among them.
    yield from (page.read_text() for page in PAGES if page.name != "benchmarks.md")
    for operation in operations().values():
        yield f"{operation.help} {operation.details}"
        for item in operation.parameters:
            yield item.help
            if item.type.options is not None:
                yield from (option.help for option in parameters_of(item.type.options))
    yield from (path.read_text() for path in (ROOT / "kanon_db").rglob("*.py"))


def _bounds_all_values(text: str) -> bool | None:
    """Whether no threshold can be 1, whatever the data; None if it is no specification."""
    try:
        specification = PrivacySpecification.parse(text)
    except InvalidParameterError:
        return None
    own = dict.fromkeys(specification.values, 1)
    counts = {None: 1, **own, "any value": 10**9}
    try:
        thresholds = specification.thresholds(list(counts), list(counts.values())).thresholds
    except InvalidParameterError:
        return False
    return max(thresholds) < 1


@pytest.mark.pitfall(32)
def test_every_example_of_a_specification_bounds_all_values() -> None:
    """Someone copies it: a threshold of 1 publishes frequent values with certainty."""
    found = {
        text.replace("\\", "")
        for page in _examples()
        for text in re.findall(r"\{\\?\"[^{}\n]*(?:\{[^{}\n]*\}[^{}\n]*)?\}", page)
    }
    judged = {text: _bounds_all_values(text) for text in found}
    assert sum(judged[text] is True for text in found) > 8
    assert [text for text in found if judged[text] is False] == []
    assert _bounds_all_values('{"theta": 8, "base": 0.02}') is False


def check_nobody_is_certain(dsn: str) -> None:
    """What an example publishes leaves no value certain, where it bounds values at all."""
    with kanon_db.connect(dsn) as kanon, psycopg.connect(dsn) as connection:
        for name, kind, parameters in connection.execute(
            "SELECT name, kind, parameters FROM kanon.publications"
        ):
            metrics = kanon.metrics(name).set_index("metric")["value"]
            if kind == "buckets":
                assert (metrics["certain_records"], metrics["unbounded_share"]) == (0, 0)
            elif parameters.get("constraints"):
                (least,) = connection.execute(
                    "SELECT min(n) FROM (SELECT count(DISTINCT affairs) AS n FROM"
                    f" published.{name} GROUP BY age, children, educ, religious) AS class"
                ).fetchone() or (0,)
                assert least > 1


@pytest.mark.long
@pytest.mark.parametrize("privacy", [demo.FAIR_PRIVACY, demo.DEFAULT_PRIVACY])
def test_the_demo_leaves_nobody_certain(
    privacy: str, database: str, fair_csv: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = kanon(
        "demo", fair_csv, "--sensitive", "affairs", "--quasi-identifiers", "age,educ",
        "--privacy", privacy, "--dsn", database,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert "certain" not in answer.stderr
    assert "no bound" not in answer.stderr
    check_nobody_is_certain(database)


@pytest.mark.long
def test_a_report_on_ones_own_file_takes_eight_commands() -> None:
    """From a fresh clone, with a recommendation; what the commands do is tested below."""
    first = blocks(PAGES[0], "console")[1]
    typed = re.findall(r"^\$ (.*)$", first, re.MULTILINE)
    assert typed[0] == "make setup"
    needed = typed[: [line.startswith("kanon report") for line in typed].index(True) + 1]
    assert len(needed) <= 8
    assert any(line.startswith("kanon recommend") for line in needed)


@pytest.mark.long
def test_eight_words_are_enough_for_who_publishes() -> None:
    """And where they are enough, those of the papers come after plain ones, if at all."""
    glossary = (ROOT / "docs" / "reference" / "glossary.md").read_text()
    (section,) = re.findall(r"^## For who publishes\n(.*?)^## ", glossary, re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^\* \*\*", section, re.MULTILINE)) == 8
    for page in (ROOT / "README.md", ROOT / "docs" / "start" / "choosing.md"):
        text = page.read_text()
        plain = text.index("bound on guessing")
        for word in ("F'-privacy", "theta", "base`", "`cap`"):
            assert text.find(word) == -1 or plain < text.index(word), f"{page.name}: {word}"


@pytest.mark.long
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_console_examples_run(page: Path, database: str, fair_csv: Path) -> None:
    for words, shown in commands(page):
        if not _is_run(words):
            continue
        if words[0] == "psql":
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(words[words.index("-c") + 1].encode())
            continue
        answer = kanon(*words[1:], "--dsn", database, cwd=fair_csv.parent)
        assert answer.returncode == 0, f"{shlex.join(words)}\n{answer.stderr}"
        if shown.strip():
            assert says(shown, answer.stdout), f"{shlex.join(words)}\n{answer.stdout}"
        check_nobody_is_certain(database)


@pytest.mark.long
@pytest.mark.parametrize("page", IN_SQL, ids=lambda page: page.name)
def test_sql_examples_run(page: Path, database: str, fair_csv: Path) -> None:
    with kanon_db.connect(database) as kanon:
        kanon.load(fair_csv, "fair")
    with psycopg.connect(database, autocommit=True) as connection:
        for block in blocks(page, "sql"):
            for statement in block.split(";\n"):
                if re.sub(r"--.*", "", statement).strip():
                    connection.execute(statement.encode())
                    if "kanon.publish_" in statement:
                        check_nobody_is_certain(database)


@pytest.mark.long
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_python_examples_run(
    page: Path, database: str, fair_csv: Path, capsys: pytest.CaptureFixture[str],
    private_cluster: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("KANON_DIR", str(private_cluster))
    with kanon_db.connect(database) as kanon:
        kanon.load(fair_csv, "fair")
        kanon.register_source("fair", quasi_identifiers=["age", "educ"], sensitive="affairs")
        kanon.publish_buckets("fair", "fair_b", privacy='{"default": 0.2, "values": {"0.0": 0.9}}')
        kanon.publish_generalized(
            "fair", "fair_k", k=5, method="mondrian", accept={"combined_releases": "it is a test"}
        )
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), {"dsn": database})  # noqa: S102  # our own pages
        assert capsys.readouterr().out


@pytest.mark.long
def test_every_sql_function_is_in_the_reference(database: str) -> None:
    reference = (ROOT / "docs" / "reference" / "reference.md").read_text()
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'kanon'::regnamespace"
        ).fetchall()
    called = {name for (name,) in rows} & operations().keys()
    assert called == operations().keys()
    assert [name for name in called if f"`{name}(" not in reference] == []
