"""Turns an analyst's query into a typed query, and that into SQL over what is published.

`_lexer` splits the text by PostgreSQL's rules, `_syntax` and `parse` read it along sqlglot's tree,
`_bind` and `check` find columns and give types (`expressions`), and `sql`, `cell_conditions` and
`likelihoods` write it as SQL over what is published. `layout` describes a publication, and
`formulas` has estimates, errors and bounds, as SQL and in numpy.

Nothing here knows a database, and nothing imports numpy before it is needed: the first estimate
of a session does not wait for it.
"""
