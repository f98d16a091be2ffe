"""Fixtures of the integration tests."""

from tests.integration.parties import kanon, parties

__all__ = ["kanon", "parties"]
