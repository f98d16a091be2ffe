"""Installing kanon_db into a database, examining an installation, taking it out."""
