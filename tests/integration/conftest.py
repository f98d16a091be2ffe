"""Fixtures of the integration tests."""

from tests.integration.parties import parties

__all__ = ["parties"]
