"""Labels of a hierarchy as the sets of values that they stand for, as SQL.

The catalog keeps them as JSON: ``values``, in an order in which each label's values follow each
other, and ``labels``, each with the places of its first and its last value, from 0. A value is the
label of itself, and ``*`` that of anything, NULL too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kanon_db.counting.layout import ANYTHING
from kanon_db.counting.writing.steps import Nested, Select


def texts(described: str) -> Select:
    """Write all values as one array, ``texts``.

    Parameters
    ----------
    described : str
        SQL of the JSON, as jsonb.
    """
    values = f"jsonb_array_elements_text({described} -> 'values')"
    return Select(
        {"texts": "array_agg(t.v ORDER BY t.i)"}, [f"{values} WITH ORDINALITY AS t (v, i)"]
    )


def labels(described: str) -> Select:
    """Write each ``label`` with the places of its ``first`` and its ``last`` value."""
    values = f"{described} -> 'values'"
    listed = [
        Select(
            {"label": "e.x ->> 0", "first": "(e.x ->> 1)::int", "last": "(e.x ->> 2)::int"},
            [f"jsonb_array_elements({described} -> 'labels') AS e (x)"],
        ),
        Select(
            {"label": "t.v", "first": "t.i::int - 1", "last": "t.i::int - 1"},
            [f"jsonb_array_elements_text({values}) WITH ORDINALITY AS t (v, i)"],
        ),
        Select(
            {"label": f"'{ANYTHING}'", "first": "0", "last": f"jsonb_array_length({values}) - 1"}
        ),
    ]
    return Select({name: f"l.{name}" for name in ("label", "first", "last")}, [Nested(listed, "l")])


def members_of(label: str, alias: str, texts_sql: str) -> str:
    """Write the values of a label as an array.

    Parameters
    ----------
    label : str
    alias : str
        A row of :func:`labels`, joined by the label, if it has one.
    texts_sql : str
        The array of :func:`texts`. Only that of labels that occur is cut, which takes long.
    """
    nothing = f"CASE {label} WHEN '{ANYTHING}' THEN ARRAY[NULL::text] ELSE '{{}}' END"
    cut = f"({texts_sql})[{alias}.first + 1 : {alias}.last + 1]"
    return f"CASE WHEN num_nulls({label}) > 0 THEN ARRAY[NULL::text] ELSE {cut} || {nothing} END"


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
