"""Commands for the private cluster: `kanon local`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kanon_db.cluster.local import LocalCluster
from kanon_db.interfaces import console
from kanon_db.interfaces.cli.base import Group, confirm, dir_option, is_quiet
from kanon_db.session.progress import Progress


@click.group(cls=Group)
def local() -> None:
    """Run a private PostgreSQL in a folder that only you can use."""


@local.command("start")
@dir_option
def local_start(directory: Path, as_json: bool) -> None:
    """Start the private cluster, and create it the first time."""
    cluster = LocalCluster(directory)
    with console.progress(quiet=is_quiet()) as show:
        show(Progress(0, 0, "starting PostgreSQL"))
        dsn = cluster.start()
    text = f'The private cluster in {cluster.directory} is running.\nConnect with: psql "{dsn}"'
    console.print_outcome(text, {"dsn": dsn}, as_json=as_json)


@local.command("stop")
@dir_option
def local_stop(directory: Path, as_json: bool) -> None:
    """Stop the private cluster; its data is kept."""
    cluster = LocalCluster(directory)
    stopped = cluster.stop()
    done = "Stopped the private cluster" if stopped else "No private cluster is running"
    text = f"{done} in {cluster.directory}."
    console.print_outcome(text, {"stopped": stopped}, as_json=as_json)


@local.command("status")
@dir_option
def local_status(directory: Path, as_json: bool) -> None:
    """Say whether the private cluster is running, and where its data is."""
    status = LocalCluster(directory).status()
    if as_json:
        console.print_json(status)
        return
    fields: dict[str, Any] = {"state": status.state, "directory": status.directory}
    if status.state != "absent":
        from rich.filesize import decimal

        fields |= {
            "PostgreSQL": status.version,
            "data directory": status.data_directory,
            "size": decimal(status.size_bytes or 0),
        }
    if status.dsn:
        fields["connection"] = status.dsn
    console.print_fields(fields)


@local.command("destroy")
@dir_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def local_destroy(directory: Path, yes: bool, as_json: bool) -> None:
    """Remove the private cluster and all its data."""
    cluster = LocalCluster(directory)
    if not yes and cluster.status().state != "absent":
        confirm(f"Remove the private cluster in {cluster.directory} and all its data?")
    destroyed = cluster.destroy()
    done = "Removed the private cluster" if destroyed else "There is no private cluster"
    text = f"{done} in {cluster.directory}."
    console.print_outcome(text, {"destroyed": destroyed}, as_json=as_json)
