"""How often tests of random draws may fail although all is well."""

RARELY = 1e-9
"""Probability of a false alarm, per test: not once in the life of the project."""
