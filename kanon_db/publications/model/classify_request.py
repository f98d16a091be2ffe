"""The parameters of asking a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kanon_db.declaration import TEXT, json_list, json_object, parameter


@dataclass(frozen=True, kw_only=True)
class ClassifyRequest:
    """Parameters of `classify`."""

    publication: str = parameter(TEXT, "The model.", is_positional=True, metavar="NAME")
    features: Mapping[str, Any] = parameter(
        json_object(dict, is_exact=False),
        'The value of each feature, such as \'{"age": 41, "sex": "f", "pixels": [0, 0.5]}\', null'
        " where it is not known; other names are ignored.",
        is_positional=True,
    )


@dataclass(frozen=True, kw_only=True)
class ClassifyAllRequest:
    """Parameters of `classify_all`."""

    publication: str = parameter(TEXT, "The model.", is_positional=True, metavar="NAME")
    rows: list[Any] = parameter(
        json_list(is_exact=False),
        "A JSON list of rows, each with its features, such as"
        " (SELECT jsonb_agg(p) FROM people AS p).",
        is_positional=True,
    )
