"""Files that others than Python read: workflows, the citation, the image, the test for dbt."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import unicodedata
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

import kanon_db
from kanon_db.catalog.names import HIDING, is_plain
from kanon_db.installation.interpreter import package_digest
from kanon_db.interfaces import cli

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_name_actions_by_their_commit(workflow: Path) -> None:
    """A tag can be moved to other code; a hash cannot."""
    text = workflow.read_text()
    used = re.findall(r"^\s*-?\s*uses:\s*(.*)$", text, re.MULTILINE)
    assert used
    named = r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
    assert [line for line in used if not re.fullmatch(named, line)] == []
    # The same action is the same everywhere.
    everywhere = " ".join(path.read_text() for path in WORKFLOWS)
    for action, commit in (line.split(" ")[0].split("@") for line in used):
        assert set(re.findall(rf"{action}@(\w+)", everywhere)) == {commit}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_only_what_they_say(workflow: Path) -> None:
    text = workflow.read_text()
    assert "\npermissions:\n  contents: read\n" in text
    assert text.count("persist-credentials: false") == text.count("actions/checkout@")
    assert "pull_request_target" not in text
    assert not re.search(r"\$\{\{\s*(github\.event|github\.head_ref|secrets)", text)


def test_every_supported_postgresql_and_python_is_tested() -> None:
    text = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert "postgresql: [14, 15, 16, 17, 18]" in text
    assert 'python: ["3.11", "3.12", "3.13", "3.14"]' in text
    meta = json.loads((ROOT / "META.json").read_text())
    assert meta["prereqs"]["runtime"]["requires"]["PostgreSQL"] == "14.0.0"


def test_nothing_says_that_it_is_released_before_it_is() -> None:
    """A tag makes a release; until then, the changelog says so, and the README how to install."""
    (heading,) = re.findall(
        rf"^## {re.escape(kanon_db.__version__)} \((.*)\)$",
        (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE,
    )  # fmt: skip
    unreleased = "No release is on the package index yet" in (ROOT / "README.md").read_text()
    assert unreleased == (heading == "not yet released")


@pytest.mark.parametrize("name", ["distribution", "try-images"])
def test_scripts_are_read_by_their_shell(name: str) -> None:
    script = ROOT / "scripts" / name
    assert script.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", script], capture_output=True, text=True).stderr == ""


def test_targets_of_workflows_exist() -> None:
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {
        name for path in WORKFLOWS for name in re.findall(r"run: make (\S+)", path.read_text())
    }
    assert called
    assert called <= made
    scripts = {
        name for path in WORKFLOWS for name in re.findall(r"scripts/([\w-]+)", path.read_text())
    }
    assert [name for name in scripts if not (ROOT / "scripts" / name).exists()] == []


def test_one_version() -> None:
    for name in ("CITATION.cff", "dbt/dbt_project.yml"):
        versions = re.findall(r"^version: (\S+)$", (ROOT / name).read_text(), re.MULTILINE)
        assert versions == [kanon_db.__version__], name


def test_one_license() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "MIT"
    assert project["license-files"] == ["LICENSE"]
    assert (ROOT / "LICENSE").read_text().startswith("MIT License\n")
    assert "\nlicense: MIT\n" in (ROOT / "CITATION.cff").read_text()


def test_the_image_has_all_that_the_package_is_built_from() -> None:
    """What the build reads must be copied into the image, and not be ignored."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    built = {*(name.removeprefix("/") for name in included), "pyproject.toml"}
    image = (ROOT / "docker" / "Dockerfile").read_text()
    kept = (ROOT / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    for name in built:
        assert re.search(rf"^COPY (.* )?{re.escape(name)} ", image, re.MULTILINE), name
        assert f"!{name}" in kept


def test_every_dependency_is_pinned() -> None:
    """The extras' own; what these need is written down with them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    asked = [*project["dependencies"], *(item for extra in extras for item in extra), "hatchling"]
    pins = (ROOT / "constraints.txt").read_text().lower().replace("_", "-")
    for requirement in asked:
        name = re.split(r"[\[<>=~!; ]", requirement)[0].lower().replace("_", "-")
        is_own = name == project["name"].replace("_", "-")
        assert is_own or re.search(rf"^{re.escape(name)}==", pins, re.MULTILINE), name


ROOT = Path(__file__).parents[2]


def test_sql_has_the_same_rule() -> None:
    assert f"name !~ '{HIDING}'" in (ROOT / "sql" / "24_told.sql").read_text()


def test_what_hides() -> None:
    """By Unicode: control characters, ends of lines, what has a direction, or does not show."""
    for code in range(1, 0x10000):
        character = chr(code)
        kind = unicodedata.category(character)
        joins = character in "\u200c\u200d"  # letters, without which some scripts cannot be written
        turns_or_hides = kind == "Cf" and (
            (unicodedata.bidirectional(character) not in ("AN", "AL", "ON") and not joins)
            or character == "\u061c"
        )
        hides = kind in ("Cc", "Zl", "Zp") or turns_or_hides
        assert is_plain(f"a{character}b") is not hides, hex(code)


def test_saved_data_is_the_survey(tmp_path: Path) -> None:
    """The same people as in the data set of statsmodels, that it was made from."""
    path = tmp_path / "fair.csv"
    assert CliRunner().invoke(cli.main, ["demo", "--save", str(path)]).exit_code == 0
    fair = pytest.importorskip("statsmodels.datasets.fair")
    expected = fair.load_pandas().data
    found = pd.read_csv(path)
    assert len(found) == 6366
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


ROOT = Path(__file__).parents[2]

LOOK = """
import sys
sys.path.insert(0, sys.argv[1])
import kanon_db
from kanon_db.installation.interpreter import import_paths, package_digest, resource_directory
from kanon_db.interfaces.demo import write_fair
from pathlib import Path
assert kanon_db.__file__.startswith(sys.argv[1])
assert import_paths()[0] == sys.argv[1]
for name in ("sql", "migrations"):
    print(name, sum(path.suffix in (".sql", ".py") for path in resource_directory(name).rglob("*")))
print("digest", package_digest())
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
    assert int(found["migrations"]) == sum(name.endswith(".py") for name in committed("migrations"))
    assert found["digest"] == package_digest()  # as what a checkout of the same state installs
    assert int(found["fair"]) == 9


EXAMPLES = ROOT / "docs" / "examples"


def commands_of(text: str) -> list[list[str]]:
    """The commands in a unit or a crontab, without the folder that kanon is in."""
    return [found.split() for found in re.findall(r"/opt/kanon/bin/kanon ([^>\n]*)", text)]


@pytest.mark.parametrize(
    "name", ["kanon-refresh@.service", "kanon-refresh@.timer", "kanon-refresh.cron"]
)
def test_examples_of_refreshing_name_commands_that_there_are(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    found = commands_of(text)
    assert len(found) == ("timer" not in name)
    for words in found:
        arguments = [word.replace("%I", "people_b") for word in words]
        command, *given = arguments
        parsed = cli.main.commands[command].make_context(command, given)
        assert parsed.params["publication"] == "people_b"
    if name.endswith(".cron"):
        (line,) = [line for line in text.splitlines() if re.match(r"[0-9*]", line)]
        assert re.match(r"(\d+|\*)( (\d+|\*)){4} kanon /opt/kanon/bin/kanon refresh ", line)
        settings = re.findall(r"^([A-Z_]+)=", text, re.MULTILINE)
        assert settings == ["MAILTO", "KANON_DSN", "PGPASSFILE"]


def test_systemd_reads_the_units(tmp_path: Path) -> None:
    """And complains of nothing; without systemd, only their form is looked at."""
    kanon = Path(sys.executable).with_name("kanon")
    units = sorted(EXAMPLES.glob("kanon-refresh@.*"))
    assert len(units) == 2
    for unit in units:
        text = unit.read_text().replace("/opt/kanon/bin/kanon", str(kanon))
        read = configparser.ConfigParser(interpolation=None, strict=True)
        read.optionxform = str  # type: ignore[method-assign,assignment]
        read.read_string(text)
        assert "Unit" in read
        (tmp_path / unit.name).write_text(text)
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", *(f"./{unit.name}" for unit in units)],
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")


def test_versions_agree() -> None:
    """Of the package, of the extension for PGXN, and of the package for dbt."""
    meta = json.loads((ROOT / "META.json").read_text())
    project = yaml.safe_load((ROOT / "dbt" / "dbt_project.yml").read_text())
    versions = {meta["version"], meta["provides"]["kanon"]["version"], project["version"]}
    assert versions == {kanon_db.__version__}


@pytest.mark.parametrize(
    "path",
    sorted((ROOT / ".github").rglob("*.yml")),
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_files_for_the_host_are_read(path: Path) -> None:
    read = yaml.safe_load(path.read_text())
    assert isinstance(read, dict)
    if path.parent.name == "ISSUE_TEMPLATE" and path.stem != "config":
        assert read.keys() == {"name", "description", "body"}
    for job in read.get("jobs", {}).values():
        assert {"runs-on", "steps"} <= job.keys()
        assert job.get("needs", "") in {"", *read["jobs"]}
