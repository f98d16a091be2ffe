"""Freeform rows of records on many machines."""
