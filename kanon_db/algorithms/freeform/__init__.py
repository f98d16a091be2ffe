"""Freeform generalization: k-anonymity by k disjoint perfect matchings. Arrays in, matches out."""
