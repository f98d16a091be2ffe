"""Provides what the kinds that publish rows share: cells, relations, and the source as codes.

``row_kind`` is the base of the three kinds. ``recoded_cells`` makes the cells of quasi-identifiers,
``distinct_cells`` numbers them, ``row_relations`` writes the view, ``cell_codes`` what the
estimator reads beside it, and ``published_rows`` reads the view as its readers and attackers do.
"""
