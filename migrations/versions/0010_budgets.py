"""How many answers of a model each reader role may get, and how many it got."""

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    # Answers are counted by a sequence, since what a reader rolls back must stay counted. Once the
    # release is gone, asked says how many there were, and the sequence is gone, too.
    op.execute("""
        CREATE TABLE kanon.budget (
            budget_id   bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT budget_pkey PRIMARY KEY,
            release_id  bigint NOT NULL
                        CONSTRAINT budget_release_id_fkey REFERENCES kanon.release,
            role        oid NOT NULL,
            role_name   text NOT NULL,
            epsilon     double precision NOT NULL,
            delta       double precision NOT NULL,
            noise       double precision NOT NULL,
            answers     bigint NOT NULL CONSTRAINT budget_answers_check CHECK (answers > 0),
            counter     text NOT NULL CONSTRAINT budget_counter_key UNIQUE,
            asked       bigint,
            CONSTRAINT budget_release_id_role_key UNIQUE (release_id, role)
        )
    """)
