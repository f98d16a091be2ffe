"""Answering queries from publications, with the caller's own rights.

`scope` looks up what a query's names mean, `estimates` answers it with a statement or, faster,
with `by_bitmaps` (and `by_pairs`, where a condition needs both sides); `evaluation` compares
answers with the source, and loads numba to do so.
"""

from kanon_db.answering.estimates import (
    Answer,
    Explained,
    estimate,
    estimate_count,
    estimate_counts,
    explain_count,
    rewrite_count,
)

__all__ = [
    "Answer", "Explained", "estimate", "estimate_count", "estimate_counts", "explain_count",
    "rewrite_count",
]  # fmt: skip
