"""Provides what the kinds that publish rows share: cells, relations, and the source as codes.

``row_kind`` is the base of the three kinds. ``recoded_cells`` makes the cells of quasi-identifiers,
``distinct_cells`` numbers them, ``row_relations`` writes the view, and ``cell_codes`` what is read
beside it. ``stored_cells`` reads the cells again, ``cell_columns`` says what each of them tells,
and ``published_rows`` what they cover of the source.
"""
