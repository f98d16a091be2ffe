"""Run benchmarks: ``python -m benchmarks [--write] [NAME …]``.

Without a name, all that are about speed and loss run; with ``--write`` their results replace the
sections of these names in docs/reference/benchmarks.md, where those of models, of Spark and of
calibration go, too, which take long and need their names. Faults, also those on Spark, load,
hostile input and meaning, which take long or disturb the machine that they run on, need their
names; their results go to docs/reference/reliability.md, and those of the questions of analysts to
docs/reference/questions.md.
"""

from __future__ import annotations

import argparse
import importlib
import re
import signal
import sys
from pathlib import Path

from benchmarks.harness import REST

DOCS = Path(__file__).parents[1] / "docs"
SPEED = {
    "cells": "Assignment in cells",
    "weights": "Counts by learned weights",
    "draws": "Drawn records beside the true ones",
    "plain_draws": "Plain SQL on drawn records, beside the truth",
    "several": "Several sensitive attributes",
    "attacks": "Attacks",
    "singling_out": "Singling out",
    "refinement": "Refinement",
    "releases": "Several releases of the same people",
    "refresh": "Refresh",
    "leaving": "People who come and leave",
    "publication": "Publishing buckets, and answering from them",
    "round_trip": "The round trip of buckets, step by step",
    "scale": "Time and memory of publishing, up to 100,000,000 rows",
    "cancelling": "How soon a cancel is heard",
    "forecast": "What publishing needs, as foretold",
    "counting": "Answering counts",
    "hostile_queries": "Queries that are meant to take the server down",
    "answer_times": "Answers from 1,000,000 rows",
    "percentiles": "Percentiles and dates by group",
    "calls": "What a call of a SQL function costs",
    "first_calls": "First calls",
    "service": "Through a worker",
    "generalization": "Generalization: loss and speed beside other tools",
    "peers": "Other tools, side by side",
    "generalization_figures": "Generalization: the paper's figures",
    "loss_bounds": "How far classes are from the least loss",
    "freeform": "Freeform generalization",
    "suppression": "Pattern-guided suppression",
    "differential_privacy": "Buckets beside differential privacy",
    "protection": "Errors against protection",
    "recommend": "What is recommended",
    "reports": "Reports",
}
MODELS = {
    "model_robustness": "Models under attack",
    "model_speed": "Models: accuracy, time, and what they tell about people",
}
SPARK = {
    "spark": "Publishing on Spark",
    "spark_weights": "Weights that are learned on Spark",
    "spark_fragments": "Mondrian on Spark, beside fragments",
}
RELIABILITY = {
    "faults": "Faults",
    "load": "Load",
    "spark_faults": "Faults on Spark",
    "hostile_input": "Hostile input",
    "meaning": "Certain bounds",
    "csv_readers": "Readers of CSV files",
}
CALIBRATION = {"calibration": "How honest the errors are"}
QUESTIONS = {"questions": "Forty questions, and their answers"}
SECTIONS = SPEED | MODELS | SPARK | RELIABILITY | CALIBRATION | QUESTIONS


def main() -> None:
    """Print the results, and keep them if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SECTIONS))
    parser.add_argument("--write", action="store_true", help="keep them in docs/")
    parser.add_argument("--minutes", type=float, default=10, help="how long analysts ask in load")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - SECTIONS.keys():
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: there are {', '.join(SECTIONS)}")
    # Private servers are stopped then, and disks unmounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    for name in arguments.names or SPEED:
        benchmark = importlib.import_module(f"benchmarks.{name}")
        results = benchmark.main(arguments.minutes) if name == "load" else benchmark.main()
        text = f"{_mark(name)}\n\n## {SECTIONS[name]}\n\n{results}"
        print(text)
        if arguments.write:
            page = DOCS / _page(name)
            page.write_text(_replaced(page.read_text(), name, text.partition(REST)[0]))


def _page(name: str) -> str:
    """Return the page that keeps the results."""
    pages = {
        "reference/questions.md": QUESTIONS,
        "reference/reliability.md": RELIABILITY,
    }
    found = [page for page, sections in pages.items() if name in sections]
    return found[0] if found else "reference/benchmarks.md"


def _mark(name: str) -> str:
    return f"<!-- python -m benchmarks --write {name} -->"


def _replaced(page: str, name: str, text: str) -> str:
    """Put a section in the place of its older self, or at the end."""
    section = re.compile(re.escape(_mark(name)) + r".*?(?=<!-- python -m benchmarks|\Z)", re.DOTALL)
    if section.search(page):
        return section.sub(lambda _: text + "\n", page).rstrip() + "\n"
    return f"{page.rstrip()}\n\n{text}"


if __name__ == "__main__":
    main()
