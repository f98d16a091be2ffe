"""Fixtures of the integration tests."""

from tests.integration.growing import refused_by_default
from tests.integration.parties import kanon, nothing_left, parties

__all__ = ["kanon", "nothing_left", "parties", "refused_by_default"]
