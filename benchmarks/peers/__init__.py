"""Other tools that pip installs, side by side: the same table, k and task, in the same minutes.

``python -m benchmarks peers``. Each search runs in a process of its own, with at most
:data:`MOST_SECONDS` and :data:`MOST_BYTES`; loss is measured from its classes, with one measure.
Beside them are whole publications of the same tables in PostgreSQL.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from benchmarks.harness import REST, private_server, table
from benchmarks.peers.ours import REFINED_SECONDS
from benchmarks.peers.ours import TOOLS as OURS
from benchmarks.peers.published import METHODS, load, published
from benchmarks.peers.tables import Saved, write
from kanon_db.metrics.information_loss import measure_classes

DATA: Final = Path(
    os.environ.get("KANON_SHARED", Path(__file__).resolve().parents[3] / "shared"), "data"
)
PINNED: Final = ("anonypy==0.2.1", "anonypyx==0.2.11", "anjana==1.2.3", "crowds==0.0.1")
THEIRS: Final = ("anonypy", "anonypyx", "anonypyx MDAV", "anjana", "crowds")
MOST_SECONDS: Final = 120
MOST_BYTES: Final = 8 << 30
ADULT: Final = (
    "age", "workclass", "education", "marital-status", "race", "sex", "native-country",
    "occupation",
)  # fmt: skip
OFFERED: Final = (
    ("k-anonymity, distinct l-diversity, t-closeness", "all but crowds, which has only k", "yes"),
    ("recursive (c, l)-diversity, β-likeness, δ-disclosure", "anjana", "no"),
    ("a check of a table that was generalized", "pycanon (data frames)", "`verify`"),
    ("attacks on what is published", "anonypy, anonypyx", "`attack`"),
    ("several releases of the same people", "anonypyx (m-invariance)", "`refresh`"),
    ("buckets (QIT and SAT) under a bound for what anybody can infer", "", "`publish_buckets`"),
    ("freeform generalization", "", "`publish_freeform`"),
    ("suppression of single cells by patterns", "", "`publish_suppressed`"),
    ("a proof of how far the loss is from the optimum", "", "`method => 'optimal'`"),
    ("answers to counts, with errors and certain bounds", "", "`estimate_count`"),
    ("work in the database where the data are", "", "all of it"),
)
# Importing, reading and compiling, which are not part of a search.
_STARTING_SECONDS: Final = 180
_HERE: Final = Path(__file__).parent


def main() -> str:
    """Return the results as Markdown."""
    with tempfile.TemporaryDirectory() as folder, private_server() as dsn:
        try:
            python = _environment(Path(folder, "env"))
        except subprocess.CalledProcessError as error:
            return f"Other tools could not be installed here: {_last_line(error.stderr)}\n"
        rows = [
            row
            for name, task, saved in _tasks(Path(folder), dsn)
            for row in _compared(python, dsn, name, task, saved)
        ]
    heading = [
        "table", "task", "tool", "seconds", "of processors", "MB", "GCP", "smallest class",
        "fewest values", "suppressed",
    ]  # fmt: skip
    return (
        "k = 10; Adult, and a million rows of its 7 columns, each shuffled."
        f" Each search has a process of its own, at most {MOST_SECONDS} s and {MOST_BYTES >> 30} GB"
        " of address space; one run. The time is that of the search alone, without importing,"
        " reading and compiling, beside the seconds that processors worked in it (ours has two"
        " threads), and the memory is the most that the process had. The loss is that of the"
        " classes, by one measure, with the tightest ranges and sets, so that the labels of the"
        " hierarchies which anjana and crowds publish lose more than is shown. These two may"
        f" suppress 5 % of the records. *Refined* is for at most {REFINED_SECONDS:g} s after the"
        " search. *Published* is a whole call of `publish_generalized`, not refined, in a session"
        " that has made the same call before: read from a table, searched, written, counted again"
        " from what was written, and entered; its processor time and memory are those of the"
        " backend, shared buffers of 128 MB included. Where other work ran beside it, compare the"
        f" seconds of processors. Versions: {', '.join(PINNED)}.\n\n"
        + table(
            [heading[0], *heading[2:7], heading[9]],
            [[row[0], *row[2:7], row[9]] for row in rows if row[1] == "k = 10"],
        )
        + "\nWhat they offer, by their own documents and code:\n\n"
        + table(["what", "anonypy, anonypyx, anjana (with pycanon), crowds", "kanon_db"], [
            [what, theirs or "no", ours] for what, theirs, ours in OFFERED
        ])
        + REST
        + table(heading, rows)
    )  # fmt: skip


def _environment(home: Path) -> Path:
    python = home / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(home)],
        [str(python), "-m", "pip", "install", "-q", *PINNED],
    ):
        subprocess.run(command, capture_output=True, text=True, check=True)
    return python


def _tasks(folder: Path, dsn: str) -> Iterator[tuple[str, dict[str, Any], Saved]]:
    """Write each table, and yield what is to be done with it."""
    adult = pd.read_csv(DATA / "adult_30162.csv.gz")[list(ADULT)]
    random = np.random.default_rng(0)
    million = pd.DataFrame({
        name: random.permutation(np.resize(adult[name].to_numpy(), 1_000_000)) for name in ADULT
    })  # fmt: skip
    shared = {"hierarchies": str(DATA / "hierarchies"), "l": None, "block_size": None}
    for name, frame, tasks in (
        ("adult", adult, [{"k": 5}, {"k": 10}, {"k": 50}, {"k": 10, "l": 3}]),
        ("shuffled", million, [{"k": 10, "block_size": 5_000}]),
    ):
        path = folder / f"{len(frame)}.npz"
        saved = write(path, {column: frame[column].to_numpy() for column in ADULT})
        source = f"people_{len(frame)}"
        load(dsn, source, frame)
        for task in tasks:
            given = {"table": str(path), "source": source}
            yield f"{name}, {len(frame):,}", shared | given | task, saved


def _compared(
    python: Path, dsn: str, name: str, task: dict[str, Any], saved: Saved
) -> Iterator[list[object]]:
    wanted = f"k = {task['k']}" + (f", l = {task['l']}" if task["l"] else "")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "classes.npy")
        given = task | {
            "output": str(output), "most_seconds": MOST_SECONDS, "most_bytes": MOST_BYTES
        }  # fmt: skip
        for tool in (*OURS, *THEIRS):
            is_ours = tool in OURS
            module = "benchmarks.peers.ours" if is_ours else "theirs"
            found = _run(
                Path(sys.executable) if is_ours else python,
                given | {"tool": tool, "module": module},
            )
            shown = [name, wanted, f"kanon_db: {tool}" if is_ours else tool]
            if isinstance(found, str):
                yield [*shown, found, *[""] * 6]
                continue
            classes = np.load(output)
            measured = measure_classes(saved.microdata, classes)
            yield [
                *shown, *_taken(found), f"{measured.gcp:.4f}", measured.smallest_class,
                _fewest_values(classes, saved), measured.n_suppressed,
            ]  # fmt: skip
    for tool in METHODS:
        found = published(dsn, task["source"], task, tool)
        yield [
            name, wanted, f"kanon_db: {tool}, published", *_taken(found), f"{found['gcp']:.4f}",
            f"{found['smallest_class']:.0f}", "", f"{found['suppressed_records']:.0f}",
        ]  # fmt: skip


def _taken(found: dict[str, Any]) -> list[str]:
    return [f"{found['seconds']:.2f}", f"{found['worked']:.2f}", f"{found['megabytes']:.0f}"]


def _fewest_values(classes: np.ndarray, saved: Saved) -> int:
    """Return the least number of distinct sensitive values in a class."""
    both = np.unique(np.column_stack([classes, saved.sensitive])[classes >= 0], axis=0)
    return int(np.unique(both[:, 0], return_counts=True)[1].min())


def _run(python: Path, task: dict[str, Any]) -> dict[str, Any] | str:
    """Run a search; return what it took, or why there is nothing."""
    with subprocess.Popen(
        [python, _HERE / "searching.py", json.dumps(task)], text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(_HERE.parents[1])},
    ) as process:  # fmt: skip
        try:
            answer, errors = process.communicate(timeout=MOST_SECONDS + _STARTING_SECONDS)
        except subprocess.TimeoutExpired:
            return "not ready in time"
        finally:  # with whatever it has started
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if not process.returncode:
        found: dict[str, Any] = json.loads(answer.splitlines()[-1])
        return found
    if process.returncode == -signal.SIGALRM:
        return f"not in {MOST_SECONDS} s"
    if process.returncode < 0:
        return f"ended by {signal.Signals(-process.returncode).name}"
    error = _last_line(errors)
    if "MemoryError" in error:
        return f"needs more than {MOST_BYTES >> 30} GB"
    kind, _, message = error.partition(": ")
    return f"not offered: {message}" if kind == "NotImplementedError" else f"failed: {error}"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no word"])[-1]
