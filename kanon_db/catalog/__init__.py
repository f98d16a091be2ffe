"""kanon_db's own tables (settings, registered sources, publications), and the rules for names."""
