"""Turn the migrations into SQL; `kanon install` runs it inside its own transaction."""

from alembic import context

context.configure(
    dialect_name="postgresql",
    version_table_schema="kanon",
    output_buffer=context.config.output_buffer,
    transactional_ddl=False,  # no BEGIN and COMMIT: the installer decides
)
with context.begin_transaction():
    context.run_migrations()
