"""Labels of sources elsewhere, each of which is published by one role at a time."""

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    # Whoever releases something of a source elsewhere holds the row of its label until the end.
    op.execute("CREATE TABLE kanon.label (label text CONSTRAINT label_pkey PRIMARY KEY)")
