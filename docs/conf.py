"""How Sphinx makes a site of the pages: ``make docs``.

The pages stay where they are, and readable on a forge; so the sources are the whole checkout.
"""

from pygments.lexers.sql import PostgresLexer
from sphinx.application import Sphinx

project = "kanon_db"
copyright = "the kanon_db maintainers"  # noqa: A001  # Sphinx's name for it
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["docs/**", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]

myst_heading_anchors = 4  # the anchors that a forge makes

linkcheck_timeout = 20  # seconds; `make links`
linkcheck_retries = 2

html_theme = "furo"
html_title = "kanon_db"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]


def setup(app: Sphinx) -> None:
    """Read SQL as PostgreSQL does, with $$ quotes."""
    app.add_lexer("sql", PostgresLexer)
