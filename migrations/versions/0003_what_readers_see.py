"""Columns as registered, and metrics that only the publisher sees."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    # NULL for sources that were registered before: what columns they had is not known.
    op.execute("ALTER TABLE kanon.source ADD columns text[]")
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
