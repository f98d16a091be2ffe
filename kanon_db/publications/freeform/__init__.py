"""Freeform rows [FF]: each row has cells of its own."""
