"""Transfers columns of data between relations and numpy, and from CSV files into tables.

The modules that import numpy are imported one by one, by what needs them.
"""

from kanon_db.transfer.columns import ColumnType, Relation, column_types, find_relation

__all__ = ["ColumnType", "Relation", "column_types", "find_relation"]
