"""How long it takes from a cancel to its error, at moments all over a call of every kind.

``KANON_CANCEL_ROWS`` has the number of rows, by default 1,000,000; with more, only the kinds run
that such tables are meant for. ``KANON_CANCEL_MOMENTS`` has the number of cancels of each call.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import psycopg

from benchmarks.harness import private_server, table
from benchmarks.publication import PRIVACY
from benchmarks.round_trip import QUASI_IDENTIFIERS, step_of
from benchmarks.scale import CALLS as OF_LARGE_TABLES
from benchmarks.scale import WARM_UP_ROWS, make_people

ROWS: Final = int(os.environ.get("KANON_CANCEL_ROWS", "1000000"))
MOMENTS: Final = int(os.environ.get("KANON_CANCEL_MOMENTS", "10"))
FREEFORM_ROWS: Final = 100_000
TARGET_MS: Final = 1_000
VERIFY: Final = "verify of buckets"
CALLS: Final[Mapping[str, str]] = {
    **OF_LARGE_TABLES,
    "generalized, Greedy Search in blocks": (
        "publish_generalized(%s, 'p', k => 10, method => 'greedy_search', refine => false,"
        " options => '{\"block_size\": 5000}')"
    ),
    "freeform": "publish_freeform(%s, 'p', k => 5, options => '{\"refine\": false}')",
    VERIFY: "verify('verified')",
}
_ALSO_TEXTS: Final = (
    "buckets, random", "buckets, cells", "generalized, Mondrian",
)  # fmt: skip


@dataclass(frozen=True)
class Cancelled:
    """How long a cancel took to be heard, and the step that it came in."""

    milliseconds: float
    step: str


def main() -> str:
    """Return the results as Markdown."""
    rows = []
    with private_server() as dsn:
        for what, source, n in _make_tables(dsn):
            taken, cancels = _measured(dsn, what, source)
            slowest = max(cancels, key=lambda cancel: cancel.milliseconds)
            rows.append([
                what, source, f"{n:,}", f"{taken:.1f}", len(cancels),
                f"{statistics.median(cancel.milliseconds for cancel in cancels):.0f}",
                f"{slowest.milliseconds:.0f}", slowest.step,
            ])  # fmt: skip
    return (
        f"`pg_cancel_backend` at up to {MOMENTS} moments, evenly spread over the seconds that the"
        " call took before, until the client has the error. Each time, no relation and no lock was"
        " left, and the next call of the same session went well. Rows of 7 quasi-identifiers and a"
        " sensitive attribute: whole numbers, or texts with the same frequencies. Target: at most"
        f" {TARGET_MS:,} ms.\n\n"
        + table(
            ["what", "table", "rows", "seconds of the call", "cancels", "median ms", "most ms",
             "the slowest was in"],
            rows,
        )
    )  # fmt: skip


def _make_tables(dsn: str) -> list[tuple[str, str, int]]:
    """Make the tables; return what is to be done with which, and its rows."""
    numbers = [what for what in CALLS if what != "freeform"]
    if ROWS > 1_000_000:
        numbers = list(OF_LARGE_TABLES)
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("SELECT setseed(0.5)")
        admin.execute("INSERT INTO kanon.setting VALUES ('publish_memory', '16 GB')")
        make_people(admin, "warm_up", WARM_UP_ROWS)
        make_people(admin, "numbers", ROWS)
        cases = [(what, "numbers", ROWS) for what in numbers]
        if ROWS > 1_000_000:
            return cases
        make_people(admin, "fewer_numbers", FREEFORM_ROWS)
        names = QUASI_IDENTIFIERS.split(",")
        texts = [f"'{name} ' || {name} AS {name}" for name in (*names[1:], "occupation")]
        admin.execute(f"CREATE TABLE texts AS SELECT age, {', '.join(texts)} FROM numbers")
        admin.execute("VACUUM ANALYZE texts")
        admin.execute(
            f"SELECT kanon.register_source('public.texts', '{{{QUASI_IDENTIFIERS}}}', 'occupation')"
        )
        admin.execute(
            "SELECT kanon.publish_buckets('public.numbers', 'verified', assignment => 'random',"
            f" privacy => '{PRIVACY}')"
        )
    return [
        *cases,
        *((what, "texts", ROWS) for what in _ALSO_TEXTS),
        ("freeform", "fewer_numbers", FREEFORM_ROWS),
    ]


def _measured(dsn: str, what: str, source: str) -> tuple[float, list[Cancelled]]:
    """Return the seconds of a call, and its cancels."""
    call = f"SELECT * FROM kanon.{CALLS[what]}"

    def asked(source: str) -> list[str]:
        return [] if what == VERIFY else [f"public.{source}"]

    with (
        psycopg.connect(dsn, autocommit=True) as session,
        psycopg.connect(dsn, autocommit=True) as other,
        ThreadPoolExecutor(1) as thread,
    ):

        def ended() -> tuple[float, bool]:
            try:
                session.execute(call, asked(source))
            except psycopg.errors.QueryCanceled:
                return time.perf_counter(), True
            return time.perf_counter(), False

        def whole(source: str) -> float:
            started = time.perf_counter()
            session.execute(call, asked(source))
            taken = time.perf_counter() - started
            _undo(session, what)
            return taken

        whole("warm_up")
        taken = whole(source)
        cancels = []
        before = _left(other, session.info.backend_pid)
        for moment in range(MOMENTS):
            running = thread.submit(ended)
            time.sleep(taken * (moment + 0.5) / MOMENTS)
            (name,) = other.execute(
                "SELECT application_name FROM pg_stat_get_activity(%s)", [session.info.backend_pid]
            ).fetchone() or ("",)
            asked_at = time.perf_counter()
            other.execute("SELECT pg_cancel_backend(%s)", [session.info.backend_pid])
            heard_at, is_cancelled = running.result()
            if is_cancelled:
                cancels.append(Cancelled(1000 * (heard_at - asked_at), step_of(name) or ""))
            else:
                _undo(session, what)
            if (left := _left(other, session.info.backend_pid)) != before:
                raise AssertionError(f"relations and locks were {before}, and are {left}: {what}")
        whole("warm_up")
    return taken, cancels


def _undo(session: psycopg.Connection, what: str) -> None:
    if what != VERIFY:
        session.execute("SELECT kanon.drop_publication('p')")


def _left(other: psycopg.Connection, backend_pid: int) -> tuple[int, int]:
    """Count the relations of the database, and what the session still locks."""
    ((relations, locks),) = other.execute(
        "SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_locks WHERE pid = %s)",
        [backend_pid],
    ).fetchall()
    return relations, locks


if __name__ == "__main__":
    print(main())
