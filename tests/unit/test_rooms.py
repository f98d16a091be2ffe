"""The rooms of the package stand as CONTRIBUTING says."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEASURE = runpy.run_path(str(ROOT / "scripts" / "measure.py"))
PACKAGES = [path.parent for path in (ROOT / "kanon_db").rglob("__init__.py")]


LONG_MODULES: dict[str, str] = {
    "answers/_bitmap_counts.py": "one way to count, of conditions on one side and on both",
}
"""Modules of more than 900 lines, and why they are one thing."""

SAME_STEMS: dict[str, str] = dict.fromkeys(
    ("kind", "methods", "request"),
    "the registry finds them by these names in the room of each kind, which CONTRIBUTING tells"
    " whoever adds a kind or a method",
)
"""Names that several files have, and why."""

SAME_CLASSES: dict[str, str] = {}
"""Names that several classes have, and why."""


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


def test_what_only_a_type_checker_imports_makes_a_circle(tmp_path: Path) -> None:
    (tmp_path / "errors.py").write_text(
        "if TYPE_CHECKING:\n    from kanon_db.heartbeat import beat\n"
    )
    (tmp_path / "heartbeat.py").write_text("import kanon_db.errors\n")
    assert MEASURE["circles"](tmp_path) == ["errors", "heartbeat"]
    assert MEASURE["circles"](tmp_path, types=False) == []


def test_names_that_occur_twice_are_found(tmp_path: Path) -> None:
    found = ["catalog/names.py", "session/_names.py"]
    for file in found:
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).with_name("__init__.py").write_text("")
        (tmp_path / file).write_text("class Name:\n    class Inner: ...\n")
    assert MEASURE["stems_twice"](tmp_path) == {"names": found}
    assert MEASURE["classes_twice"](tmp_path) == {"Name": found}


def test_private_modules_are_imported_from_their_own_package(tmp_path: Path) -> None:
    for room in ("cluster", "cluster/_inside", "session"):
        (tmp_path / room).mkdir()
    for path, text in {
        "cluster/_host.py": "",
        "cluster/_inside/lock.py": "from kanon_db.cluster import _host\n",
        "cluster/local.py": "from kanon_db.cluster._host import run\n"
        "from kanon_db.cluster._inside.lock import Lock\n",
        "session/protocol.py": "from kanon_db.cluster import _host\n",
        "session/progress.py": "from kanon_db.cluster._inside.lock import Lock\n",
    }.items():
        (tmp_path / path).write_text(text)
    assert MEASURE["private_imports"](tmp_path) == [
        "session.progress -> cluster._inside.lock",
        "session.protocol -> cluster._host",
    ]


def test_crowded_folders_are_found(tmp_path: Path) -> None:
    for i in range(MEASURE["MOST_MODULES"]):
        (tmp_path / f"module_{i}.py").write_text("")
    (tmp_path / "__init__.py").write_text("")
    assert MEASURE["crowded_folders"](tmp_path) == []
    (tmp_path / "one_more.py").write_text("")
    assert MEASURE["crowded_folders"](tmp_path) == [f".: {MEASURE['MOST_MODULES'] + 1}"]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_package_says_what_is_inside(package: Path) -> None:
    assert ast.get_docstring(ast.parse((package / "__init__.py").read_text()))


def test_every_room_is_in_the_map() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rooms = [path.name for path in (ROOT / "kanon_db").iterdir() if (path / "__init__.py").exists()]
    assert [name for name in rooms if f"`{name}" not in page and f"`{name}/" not in page] == []
