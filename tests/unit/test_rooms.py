"""The rooms of the package stand as CONTRIBUTING says."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

from kanon_db.publications.registry import KINDS

ROOT = Path(__file__).parents[2]
MEASURE = runpy.run_path(str(ROOT / "scripts" / "measure.py"))
PACKAGES = [path.parent for path in (ROOT / "kanon_db").rglob("__init__.py")]


LONG_MODULES: dict[str, str] = {}
"""Modules of more than 900 lines, and why they are one thing."""

SAME_STEMS: dict[str, str] = dict.fromkeys(
    ("kind", "methods", "request"),
    "the registry finds them by these names in the room of each kind, which CONTRIBUTING tells"
    " whoever adds a kind or a method",
)
"""Names that several files have, and why."""

SAME_CLASSES: dict[str, str] = {}
"""Names that several classes have, and why."""


@pytest.mark.long
def test_no_circles_and_no_arrows_up() -> None:
    assert MEASURE["circles"]() == []
    assert MEASURE["upward_arrows"]() == []


def test_the_package_has_few_files() -> None:
    assert len(MEASURE["modules"](ROOT / "kanon_db")) <= MEASURE["MOST_FILES"]


def test_a_module_is_one_thing() -> None:
    """Or it is named above, with the reason; what is not true any more must go there, too."""
    assert {found.partition(":")[0] for found in MEASURE["long_files"]()} == LONG_MODULES.keys()


def test_a_folder_is_seen_at_a_glance() -> None:
    assert MEASURE["crowded_folders"]() == []


def test_a_name_stands_for_one_thing() -> None:
    assert MEASURE["stems_twice"]().keys() == SAME_STEMS.keys()
    assert MEASURE["classes_twice"]().keys() == SAME_CLASSES.keys()


MOST_PLACES = {
    "seams": 35, "twins": 2, "docstrings": 153, "found": 180, "participles": 200, "words": 121,
}  # fmt: skip
"""How many places each rule of wording finds, at most: these numbers may only fall."""


def test_names_say_what_things_are() -> None:
    places = MEASURE["wording"]()
    assert places.keys() == MOST_PLACES.keys()
    assert {rule: n for rule, n in MOST_PLACES.items() if len(places[rule]) > n} == {}


def test_no_code_above_a_kind_compares_its_name() -> None:
    """A kind that is added later is like the others: what differs is asked of the kind."""
    compared = []
    for module, path in MEASURE["modules"](ROOT / "kanon_db").items():
        if module.startswith(("publications", "models", "spark.kinds")):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("kind"):
                constants = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
                if constants & KINDS.keys():
                    compared.append(f"{module}: {ast.unparse(node)}")
    assert compared == []


def test_private_modules_are_private() -> None:
    assert MEASURE["private_imports"]() == []


def test_measures_find_what_they_look_for(tmp_path: Path) -> None:
    (tmp_path / "errors.py").write_text("from kanon_db.session import x\n")
    (tmp_path / "session.py").write_text(
        "def f():\n    import os\n    from kanon_db import errors\n"
    )
    (tmp_path / "operations.py").write_text('"""Only words."""\n' + "# and more\n" * 900)
    assert MEASURE["circles"](tmp_path) == ["errors", "session"]
    assert MEASURE["upward_arrows"](tmp_path) == ["errors -> session"]
    assert MEASURE["long_files"](tmp_path) == ["operations.py: 901"]
    assert MEASURE["code_lines"]((tmp_path / "operations.py").read_text()) == 0
    assert MEASURE["code_lines"]("x = (  # one\n    1,\n)\n\n") == 3
    total = MEASURE["Total"].of(sorted(tmp_path.glob("*.py")))
    assert total == (3, 905, 4, 0, 1)


def test_rules_of_wording_find_what_they_look_for(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "import os\n\n# A part.\n\n\nclass Cell:\n"
        '    """One.\n\n    Two.\n    Three.\n    """\n\n'
        "    def counted(self):\n        found = several = 1\n\n"
        "    @property\n    def listed(self): ...\n\n\nclass _Cell: ...\n"
    )
    places = MEASURE["wording"](tmp_path)
    assert {rule: len(names) for rule, names in places.items()} == dict.fromkeys(places, 1)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_package_says_what_is_inside(package: Path) -> None:
    assert ast.get_docstring(ast.parse((package / "__init__.py").read_text()))


def test_every_room_is_in_the_map() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rooms = [path.name for path in (ROOT / "kanon_db").iterdir() if (path / "__init__.py").exists()]
    assert [name for name in rooms if f"`{name}" not in page and f"`{name}/" not in page] == []
