"""Answering queries about publications, from what is published and with the caller's own rights.

`scope` looks up what a query's names mean, `estimates` answers it by a statement or, faster,
`by_bitmaps`; `evaluation` compares answers with the source, and loads a compiler.
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
