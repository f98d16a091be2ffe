"""Only kanon_owner writes the catalog; roles go by their identity, not by their name."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    for table in ("source", "publication"):
        for policy in ("read", "write"):
            op.execute(f"DROP POLICY {table}_{policy} ON kanon.{table}")
        op.execute(f"ALTER TABLE kanon.{table} DISABLE ROW LEVEL SECURITY")
    # A regrole is dumped as the role's name, and stays the same when the role is renamed.
    op.execute("""
        ALTER TABLE kanon.source
            ALTER registered_by DROP DEFAULT,
            ALTER registered_by DROP NOT NULL,
            ALTER registered_by TYPE regrole
                USING pg_catalog.to_regrole(pg_catalog.quote_ident(registered_by)),
            ADD fingerprint text
    """)
    # Who published is who may grant SELECT: the server forgets this when it drops a role. The view
    # is replaced right after the migrations; until then it must not depend on the column.
    op.execute("""
        DO $$BEGIN IF pg_catalog.to_regclass('kanon.publications') IS NOT NULL THEN
            CREATE OR REPLACE VIEW kanon.publications WITH (security_barrier) AS
            SELECT publication_id, name, kind, method,
                   source_schema || '.' || source_relation AS source,
                   parameters, records AS rows, guarantee, metrics, layout, published_at,
                   NULL::text COLLATE "C" AS published_by, attacks
            FROM kanon.publication WHERE false;
        END IF; END$$
    """)
    op.execute("ALTER TABLE kanon.publication DROP published_by")
