"""Answering queries from publications, with the caller's own rights.

`scope` looks up what a query's names mean, and `estimates` answers it: from buckets `by_bitmaps`
(with `by_pairs`, where a condition needs both sides), else `measures`, an aggregate at a time, from
the numbers of cells or with a statement. `explained` says how; `evaluation` compares answers with
the source, and loads numba to do so.
"""
