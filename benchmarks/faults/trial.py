"""One trial: publish, disturb it, look at what is left, and publish again."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import psycopg

from benchmarks.faults.injections import INSERTED_ZIP, Fault
from benchmarks.faults.scene import PUBLISHED, LateError, Scene, warm_up
from benchmarks.faults.server import ANALYST, PUBLISHER, Server
from benchmarks.faults.traces import Trace, orphaned_files, read_trace
from benchmarks.faults.ways import NAME, Way, answers, broken_promises, make_source

T = TypeVar("T")

_BEGIN = 0.05
"""The part of a call in which its source is harmed: about until it has been read."""

_ATTEMPTS = 20
"""How often to try again when a call ended before it was disturbed."""


_EARLIER = 0.8


@dataclass(frozen=True)
class Trial:
    """What came of one fault.

    Attributes
    ----------
    ended : list of str
        How each call ended: `PUBLISHED`, `LOST`, or an SQLSTATE.
    is_published : bool
        Whether the catalog has the new publication afterwards.
    findings : list of str
        What should not be; empty if all is well.
    orphans : dict of str to int
        Files that PostgreSQL left behind, and their sizes.
    """

    way: str
    fault: str
    replaces: bool
    ended: list[str]
    is_published: bool
    findings: list[str]
    orphans: dict[str, int]

    def __str__(self) -> str:
        what = f"{self.fault}, {self.way}, {'replacing' if self.replaces else 'new'}"
        return f"{what}: {', '.join(self.ended)}. {'; '.join(self.findings)}"


@dataclass
class Bench:
    """Sources to publish in one way, and how it goes when nothing disturbs it.

    Attributes
    ----------
    seconds : dict of bool to float
        How long the undisturbed call took the last time: to publish (False), or to replace (True).
    without, with_one : Trace
        What there was before the undisturbed call, and after it.
    """

    server: Server
    way: Way
    n_records: int
    random: np.random.Generator
    seconds: dict[bool, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with self.server.connect() as admin:
            for side, n in (
                ("small", 60),
                ("old", 2 * self.n_records // 3),
                ("new", self.n_records),
            ):
                make_source(admin, self.way, side, n, PUBLISHER)
        self._publish("new", replace=False)  # for what is compiled only once
        self._drop()
        self.without = read_trace(self.server)
        self._publish("new", replace=False)
        self.with_one = read_trace(self.server)
        self._publish("new", replace=True)
        self._drop()
        self.orphans = orphaned_files(self.server)

    def run(self, fault: Fault, *, replaces: bool, fraction: float) -> Trial:
        """Disturb a call after a fraction of the time that it takes undisturbed.

        If it has ended by then, since such times vary, it is repeated, and disturbed earlier.
        """
        for _ in range(_ATTEMPTS):
            empty = read_trace(self.server)
            if replaces:
                self._publish("old", replace=False)
            publisher = self.server.standing(PUBLISHER)
            warm_up(publisher, self.way)
            scene = Scene(
                self.server, self.way, replaces, moment=self._moment(fault, replaces, fraction),
                publisher=publisher, records={self.n_records}, random=self.random,
            )  # fmt: skip
            before = self._ask() if replaces else []
            try:
                fault.inject(scene)
            except LateError:
                self.seconds[replaces] = min(self.seconds[replaces], scene.calls[0].seconds)
                is_late = True
            else:
                is_late = False
            with suppress(psycopg.OperationalError):  # the session may be lost
                publisher.execute("RESET ALL")
            if not is_late:
                return self._examined(scene, fault, before, empty)
            self._drop()
            fraction *= _EARLIER
        raise TimeoutError(f"{self.way.name}: never disturbed by {fault.name}")

    def _moment(self, fault: Fault, replaces: bool, fraction: float) -> float:
        return fraction * self.seconds[replaces] * (_BEGIN if fault.of_source else 1)

    def _examined(self, scene: Scene, fault: Fault, before: list[Any], empty: Trace) -> Trial:
        ended = [call.ended for call in scene.calls]
        findings = [f"session left: {session}" for session in self.server.wait_until_quiet()]
        findings += [
            f"the call ended with SQLSTATE {end}"
            for end in ended
            if end != PUBLISHED and end not in fault.told
        ]
        trace = read_trace(self.server)
        orphans = orphaned_files(self.server)
        is_published = self._has_new(trace, before)
        if is_published or scene.replaces:
            findings += trace.differences(empty.grown(self.without, self.with_one))
        else:
            findings += trace.differences(empty)
        if is_published:
            findings += _found_by(self._new_findings, scene)
        elif PUBLISHED in ended:
            findings.append("the call succeeded, and nothing was published")
        elif scene.replaces:
            findings += _found_by(self._old_findings, before)
        if is_published and not scene.replaces:
            self._drop()
        findings += _found_by(self._published_again, scene)
        self._drop()
        self._remove_inserted(scene)
        left = read_trace(self.server).differences(empty)
        findings += [f"after a drop: {difference}" for difference in left]
        found = {name: size for name, size in orphans.items() if name not in self.orphans}
        self.orphans |= orphans
        return Trial(
            self.way.name, fault.name, scene.replaces, ended, is_published, findings, found
        )

    def _has_new(self, trace: Trace, before: list[Any]) -> bool:
        if NAME not in trace.publications:
            return False
        if not before:
            return True
        (((entry,),),) = before[-1:]
        return bool(trace.publications[NAME] != entry["publication_id"])

    def _new_findings(self, scene: Scene) -> list[str]:
        analyst = self.server.standing(ANALYST)
        (count, *_, entry) = answers(analyst)
        findings = broken_promises(analyst)
        ((described,),) = entry
        n = described["rows"]
        if n not in scene.records:
            findings.append(f"{n} records were published, not one of {sorted(scene.records)}")
        if count[:4] != (n, 0, n, n):
            findings.append(f"of {n} records, the estimate is {count}")
        return findings

    def _old_findings(self, before: list[Any]) -> list[str]:
        if self._ask() != before:
            return ["the old publication answers otherwise than before"]
        return []

    def _published_again(self, scene: Scene) -> list[str]:
        """Make the same call again, undisturbed."""
        row = self._publish("new", replace=scene.replaces)
        findings = broken_promises(self.server.standing(ANALYST))
        if row["records"] != self._n_source(scene):
            findings.append("records are missing")
        return [f"published again: {finding}" for finding in findings]

    def _remove_inserted(self, scene: Scene) -> None:
        with self.server.connect() as admin:
            admin.execute(f"DELETE FROM {scene.source} WHERE zip = {INSERTED_ZIP}")

    def _n_source(self, scene: Scene) -> int:
        with self.server.connect() as admin:
            ((n,),) = admin.execute(f"SELECT count(*) FROM {scene.source}").fetchall()
        return int(n)

    def _ask(self) -> list[Any]:
        return answers(self.server.standing(ANALYST))

    def _publish(self, side: str, *, replace: bool) -> dict[str, Any]:
        publisher = self.server.standing(PUBLISHER)
        started = time.perf_counter()
        row = self.way.publish(publisher, side, replace=replace)
        if side == "new":
            self.seconds[replace] = time.perf_counter() - started
        return row

    def _drop(self) -> None:
        """Drop the publication, if there is one."""
        publisher = self.server.standing(PUBLISHER)
        listed = "SELECT FROM kanon.publication WHERE name = %s"
        if publisher.execute(listed, [NAME]).fetchall():
            publisher.execute("SELECT kanon.drop_publication(%s)", [NAME])


def _found_by(examine: Callable[[T], list[str]], what: T) -> list[str]:
    """Examine something that may fail altogether."""
    try:
        return examine(what)
    except psycopg.Error as error:
        return [f"{examine.__name__.strip('_')}: SQLSTATE {error.sqlstate}"]
