"""The kinds that are made on Spark, a module ``<kind>_kind`` for each with its ``KIND``."""
