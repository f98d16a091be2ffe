"""Publishing, whatever the kind: one pipeline, a registry of kinds, their examination."""

import kanon_db.publications.kinds  # noqa: F401  # registers the kinds that kanon_db has
from kanon_db.publications.registry import KINDS, DeclaredKind, register_kind

__all__ = ["KINDS", "DeclaredKind", "register_kind"]
