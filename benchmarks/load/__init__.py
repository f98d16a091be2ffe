"""Many analysts beside a publisher who replaces what they read, and many publications.

``python -m benchmarks load [--minutes 10] [--write]``.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import psycopg
from psycopg.conninfo import make_conninfo

from benchmarks.harness import private_server, table
from benchmarks.load.analysts import MIXED, RETRYABLE, RIGHT, WRONG, Asked
from benchmarks.load.crowd import Crowd, let_them_ask
from benchmarks.load.many_publications import many_publications
from benchmarks.load.releases import Connection
from benchmarks.load.watching import Watch
from tests.integration.parties import warn_only

N_ANALYSTS = 64
N_RECORDS = 10_000
ROLES = {"publisher": "kanon_publisher", "analyst": "kanon_analyst"}


def main(minutes: float = 10) -> str:
    """Return the results as Markdown."""
    with private_server() as dsn:
        with psycopg.connect(dsn, autocommit=True) as admin:
            for role, group in ROLES.items():
                admin.execute(f"CREATE ROLE {role} LOGIN IN ROLE {group}")
            admin.execute("GRANT CREATE ON DATABASE kanon TO publisher")
            warn_only(admin)

        def connect(who: str) -> Connection:
            role = who if who in ROLES else "postgres"
            return psycopg.connect(make_conninfo(dsn, user=role), autocommit=True)

        crowd = let_them_ask(
            connect,
            n_analysts=N_ANALYSTS,
            n_records=N_RECORDS,
            seconds=60 * minutes,
            publisher_pause=2,
            analyst_pause=4,
            is_watched=True,
        )
    with private_server() as dsn:
        parts = [
            f"### {N_ANALYSTS} analysts beside a publisher, {minutes:g} minutes",
            report(crowd),
            "### 1,000 publications",
            many_publications(dsn),
        ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def report(crowd: Crowd) -> str:
    """Summarize what analysts were told, what they waited for, and what their sessions took."""
    parts = [_outcomes(crowd), *_wrong(crowd), _latencies(crowd)]
    if crowd.watch is not None:
        parts += [_waits(crowd.watch), _memory(crowd.watch)]
    return "\n\n".join(part.rstrip() for part in parts)


def _outcomes(crowd: Crowd) -> str:
    rows = []
    for mode in sorted({asked.mode for asked in crowd.asked}, reverse=True):
        found = Counter(asked.outcome for asked in crowd.asked if asked.mode == mode)
        errors = {state: n for state, n in found.items() if state not in (RIGHT, WRONG, MIXED)}
        rows.append(
            [mode, f"{found.total():,}", f"{found[RIGHT]:,}", found[WRONG], found[MIXED],
             *(_listed(errors, retryable=is_retryable) for is_retryable in (True, False))]
        )  # fmt: skip
    made = sum(len(releases) - 1 for releases in crowd.publisher.releases.values())
    failed = ", ".join(f"{n} times {state}" for state, n in crowd.publisher.errors.items())
    return (
        f"{made} replacements succeeded, and {failed or 'none'} failed. The old or the new answer"
        " is right. An answer is mixed if it is right, but of another release than what a"
        " repeatable read transaction has seen.\n\n"
        + table(
            ["transactions", "statements", "right", "wrong", "mixed", "retryable errors",
             "other errors"],
            rows,
        )
    )  # fmt: skip


def _listed(errors: dict[str, int], *, retryable: bool) -> str:
    return ", ".join(
        f"{n} times {state}"
        for state, n in sorted(errors.items())
        if (state in RETRYABLE) == retryable
    )


def _wrong(crowd: Crowd) -> list[str]:
    """Count what was answered wrongly, or failed, by what was asked; with an example of each."""
    found: dict[tuple[str, str, str], list[Asked]] = {}
    for asked in crowd.asked:
        if asked.outcome != RIGHT and asked.outcome not in RETRYABLE:
            found.setdefault((asked.question.asks, asked.mode, asked.outcome), []).append(asked)
    if not found:
        return []
    heading = ["what was asked", "transactions", "outcome", "times", "such as", "answer"]
    return [
        table(
            heading,
            [
                [asks, mode, outcome, len(cases), f"`{cases[0].question.text}`",
                 f"`{cases[0].answer}`"]
                for (asks, mode, outcome), cases in sorted(found.items())
            ],
        )
    ]  # fmt: skip


def _latencies(crowd: Crowd) -> str:
    replaced = [
        release for releases in crowd.publisher.releases.values() for release in releases[1:]
    ]
    swaps = np.sort([release.ended for release in replaced])
    begins = np.array([asked.begin for asked in crowd.asked])
    ends = np.array([asked.end for asked in crowd.asked])
    next_swaps = np.append(swaps, np.inf)[np.searchsorted(swaps, begins)]
    during = ends >= next_swaps
    taken = ends - begins
    rows = [
        [name, f"{some.size:,}", *(f"{1000 * x:.0f} ms" for x in (*_quantiles(some), some.max()))]
        for name, some in (("all", taken), ("while a replacement took effect", taken[during]))
        if some.size
    ]
    seconds = np.median([release.ended - release.started for release in replaced])
    return (
        table(["statements", "number", "median", "99 %", "longest"], rows)
        + f"\nA replacement takes {seconds:.1f} s (median)."
    )


def _waits(watch: Watch) -> str:
    return (
        "The longest time for which an analyst was seen to wait for a lock is"
        f" {1000 * max(watch.waits, default=0):.0f} ms (looked at every 20 ms)."
    )


def _quantiles(seconds: np.ndarray) -> list[float]:
    return [float(np.quantile(seconds, share)) for share in (0.5, 0.99)]


def _memory(watch: Watch) -> str:
    begin, end = watch.growth(60)
    rows = [
        [name, f"{at.mean():.1f} MB", f"{at.max():.1f} MB"]
        for name, at in (("first minute", begin), ("last minute", end))
    ]
    rows.append(["growth", f"{(end - begin).mean():+.1f} MB", f"{(end - begin).max():+.1f} MB"])
    return "Private memory of a session, without shared buffers:\n\n" + table(
        ["", "mean of all sessions", "largest"], rows
    )
