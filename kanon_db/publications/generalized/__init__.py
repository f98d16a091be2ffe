"""Generalized rows [OB]: at least k rows share all their cells."""
