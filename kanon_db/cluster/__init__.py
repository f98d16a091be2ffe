"""A private PostgreSQL in a folder."""
