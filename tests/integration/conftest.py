"""Fixtures of the integration tests."""

from tests.integration.growing import refused_by_default
from tests.integration.parties import kanon, parties

__all__ = ["kanon", "parties", "refused_by_default"]
