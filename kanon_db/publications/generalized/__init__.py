"""Rows whose cells at least k of them share [OB]."""
