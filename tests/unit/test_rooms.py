"""The rooms of the package stand as CONTRIBUTING says."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEASURE = runpy.run_path(str(ROOT / "scripts" / "measure.py"))
PACKAGES = [path.parent for path in (ROOT / "kanon_db").rglob("__init__.py")]


def test_no_circles_and_no_arrows_up() -> None:
    assert MEASURE["circles"]() == []
    assert MEASURE["upward_arrows"]() == []


def test_files_can_be_read_in_one_go() -> None:
    assert MEASURE["long_files"]() == []


def test_measures_find_what_they_look_for(tmp_path: Path) -> None:
    (tmp_path / "errors.py").write_text("from kanon_db.session import x\n")
    (tmp_path / "session.py").write_text(
        "def f():\n    import os\n    from kanon_db import errors\n"
    )
    (tmp_path / "operations.py").write_text('"""Only words."""\n' + "# and more\n" * 500)
    assert MEASURE["circles"](tmp_path) == ["errors", "session"]
    assert MEASURE["upward_arrows"](tmp_path) == ["errors -> session"]
    assert MEASURE["long_files"](tmp_path) == ["operations.py: 501"]
    assert MEASURE["code_lines"]((tmp_path / "operations.py").read_text()) == 0
    assert MEASURE["code_lines"]("x = (  # one\n    1,\n)\n\n") == 3


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_package_says_what_is_inside(package: Path) -> None:
    assert ast.get_docstring(ast.parse((package / "__init__.py").read_text()))


def test_every_room_is_in_the_map() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    rooms = [path.name for path in (ROOT / "kanon_db").iterdir() if (path / "__init__.py").exists()]
    assert [name for name in rooms if f"`{name}" not in page and f"`{name}/" not in page] == []
