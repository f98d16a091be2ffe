"""The wheel and the source distribution have everything; `make dist` tries them on a server."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LOOK = """
import sys
sys.path.insert(0, sys.argv[1])
import kanon_db
from kanon_db.installation.interpreter import import_paths, resource_directory
from kanon_db.interfaces.demo import write_fair
from pathlib import Path
assert kanon_db.__file__.startswith(sys.argv[1])
assert import_paths()[0] == sys.argv[1]
for name in ("sql", "migrations"):
    print(name, sum(path.suffix in (".sql", ".py") for path in resource_directory(name).rglob("*")))
print("fair", len(write_fair(Path(sys.argv[1], "fair.csv"))))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def committed(folder: str) -> set[str]:
    """The files of a folder, without what Python leaves behind."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def in_wheel(path: str) -> str:
    return path if path.startswith("kanon_db/") else f"kanon_db/{path}"


def test_the_wheel_has_everything(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = {in_wheel(path) for folder in ("kanon_db", "sql", "migrations")
              for path in committed(folder)}  # fmt: skip
    assert {"kanon_db/py.typed", "kanon_db/interfaces/fair.csv.gz",
            "kanon_db/interfaces/python_methods.pyi"} <= needed  # fmt: skip
    assert needed <= names
    more = {name for name in names - needed if ".dist-info/" not in name}
    assert more == set()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_source_distribution_has_what_the_wheel_is_built_from(built: Path) -> None:
    (sources,) = built.glob("*.tar.gz")
    with tarfile.open(sources) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    folders = ("kanon_db", "sql", "migrations")
    needed = {path for folder in folders for path in committed(folder)}
    others = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "PKG-INFO", ".gitignore"}
    assert names == needed | others


def test_the_wheel_finds_its_files(built: Path, tmp_path: Path) -> None:
    """Outside of the checkout, from the wheel alone; the libraries are this environment's."""
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path)  # noqa: S202  # our own
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = dict(line.split() for line in done.stdout.splitlines())
    assert int(found["sql"]) == len(committed("sql"))
    assert int(found["migrations"]) > 5
    assert int(found["fair"]) == 9
