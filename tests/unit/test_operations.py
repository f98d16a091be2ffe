"""What is derived from the declared operations is as it should be, and as it is committed."""

from __future__ import annotations

import importlib
import inspect
import runpy
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pytest

from kanon_db import spark
from kanon_db.declaration import EVERYBODY, FLAG, PUBLISHERS, parameter
from kanon_db.interfaces.cli.spark_commands import spark_command
from kanon_db.interfaces.python import _rows_of
from kanon_db.operations import operations
from kanon_db.publications.buckets.request import BucketRequest
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
    "inspect_relation": "source",
    "unicity": "source",
    "recommend": "source purpose protection time_limit",
    "suppression_patterns": "source patterns rules weights",
    "evaluate_counts": "name queries dimensionality selectivity seed",
    "verify": "name",
    "check_relation": "relation quasi_identifiers sensitive entity survey_weight k l t",
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
    "draw": "name seed",
}
FOR_EVERYBODY = {
    "version", "verify", "check_relation", "metrics", "estimate_count", "estimate_counts",
    "estimate", "explain_count", "rewrite_count", "classify", "classify_all", "draw",
}  # fmt: skip


def test_generated_files_are_current() -> None:
    generated = runpy.run_path(str(ROOT / "scripts" / "generate.py"))["generated"](ROOT)
    stale = [
        str(path.relative_to(ROOT))
        for path, text in generated.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run `make generate`"
    written = {path for path in generated if path.suffix == ".sql"}
    assert set((ROOT / "sql").glob("30_*.sql")) == written


def test_signatures_keep_their_beginning() -> None:
    for name, parameters in SIGNATURES.items():
        declared = [item.name for item in OPERATIONS[name].parameters]
        assert declared[: len(parameters.split())] == parameters.split(), name
    assert OPERATIONS.keys() == SIGNATURES.keys()


def test_audience() -> None:
    for name, operation in OPERATIONS.items():
        assert operation.audience == (EVERYBODY if name in FOR_EVERYBODY else PUBLISHERS)


def test_functions_take_what_is_declared() -> None:
    for operation in OPERATIONS.values():
        module, _, name = operation.function.partition(":")
        function = getattr(importlib.import_module(module), name)
        declared = [item.name for item in operation.parameters]
        taken = list(inspect.signature(function).parameters)[1:]
        assert taken == (["request"] if operation.takes_request else declared), name
        assert all(item.help.endswith(".") for item in operation.parameters), name


def test_every_method_has_its_function() -> None:
    for kind in KINDS.values():
        methods = importlib.import_module(f"{kind.room}.methods")
        (declared,) = [
            item.type.choices for item in kind.operation.parameters if item.name == "method"
        ]
        functions = {
            name
            for name, item in vars(methods).items()
            if inspect.isfunction(item)
            and list(inspect.signature(item).parameters) == ["data", "request", "pulse"]
        }
        assert functions == declared.keys() - {"auto"}


ON_SPARK = {
    **{
        f"publish_{kind}": "session source target"
        for kind in ("buckets", "generalized", "freeform", "suppressed")
    },
    "load": "session target connection",
    "verify": "session target",
    "metrics": "session target",
    "releases": "session folder",
    **dict.fromkeys(
        ("estimate", "estimate_count", "estimate_counts", "rewrite_count"), "session target query"
    ),
    "attack": "session target source",
    "evaluate_counts": "session target source",
    "weighted_view": "session target",
}


def test_spark_keeps_what_is_passed_by_position() -> None:
    assert [one.declared.name for one in spark.SPARK_OPERATIONS] == list(ON_SPARK)
    for name, positional in ON_SPARK.items():
        parameters = inspect.signature(getattr(spark, name)).parameters
        taken = [item.name for item in parameters.values() if item.kind != item.KEYWORD_ONLY]
        assert taken == positional.split(), name


@dataclass(frozen=True, kw_only=True)
class OneMoreRequest(BucketRequest):
    loud: bool = parameter(FLAG, "Whether it is loud.", default=False)


def test_one_more_option_is_on_spark_too() -> None:
    """An option that is declared once is in the function and in the command of Spark."""
    operation = spark.SPARK_OPERATIONS[0]
    more = replace(operation, declared=replace(operation.declared, request=OneMoreRequest))
    function = more.as_function()
    assert inspect.signature(function).parameters["loud"].default is False
    assert "loud\n    Whether it is loud." in str(function.__doc__)
    assert "--loud" in [name for item in spark_command(more).params for name in item.opts]


def test_spark_has_the_functions_and_their_parameters() -> None:
    pytest.importorskip("pyarrow")
    for operation in spark.SPARK_OPERATIONS:
        module, _, name = operation.function.partition(":")
        function = getattr(importlib.import_module(f"kanon_db.spark.{module}"), name)
        parameters = inspect.signature(function).parameters
        if not any(item.kind == item.VAR_KEYWORD for item in parameters.values()):
            wanted = {"session", *(item.name for item in operation.parameters), *operation.hears}
            assert wanted == parameters.keys() - set(operation.fixed), name


def test_a_frame_is_a_list_of_rows() -> None:
    frame = pd.DataFrame(
        {"age": [30, 41], "pay": [1.5, None], "seen": pd.to_datetime(["2024-02-29", None])},
        index=[7, 7],
    )
    assert _rows_of(frame) == [
        {"age": 30, "pay": 1.5, "seen": "2024-02-29T00:00:00"},
        {"age": 41, "pay": None, "seen": None},
    ]
    assert type(_rows_of(frame)[0]["age"]) is int
