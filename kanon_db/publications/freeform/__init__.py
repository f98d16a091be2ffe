"""Rows with cells of their own [FF]."""
