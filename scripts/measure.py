"""Measure the package: lines of code in each room, long files, circles, and public parameters.

    .venv/bin/python scripts/measure.py [FOLDER]

FOLDER is the package of another checkout to compare with; there, parameters are not counted.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_LINES = 400
ORDER = (
    "errors", "heartbeat", "algorithms.ground", "algorithms.programs", "randomness",
    "algorithms.bucketization", "algorithms.suppression", "algorithms.recoding",
    "algorithms.models", "algorithms", "metrics", "session", "declaration", "counting", "transfer",
    "catalog", "publications", "answering", "advice", "reporting", "operations", "wording",
    "spark", "cluster", "installation", "interfaces",
)  # fmt: skip
"""Rooms from the ground up; a module imports from its own room and from rooms below."""

_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(text: str) -> int:
    """Count the lines of code, without docstrings, comments and blank lines."""
    texts: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                texts.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - texts)


def modules(package: Path) -> dict[str, Path]:
    """Return the modules of a package by their names, without the name of the package."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def imports(text: str, known: set[str]) -> Iterator[str]:
    """Name the modules of the package that a module imports, at its start or later."""
    for node in _run(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kanon_db"):
            base = (node.module or "").removeprefix("kanon_db").lstrip(".")
            for alias in node.names:
                whole = f"{base}.{alias.name}".lstrip(".")
                if whole in known or base:
                    yield whole if whole in known else base


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk through what runs: not what only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from _run(node)


def room(module: str) -> int:
    """Return the place of a module's room in ORDER; the package itself comes after all rooms."""
    for floor, name in sorted(enumerate(ORDER), key=lambda pair: -len(pair[1])):
        if module == name or module.startswith(f"{name}."):
            return floor
    return len(ORDER)


def upward_arrows(package: Path = ROOT / "kanon_db") -> list[str]:
    """List the imports that go up, from a room to one above it."""
    known = modules(package)
    return [
        f"{module} -> {other}"
        for module, path in known.items()
        for other in imports(path.read_text(encoding="utf-8"), set(known))
        if room(other) > room(module)
    ]


def circles(package: Path = ROOT / "kanon_db") -> list[str]:
    """List the modules that import themselves through others."""
    known = modules(package)
    arrows = {
        module: set(imports(path.read_text(encoding="utf-8"), set(known)))
        for module, path in known.items()
    }
    found = []
    for module in known:
        reached, waiting = set(), [module]
        while waiting:
            for other in arrows.get(waiting.pop(), set()) - reached:
                reached.add(other)
                waiting.append(other)
        if module in reached:
            found.append(module)
    return found


def long_files(package: Path = ROOT / "kanon_db") -> list[str]:
    """List the files of more than 400 lines."""
    counted = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in package.rglob("*.py")
    }
    return [
        f"{path.relative_to(package)}: {n}" for path, n in sorted(counted.items()) if n > MOST_LINES
    ]


def public_parameters() -> dict[str, list[str]]:
    """Return where each public parameter and option is declared: operations by its name."""
    sys.path.insert(0, str(ROOT))  # this checkout's package, whichever is installed
    from kanon_db.declaration import parameters_of
    from kanon_db.operations import operations

    found = defaultdict(list)
    for operation in operations().values():
        for item in operation.parameters:
            found[item.name].append(operation.name)
            for option in parameters_of(item.type.options) if item.type.options else []:
                found[f"options.{option.name}"].append(operation.name)
    return dict(found)


def main() -> None:
    """Print all measures."""
    package = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "kanon_db"
    by_room: Counter[str] = Counter()
    for module, path in modules(package).items():
        by_room[module.split(".")[0] or "(package)"] += code_lines(path.read_text(encoding="utf-8"))
    for name, n in sorted(by_room.items()):
        print(f"{n:7,} {name}")
    print(f"{by_room.total():7,} lines of code\n")
    print(f"files of more than {MOST_LINES} lines: {', '.join(long_files(package)) or 'none'}")
    print(f"modules in circles: {', '.join(circles(package)) or 'none'}")
    if package == ROOT / "kanon_db":
        print(f"imports that run up: {', '.join(upward_arrows(package)) or 'none'}")
        parameters = public_parameters()
        print(
            f"public parameters and options: {sum(map(len, parameters.values()))} of"
            f" {len({name for of in parameters.values() for name in of})} operations, each written"
            " where it is declared"
        )


if __name__ == "__main__":
    main()
