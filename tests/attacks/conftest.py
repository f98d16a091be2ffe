"""Fixtures of the tests of attacks."""

from tests.integration.parties import parties

__all__ = ["parties"]
