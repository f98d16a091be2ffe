"""What publications of rows have in common: quasi-identifiers as codes, parts, cells, files."""
