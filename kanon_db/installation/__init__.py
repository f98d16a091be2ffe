"""Installs kanon_db into a database, examines an installation, and removes it."""
