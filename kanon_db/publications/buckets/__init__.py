"""Bucketizations [GB]: the tables QIT and SAT, and the view that joins them."""
