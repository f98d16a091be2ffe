"""Rows with suppressed cells [PG]: each row keeps the cells that a pattern vector keeps."""
