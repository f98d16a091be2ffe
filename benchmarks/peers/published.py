"""The same tasks as whole publications in PostgreSQL: read, searched, written and verified."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import pandas as pd
import psycopg
from psycopg import sql

from benchmarks.harness import peak_memory, processor_seconds
from benchmarks.peers.tables import SENSITIVE

METHODS: Final = {"Mondrian": "mondrian", "Greedy Search": "greedy_search"}


def load(dsn: str, table: str, frame: pd.DataFrame) -> None:
    """Make and register a table; the last column is sensitive."""
    *names, _ = frame.columns
    kinds = {name: "int" if frame[name].dtype.kind == "i" else "text" for name in names}
    columns = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
        for name, kind in (kinds | {SENSITIVE: "text"}).items()
    ]
    made = sql.Identifier(table)
    with psycopg.connect(dsn, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(made, sql.SQL(", ").join(columns)))
        with cursor.copy(sql.SQL("COPY {} FROM STDIN").format(made)) as copy:
            for row in frame.itertuples(index=False):
                copy.write_row(row)
        cursor.execute(sql.SQL("VACUUM ANALYZE {}").format(made))
        cursor.execute(
            "SELECT kanon.register_source(%s, %s, %s)", [f"public.{table}", names, SENSITIVE]
        )


def published(dsn: str, table: str, task: dict[str, Any], tool: str) -> dict[str, Any]:
    """Publish a table twice; return what the second time took, and the metrics of the rows."""
    options = {}
    if tool == "Greedy Search" and task["block_size"]:
        options["block_size"] = task["block_size"]
    constraints = json.dumps({"l": task["l"]}) if task["l"] else None
    with psycopg.connect(dsn, autocommit=True) as connection:
        pid = connection.info.backend_pid

        def publish() -> float:
            before = processor_seconds(pid)
            connection.execute(
                "SELECT kanon.publish_generalized(%s, 'rows', k => %s, method => %s, options => %s,"
                " constraints => %s, refine => false, replace => true)",
                [f"public.{table}", task["k"], METHODS[tool], json.dumps(options), constraints],
            )
            return processor_seconds(pid) - before

        publish()  # compiles
        started = time.perf_counter()
        worked = publish()
        seconds = time.perf_counter() - started
        metrics = connection.execute("SELECT metric, value FROM kanon.metrics('rows')").fetchall()
        connection.execute("SELECT kanon.drop_publication('rows')")
        taken = {"seconds": seconds, "worked": worked, "megabytes": peak_memory(pid)}
        return taken | dict(metrics)
