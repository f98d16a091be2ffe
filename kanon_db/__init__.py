"""Private publications of PostgreSQL tables, and answers to count queries from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kanon_db.interfaces.frames import anonymize
    from kanon_db.interfaces.python import Kanon, connect

__all__ = ["Kanon", "anonymize", "connect"]
__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    """Import the Python interface, with pandas, only where it is used: the server never is."""
    if name == "anonymize":
        from kanon_db.interfaces.frames import anonymize

        return anonymize
    if name in __all__:
        from kanon_db.interfaces import python

        return getattr(python, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
