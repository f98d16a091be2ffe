"""Buckets of records on many machines."""
