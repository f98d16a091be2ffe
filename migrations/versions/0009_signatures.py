"""The signature under which somebody was published, for releases that people leave."""

from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    # 0: one that too few buckets have to be kept; NULL: none, or not in the release any more.
    op.execute("ALTER TABLE kanon.release_entity ADD signature integer")
