"""What is derived from the declared operations is as it should be, and as it is committed."""

from __future__ import annotations

import importlib
import inspect
import runpy
from pathlib import Path

import pytest

from kanon_db.declaration import EVERYBODY, PUBLISHERS, Operation
from kanon_db.operations import operations
from kanon_db.publications.registry import KINDS

ROOT = Path(__file__).parents[2]
OPERATIONS = operations()

# Other people's scripts call these, by position and by name.
SIGNATURES = {
    "version": "",
    "register_source": "source quasi_identifiers sensitive identifiers attributes insensitive"
    " entity arrival",
    "publish_buckets": "source publication method privacy max_bucket_size assignment readers"
    " replace options",
    "publish_generalized": "source publication k method weights options constraints"
    " max_suppressed refine readers replace",
    "publish_freeform": "source publication k method weights options readers replace",
    "publish_suppressed": "source publication k patterns method rules weights options readers"
    " replace",
    "publish_model": "source publication label features members method budget input_noise logits"
    " labels options readers replace",
    "classify": "publication features",
    "classify_all": "publication rows",
    "unicity": "source",
    "recommend": "source purpose protection time_limit",
    "suppression_patterns": "source patterns rules weights",
    "evaluate_counts": "name queries dimensionality selectivity seed",
    "verify": "name",
    "metrics": "name",
    "attack": "name",
    "check_release": "source publication readers",
    "grant_publication": "name readers accept",
    "refresh": "publication accept",
    "drop_publication": "name",
    "estimate_count": "query",
    "estimate_counts": "query",
    "estimate": "query",
    "explain_count": "query",
    "rewrite_count": "query",
}
FOR_EVERYBODY = {
    "version", "verify", "metrics", "estimate_count", "estimate_counts", "estimate",
    "explain_count", "rewrite_count", "classify", "classify_all",
}  # fmt: skip


def test_generated_files_are_current() -> None:
    generate = runpy.run_path(str(ROOT / "scripts" / "generate.py"))
    stale = [
        str(path.relative_to(ROOT))
        for path, text in generate["generated"](ROOT).items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run `make generate`"
    written = {path for path in generate["generated"](ROOT) if path.suffix == ".sql"}
    assert set((ROOT / "sql").glob("30_*.sql")) == written


def test_signatures_keep_their_beginning() -> None:
    for name, parameters in SIGNATURES.items():
        declared = [item.name for item in OPERATIONS[name].parameters]
        assert declared[: len(parameters.split())] == parameters.split(), name
    assert OPERATIONS.keys() == SIGNATURES.keys()


def test_audience() -> None:
    for name, operation in OPERATIONS.items():
        assert operation.audience == (EVERYBODY if name in FOR_EVERYBODY else PUBLISHERS)


@pytest.mark.parametrize("operation", list(OPERATIONS.values()), ids=list(OPERATIONS))
def test_function_takes_what_is_declared(operation: Operation) -> None:
    module, _, name = operation.function.partition(":")
    function = getattr(importlib.import_module(module), name)
    taken = list(inspect.signature(function).parameters)[1:]
    if operation.takes_request:
        assert taken == ["request"]
    else:
        assert taken == [item.name for item in operation.parameters]
    assert all(item.help.endswith(".") for item in operation.parameters)


@pytest.mark.parametrize("kind", list(KINDS.values()), ids=list(KINDS))
def test_every_method_has_its_function(kind: object) -> None:
    methods = importlib.import_module(f"{kind.room}.methods")  # type: ignore[attr-defined]
    (declared,) = [
        item.type.choices
        for item in kind.operation.parameters  # type: ignore[attr-defined]
        if item.name == "method"
    ]
    functions = {
        name
        for name, item in vars(methods).items()
        if inspect.isfunction(item)
        and list(inspect.signature(item).parameters) == ["data", "request", "pulse"]
    }
    assert functions == declared.keys() - {"auto"}
