"""Fixtures of the tests of attacks."""

from tests.integration.parties import nothing_left, parties

__all__ = ["nothing_left", "parties"]
