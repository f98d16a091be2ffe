"""Fixtures of the corpus."""

from tests.integration.parties import parties

__all__ = ["parties"]
