"""The paper's estimator, asked for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.integration.parties import fetch


@contextmanager
def as_in_the_paper(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Ask the paper's estimator."""
    with connection.transaction(force_rollback=True):
        fetch(connection, "SET LOCAL kanon.estimator = 'paper'")
        yield
