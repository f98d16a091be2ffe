"""Answering counts: from a query's text to the SQL, or the bitmaps, that answer it.

A query passes through three rooms: `reading` (its text becomes a structure, or is refused),
`checking` (columns are found, everything gets its type) and `writing` (SQL over what is
published). They share `expressions`, `layout` (what is known of a publication), `sides` (what of
a condition is on quasi-identifiers, what on the sensitive attribute), `formulas` (estimates,
errors and bounds, as SQL and in numpy), `bitmaps`, `classes` and `pairs`, `answers`, `refusals`.

Nothing here knows a database, and nothing imports numpy before it is needed: the first estimate
of a session does not wait for it.
"""
