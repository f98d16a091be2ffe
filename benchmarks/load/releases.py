"""What is published again and again, and what its answers may be at any time.

Two sources with different answers to every question alternate, so an answer tells whose it is.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from benchmarks.load.questions import QUESTIONS, Rows

Connection = psycopg.Connection[Any]

SIDES = ("even", "odd")
PUBLICATIONS = {
    "load_b": (
        "publish_buckets('data.{side}', 'load_b', replace => true, privacy => '{{\"l\": {l}}}')"
    ),
    "load_g": (
        "publish_generalized('data.{side}', 'load_g', replace => true, k => {k},"
        " method => 'mondrian', refine => false)"
    ),
}
"""The two publications: buckets and rows. Their parameters change with the source, too."""

_PARAMETERS: dict[str, dict[str, object]] = {"even": {"l": 3, "k": 5}, "odd": {"l": 4, "k": 10}}


def make_sources(publisher: Connection, n_records: int) -> None:
    """Make and register both sources, in the schema data: age, sex, zip, and what is sensitive."""
    publisher.execute("CREATE SCHEMA IF NOT EXISTS data")
    for side, n, ages in (("even", n_records, 60), ("odd", n_records + n_records // 5, 50)):
        publisher.execute(
            f"CREATE TABLE data.{side} AS SELECT (18 + i * 7919 % {ages})::int AS age,"
            " (i % 7 % 2)::int AS sex, (i * 104729 % 97)::int AS zip,"
            " ((i * 31 + i / 7) % 11)::int AS sick"
            f" FROM generate_series(1::int8, {n}) AS i"
        )
        publisher.execute(
            f"SELECT kanon.register_source('data.{side}', '{{age,sex,zip}}', sensitive => 'sick')"
        )


def true_answers(publisher: Connection) -> dict[str, dict[str, Rows]]:
    """Ask both sources every question: the true answers, by side and question.

    Raises
    ------
    ValueError
        When a question has the same answer on both sides, so that it could not tell them apart.
    """
    truth: dict[str, dict[str, Rows]] = {
        side: {
            question.text: publisher.execute(
                question.truth.format(source=f"data.{side}")
            ).fetchall()
            for question in QUESTIONS
        }
        for side in SIDES
    }
    for question in QUESTIONS:
        even, odd = (truth[side][question.text] for side in SIDES)
        if question.tells_sides_apart and even == odd:
            raise ValueError(f"the same on both sides: {question.text}")
    return truth


@dataclass(frozen=True)
class Release:
    """A publication's release: when its call began and ended, and from which side it is."""

    side: str
    started: float
    ended: float


@dataclass
class Publisher:
    """Replaces both publications in turn, every few seconds, until it is told to stop.

    Attributes
    ----------
    releases : dict of str to list of Release
        Those that succeeded, by publication.
    errors : Counter
        SQLSTATEs of those that did not.
    """

    connection: Connection
    pause: float
    releases: dict[str, list[Release]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)

    def publish_first(self) -> None:
        """Make both publications from the first side."""
        for name in PUBLICATIONS:
            self.releases[name] = []
            self._publish(name, SIDES[0])

    def replace_until(self, stop: threading.Event) -> None:
        """Replace one publication after the other from its other side."""
        while not stop.is_set():
            for name, releases in self.releases.items():
                if stop.wait(self.pause):
                    return
                other = SIDES[releases[-1].side == SIDES[0]]
                try:
                    self._publish(name, other)
                except psycopg.Error as error:
                    self.errors[error.sqlstate or "connection lost"] += 1

    def _publish(self, name: str, side: str) -> None:
        call = PUBLICATIONS[name].format(side=side, **_PARAMETERS[side])
        started = time.monotonic()
        # It may be seen before the call has returned, so it is entered first: without an end.
        release = Release(side, started, float("inf"))
        self.releases[name].append(release)
        try:
            self.connection.execute(f"SELECT * FROM kanon.{call}".encode())
        except psycopg.Error:
            self.releases[name].remove(release)
            raise
        self.releases[name][-1] = Release(side, started, time.monotonic())

    def sides(self, name: str, begin: float, end: float) -> set[str]:
        """Return whose answers are right for somebody who asked between two times.

        A release may be seen from the begin of its call until the end of the next one's.
        """
        releases = list(self.releases[name])
        nexts: Sequence[float] = [release.ended for release in releases[1:]] + [float("inf")]
        return {
            release.side
            for release, replaced in zip(releases, nexts, strict=True)
            if release.started <= end and begin <= replaced
        }
