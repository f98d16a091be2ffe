"""From a query's text structure to a typed query: columns, types, groups.

`scopes` finds columns, `binder` gives types (`types`), `aggregates` and `joins` check what they
are named after, and `check` puts the clauses together.
"""

from kanon_db.counting.checking.check import check
from kanon_db.counting.checking.joins import Joined, LookupTable, check_relations, join
from kanon_db.counting.checking.query import Formula, Key, Measure, Order, Query
from kanon_db.counting.checking.scopes import Scope

__all__ = [
    "Formula", "Joined", "Key", "LookupTable", "Measure", "Order", "Query", "Scope", "check",
    "check_relations", "join",
]  # fmt: skip
