"""Jobs: what a worker does for roles, on servers without PL/Python."""

from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE kanon.job (
            job_id       bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT job_pkey PRIMARY KEY,
            role         oid NOT NULL,
            role_name    text NOT NULL,
            operation    text NOT NULL,
            arguments    jsonb NOT NULL,
            settings     jsonb NOT NULL,
            submitted_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
            submitted_by xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),
            queue_id     bigint,
            attempts     integer NOT NULL DEFAULT 0,
            started_at   timestamptz,
            progress     jsonb
        )
    """)
    op.execute("CREATE INDEX job_role_idx ON kanon.job (role)")
    # Apart, since whoever performs a job holds its end: a second end of the same job cannot be
    # written, and what was done is committed with it or not at all.
    op.execute("""
        CREATE TABLE kanon.job_end (
            job_id   bigint CONSTRAINT job_end_pkey PRIMARY KEY
                     CONSTRAINT job_end_job_id_fkey REFERENCES kanon.job ON DELETE CASCADE,
            ended_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
            answer   jsonb NOT NULL
        )
    """)
