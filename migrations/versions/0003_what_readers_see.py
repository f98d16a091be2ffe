"""Columns as registered, and metrics that only the publisher sees."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    # What columns registered sources had is not known: from now on, changes of these are noticed.
    op.execute("ALTER TABLE kanon.source ADD columns text[] NOT NULL DEFAULT '{}'")
    op.execute("""
        UPDATE kanon.source SET columns = ARRAY(
            SELECT attname::text FROM pg_catalog.pg_attribute
            WHERE attrelid = pg_catalog.to_regclass(
                    quote_ident(schema_name) || '.' || quote_ident(relation_name))
              AND attnum > 0 AND NOT attisdropped
            ORDER BY attnum)
    """)
    op.execute("""
        UPDATE kanon.publication SET
            parameters = parameters || '{"accept": {"uninformed_reader":
                "published before this risk had to be accepted"}}',
            guarantee = guarantee
                || ', by readers who do not know how records were put into buckets'
        WHERE kind = 'buckets' AND parameters ->> 'assignment' = 'local'
    """)
    op.execute("ALTER TABLE kanon.publication ADD source_metrics jsonb NOT NULL DEFAULT '{}'")
    op.execute("""
        UPDATE kanon.publication SET source_metrics = coalesce((
            SELECT jsonb_object_agg(key, value) FROM jsonb_each(metrics)
            WHERE starts_with(key, 'loss_of_') OR key IN (
                'gap', 'gcp', 'gcp_ob', 'lower_bound', 'suppression_cost', 'usefulness_loss',
                'weighted_loss')
        ), '{}')
    """)
    op.execute("""
        UPDATE kanon.publication
        SET metrics = metrics - ARRAY(SELECT jsonb_object_keys(source_metrics))
    """)
