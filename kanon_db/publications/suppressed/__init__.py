"""Rows with suppressed cells [PG]."""
