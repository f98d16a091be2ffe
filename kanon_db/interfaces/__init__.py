"""The ways in: SQL, Python, the command line. Each is derived from the declared operations."""
