"""Defines the commands that install kanon_db, look after an installation, and remove it."""

from __future__ import annotations

from pathlib import Path

import click

from kanon_db.errors import (
    KanonError,
    ServerError,
)
from kanon_db.interfaces import console
from kanon_db.interfaces.cli.command_base import (
    Command,
    CommandGroup,
    choose_dsn,
    confirm,
    database_options,
    is_quiet,
)


@click.command("install", cls=Command)
@database_options
@click.option(
    "--published-schema",
    metavar="NAME",
    help="Schema for published relations: published, unless the first installation names another.",
)
@click.option(
    "--service",
    is_flag=True,
    help="Let workers run what PL/Python would; the only way where you are no superuser.",
)
@click.option(
    "--compile/--no-compile",
    "compiles",
    default=True,
    help="Compile the searches for the server's user and for yours now (the first time, for about a"
    " minute), rather than in somebody's first call.",
)
def install_command(
    dsn: str | None,
    directory: Path,
    published_schema: str | None,
    service: bool,
    compiles: bool,
    as_json: bool,
) -> None:
    """Install or upgrade kanon_db in a database."""
    chosen = choose_dsn(dsn, directory)
    from kanon_db.installation.install import install

    with console.progress(quiet=is_quiet()) as show:
        report = install(
            chosen, published_schema=published_schema, service=service, on_progress=show
        )
    if compiles and not report.is_service:
        from kanon_db.installation.interpreter import compile_searches

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


key_option = click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="KANON_KEY_FILE",
    help="File with the key that the passwords of workers follow from; without it, the server must"
    " let them in without one.",
)


@click.group(cls=CommandGroup)
def service() -> None:
    """Say for which roles workers act, on servers without PL/Python."""


@service.command("allow")
@click.argument("roles", nargs=-1, metavar="ROLE…")
@key_option
@database_options
def service_allow(
    roles: tuple[str, ...], key_file: Path | None, dsn: str | None, directory: Path, as_json: bool
) -> None:
    """Create the logins with which workers fetch jobs and act for roles, or renew their passwords.

    Creates the key file where there is none.
    """
    from kanon_db.installation.service import allow, read_key

    key = None if key_file is None else read_key(key_file, create=True)
    done = allow(choose_dsn(dsn, directory), roles, key)
    console.print_outcome("\n".join(done), {"done": done}, as_json=as_json)


@service.command("forbid")
@click.argument("roles", nargs=-1, required=True, metavar="ROLE…")
@database_options
def service_forbid(roles: tuple[str, ...], dsn: str | None, directory: Path, as_json: bool) -> None:
    """Drop the logins with which workers act for roles."""
    from kanon_db.installation.service import forbid

    done = forbid(choose_dsn(dsn, directory), roles)
    console.print_outcome("\n".join(done), {"done": done}, as_json=as_json)


@click.command("worker", cls=Command)
@key_option
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=3,
    help="Jobs at once; the last one is of a role that has no other.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=60.0,
    metavar="SECONDS",
    help="How long running jobs may go on when the worker is stopped, before they go back.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(1),
    default=21600.0,
    metavar="SECONDS",
    help="How long a job may take.",
)
@click.option(
    "--question-limit", type=click.FloatRange(1), default=600.0, metavar="SECONDS",
    help="How long a question may take.",
)  # fmt: skip
@click.option("--pace", type=click.FloatRange(0.001), default=1.0, hidden=True)
@database_options
def worker_command(
    key_file: Path | None,
    concurrency: int,
    grace: float,
    time_limit: float,
    question_limit: float,
    pace: float,
    dsn: str | None,
    directory: Path,
    as_json: bool,  # noqa: ARG001  # it prints only its log
) -> None:
    """Run jobs that roles have submitted, until SIGTERM or Ctrl-C.

    Needs the extra service (pip install 'kanon_db[service]').
    """
    from kanon_db.installation.service import read_key

    try:
        from kanon_db.interfaces.worker import WorkerOptions, run_worker
    except ModuleNotFoundError:
        raise ServerError(
            "the worker needs procrastinate", hint="pip install 'kanon_db[service]'"
        ) from None
    key = None if key_file is None else read_key(key_file)
    options = WorkerOptions(concurrency, grace, time_limit, question_limit, pace)
    run_worker(choose_dsn(dsn, directory), key, options)


@click.command("extension", cls=Command)
@click.argument(
    "folder", required=False, type=click.Path(path_type=Path, file_okay=False, exists=True)
)
@click.option(
    "--from", "earlier", multiple=True, metavar="VERSION",
    help="Also write how to update from this version; it is written from versions whose files are"
    " in the folder.",
)  # fmt: skip
@click.option(
    "--tle", is_flag=True,
    help="Print the calls that register it with pg_tle instead, as a service: for psql.",
)  # fmt: skip
@database_options
def extension_command(
    folder: Path | None, earlier: tuple[str, ...], *, tle: bool, dsn: str | None, directory: Path,
    as_json: bool,
) -> None:  # fmt: skip
    """Write the files by which CREATE EXTENSION kanon installs kanon_db.

    They go where the server, on this machine, looks for extensions; or into a folder.
    """
    from kanon_db.installation.extension import tle_registration, write_extension

    if tle and folder:
        raise click.UsageError("--tle prints, and writes no file: leave out FOLDER")
    if tle:
        script = tle_registration(earlier)
        console.print_outcome(script, {"sql": script}, as_json=as_json)
        return
    chosen = "" if folder else choose_dsn(dsn, directory)
    files = [str(path) for path in write_extension(folder, dsn=chosen, earlier=earlier)]
    console.print_outcome("\n".join(files), {"files": files}, as_json=as_json)


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
    chosen = choose_dsn(dsn, directory)
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
    chosen = choose_dsn(dsn, directory)
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


@click.group(cls=CommandGroup)
def db() -> None:
    """Revisions of the catalog, as alembic names them; `kanon install` runs the migrations."""


@db.command("current")
@database_options
def db_current(dsn: str | None, directory: Path, as_json: bool) -> None:
    """Print the revision of the catalog in a database."""
    from kanon_db.installation.install import current_revision
    from kanon_db.installation.sql_objects import revisions

    current = current_revision(choose_dsn(dsn, directory))
    is_head = current == revisions()[0].revision
    outcome = {"revision": current, "is_head": is_head}
    console.print_outcome(f"{current}{' (head)' * is_head}", outcome, as_json=as_json)


@db.command("history")
def db_history(as_json: bool) -> None:
    """List the revisions that this package knows, the last one first."""
    from kanon_db.installation.sql_objects import revisions

    known = revisions()
    console.print_outcome("\n".join(map(str, known)), {"revisions": known}, as_json=as_json)


@db.command("upgrade")
@click.option("--sql", is_flag=True, required=True, help="Print the statements, and run nothing.")
@database_options
def db_upgrade(sql: bool, dsn: str | None, directory: Path, as_json: bool) -> None:  # noqa: ARG001
    """Print the migrations that `kanon install` would run in a database."""
    from kanon_db.installation.install import current_revision
    from kanon_db.installation.sql_objects import migration_script

    script = migration_script(current_revision(choose_dsn(dsn, directory)))
    console.print_outcome(script, {"sql": script}, as_json=as_json)


@db.command("stamp")
@click.argument("revision")
@database_options
def db_stamp(revision: str, dsn: str | None, directory: Path, as_json: bool) -> None:
    """Say which revision the catalog is at, without running a migration."""
    from kanon_db.installation.install import stamp

    stamp(choose_dsn(dsn, directory), revision)
    console.print_outcome(f"Now at {revision}.", {"revision": revision}, as_json=as_json)
