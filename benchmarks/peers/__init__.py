"""Other tools that pip installs, side by side: the same table, k and task, in the same minutes.

``python -m benchmarks peers``. Each search runs in a process of its own, with at most
:data:`MOST_SECONDS` and :data:`MOST_BYTES`; loss is measured from its classes, with one measure.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from benchmarks.harness import table
from benchmarks.peers.tables import Saved, write
from kanon_db.metrics.generalization import measure

DATA = Path(os.environ.get("KANON_SHARED", Path(__file__).resolve().parents[3] / "shared"), "data")
PINNED: Final = ("anonypy==0.2.1", "anonypyx==0.2.11", "anjana==1.2.3")
THEIRS: Final = ("anonypy", "anonypyx", "anonypyx MDAV", "anjana")
OURS: Final = ("Mondrian", "Greedy Search", "Greedy Search, refined")
MOST_SECONDS: Final = 120
MOST_BYTES: Final = 8 << 30
ADULT: Final = (
    "age", "workclass", "education", "marital-status", "race", "sex", "native-country",
    "occupation",
)  # fmt: skip
_REASONS: Final = {
    "MemoryError": f"needs more than {MOST_BYTES >> 30} GB",
    "NotImplementedError": "not offered",
}
LACKING: Final = (
    ("buckets (QIT and SAT) under a bound for what anybody can infer", "`publish_buckets`"),
    ("freeform generalization", "`publish_freeform`"),
    ("suppression of single cells by patterns", "`publish_suppressed`"),
    ("a proof of how far the loss is from the optimum", "`method => 'optimal'`"),
    ("answers to counts, with errors and certain bounds", "`estimate`"),
    ("a check of what is published, from what is published", "`verify`"),
    ("work in the database where the data are", "all of it"),
)


def main() -> str:
    """Return the results as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        python = _environment(Path(folder, "env"))
        if python is None:
            return "Other tools could not be installed here.\n"
        rows = [
            row
            for name, task, saved in _tasks(Path(folder))
            for row in _compared(python, name, task, saved)
        ]
    heading = ["table", "task", "tool", "seconds", "MB", "GCP", "smallest class", "suppressed"]
    lacking = [[what, "not offered", ours] for what, ours in LACKING]
    return (
        f"Each search has a process of its own, at most {MOST_SECONDS} s and"
        f" {MOST_BYTES >> 30} GB; one run, with the time of the search alone and the memory of the"
        " process. The loss is that of the classes, by one measure; anjana generalizes by"
        f" hierarchies and may suppress 5 % of the records. Versions: {', '.join(PINNED)}.\n\n"
        + table(heading, rows)
        + "\nWhat they do not offer, by their own documents:\n\n"
        + table(["what", "anonypy, anonypyx, anjana", "kanon_db"], lacking)
    )


def _environment(home: Path) -> Path | None:
    python = home / "bin" / "python"
    commands = (
        [sys.executable, "-m", "venv", home],
        [python, "-m", "pip", "install", "-q", *PINNED],
    )
    for command in commands:
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
    return python


def _tasks(folder: Path) -> Iterator[tuple[str, dict[str, Any], Saved]]:
    """Write each table, and yield what is to be done with it."""
    frame = pd.read_csv(DATA / "adult_30162.csv.gz")[list(ADULT)]
    columns = {name: frame[name].to_numpy() for name in ADULT}
    path = folder / "adult.npz"
    adult = write(path, columns)
    given = {"table": str(path), "hierarchies": str(DATA / "hierarchies"), "l": None}
    given |= {"block_size": None}
    for k in (5, 10, 50):
        yield "adult, 30,162 x 7", given | {"k": k}, adult
    yield "adult, 30,162 x 7", given | {"k": 10, "l": 3}, adult
    random = np.random.default_rng(0)
    million = {
        name: random.permutation(np.resize(values, 1_000_000)) for name, values in columns.items()
    }
    path = folder / "million.npz"
    saved = write(path, million)
    yield (
        "adult, columns shuffled, 1,000,000 x 7",
        given | {"table": str(path), "k": 10, "block_size": 5_000},
        saved,
    )


def _compared(
    python: Path, name: str, task: dict[str, Any], saved: Saved
) -> Iterator[list[object]]:
    wanted = f"k = {task['k']}" + (f", l = {task['l']}" if task["l"] else "")
    for tool in (*OURS, *THEIRS):
        is_ours = tool in OURS
        command = [sys.executable, "-m", "benchmarks.peers.ours"]
        if not is_ours:
            command = [str(python), str(Path(__file__).with_name("theirs.py"))]
        with tempfile.TemporaryDirectory() as folder:
            output = str(Path(folder, "classes.npy"))
            given = json.dumps(task | {"tool": tool, "output": output})
            found = _run([*command, given])
            shown = f"kanon_db: {tool}" if is_ours else tool
            if isinstance(found, str):
                yield [name, wanted, shown, found, "", "", "", ""]
                continue
            measured = measure(saved.microdata, np.load(output))
        yield [
            name, wanted, shown, f"{found['seconds']:.2f}", f"{found['megabytes']:.0f}",
            f"{measured.gcp:.4f}", measured.smallest_class, measured.n_suppressed,
        ]  # fmt: skip


def _run(command: list[str]) -> dict[str, float] | str:
    """Run a search; return what it took, or why there is nothing."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))

    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=MOST_SECONDS + 30,
            preexec_fn=limited, cwd=Path(__file__).parents[2],
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"not in {MOST_SECONDS} s"
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:] or ["failed"]
        reasons = {
            "MemoryError": f"needs more than {MOST_BYTES >> 30} GB",
            "NotImplementedError": "not offered",
        }
        return next((text for error, text in reasons.items() if error in last[0]), "failed")
    found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return found if found["seconds"] <= MOST_SECONDS else f"not in {MOST_SECONDS} s"
