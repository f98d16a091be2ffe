"""Measure the package: files, lines, names that occur twice, circles, and public parameters.

    .venv/bin/python scripts/measure.py [FOLDER]
    .venv/bin/python scripts/measure.py --list seams

FOLDER is the package of another checkout to compare with, with its tests beside it; there,
parameters are not counted. With ``--list``, the places that a rule of :func:`wording` finds.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MOST_FILES, MOST_LINES, MOST_MODULES = 246, 900, 12
"""Of the package, of a module, and of a folder."""

ORDER = (
    "dataclasses", "errors", "heartbeat", "algorithms.ground", "algorithms.programs", "randomness",
    "algorithms.bucketization", "algorithms.suppression", "algorithms.recoding", "algorithms",
    "metrics", "session",
    "declaration", "query", "figures", "transfer", "catalog", "publications", "models", "answers",
    "draws", "exports", "advice", "reporting", "operations", "wording", "spark", "cluster",
    "installation", "interfaces",
)  # fmt: skip
"""Rooms from the ground up; a module imports from its own room and from rooms below."""

_LONGEST_FIRST = sorted(enumerate(ORDER), key=lambda pair: -len(pair[1]))

BESIDE_CORE = ("spark", "models", "algorithms.models", "publications.model")
"""Rooms that a database with buckets and rows does without, in this package and in earlier ones."""
_BESIDE = tuple(f"{name}." for name in BESIDE_CORE)

_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


parsed = functools.cache(ast.parse)
"""A module is read by several measures."""


@functools.cache
def code_lines(text: str) -> int:
    """Count the lines of code, without docstrings, comments and blank lines."""
    texts: set[int] = set()
    for node in ast.walk(parsed(text)):
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


def imports(text: str, known: set[str], *, types: bool = True) -> Iterator[str]:
    """Name the modules of the package that a module imports, at its start or later.

    Without `types`, what only a type checker imports does not count.
    """
    tree = parsed(text)
    for node in ast.walk(tree) if types else _run(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kanon_db"):
            base = (node.module or "").removeprefix("kanon_db").lstrip(".")
            for alias in node.names:
                whole = f"{base}.{alias.name}".lstrip(".")
                if whole in known or base:
                    yield whole if whole in known else base
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("kanon_db."):
                    yield alias.name.removeprefix("kanon_db.")


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk through what runs: not what only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from _run(node)


@functools.cache
def arrows(package: Path, *, types: bool = True) -> dict[str, set[str]]:
    """Return which modules of the package each one imports."""
    known = modules(package)
    return {
        module: set(imports(path.read_text(encoding="utf-8"), set(known), types=types))
        for module, path in known.items()
    }


def room(module: str) -> int:
    """Return the place of a module's room in ORDER; the package itself comes after all rooms."""
    for floor, name in _LONGEST_FIRST:
        if module == name or module.startswith(f"{name}."):
            return floor
    return len(ORDER)


def upward_arrows(package: Path = ROOT / "kanon_db") -> list[str]:
    """List the imports that go up, from a room to one above it."""
    return [
        f"{module} -> {other}"
        for module, others in arrows(package).items()
        for other in sorted(others)
        if room(other) > room(module)
    ]


def circles(package: Path = ROOT / "kanon_db", *, types: bool = True) -> list[str]:
    """List the modules that import themselves through others; see :func:`imports`."""
    drawn = arrows(package, types=types)
    found = []
    for module in drawn:
        reached, waiting = set(), [module]
        while waiting:
            for other in drawn.get(waiting.pop(), set()) - reached:
                reached.add(other)
                waiting.append(other)
        if module in reached:
            found.append(module)
    return found


def private_imports(package: Path = ROOT / "kanon_db") -> list[str]:
    """List the imports of private modules (`_x`), or modules of private packages, from outside."""
    found = []
    for module, others in arrows(package).items():
        for other in sorted(others):
            parts = other.split(".")
            for depth, part in enumerate(parts):
                own = parts[:depth]  # the package that the private part belongs to
                if part.startswith("_") and module.split(".")[:depth] != own:
                    found.append(f"{module} -> {other}")
                    break
    return found


def stems_twice(package: Path = ROOT / "kanon_db") -> dict[str, list[str]]:
    """Return the modules whose files have the same name, by that name, private or not."""
    by_stem = defaultdict(list)
    for path in modules(package).values():
        if path.stem != "__init__":
            by_stem[path.stem.lstrip("_")].append(path.relative_to(package).as_posix())
    return _several(by_stem)


def classes_twice(package: Path = ROOT / "kanon_db") -> dict[str, list[str]]:
    """Return the modules that define a class of the same name, by that name."""
    by_name = defaultdict(list)
    for path in modules(package).values():
        for node in parsed(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                by_name[node.name].append(path.relative_to(package).as_posix())
    return _several(by_name)


def _several(by_name: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: found for name, found in sorted(by_name.items()) if len(found) > 1}


def crowded_folders(package: Path = ROOT / "kanon_db") -> list[str]:
    """List the folders of more than 12 modules, without their ``__init__``."""
    counted = Counter(path.parent for path in modules(package).values() if path.stem != "__init__")
    return [
        f"{folder.relative_to(package).as_posix()}: {n}"
        for folder, n in sorted(counted.items())
        if n > MOST_MODULES
    ]


class Total(NamedTuple):
    """How much some modules are.

    Attributes
    ----------
    files : int
    lines : int
        With docstrings, comments and blank lines.
    code : int
        Without them.
    classes, functions : int
        Methods are functions.
    """

    files: int
    lines: int
    code: int
    classes: int
    functions: int

    @classmethod
    def of(cls, paths: Iterable[Path]) -> Total:
        """Count what is in these files."""
        texts = [path.read_text(encoding="utf-8") for path in paths]
        nodes = Counter(type(node) for text in texts for node in ast.walk(parsed(text)))
        return cls(
            len(texts),
            sum(len(text.splitlines()) for text in texts),
            sum(map(code_lines, texts)),
            nodes[ast.ClassDef],
            nodes[ast.FunctionDef] + nodes[ast.AsyncFunctionDef],
        )

    def __str__(self) -> str:
        return (
            f"{self.files:,} files, {self.lines:,} lines ({self.code:,} of code),"
            f" {self.classes:,} classes, {self.functions:,} functions"
        )


def long_files(package: Path = ROOT / "kanon_db") -> list[str]:
    """List the files of more than :data:`MOST_LINES` lines."""
    counted = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in package.rglob("*.py")
    }
    return [
        f"{path.relative_to(package)}: {n}" for path, n in sorted(counted.items()) if n > MOST_LINES
    ]


_SEAM = re.compile(r"(?<=\n\n)(?:# .*\n)+(?=\n)")
_PARTICIPLES = frozenset(
    "begun bound bought brought built caught chosen dealt drawn found given gone grown held hidden"
    " kept known laid led left lost made meant met paid said seen sent shown sold spent stood taken"
    " thought told won worn written".split()
)
_VERBS = frozenset("embed exceed feed need proceed seed speed succeed".split())
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LONGEST_DOCSTRING = 3  # lines, of what no package offers
OWN_WORDS = frozenset(
    "alike asked below matched others several so_many tried together told whole".split()
)
"""Words of ours that say nothing to a newcomer, as names of classes and variables."""


def _is_participle(name: str) -> bool:
    word = name.lstrip("_").partition("_")[0]
    return word in _PARTICIPLES or (word.endswith("ed") and word not in _VERBS)


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def _offered(trees: Iterable[ast.Module]) -> set[str]:
    """Return the names in ``__all__`` of any package."""
    return {
        str(name.value)
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.walk(node.value)
        if isinstance(name, ast.Constant)
    }


def _definitions(
    node: ast.AST, offered: set[str], is_offered: bool = False
) -> Iterator[tuple[Any, bool]]:
    """Walk through functions and classes; tell which a package offers, or are part of such."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            inside = is_offered or child.name in offered
            yield child, inside
            yield from _definitions(child, offered, inside)
        else:
            yield from _definitions(child, offered, is_offered)


def _variables(function: ast.AST) -> set[str]:
    return {
        node.arg if isinstance(node, ast.arg) else node.id
        for node in ast.walk(function)
        if isinstance(node, ast.arg)
        or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }


def wording(package: Path = ROOT / "kanon_db") -> dict[str, list[str]]:
    """List, by rule, what is named or described in a way that a newcomer would stumble over.

    seams
        Comments that stand alone as headings inside of a module.
    twins
        Private classes that hide one of the same name.
    docstrings
        Of more than three lines, of what no package offers.
    found
        Functions with a variable of that name, which says not what it holds.
    participles
        Functions whose names say what comes out, not what they do.
    words
        Classes and variables named by :data:`OWN_WORDS`.
    """
    texts = {path: path.read_text(encoding="utf-8") for path in modules(package).values()}
    trees = {path: parsed(text) for path, text in texts.items()}
    offered = _offered(trees.values())
    listed: dict[str, list[str]] = {
        name: [] for name in ("seams", "twins", "docstrings", "found", "participles", "words")
    }
    defined = {path: list(_definitions(tree, offered)) for path, tree in trees.items()}
    classes = {
        node.name
        for nodes in defined.values()
        for node, _ in nodes
        if isinstance(node, ast.ClassDef)
    }
    for path, nodes in defined.items():
        where = path.relative_to(package).as_posix()
        for seam in _SEAM.finditer(texts[path]):
            listed["seams"].append(f"{where}: {seam[0].splitlines()[0]}")
        for node, is_offered in nodes:
            name = f"{where}: {node.name}"
            words = (ast.get_docstring(node) or "").splitlines()
            if len(words) > _LONGEST_DOCSTRING and not is_offered:
                listed["docstrings"].append(name)
            if isinstance(node, ast.ClassDef):
                if node.name.startswith("_") and node.name.lstrip("_") in classes:
                    listed["twins"].append(name)
                if node.name.strip("_").lower() in OWN_WORDS:
                    listed["words"].append(name)
                continue
            variables = _variables(node)
            if "found" in variables:
                listed["found"].append(name)
            listed["words"] += [f"{name}: {one}" for one in sorted(variables & OWN_WORDS)]
            if _is_participle(node.name) and not _is_property(node):
                listed["participles"].append(name)
    return listed


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
    """Print all measures, or the places that a rule finds."""
    if sys.argv[1:2] == ["--list"]:
        print(*wording()[sys.argv[2]], sep="\n")
        return
    package = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "kanon_db"
    known = modules(package)
    by_room: Counter[str] = Counter()
    for module, path in known.items():
        by_room[module.split(".")[0] or "(package)"] += code_lines(path.read_text(encoding="utf-8"))
    for name, n in sorted(by_room.items()):
        print(f"{n:7,} {name}")
    print(f"{by_room.total():7,} lines of code\n")
    core = [path for name, path in known.items() if not f"{name}.".startswith(_BESIDE)]
    print(f"package: {Total.of(known.values())}; at most {MOST_FILES} files")
    print(f"core, without Spark and models: {Total.of(core)}")
    for folder in ("tests", "benchmarks"):
        if (package.parent / folder).is_dir():
            print(f"{folder}: {Total.of(sorted((package.parent / folder).rglob('*.py')))}")
    print(f"\nfiles of more than {MOST_LINES} lines: {_listed(long_files(package))}")
    print(f"folders of more than {MOST_MODULES} modules: {_listed(crowded_folders(package))}")
    for what, twice in (("classes", classes_twice(package)), ("files", stems_twice(package))):
        print(f"names of several {what}: {len(twice)}")
        for name, found in twice.items():
            print(f"    {name}: {', '.join(found)}")
    for rule, places in wording(package).items():
        print(f"{rule}: {len(places)}")
    print(f"modules in circles: {_listed(circles(package))}")
    print(f"private modules imported from outside: {_listed(private_imports(package))}")
    if package == ROOT / "kanon_db":
        print(f"imports that run up: {_listed(upward_arrows(package))}")
        parameters = public_parameters()
        print(
            f"public parameters and options: {sum(map(len, parameters.values()))} of"
            f" {len({name for of in parameters.values() for name in of})} operations, each written"
            " where it is declared"
        )


def _listed(found: list[str]) -> str:
    return ", ".join(found) or "none"


if __name__ == "__main__":
    main()
