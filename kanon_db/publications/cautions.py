"""What publishers are warned of, whatever publishes."""

from __future__ import annotations

from typing import Protocol

from kanon_db.algorithms.ground.proof import Proof
from kanon_db.publications.request import PublishRequest


class Warns(Protocol):
    """What can warn a caller; a session does."""

    def warn(self, message: str) -> None:
        """Warn the caller of something that does not stop the operation."""


def warn_of_unused_options(session: Warns, request: PublishRequest) -> None:
    """Warn of options that belong to other methods."""
    for option in request.unused_options:
        session.warn(
            f"the option {option.name} has no effect: it belongs to {' and '.join(option.methods)}"
        )


def warn_of_gap(session: Warns, method: str, proof: Proof | None) -> None:
    """Warn that the result of an exact method may be worse than the optimum."""
    if proof is None and method == "optimal":
        session.warn(
            "what is published is not proven optimal, and no bound on the optimum is known: it was"
            " sought for another loss or other records than those that are published"
        )
    elif proof is not None and not proof.is_optimal:
        session.warn(
            "what is published is not proven optimal; the optimum may lose up to"
            f" {proof.gap:.2%} less"
        )
