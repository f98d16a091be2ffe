"""Rows with suppressed cells, of records on many machines."""
