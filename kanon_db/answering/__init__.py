"""Answering count queries from published relations."""
