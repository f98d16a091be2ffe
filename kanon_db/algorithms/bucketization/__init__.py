"""Bucketization under F'-privacy [GB]: which bucket sizes, and which records into which bucket."""
