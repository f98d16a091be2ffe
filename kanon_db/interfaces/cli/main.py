"""The command ``kanon`` and its groups."""

from __future__ import annotations

import click

from kanon_db import __version__
from kanon_db.interfaces.cli import advice, installation, others, reporting
from kanon_db.interfaces.cli.base import Group
from kanon_db.interfaces.cli.derived import derived_command
from kanon_db.interfaces.cli.loading import load
from kanon_db.interfaces.cli.local import local
from kanon_db.interfaces.cli.spark import spark
from kanon_db.operations import operations


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kanon")
def main() -> None:
    """Publish people's data from PostgreSQL privately, and run count queries on what was published.

    Commands use the private cluster under .kanon unless --dsn or KANON_DSN names a database.
    """


def add_operations(group: click.Group) -> None:
    """Add a command for each operation that declares one and has none yet."""
    for operation in operations().values():
        *names, last = operation.command or ("",)
        inner = group
        for name in names:
            found = inner.commands.setdefault(
                name, Group(name, help=f"{name.capitalize()} a registered source.")
            )
            assert isinstance(found, click.Group)  # noqa: S101  # groups and commands differ in name
            inner = found
        if last and last not in inner.commands:
            inner.add_command(derived_command(operation, last))


for command in (
    local,
    installation.install_command,
    installation.uninstall_command,
    installation.doctor,
    installation.version,
    load,
    others.query,
    others.publications,
    others.demo,
    advice.recommend,
    reporting.report,
    spark,
):
    main.add_command(command)
add_operations(main)
