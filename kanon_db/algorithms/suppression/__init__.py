"""Pattern-guided k-anonymity by suppression [PG]: which cells to suppress, of allowed patterns."""
