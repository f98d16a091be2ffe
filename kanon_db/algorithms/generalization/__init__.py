"""Generalization [OB]: equivalence classes of at least k records, with as little loss as can be."""
