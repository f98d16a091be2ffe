"""Commands for the installation: `kanon install`, `uninstall`, `doctor`, `version`."""

from __future__ import annotations

from pathlib import Path

import click

from kanon_db import __version__
from kanon_db.errors import KanonError
from kanon_db.interfaces import console
from kanon_db.interfaces.cli.base import Command, chosen_dsn, confirm, database_options, is_quiet


@click.command("install", cls=Command)
@database_options
@click.option(
    "--published-schema",
    metavar="NAME",
    help="Schema for published relations: published, unless the first installation names another.",
)
@click.option(
    "--compile/--no-compile",
    "compiles",
    default=True,
    help="Compile the searches for the server's user and for yours now (the first time, for about a"
    " minute), rather than in somebody's first call.",
)
def install_command(
    dsn: str | None, directory: Path, published_schema: str | None, compiles: bool, as_json: bool
) -> None:
    """Install or upgrade kanon_db in a database."""
    chosen = chosen_dsn(dsn, directory)
    from kanon_db.installation.install import install

    with console.progress(quiet=is_quiet()) as show:
        report = install(chosen, published_schema=published_schema, on_progress=show)
    if compiles:
        from kanon_db.installation.compiling import compile_searches

        stopped = "stopped: kanon_db is installed, but the first call of each search takes longer"
        try:
            with console.progress_bar("compiling the searches", quiet=is_quiet()) as show:
                for what, done, n in compile_searches(chosen):
                    show(what, done, n)
        except KanonError as error:  # it is installed all the same
            report.actions.append(
                "searches not compiled, so that the first call of each takes longer:"
                f" {error.message}"
            )
        except KeyboardInterrupt:
            console.say(stopped, err=True)
            click.get_current_context().exit(1)
    if as_json:
        console.print_json(report)
        return
    for action in report.actions:
        console.say(action)
    console.say(f"kanon_db {report.version} is installed.")


@click.command("uninstall", cls=Command)
@database_options
@click.option("--drop-publications", is_flag=True, help="Also drop the published relations.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def uninstall_command(
    dsn: str | None, directory: Path, drop_publications: bool, yes: bool, as_json: bool
) -> None:
    """Remove kanon_db from a database.

    Sources stay as they are, and so do PL/Python and roles that people have.
    """
    chosen = chosen_dsn(dsn, directory)
    if drop_publications and not yes:
        confirm("Drop all published relations?")
    from kanon_db.installation.install import uninstall

    left = uninstall(chosen, drop_publications=drop_publications)
    text = "\n".join(["kanon_db is no longer installed.", *(f"Left: {item}." for item in left)])
    console.print_outcome(text, {"uninstalled": True, "left": left}, as_json=as_json)


@click.command(cls=Command)
@database_options
@click.pass_context
def doctor(ctx: click.Context, dsn: str | None, directory: Path, as_json: bool) -> None:
    """Examine the installation.

    Exits with 1 if something is broken.
    """
    chosen = chosen_dsn(dsn, directory)
    from kanon_db.installation.doctor import examine

    findings = examine(chosen)
    if as_json:
        console.print_json({"findings": findings})
    else:
        console.print_table(
            ["subject", "state", "found", "remedy"],
            [(item.subject, item.state, item.value, item.remedy) for item in findings],
        )
    if any(item.state == "broken" for item in findings):
        ctx.exit(1)


@click.command(cls=Command)
def version(as_json: bool) -> None:
    """Print the version of this program.

    `kanon doctor` shows the version that is installed in a database.
    """
    console.print_outcome(__version__, {"version": __version__}, as_json=as_json)
