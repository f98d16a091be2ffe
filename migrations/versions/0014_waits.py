"""What waits since when, and the hashes that tell published records from corrected ones."""

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.execute("ALTER TABLE kanon.release ADD waits jsonb")
    # No reference to kanon.release: it would be checked for each of a million rows.
    op.execute("""
        CREATE TABLE kanon.release_record (
            release_id  bigint NOT NULL,
            hash        bytea NOT NULL,
            CONSTRAINT release_record_pkey PRIMARY KEY (release_id, hash)
        )
    """)
    # A dump has how it is drawn, and not what was: a restored database draws another key.
    # From the operating system's generator, as each of these: 244 bits.
    op.execute("""
        CREATE MATERIALIZED VIEW kanon.record_key AS
        SELECT pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
               OPERATOR(pg_catalog.||) pg_catalog.uuid_send(pg_catalog.gen_random_uuid()) AS key
    """)
