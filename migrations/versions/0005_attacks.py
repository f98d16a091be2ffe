"""What attacks on a publication achieved."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute("ALTER TABLE kanon.publication ADD attacks jsonb")
