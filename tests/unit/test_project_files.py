"""Files that others than Python read: workflows, the citation, the image, the test for dbt."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import kanon_db

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


def test_every_supported_postgresql_is_tested() -> None:
    text = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert "postgresql: [14, 15, 16, 17, 18]" in text


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
    built = {*project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"], "pyproject.toml"}
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
