"""What the server imports, and what happens before a PL/Python function does anything."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytest

import kanon_db
from kanon_db.cluster.local_cluster import MEGABYTE, cluster_settings, configuration
from kanon_db.declaration import columns
from kanon_db.errors import InUseError
from kanon_db.installation.interpreter import _copy_environment, compile_packages
from kanon_db.interfaces import plpython
from kanon_db.interfaces.backend import choose_cache
from kanon_db.interfaces.plpython import call
from kanon_db.operations import operation_named, operations


def test_compiled_code_has_a_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Beside the code, or else in the folder of the cluster, never where others could put code.

    A place that is given stays.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)
    in_cluster = str(tmp_path / "kanon_db_cache")
    for home, given, expected in (
        (tmp_path, None, None),
        (tmp_path / "missing", None, in_cluster),
        (tmp_path / "open", None, in_cluster),
        (tmp_path / "missing", "/given", "/given"),
    ):
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
        if given:
            monkeypatch.setenv("NUMBA_CACHE_DIR", given)
        choose_cache()
        assert os.environ.get("NUMBA_CACHE_DIR") == expected
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)  # both are somebody else's
    monkeypatch.setenv("XDG_CACHE_HOME", "/given")
    choose_cache()
    assert os.environ["NUMBA_CACHE_DIR"] == os.environ["XDG_CACHE_HOME"] == os.devnull


def test_compiled_code_of_a_worker_has_no_place_where_others_write(tmp_path: Path) -> None:
    """Which is started without a home in a folder such as /tmp, or has it there."""
    tmp_path.chmod(0o1777)
    code = tmp_path / "code"
    code.mkdir()
    shutil.copy(Path(plpython.__file__).with_name("backend.py"), code)
    (code / "loop.py").write_text("def run() -> int:\n    return 1\n")
    (code / "__pycache__").touch()  # so that nothing is kept beside the code
    program = (
        "import backend, loop\n"
        "from numba.core.caching import FunctionCache\n"
        "print(FunctionCache(loop.run).cache_path)"
    )
    for home in (tmp_path, tmp_path / "missing"):
        environment = {"HOME": str(home), "PYTHONPATH": str(code), "PATH": os.environ["PATH"]}
        ended = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "no locator available" in ended.stderr, ended.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["code"]


class Server:
    """What a call sees of PL/Python: whether the work was undone."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    @contextmanager
    def subtransaction(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.ends.append("undone")
            raise
        self.ends.append("kept")


def answer(operation: str, **given: Any) -> Any:
    return json.loads(call(Server(), operation, json.dumps(given)))


def test_a_value_or_a_refusal_is_returned() -> None:
    assert answer("version") == {"value": kanon_db.__version__}
    refused = answer("verify", name=None)["error"]
    assert refused == {"message": "name must not be NULL", "sqlstate": "22023"}
    refused = answer("verify", nam="a")["error"]
    assert refused["message"] == "the parameter is not known"
    assert refused["hint"].startswith("did you mean name?")


class Row:
    text, number, infinite, key, many = "a", 1.5, float("inf"), '{"a": [1]}', {"x": float("nan")}


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An operation that does as it is told."""
    told: dict[str, Any] = {}
    operation = replace(
        operations()["metrics"],
        function="tests.unit.test_plpython:perform",
        result=columns(text="text", number="numeric", infinite="float8", key="jsonb", many="jsonb"),
    )
    monkeypatch.setattr(plpython, "operation_named", {"told": operation}.__getitem__)
    monkeypatch.setattr("tests.unit.test_plpython.perform", lambda *_, **__: told["does"]())
    return told


def perform(*_: object, **__: object) -> None:
    """Replaced by each test."""


def told(performed: dict[str, Any], does: Callable[[], object]) -> tuple[Any, list[str]]:
    """Perform something; what is returned, and how the work has ended."""
    performed["does"] = does
    server = Server()
    return json.loads(call(server, "told", '{"name": "a"}')), server.ends


def test_rows_are_json(performed: dict[str, Any]) -> None:
    row = {"text": "a", "number": 1.5, "infinite": "inf", "key": {"a": [1]}, "many": {"x": "nan"}}
    assert told(performed, lambda: [Row]) == ({"rows": [row]}, ["kept"])


def test_a_refusal_undoes_what_was_done(performed: dict[str, Any]) -> None:
    def refuse() -> None:
        raise InUseError("taken", detail="where", hint="what to do")

    error = {"message": "taken", "sqlstate": "55006", "detail": "where", "hint": "what to do"}
    assert told(performed, refuse) == ({"error": error}, ["undone"])


@pytest.mark.pitfall(10)
def test_a_defect_says_where_and_no_more(performed: dict[str, Any]) -> None:
    """An error that nobody expected is named by its class, without its text."""

    def fail() -> None:
        raise ValueError("the data of a person")

    found, ends = told(performed, fail)
    assert found["error"]["message"] == "kanon_db failed because of a bug"
    assert "ValueError" in found["error"]["detail"]
    assert "person" not in json.dumps(found)
    assert ends == ["undone"]


IMPORTS = """
import pathlib, sys
import kanon_db.interfaces.plpython, kanon_db.answers.estimates
import kanon_db.query.formulas, kanon_db.query.parse
kanon_db.interfaces.plpython.operation_named("estimate_count")
late = {"kanon_db.operations", "kanon_db.catalog.sources", "email", "numpy", "sqlglot",
        "importlib.metadata", "pandas", "numba", "psycopg"}
print([name for name in sys.modules if name.endswith(".request") or name in late])
import numpy
print(len(list(pathlib.Path("/proc/self/task").iterdir())))
import kanon_db.answers.buckets.bucket_evidence, kanon_db.answers.rows.cell_evidence
import kanon_db.answers.rows.coded_rows, kanon_db.answers.rows.stored_types
late |= {"highspy", "pulp", "secrets", "subprocess", "kanon_db.algorithms.attacks",
         "kanon_db.algorithms.ground.solver", "kanon_db.publications.kind",
         "kanon_db.algorithms.recoding.loss", "kanon_db.algorithms.bucketization"}
print([name for name in sys.modules if name in late - {"numpy"}])
"""


def test_a_server_process_imports_little_and_starts_no_threads() -> None:
    """Neither before the first estimate, nor for numpy's linear algebra, for the whole session."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("NUM_THREADS")}
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTS], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == ["[]", "1", "[]"]


def test_what_a_call_calls_finds_its_stack_in_one_piece() -> None:
    piece = 16 * 1024 // 8  # of CPython, in slots
    assert call.__code__.co_stacksize > piece
    assert plpython.vote.__code__.co_stacksize > piece


def test_operations_are_found_by_name() -> None:
    assert plpython.operation_named("estimate") == operations()["estimate"]
    assert plpython.operation_named("publish_buckets") == operations()["publish_buckets"]
    assert operation_named("publish_buckets") == operations()["publish_buckets"]
    with pytest.raises(KeyError):
        operation_named("unknown")


def test_what_sessions_import_is_compiled_also_in_a_copy(tmp_path: Path) -> None:
    environment, home = tmp_path / "environment", tmp_path / "cluster"
    package = environment / "numpy" / "inner"
    package.mkdir(parents=True)
    (package / "module.py").write_text("")
    (package / "broken.py").write_text("(")
    compile_packages([str(environment), str(tmp_path / "missing")])
    assert Path(cache_from_source(str(package / "module.py"))).exists()

    home.mkdir()
    (home / "kanon.conf").touch()
    copied = _copy_environment(home / "data", [str(environment)])
    assert copied is not None
    module = Path(copied[0], "numpy", "inner", "module.py")
    assert Path(cache_from_source(str(module))).exists()


def test_settings_follow_from_the_memory() -> None:
    """Half of it may have cached files, and small shared memory is not used."""
    for memory, expected in ((512, "256MB"), (4096, "2048MB"), (65536, "32768MB")):
        chosen = cluster_settings(memory * MEGABYTE, 2048 * MEGABYTE, "/srv")
        assert chosen["effective_cache_size"] == expected
        assert "dynamic_shared_memory_type" not in chosen
    chosen = cluster_settings(4096 * MEGABYTE, 64 * MEGABYTE, "/srv")
    assert chosen["dynamic_shared_memory_type"] == "mmap"


def test_quotes_in_values_stay_in_the_value() -> None:
    lines = configuration({"unix_socket_directories": "/srv/o'brien"}).splitlines()
    assert lines[1:] == ["unix_socket_directories = '/srv/o''brien'"]
