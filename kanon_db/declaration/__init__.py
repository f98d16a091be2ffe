"""How an operation is declared: its parameters with their types, its results, and its callers."""

from kanon_db.declaration.operation import EVERYBODY, PUBLISHERS, Column, Operation, columns, value
from kanon_db.declaration.parameters import (
    REQUIRED,
    Parameter,
    options,
    parameter,
    parameters_of,
    read_request,
)
from kanon_db.declaration.types import (
    BOUND,
    FLAG,
    MAX_NAME_BYTES,
    MAX_WEIGHT,
    NAMES,
    RELATION,
    SECONDS,
    SHARE,
    TEXT,
    WEIGHTS,
    Type,
    choice,
    json_list,
    json_object,
    number,
    numbers,
    pair,
    unknown,
    whole,
    wholes,
)

__all__ = [
    "BOUND", "EVERYBODY", "FLAG", "MAX_NAME_BYTES", "MAX_WEIGHT", "NAMES", "PUBLISHERS", "RELATION",
    "REQUIRED", "SECONDS", "SHARE", "TEXT", "WEIGHTS", "Column", "Operation", "Parameter", "Type",
    "choice", "columns", "json_list", "json_object", "number", "numbers", "options", "pair",
    "parameter", "parameters_of", "read_request", "unknown", "value", "whole", "wholes",
]  # fmt: skip
