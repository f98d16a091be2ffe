"""Who has been published: keyed hashes of entities, so that a refresh finds those who are new."""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE kanon.release_key (
            release_id  bigint CONSTRAINT release_key_pkey PRIMARY KEY,
            key         bytea NOT NULL
        )
    """)
    # No reference to kanon.release: it would be checked for each of a million rows.
    op.execute("""
        CREATE TABLE kanon.release_entity (
            release_id  bigint NOT NULL,
            hash        bytea NOT NULL,
            CONSTRAINT release_entity_pkey PRIMARY KEY (release_id, hash)
        )
    """)
