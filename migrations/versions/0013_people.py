"""Sources with several sensitive attributes, and with several records of one person."""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE kanon.source ADD also_sensitive text[] NOT NULL DEFAULT '{}', ADD keep text"
    )
