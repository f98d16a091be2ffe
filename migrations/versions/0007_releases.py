"""The ledger of releases: what was published, to whom, and until when."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE kanon.release (
            release_id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            publication_id  bigint NOT NULL CONSTRAINT release_publication_unique UNIQUE,
            name            text NOT NULL,
            kind            text NOT NULL,
            method          text NOT NULL,
            source          text NOT NULL,
            source_oid      oid,
            bases           oid[] NOT NULL,
            base_names      text[] NOT NULL,
            columns         jsonb NOT NULL,
            parameters      jsonb NOT NULL,
            guarantee       text NOT NULL,
            records         bigint NOT NULL,
            digest          text,
            released_at     timestamptz NOT NULL DEFAULT now(),
            released_by     text NOT NULL,
            publisher       oid,
            measured        jsonb,
            batches         jsonb NOT NULL DEFAULT '[]',
            upto            text,
            changes         bigint,
            grants          text,
            ended           text CONSTRAINT release_ended CHECK (ended IN ('replaced', 'dropped')),
            ended_at        timestamptz
        )
    """)
    op.execute("CREATE INDEX release_bases ON kanon.release USING gin (bases)")
    op.execute("CREATE INDEX release_base_names ON kanon.release USING gin (base_names)")
    op.execute("""
        CREATE TABLE kanon.release_reader (
            release_id  bigint NOT NULL REFERENCES kanon.release,
            role        oid NOT NULL,
            role_name   text NOT NULL,
            since       timestamptz NOT NULL DEFAULT now(),
            until       timestamptz,
            CONSTRAINT release_reader_pkey PRIMARY KEY (release_id, role, since)
        )
    """)
    op.execute("ALTER TABLE kanon.source ADD arrival text")
    # Whoever releases something that is made of a relation holds its row until the end.
    op.execute("""
        CREATE TABLE kanon.base (
            relation     oid CONSTRAINT base_pkey PRIMARY KEY,
            released_at  timestamptz NOT NULL DEFAULT now()
        )
    """)
