"""Labels of a hierarchy as the sets of values that they stand for, as SQL.

The catalog keeps them as JSON: ``values``, in an order in which each label's values follow each
other, and ``labels``, each with the places of its first and its last value, from 0. A value is the
label of itself, and ``*`` that of anything, NULL too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kanon_db.counting.writing.steps import Nested, Select

ANYTHING: Final = "*"
"""The label of anything, NULL too."""

_EACH: Final = "CROSS JOIN LATERAL"
_VALUES: Final = (
    "ARRAY(SELECT t.v FROM jsonb_array_elements_text(j.described -> 'values')"
    " WITH ORDINALITY AS t (v, i) ORDER BY t.i)"
)


def labels(described: str) -> Select:
    """Write the labels, each with the places of its values, and its ``members``, an array.

    Parameters
    ----------
    described : str
        SQL of the JSON, as jsonb.
    """
    listed = [
        Select(
            {"label": "e.x ->> 0", "first": "(e.x ->> 1)::int", "last": "(e.x ->> 2)::int"},
            ["jsonb_array_elements(v.described -> 'labels') AS e (x)"],
        ),
        Select(
            {"label": "v.texts[i]", "first": "i - 1", "last": "i - 1"},
            ["generate_subscripts(v.texts, 1) AS i"],
        ),
        Select({"label": f"'{ANYTHING}'", "first": "0", "last": "cardinality(v.texts) - 1"}),
    ]
    texts = Nested([Select({"described": "j.described", "texts": _VALUES})], "v", _EACH)
    source = [Nested([Select({"described": described})], "j"), texts, Nested(listed, "l", _EACH)]
    nothing = f"CASE l.label WHEN '{ANYTHING}' THEN ARRAY[NULL::text] ELSE '{{}}' END"
    members = f"v.texts[l.first + 1 : l.last + 1] || {nothing}"
    columns = {"label": "l.label", "first": "l.first", "last": "l.last", "members": members}
    return Select(columns, source)


def members_of(label: str, alias: str) -> str:
    """Write the members of a label, where the row of :func:`labels` is joined, if it has one."""
    return f"CASE WHEN num_nulls({label}) > 0 THEN ARRAY[NULL::text] ELSE {alias}.members END"


def checked(described: object) -> str | None:
    """Return what the catalog has as JSON again; None if it is not what is described above."""
    if not isinstance(described, Mapping):
        return None
    values, spans = described.get("values"), described.get("labels")
    if not isinstance(values, list) or not isinstance(spans, list) or not values:
        return None
    if not all(_is_span(span, len(values)) for span in spans):
        return None
    texts = [*values, *(span[0] for span in spans), ANYTHING]
    if not all(isinstance(text, str) for text in texts) or len(set(texts)) < len(texts):
        return None
    return json.dumps({"values": values, "labels": spans}, ensure_ascii=False)


def _is_span(span: Any, n_values: int) -> bool:
    if not isinstance(span, list) or len(span) != 3:
        return False
    first, last = span[1:]
    return type(first) is type(last) is int and 0 <= first <= last < n_values
