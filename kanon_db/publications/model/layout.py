"""What the catalog keeps of a model, and the names of its relations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kanon_db.algorithms.models import Encoding

FEATURES: Final = ""
MEMBERS: Final = "_net"
SUFFIXES: Final = (FEATURES, MEMBERS)


def encoding_of(layout: Mapping[str, Any]) -> Encoding:
    """Return how rows become inputs, from a model's layout."""
    return Encoding.from_json(json.dumps(layout["encoding"]))
