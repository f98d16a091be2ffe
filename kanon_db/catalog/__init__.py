"""kanon_db's own tables: settings, registered sources, publications; and the rules for names."""

from kanon_db.catalog.entries import Publication, Source, find_publication, find_source
from kanon_db.catalog.names import PUBLICATION, free_column_name
from kanon_db.catalog.sources import open_source, register_source

__all__ = [
    "PUBLICATION", "Publication", "Source", "find_publication", "find_source", "free_column_name",
    "open_source", "register_source",
]  # fmt: skip
