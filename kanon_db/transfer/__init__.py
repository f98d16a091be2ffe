"""Columns of data between relations and numpy, and from files into tables."""
