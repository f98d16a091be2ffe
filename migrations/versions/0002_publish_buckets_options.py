"""publish_buckets takes options: another signature, so the function without them must go."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute(
        "DROP FUNCTION IF EXISTS kanon.publish_buckets("
        "regclass, text, text, jsonb, integer, text, text[], boolean)"
    )
