"""The ways in which buckets are asked: with fewer bitmaps, by pairs, by the paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import psycopg
import pytest

from kanon_db.answers import _bitmap_counts, scope
from kanon_db.query.layout import BucketLayout
from tests.integration.parties import fetch


def keep_bitmaps(patch: pytest.MonkeyPatch, *, of_sensitive: bool) -> None:
    """Let statements count the records of each bucket, as where attributes have many values."""
    made = scope._LAYOUTS["buckets"]

    def with_fewer(*given: Any) -> BucketLayout:
        layout = cast("BucketLayout", made(*given))
        kept = tuple(layout.sensitive) if of_sensitive else ()
        return layout._replace(tables=replace(layout.tables, with_bitmaps=kept))

    layouts: Mapping[str, Any] = scope._LAYOUTS
    patch.setitem(cast("MutableMapping[str, Any]", layouts), "buckets", with_fewer)


def join_pairs(patch: pytest.MonkeyPatch) -> None:
    """Let the server join the records of each bucket with its values, whatever is asked."""
    for way in ("_from_bitmaps", "_from_counts"):
        patch.setattr(_bitmap_counts, way, lambda *_: None)


@contextmanager
def as_in_the_paper(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Ask the paper's estimator."""
    with connection.transaction(force_rollback=True):
        fetch(connection, "SET LOCAL kanon.estimator = 'paper'")
        yield
