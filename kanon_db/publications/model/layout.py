"""What the catalog keeps of a model, and the names of its relations."""

from __future__ import annotations

from typing import Final

FEATURES: Final = ""
MEMBERS: Final = "_net"
SUFFIXES: Final = (FEATURES, MEMBERS)
