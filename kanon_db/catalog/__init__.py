"""kanon_db's own tables: settings, registered sources, publications; and the rules for names.

Its modules are imported one by one: to answer a query, none of those that describe sources.
"""
