"""From a query's text to its structure, or a refusal with its reason.

`lexemes` splits the text, `constructs` refuses what a count query cannot have, sqlglot parses,
`allowlist` checks its tree, and `clauses` and `tree` read that along the lexemes (`cursor`).
"""

from kanon_db.counting.reading.parse import parse_query
from kanon_db.counting.reading.query import ItemText, LookupText, OrderText, QueryText, RelationText

__all__ = ["ItemText", "LookupText", "OrderText", "QueryText", "RelationText", "parse_query"]
