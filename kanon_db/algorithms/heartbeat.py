"""What long work calls every few milliseconds, where nobody listens."""

from __future__ import annotations


def no_heartbeat() -> None:
    """Do nothing."""
