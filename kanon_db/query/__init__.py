"""Turns an analyst's query into a typed query, and that into SQL over what is published.

`_lexemes` splits the text by PostgreSQL's rules, and says why something cannot stand where it does;
`parse` reads its clauses, `_syntax` its expressions, and `_calls` what they call. `_bind` and
`check` find each column and give each expression its type (`expressions`), and `sql`,
`ranges` and `likelihoods` write SQL over the published relations. `layout` describes a
publication, and `formulas` has estimates, errors and bounds.

Nothing here knows a database. numpy is imported only where it is needed, since the first estimate
of a session waits for every import.
"""
