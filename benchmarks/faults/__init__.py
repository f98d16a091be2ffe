"""Faults at random moments of every kind of publishing, and what they leave behind.

``python -m benchmarks faults [--write]``: every fault meets every way of publishing twice, once a
new publication, once the replacement of an older one. Root can also fill disks.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.faults.injections import FAULTS, Fault
from benchmarks.faults.server import Server, breakable_server
from benchmarks.faults.trial import Bench, Trial
from benchmarks.faults.ways import WAYS
from benchmarks.harness import REST, table

SEED = 14
MODES = (False, True)
"""Whether the publication replaces an older one."""


def main() -> str:
    """Return the results as Markdown."""
    with breakable_server() as server:
        faults = [fault for fault in FAULTS.values() if server.disk or not fault.needs_disk]
        trials = list(run(server, faults))
    return report(trials)


def run(server: Server, faults: Sequence[Fault]) -> Iterator[Trial]:
    """Try each fault on each way of publishing, new and in place of an older publication.

    The moments of a fault are spread over the call: one is drawn from each of as many equal parts
    as there are trials of it.
    """
    random = np.random.default_rng(SEED)
    n = len(WAYS) * len(MODES)
    moments = {
        fault.name: iter(random.permutation((np.arange(n) + random.random(n)) / n).tolist())
        for fault in faults
    }
    for way in WAYS.values():
        bench = Bench(server, way, way.records, random)
        for fault in faults:
            for replaces in MODES:
                trial = bench.run(fault, replaces=replaces, fraction=next(moments[fault.name]))
                print(trial, file=sys.stderr, flush=True)
                yield trial


def report(trials: Sequence[Trial]) -> str:
    """Summarize trials in tables, and list what should not be."""
    findings = [
        f"* {trial.fault}, {trial.way}{', replacing' * trial.replaces}: {finding}"
        for trial in trials
        for finding in trial.findings
    ]
    published = sum(trial.is_published for trial in trials)
    orphans = [size for trial in trials for size in trial.orphans.values()]
    skipped = [fault.name for fault in FAULTS.values() if _of(trials, fault.name) == []]
    summary = (
        f"{len(trials)} faults: after {len(trials) - published} nothing was published, and after"
        f" {published} the whole new publication. Findings: {len(findings)}. PostgreSQL left"
        f" {len(orphans)} files behind, of {sum(orphans) / 2**20:.1f} MB."
    )
    parts = [
        summary,
    ]
    if skipped:
        parts.insert(1, f"Not injected, since only root may mount disks: {', '.join(skipped)}.")
    if findings:
        parts += ["Findings:", "\n".join(findings) + "\n"]
    return (
        "\n\n".join(part.rstrip() for part in parts)
        + f"\n{REST}{_by_fault(trials)}\n"
        + "How often nothing was published, and how often the new publication was:\n\n"
        + _by_way(trials)
    )


def _by_fault(trials: Sequence[Trial]) -> str:
    rows = []
    for name in dict.fromkeys(trial.fault for trial in trials):
        of_fault = _of(trials, name)
        ends = Counter(end for trial in of_fault for end in trial.ended)
        sizes = [size for trial in of_fault for size in trial.orphans.values()]
        rows.append(
            [name, len(of_fault), sum(not trial.is_published for trial in of_fault),
             sum(trial.is_published for trial in of_fault),
             ", ".join(f"{n} times {end}" for end, n in ends.most_common()),
             sum(len(trial.findings) for trial in of_fault),
             f"{len(sizes)} ({sum(sizes) / 2**20:.1f} MB)" if sizes else ""]
        )  # fmt: skip
    return table(
        ["fault", "injected", "nothing published", "published", "how the calls ended", "findings",
         "files PostgreSQL left"],
        rows,
    )  # fmt: skip


def _by_way(trials: Sequence[Trial]) -> str:
    rows = []
    for name in dict.fromkeys(trial.fault for trial in trials):
        of_fault = _of(trials, name)
        cells = []
        for way in WAYS:
            states = [trial.is_published for trial in of_fault if trial.way == way]
            cells.append(f"{states.count(False)} + {states.count(True)}")
        rows.append([name, *cells])
    return table(["fault", *WAYS], rows)


def _of(trials: Sequence[Trial], fault: str) -> list[Trial]:
    return [trial for trial in trials if trial.fault == fault]
