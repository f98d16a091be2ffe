"""The catalog: sources, publications, the ledger of releases, budgets, jobs, settings."""

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE kanon.setting (
            name  text NOT NULL CONSTRAINT setting_pkey PRIMARY KEY,
            value text NOT NULL
        );
        COMMENT ON TABLE kanon.setting IS 'choices made at installation'
    """)
    # Relations go by name, not by regclass: a dump of the publications must restore where the
    # microdata does not exist. For the same reason, no role is a regrole.
    op.execute("""
        CREATE TABLE kanon.source (
            source_id         bigint GENERATED ALWAYS AS IDENTITY
                              CONSTRAINT source_pkey PRIMARY KEY,
            schema_name       text NOT NULL,
            relation_name     text NOT NULL,
            columns           text[] NOT NULL DEFAULT '{}',
            -- The relation and the numbers of its columns, which a name does not change.
            relation_oid      oid,
            numbers           smallint[] NOT NULL DEFAULT '{}',
            fingerprint       text,
            quasi_identifiers text[] NOT NULL
                              CONSTRAINT source_has_quasi_identifiers
                              CHECK (cardinality(quasi_identifiers) > 0),
            sensitive         text,
            also_sensitive    text[] NOT NULL DEFAULT '{}',
            identifiers       text[] NOT NULL,
            insensitive       text[] NOT NULL DEFAULT '{}',
            entity            text,
            keep              text,
            arrival           text,
            attributes        jsonb NOT NULL
                              CONSTRAINT source_attributes_object
                              CHECK (jsonb_typeof(attributes) = 'object'),
            registered_by     oid,
            registered_at     timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT source_relation_unique UNIQUE (schema_name, relation_name)
        );
        COMMENT ON TABLE kanon.source IS 'microdata as its owner described it'
    """)
    # published_by is the name of then, for people to read. Who published is who may grant SELECT
    # on the relations: the server forgets this when it drops a role. Readers do not see
    # source_metrics, which tell of the source.
    op.execute("""
        CREATE TABLE kanon.publication (
            publication_id  bigint GENERATED ALWAYS AS IDENTITY
                            CONSTRAINT publication_pkey PRIMARY KEY,
            name            text NOT NULL CONSTRAINT publication_name_unique UNIQUE,
            kind            text NOT NULL,
            method          text NOT NULL,
            source_schema   text NOT NULL,
            source_relation text NOT NULL,
            parameters      jsonb NOT NULL,
            layout          jsonb NOT NULL,
            records         bigint NOT NULL,
            guarantee       text NOT NULL,
            promise         jsonb NOT NULL DEFAULT '{}',
            metrics         jsonb NOT NULL,
            source_metrics  jsonb NOT NULL DEFAULT '{}',
            attacks         jsonb,
            relations       text[] NOT NULL,
            published_by    name NOT NULL,
            published_at    timestamptz NOT NULL DEFAULT now()
        );
        COMMENT ON TABLE kanon.publication IS 'live publications'
    """)
    # The ledger: what was published, to whom, and until when.
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
            waits           jsonb,
            grants          text,
            ended           text CONSTRAINT release_ended CHECK (ended IN ('replaced', 'dropped')),
            ended_at        timestamptz
        );
        CREATE INDEX release_bases ON kanon.release USING gin (bases);
        CREATE INDEX release_base_names ON kanon.release USING gin (base_names);
        CREATE TABLE kanon.release_reader (
            release_id  bigint NOT NULL REFERENCES kanon.release,
            role        oid NOT NULL,
            role_name   text NOT NULL,
            since       timestamptz NOT NULL DEFAULT now(),
            until       timestamptz,
            -- When somebody who releases or grants was last told what the role could combine.
            admitted    timestamptz,
            CONSTRAINT release_reader_pkey PRIMARY KEY (release_id, role, since)
        )
    """)
    # Whoever releases something that is made of a relation, or of a source elsewhere with a label,
    # holds its row until the end.
    op.execute("""
        CREATE TABLE kanon.base (
            relation     oid CONSTRAINT base_pkey PRIMARY KEY,
            released_at  timestamptz NOT NULL DEFAULT now()
        );
        CREATE TABLE kanon.label (label text CONSTRAINT label_pkey PRIMARY KEY)
    """)
    # Keyed hashes of who was published, so that a refresh finds those who are new, and of records,
    # so that it tells published ones from corrected ones. Neither refers to kanon.release, which
    # would be checked for each of a million rows. A signature says in which buckets somebody has
    # to stay: 0: one that too few buckets have to be kept; NULL: none, or not in the release any
    # more.
    op.execute("""
        CREATE TABLE kanon.release_key (
            release_id  bigint CONSTRAINT release_key_pkey PRIMARY KEY,
            key         bytea NOT NULL
        );
        CREATE TABLE kanon.release_entity (
            release_id  bigint NOT NULL,
            hash        bytea NOT NULL,
            signature   integer,
            CONSTRAINT release_entity_pkey PRIMARY KEY (release_id, hash)
        );
        CREATE TABLE kanon.release_record (
            release_id  bigint NOT NULL,
            hash        bytea NOT NULL,
            CONSTRAINT release_record_pkey PRIMARY KEY (release_id, hash)
        )
    """)
    # Two keys of 244 bits, from the operating system's generator: of all draws, so that whoever
    # publishes the same again draws the same again; and of the hashes of records, of which a dump
    # has how it is drawn, and not what was: a restored database draws another key.
    op.execute("""
        CREATE TABLE kanon.draw_key (
            is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
            key     bytea NOT NULL CHECK (length(key) = 32)
        );
        CREATE MATERIALIZED VIEW kanon.record_key AS
        SELECT pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
               OPERATOR(pg_catalog.||) pg_catalog.uuid_send(pg_catalog.gen_random_uuid()) AS key
    """)
    # How many answers of a model each reader role may get. They are counted by a sequence, since
    # what a reader rolls back must stay counted. Once the release is gone, asked says how many
    # there were, and the sequence is gone, too.
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
    # What a worker does for roles, on servers without PL/Python. The end of a job is apart, since
    # whoever performs a job holds its end: a second end of the same job cannot be written, and what
    # was done is committed with it or not at all.
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
        );
        CREATE INDEX job_role_idx ON kanon.job (role);
        CREATE TABLE kanon.job_end (
            job_id   bigint CONSTRAINT job_end_pkey PRIMARY KEY
                     CONSTRAINT job_end_job_id_fkey REFERENCES kanon.job ON DELETE CASCADE,
            ended_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
            answer   jsonb NOT NULL
        )
    """)
    # Whoever submits holds the row of its role until the end, so that jobs are counted in turn.
    op.execute("""
        CREATE TABLE kanon.submitter (
            role         oid CONSTRAINT submitter_pkey PRIMARY KEY,
            submitted_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
        )
    """)
