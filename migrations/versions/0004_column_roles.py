"""Insensitive columns, and the column of entities."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    # Until now, columns without a role were published by row kinds. What was published keeps its
    # layout; from now on such a column is not published unless somebody says that it may be.
    op.execute(
        "ALTER TABLE kanon.source ADD insensitive text[] NOT NULL DEFAULT '{}', ADD entity text"
    )
