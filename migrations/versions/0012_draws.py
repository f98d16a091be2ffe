"""The key of all draws: whoever publishes the same again draws the same again."""

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE kanon.draw_key (
            is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
            key bytea NOT NULL CHECK (length(key) = 32)
        )
    """)
    # From the operating system's generator, as each of these: 244 bits.
    op.execute("""
        INSERT INTO kanon.draw_key (key)
        VALUES (pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
                OPERATOR(pg_catalog.||) pg_catalog.uuid_send(pg_catalog.gen_random_uuid()))
    """)
