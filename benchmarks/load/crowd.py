"""Many analysts beside a publisher who replaces what they read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from benchmarks.load.analysts import MODES, Analyst, Asked
from benchmarks.load.releases import Connection, Publisher, make_sources, true_answers
from benchmarks.load.watching import Watch

_Job = Callable[[threading.Event], None]


@dataclass(frozen=True)
class Crowd:
    """What happened.

    Attributes
    ----------
    asked : list of Asked
        Every statement of every analyst.
    """

    asked: list[Asked]
    publisher: Publisher
    watch: Watch | None


def let_them_ask(
    connect: Callable[[str], Connection],
    *,
    n_analysts: int,
    n_records: int,
    seconds: float,
    publisher_pause: float,
    analyst_pause: float,
    is_watched: bool,
) -> Crowd:
    """Let analysts ask for some time.

    Parameters
    ----------
    connect : callable
        Opens a session in autocommit mode, as ``admin``, ``publisher`` or ``analyst``. The
        publisher may create schemas.
    n_records : int
        Records of the smaller one of the two sources.
    publisher_pause, analyst_pause : float
        Seconds between replacements, and the longest pause between an analyst's questions.
    is_watched : bool
        Whether to look at the locks and the memory of the analysts' sessions; for the memory, the
        server must run on this machine as the caller, or the caller must be root.
    """
    with ExitStack() as stack:
        publishing = stack.enter_context(connect("publisher"))
        make_sources(publishing, n_records)
        truth = true_answers(publishing)
        publisher = Publisher(publishing, publisher_pause)
        publisher.publish_first()
        analysts = [
            Analyst(
                stack.enter_context(connect("analyst")),
                MODES[number % len(MODES)],
                np.random.default_rng(number),
                analyst_pause,
                publisher,
                truth,
            )
            for number in range(n_analysts)
        ]
        for analyst in analysts:
            analyst.ask_everything()
        jobs: list[_Job] = [publisher.replace_until, *(analyst.ask_until for analyst in analysts)]
        watch = None
        if is_watched:
            pids = [analyst.connection.info.backend_pid for analyst in analysts]
            watch = Watch(stack.enter_context(connect("admin")), pids)
            jobs.append(watch.watch_until)
        _run(jobs, seconds)
        return Crowd([asked for one in analysts for asked in one.asked], publisher, watch)


def _run(jobs: Sequence[_Job], seconds: float) -> None:
    """Run every job in a thread until the time is over, or one fails; its error is raised here."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(jobs)) as pool:
        running = [pool.submit(job, stop) for job in jobs]
        wait(running, timeout=seconds, return_when=FIRST_EXCEPTION)
        stop.set()
        for job in running:
            job.result()
