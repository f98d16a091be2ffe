"""Only kanon_owner writes the catalog; roles go by their identity, not by their name."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    for table in ("source", "publication"):
        for policy in ("read", "write"):
            op.execute(f"DROP POLICY {table}_{policy} ON kanon.{table}")
        op.execute(f"ALTER TABLE kanon.{table} DISABLE ROW LEVEL SECURITY")
    # Not a regrole: a dump could not be restored without the role.
    op.execute("""
        ALTER TABLE kanon.source
            ALTER registered_by DROP DEFAULT,
            ALTER registered_by DROP NOT NULL,
            ALTER registered_by TYPE oid
                USING pg_catalog.to_regrole(pg_catalog.quote_ident(registered_by)),
            ADD fingerprint text
    """)
    # The name of then, for people to read. Who published is who may grant SELECT on the relations:
    # the server forgets this when it drops a role.
    op.execute("ALTER TABLE kanon.publication ALTER published_by DROP DEFAULT")
