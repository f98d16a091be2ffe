"""Keeps what kanon_db knows: its settings, registered sources and publications.

Its modules are imported one by one: answering a query needs none of those that describe sources.
"""
