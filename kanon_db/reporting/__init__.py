"""Reports on one publication, for the person who answers for data protection."""
