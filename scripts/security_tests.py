"""The page of security tests: which test tries which attack, read from the tests' marks.

A test says by ``@pytest.mark.pitfall(number, …)`` what it is about; `tests/pitfalls.py` names the
numbers. Files are read, not imported, so that no test has to run.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.pitfalls import PITFALLS, Pitfall

_INTRODUCTION: Final = """\
# Security tests

Written by `make generate` from the tests: each attack, and the tests that try it (paths are below \
`tests/`). The attacks are known ones, from advisories and papers on other software like this, and \
some that we found in kanon_db itself.

`.venv/bin/pytest -m pitfall` runs these tests. **Not covered** says what none of them shows.
"""


class Marked(NamedTuple):
    """A test, and the pitfalls that it is marked with."""

    path: str
    """Below the folder of the tests."""
    name: str
    about: str
    pitfalls: tuple[int, ...]


def page(root: Path) -> str:
    """Write the page from the tests of a checkout."""
    return written(PITFALLS, marked_tests(root / "tests"))


def written(pitfalls: Mapping[int, Pitfall], tests: Iterable[Marked]) -> str:
    """Write the page.

    Raises
    ------
    ValueError
        When a mark has an unknown number, or a pitfall has neither a test nor a line that says why.
    """
    of_pitfall: defaultdict[int, list[Marked]] = defaultdict(list)
    for test in tests:
        for number in test.pitfalls:
            if number not in pitfalls:
                raise ValueError(f"{test.path}::{test.name}: there is no pitfall {number}")
            of_pitfall[number].append(test)
    parts = [_INTRODUCTION]
    for number, pitfall in sorted(pitfalls.items()):
        if not of_pitfall[number] and not pitfall.missing:
            raise ValueError(f"no test has the mark of pitfall {number}, and no line says why")
        parts.append(f"## {number}. {pitfall.title}\n\n{pitfall.attack}\n")
        parts.append(_listed(of_pitfall[number]))
        if pitfall.missing:
            parts.append(f"**Not covered:** {pitfall.missing}\n")
    return "\n".join(part for part in parts if part)


def _listed(tests: Iterable[Marked]) -> str:
    """Write the tests of a pitfall, those of a module in one line."""
    of_module: defaultdict[str, list[str]] = defaultdict(list)
    for test in tests:
        of_module[test.path].append(f"`{test.name}`")
    return "".join(f"* `{path}`: {', '.join(names)}\n" for path, names in of_module.items())


@functools.cache
def marked_tests(folder: Path) -> list[Marked]:
    """Find the tests that have a mark, by path and place.

    Raises
    ------
    ValueError
        When a mark is anywhere but above a test, or has other arguments than numbers.
    """
    found = []
    for path in sorted(folder.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        name = path.relative_to(folder).as_posix()
        marks = {id(node) for node in ast.walk(tree) if _is_mark(node)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
                continue
            above = [
                decorator for decorator in node.decorator_list
                if isinstance(decorator, ast.Call) and _is_mark(decorator.func)
            ]  # fmt: skip
            if above:
                numbers = tuple(number for mark in above for number in _numbers(mark, name))
                found.append(Marked(name, node.name, _about(node), numbers))
                marks -= {id(mark.func) for mark in above}
        if marks:
            raise ValueError(f"{name}: a mark of a pitfall belongs above a test function")
    return found


def _is_mark(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "pitfall"
        and ast.unparse(node) == "pytest.mark.pitfall"
    )


def _numbers(mark: ast.Call, name: str) -> list[int]:
    values = [item.value for item in mark.args if isinstance(item, ast.Constant)]
    numbers = [number for number in values if type(number) is int]
    if mark.keywords or not mark.args or len(numbers) < len(mark.args):
        raise ValueError(
            f"{name}: a mark of a pitfall has its number, or several, and nothing else"
        )
    return numbers


def _about(test: ast.FunctionDef) -> str:
    """Return the first line of a test's docstring, or else its name in words."""
    if said := ast.get_docstring(test):
        return said.splitlines()[0]
    words = test.name.removeprefix("test_").lstrip("0123456789_").replace("_", " ")
    return f"{words[0].upper()}{words[1:]}."
