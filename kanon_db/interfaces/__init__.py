"""Offers the declared operations in SQL, in Python and on the command line."""
