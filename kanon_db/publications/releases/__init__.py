"""Releases over time: the ledger, and what several releases tell together."""
