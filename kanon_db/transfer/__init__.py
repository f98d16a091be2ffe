"""Columns of data between relations and numpy, and from files into tables.

The modules that bring numpy along, :mod:`.snapshot` and :mod:`.load`, are imported by themselves.
"""

from kanon_db.transfer.columns import ColumnType, Relation, column_types, find_relation

__all__ = ["ColumnType", "Relation", "column_types", "find_relation"]
