"""Catalog tables: settings, sources, publications."""

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE kanon.setting (
            name  text NOT NULL CONSTRAINT setting_pkey PRIMARY KEY,
            value text NOT NULL
        )
    """)
    op.execute("COMMENT ON TABLE kanon.setting IS 'choices made at installation'")
    # Relations go by name, not by regclass: a dump of the publications must restore where the
    # microdata does not exist.
    op.execute("""
        CREATE TABLE kanon.source (
            source_id         bigint GENERATED ALWAYS AS IDENTITY
                              CONSTRAINT source_pkey PRIMARY KEY,
            schema_name       text NOT NULL,
            relation_name     text NOT NULL,
            quasi_identifiers text[] NOT NULL
                              CONSTRAINT source_has_quasi_identifiers
                              CHECK (cardinality(quasi_identifiers) > 0),
            sensitive         text,
            identifiers       text[] NOT NULL,
            attributes        jsonb NOT NULL
                              CONSTRAINT source_attributes_object
                              CHECK (jsonb_typeof(attributes) = 'object'),
            registered_by     name NOT NULL DEFAULT current_user,
            registered_at     timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT source_relation_unique UNIQUE (schema_name, relation_name)
        )
    """)
    op.execute("COMMENT ON TABLE kanon.source IS 'microdata as its owner described it'")
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
            relations       text[] NOT NULL,
            published_by    name NOT NULL DEFAULT current_user,
            published_at    timestamptz NOT NULL DEFAULT now()
        )
    """)
    op.execute("COMMENT ON TABLE kanon.publication IS 'live publications'")
    # Publishers see every entry and write their own.
    for table, owner in (("source", "registered_by"), ("publication", "published_by")):
        op.execute(f"ALTER TABLE kanon.{table} ENABLE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY {table}_read ON kanon.{table} FOR SELECT TO kanon_publisher"
            " USING (true)"
        )
        op.execute(
            f"CREATE POLICY {table}_write ON kanon.{table} FOR ALL TO kanon_publisher"
            f" USING ({owner} = current_user) WITH CHECK ({owner} = current_user)"
        )
