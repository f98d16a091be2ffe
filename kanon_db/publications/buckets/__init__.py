"""Bucketizations [GB]: QIT, SAT and the view that joins them."""
