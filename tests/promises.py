"""What kanon_db promises, and the tests that fail where a promise is broken.

Nothing is written down twice: the sentences of guarantees and the tests beside them are read from
docs/reference/reference.md, those of the other pages from where they name a test, known attacks
from the marks of `tests/pitfalls.py`. Only refusals, which no page lists one by one, stand here.

    .venv/bin/python -m tests.promises > promises.txt

prints a line for each promise and test, to compare before and after tests are changed.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

TESTS: Final = Path(__file__).parent
DOCS: Final = TESTS.parent / "docs"

REFUSALS: Final[dict[str, tuple[str, ...]]] = {
    "a guarantee that binds nobody: k of 1, l of 1, thresholds of 1": (
        "attacks/test_promises.py",
        "attacks/test_thresholds.py",
    ),
    "buckets that are gathered by their sensitive values, for they name who has rare ones": (
        "attacks/test_promises.py::test_local_buckets_are_refused_with_a_way_to_go_on",
        "attacks/test_minimality.py::test_minimality_names_the_rare_people_of_swept_buckets",
    ),
    "weights above the thresholds, until the risk is accepted": (
        "integration/test_weights.py::test_uncapped",
    ),
    "publishing left-over records, until the risk is accepted": (
        "attacks/test_left_over_records.py",
    ),
    "another release of the same people for the same readers, until the risk is accepted": (
        "attacks/test_several_releases.py",
        "attacks/test_release_history.py",
    ),
    "a model without a budget, until the risk is accepted": ("attacks/test_model.py",),
    "a question to a model beyond its budget": (
        "attacks/test_model_budgets.py::test_no_sequence_of_questions_is_told_more_than_the_budget",
    ),
    "several records of a person, where a kind counts rows": ("integration/test_entities.py",),
    "a source with row security, partitions or inheriting tables": (
        "attacks/test_partitions.py",
        "attacks/test_hostile_source.py",
    ),
    "a source that changed since it was registered": ("attacks/test_column_roles.py",),
    "a specification that no publication can satisfy": ("integration/test_publishing.py",),
    "a query outside of what is answered, with its reason": (
        "rewrite/test_fixtures.py",
        "corpus/test_corpus.py",
        "attacks/test_query_injection.py",
    ),
    "a role that lacks a right": ("privileges/test_matrix.py", "tests/checks.py"),
    "names that hide what they are": (
        "attacks/test_hostile_names.py::test_34_names_that_hide_what_they_are",
    ),
}
"""Hard refusals, each with the modules or tests that try to get past it."""

_NAMED: Final = re.compile(
    r"`(?P<path>(?:[a-z_]+/)*test_[a-z_0-9]+\.py)?(?:::)?(?P<name>test_[a-z0-9_]+)?`"
)


class Promise(NamedTuple):
    """A sentence, and one test of it."""

    where: str
    says: str
    test: str
    """Path below the folder of tests, or path and name."""


def promises() -> Iterator[Promise]:
    """List all promises, each once for each of its tests."""
    yield from _of_guarantees()
    yield from _of_pages()
    yield from _of_pitfalls()
    for says, tests in REFUSALS.items():
        for test in tests:
            yield Promise("refusal", says, test.removeprefix("tests/"))


def exists(test: str) -> bool:
    """Tell whether a test, or a module of tests, is there."""
    path, _, name = test.partition("::")
    if not (TESTS / path).is_file():
        return False
    return not name or name in _names_of(TESTS / path).functions


def is_short(test: str) -> bool:
    """Tell whether `make test` runs a test, or at least one of a module."""
    path, _, name = test.partition("::")
    short = _names_of(TESTS / path).short
    return name in short if name else bool(short)


class _Names(NamedTuple):
    """Of the functions of a module, and of the tests in it that `make test` runs."""

    functions: set[str]
    short: set[str]


@functools.cache
def _names_of(path: Path) -> _Names:
    def short(body: list[ast.stmt]) -> Iterator[str]:
        """Name the tests that have no mark `long`, nor their class or module."""
        for node in body:
            if isinstance(node, ast.Assign) and _is_long(node.value):
                return
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                if any(map(_is_long, node.decorator_list)):
                    continue
                if isinstance(node, ast.ClassDef):
                    yield from short(node.body)
                elif node.name.startswith("test_") and not _needs_spark(path, node):
                    yield node.name

    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return _Names(functions, set(short(tree.body)))


def _is_long(mark: ast.expr) -> bool:
    return isinstance(mark, ast.Attribute) and ast.unparse(mark) == "pytest.mark.long"


def _needs_spark(path: Path, test: ast.FunctionDef) -> bool:
    return path.parent.name == "spark" and "spark" in {arg.arg for arg in test.args.args}


def _of_guarantees() -> Iterator[Promise]:
    page = (DOCS / "reference" / "reference.md").read_text(encoding="utf-8")
    table = page.split("<!-- guarantees -->")[1].split("<!-- end -->")[0]
    for says, tests in re.findall(
        r"^\| (?!---|what it says)(.+?) \| (`.+`) \|$", table, re.MULTILINE
    ):
        for test in tests.split(", "):
            yield Promise("guarantee", says, test.strip("`"))


def _of_pages() -> Iterator[Promise]:
    modules = {
        name: path.relative_to(TESTS).as_posix()
        for path in sorted(TESTS.rglob("test_*.py"))
        for name in _names_of(path).functions
        if name.startswith("test_")
    }
    files = {path.name: path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    for page in sorted(DOCS.rglob("*.md")):
        if page.name == "security-tests.md":  # written from the marks
            continue
        text = page.read_text(encoding="utf-8")
        if page.name == "reference.md":
            text = re.sub(r"<!-- guarantees -->.*?<!-- end -->", "", text, flags=re.DOTALL)
        for line in text.splitlines():
            for sentence in re.split(r"(?<=[.:;)]) ", line):
                for found in _NAMED.finditer(sentence):
                    path, name = found["path"], found["name"]
                    if path is None and name is None:
                        continue
                    path = path or modules.get(name, "nowhere")
                    path = files.get(path, path)
                    test = path if name is None else f"{path}::{name}"
                    says = _NAMED.sub("", sentence).replace("()", "").strip(" |*")
                    yield Promise(page.name, says[:160], test.removeprefix("tests/"))


def _of_pitfalls() -> Iterator[Promise]:
    from scripts.security_tests import marked_tests
    from tests.pitfalls import PITFALLS

    for test in marked_tests(TESTS):
        for number in test.pitfalls:
            says = f"{number}. {PITFALLS[number].title}"
            yield Promise("pitfall", says, f"{test.path}::{test.name}")


if __name__ == "__main__":
    for promise in sorted(set(promises())):
        sys.stdout.write(" | ".join(promise) + "\n")
