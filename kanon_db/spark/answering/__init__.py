"""Answering questions about published rows: counted by Spark, calculated on the driver."""
