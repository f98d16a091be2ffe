"""Generalized rows of records on many machines."""
