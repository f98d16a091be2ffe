"""From an analyst's COUNT query to SQL over published tables."""
