"""Answers queries from publications, with the caller's own rights.

`scope` looks up what a query's names mean, and `estimates` answers it: from buckets with bitmaps
(`_bitmap_counts`), from rows with the codes of their cells (`coded_rows`), or with a statement
(`statements`).
`value_counts` and `_distribution` answer MIN, MAX, percentiles and DISTINCT, `measures` says how a
query is answered. `query_operations` declares the operations.
"""
