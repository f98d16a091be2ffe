"""SQL, Python and the command line, all derived from the declared operations."""
