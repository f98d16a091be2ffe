"""Fixtures of the tests of privileges."""

from tests.integration.parties import parties

__all__ = ["parties"]
