"""Answers of rows: what their cells tell of a question.

`coded_rows` counts the types of records, whose cells have numbers; `evidence` says what is known of
each cell and of each combination of values, and `cell_evidence` finds it: the server tries values.
`value_counts` counts, from the cells of one column, the records below any number.
"""
