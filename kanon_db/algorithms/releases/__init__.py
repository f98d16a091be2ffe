"""What several releases of the same people tell together, and refreshing without telling more."""
