"""The ways in which buckets are asked: with fewer bitmaps, by the statement, by the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import psycopg
import pytest

from kanon_db.answers import estimates, measures, scope
from kanon_db.query.layout import BucketLayout
from tests.integration.parties import fetch


def keep_bitmaps_of_the_sensitive_attribute(patch: pytest.MonkeyPatch) -> None:
    """Let a statement count the records of each bucket, as where attributes have many values."""
    made = scope._LAYOUTS["buckets"]

    def with_fewer(*given: Any) -> BucketLayout:
        layout = cast("BucketLayout", made(*given))
        tables = replace(layout.tables, with_bitmaps=(layout.sensitive.name,))
        return layout._replace(tables=tables)

    layouts: Mapping[str, Any] = scope._LAYOUTS
    patch.setitem(cast("MutableMapping[str, Any]", layouts), "buckets", with_fewer)


def ask_the_statement(patch: pytest.MonkeyPatch) -> None:
    """Let the statement over QIT and SAT answer."""
    patch.setattr(estimates, "by_bitmaps", lambda _: None)
    patch.setattr(measures, "count_with_bitmaps", lambda _: None)


@contextmanager
def as_in_the_paper(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Ask the paper's estimator, which is that of the statement."""
    with connection.transaction(force_rollback=True):
        fetch(connection, "SET LOCAL kanon.estimator = 'paper'")
        yield
