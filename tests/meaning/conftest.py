"""Fixtures of the tests of meaning."""

from tests.integration.parties import parties

__all__ = ["parties"]
