"""What first calls cost: in a fresh environment, in a new session, and through a new worker."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from benchmarks.harness import REST, private_server, running_seconds, table
from benchmarks.service import as_job, submitter
from kanon_db.installation.interpreter import import_paths
from kanon_db.interfaces.python import connect
from tests.service import Service, served

Connection = psycopg.Connection[Any]

_PEOPLE = Path(__file__).parents[1] / "kanon_db/interfaces/fair.csv.gz"
_KNOWN = (
    "rate_marriage", "age", "yrs_married", "children", "religious", "educ", "occupation",
    "occupation_husb",
)  # fmt: skip
_PRIVACY = """privacy => '{{"default": 0.2, "values": {{"0.0": 0.9}}}}'"""
_PUBLICATIONS = {
    "buckets, as in `make demo`": f"publish_buckets('{{0}}', 'first', {_PRIVACY}, replace => true)",
    "generalized": "publish_generalized('{0}', 'first', k => 5, refine => false, replace => true)",
    "suppressed": "publish_suppressed('{0}', 'first', k => 5, replace => true)",
}
_RUNS = 3
_SESSIONS = 9

_COMPILE = """
DO LANGUAGE plpython3u $$
import os, sys, time
os.environ["NUMBA_CACHE_DIR"] = {cache!r}
sys.path[:0] = [path for path in {paths!r} if path not in sys.path]
import kanon_db.interfaces.backend
from kanon_db.algorithms.ground.computation import load_numba
load_numba()
from numba.core import event
taken, within = GD.setdefault("taken", {{}}), []

class Listener(event.Listener):
    def on_start(self, _event):
        within.extend((time.thread_time(), 0.0))

    def on_end(self, happened):
        inner = within.pop()
        passed = time.thread_time() - within.pop()
        kernel = happened.data["dispatcher"].py_func
        name = kernel.__module__.removeprefix("kanon_db.algorithms.") + "." + kernel.__name__
        taken[name] = taken.get(name, 0) + passed - inner
        if within:
            within[-1] += passed

event.register("numba:compile", Listener())
$$"""
"""Has the session note how long each kernel compiles, without those that it calls."""

_BOUNDS = """
What bounds them: of what a first call takes more than its second, in CPU milliseconds,\
 medians of 5 (on 1 December 2026, where 12 processes waited for 2 cores,\
 so that all took a third longer):

| first | buckets | generalized | suppressed | estimate from buckets |
|---|---|---|---|---|
| importing numba | 164 | 165 |  |  |
| importing numpy | 66 | 68 | 57 | 50 |
| importing kanon_db and Python's own modules | 101 | 101 | 87 | 66 |
| loading loops that were compiled before | 42 | 25 |  |  |
| statements that run for the first time | 70 | 55 | 28 | 11 |
| all else, and starting Python | 86 | 58 | 42 | 32 |

Half of loading a loop is LLVM reading what only another loop that is compiled would need.
"""

_KEEP = 'DO LANGUAGE plpython3u $$ import os; os.environ["NUMBA_CACHE_DIR"] = {cache!r} $$'
_TOLD = 'DO LANGUAGE plpython3u $$ import json; plpy.notice(json.dumps(GD["taken"])) $$'


def main() -> str:
    """Publish and ask where nothing is compiled yet, in new sessions, and through new workers."""
    rows, kernels = [], []
    with (
        private_server() as dsn,
        tempfile.TemporaryDirectory() as folder,
        served(dsn, "as_a_service", Path(folder)) as service,
        submitter(service) as outside,
    ):
        with connect(dsn) as kanon:
            kanon.load(_PEOPLE, "people")
            kanon.register_source("people", quasi_identifiers=_KNOWN, sensitive="affairs")
        with _worker(service, folder):
            _copy_people(dsn, outside)
        for name, call in _PUBLICATIONS.items():
            sessions, compiled = _in_sessions(dsn, name, call)
            rows.append([name, *sessions, *_through_workers(service, outside, name, call)])
            slowest = sorted(compiled.items(), key=lambda kernel: -kernel[1])[:25]
            kernels += [[name, kernel, f"{taken:.2f}"] for kernel, taken in slowest]
        asked = [*_first_estimates(dsn)]
    heading = ["publication", "fresh environment", "of which compiling", "new session",
               "its second", "more", "worker, fresh", "new worker", "its second"]  # fmt: skip
    return (
        "CPU seconds, for 6,366 people: of a session's server process, or of the worker and the"
        " server. In a fresh environment, nothing is compiled; new sessions (medians of"
        f" {_RUNS}) and workers load what was compiled before. The load of {os.cpu_count()} cores"
        f" was {os.getloadavg()[2]:.0f}; beyond their number, each computes more slowly.\n\n"
        + table(heading, rows)
        + f"\nCPU milliseconds of a new session's first estimates, medians of {_SESSIONS}:\n\n"
        + table(["publication", "first", "second"], asked)
        + _BOUNDS
        + REST
        + table(["publication", "kernel", "seconds of its own"], kernels)
    )


def _copy_people(dsn: str, to: Connection) -> None:
    """Give the people to a role that submits jobs, and have it register them."""
    with psycopg.connect(dsn) as source:
        columns = source.execute(
            "SELECT string_agg(format('%I %s', attname, format_type(atttypid, atttypmod)), ', '"
            " ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'people'::regclass AND attnum > 0"
        ).fetchall()
        to.execute(f"CREATE TABLE hers.people ({columns[0][0]})".encode())
        with (
            source.cursor().copy("COPY people TO STDOUT") as reading,
            to.cursor().copy("COPY hers.people FROM STDIN") as writing,
        ):
            for block in reading:
                writing.write(block)
    to.execute("ANALYZE hers.people")
    as_job(to, f"register_source('hers.people', '{{{','.join(_KNOWN)}}}', sensitive => 'affairs')")


def _in_sessions(dsn: str, name: str, call: str) -> tuple[list[str], Mapping[str, float]]:
    """Publish in a session that compiles, and twice in others that load what it has compiled."""
    statement = f"SELECT FROM kanon.{call.format('public.people')}".encode()
    with _session(dsn) as (connection, _):
        ((folder,),) = connection.execute("SHOW data_directory").fetchall()
        cache = f"{folder}/compiled_for_{name.split(',')[0]}"
    told: list[str] = []
    with _session(dsn) as (connection, taken):
        connection.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        connection.execute(_COMPILE.format(cache=cache, paths=import_paths()).encode())
        connection.execute(statement)
        fresh = taken()
        connection.execute(_TOLD)
    compiled = json.loads(told[-1])
    _say(name, "fresh", fresh)
    firsts, seconds = [], []
    for _ in range(_RUNS):
        with _session(dsn) as (connection, taken):
            connection.execute(_KEEP.format(cache=cache).encode())
            connection.execute(statement)
            firsts.append(taken())
            connection.execute(statement)
            seconds.append(taken() - firsts[-1])
            _say(name, "new session", firsts[-1], seconds[-1])
    first, second = map(statistics.median, (firsts, seconds))
    figures = fresh, sum(compiled.values()), first, second, first - second
    return [f"{figure:.2f}" for figure in figures], compiled


def _through_workers(service: Service, outside: Connection, name: str, call: str) -> Iterator[str]:
    """Publish once through a worker that compiles, and twice through a new one."""
    with tempfile.TemporaryDirectory() as cache:
        for how, times in (("fresh", 1), ("new", 2)):
            with _worker(service, cache) as process:
                for _ in range(times):
                    before = _tree_seconds(service, process)
                    as_job(outside, call.format("hers.people"))
                    taken = _tree_seconds(service, process) - before
                    _say(name, f"{how} worker", taken)
                    yield f"{taken:.2f}"


@contextmanager
def _worker(service: Service, cache: str) -> Iterator[int]:
    """Run a worker that keeps what it compiles in a folder."""
    os.environ["NUMBA_CACHE_DIR"] = cache
    try:
        worker = service.work(dsn=make_conninfo(service.superuser_dsn, user=""))
    finally:
        del os.environ["NUMBA_CACHE_DIR"]
    yield worker.process.pid
    worker.stop()


def _first_estimates(dsn: str) -> Iterator[Sequence[str]]:
    for name, call in list(_PUBLICATIONS.items())[:2]:
        with _session(dsn) as (connection, _):
            connection.execute(f"SELECT FROM kanon.{call.format('public.people')}".encode())
        question = "SELECT COUNT(*) FROM first WHERE age > 30 AND affairs = 0"
        statement = f"SELECT * FROM kanon.estimate_count('{question}')".encode()
        firsts, seconds = [], []
        for _ in range(_SESSIONS):
            with _session(dsn) as (connection, taken):
                connection.execute(statement)
                firsts.append(taken())
                connection.execute(statement)
                seconds.append(taken() - firsts[-1])
        figures = [1000 * statistics.median(figures) for figures in (firsts, seconds)]
        _say(name, "estimates, ms", *figures)
        yield [name, *(f"{figure:.0f}" for figure in figures)]


@contextmanager
def _session(dsn: str) -> Iterator[tuple[Connection, Any]]:
    """Open a session; and what tells for how long its server process has computed in it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        process = connection.info.backend_pid
        before = running_seconds(process)
        yield connection, lambda: running_seconds(process) - before


def _tree_seconds(service: Service, worker: int) -> float:
    """Return how long a worker and its server have computed, with processes that have ended."""
    with psycopg.connect(service.superuser_dsn) as connection:
        ((lock,),) = connection.execute("SELECT pg_read_file('postmaster.pid')").fetchall()
    roots = {worker, int(lock.split()[0])}
    parents, ticks = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it has ended in the meantime
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
                ticks[int(entry.name)] = sum(map(int, fields[11:15]))
    found = 0
    for process in ticks:
        at = process
        while at not in roots and at in parents:
            at = parents[at]
        found += ticks[process] if at in roots else 0
    return found / os.sysconf("SC_CLK_TCK")


def _say(name: str, what: str, *figures: float) -> None:
    print(name, what, *(f"{figure:.2f}" for figure in figures), file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(main())
