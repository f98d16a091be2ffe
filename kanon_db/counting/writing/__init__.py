"""From a checked query to SQL over what is published.

`statements` picks the form: over QIT and SAT `factored` or `pairs`, over cells `cells` (with
`cell_values`, `truth` and `intervals`). A form adds `steps` to a `writer`; `sql` and `joins` write
expressions and FROM.
"""
