"""Errors of counts against protection, on Adult, and what each kind makes of eight people.

``python -m benchmarks --write protection`` also draws ``docs/figures/protection.svg`` and
``docs/figures/kinds.svg``, which the README shows. Adult is looked for in ``data/`` of the folder
named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import psycopg
from psycopg.types.range import Range

import kanon_db
from benchmarks.harness import private_server, table
from benchmarks.real_tables import DATA

FIGURES: Final = Path(__file__).parents[1] / "docs" / "figures"
QUASI_IDENTIFIERS: Final = ("age", "education", "marital-status", "race", "sex", "hours-per-week")
SENSITIVE: Final = "occupation"
N_QUESTIONS: Final = 200
SEED: Final = 17
LS: Final = (2, 3, 4, 5, 6)
KS: Final = (2, 5, 10, 20, 50)
_L: Final = '{{"l": {}}}'
BUCKETS: Final[Mapping[str, Mapping[str, Any]]] = {
    "buckets, in cells": {},
    "buckets, random": {"assignment": "random"},
}
ROWS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "generalized": ("publish_generalized", {"method": "mondrian", "refine": False}),
    "freeform": ("publish_freeform", {"options": {"refine": False}}),
    "suppressed": ("publish_suppressed", {}),
}
Question = tuple[str, int]


def main() -> str:
    """Return the results as Markdown, and draw the figures."""
    FIGURES.mkdir(exist_ok=True)
    errors: dict[str, list[float]] = {}
    with private_server() as dsn, kanon_db.connect(dsn) as kanon:
        questions = _questions(_load(kanon))
        for name, given in BUCKETS.items():
            errors[name] = []
            for l in LS:
                privacy = _L.format(l)
                kanon.publish_buckets("adult", "asked", privacy=privacy, replace=True, **given)
                errors[name].append(_error(dsn, questions))
        for name, (method, options) in ROWS.items():
            errors[name] = []
            for k in KS:
                getattr(kanon, method)("adult", "asked", k=k, replace=True, **options)
                errors[name].append(_error(dsn, questions))
        few = _publish_few(dsn, kanon)
    _draw_errors(errors)
    _draw_rows(few)
    by_l, by_k = (
        table(
            [heading, *map(str, values)],
            [[name, *(f"{error:.1%}" for error in errors[name])] for name in names],
        )
        for heading, values, names in (("l", LS, BUCKETS), ("k", KS, ROWS))
    )
    return (
        f"Median relative error of {N_QUESTIONS} random counts on Adult (30,162 records), with"
        " conditions on two quasi-identifiers and the sensitive attribute, which at least 30"
        " records meet. l bounds what can be inferred of a person's sensitive value (1/l); k says"
        " how many rows look alike, and bounds nothing of the kind.\n\n"
        f"{by_l}\n{by_k}\n![Errors against protection](../figures/protection.svg)\n"
    )


def _load(kanon: kanon_db.Kanon) -> pd.DataFrame:
    source = pd.read_csv(DATA / "adult_30162.csv.gz", usecols=[*QUASI_IDENTIFIERS, SENSITIVE])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "adult.csv")
        source.to_csv(path, index=False)
        kanon.load(path, "adult")
    kanon.register_source("adult", quasi_identifiers=QUASI_IDENTIFIERS, sensitive=SENSITIVE)
    return source


def _questions(source: pd.DataFrame) -> list[Question]:
    """Draw conditions that at least 30 records meet, with their number."""
    random = np.random.default_rng(SEED)
    found: list[Question] = []
    while len(found) < N_QUESTIONS:
        matching = np.ones(len(source), dtype=np.bool_)
        parts = []
        for name in [*random.choice(QUASI_IDENTIFIERS, 2, replace=False).tolist(), SENSITIVE]:
            values = source[name]
            if pd.api.types.is_numeric_dtype(values):
                low, high = np.sort(random.choice(values.to_numpy(), 2)).tolist()
                matching &= values.between(low, high).to_numpy()
                parts.append(f'"{name}" BETWEEN {low} AND {high}')
            else:
                chosen = sorted(set(random.choice(values.to_numpy(), 3).tolist()))
                matching &= values.isin(chosen).to_numpy()
                listed = ", ".join(f"'{value}'" for value in chosen)
                parts.append(f'"{name}" IN ({listed})')
        if matching.sum() >= 30:
            found.append((" AND ".join(parts), int(matching.sum())))
    return found


def _error(dsn: str, questions: Sequence[Question]) -> float:
    with psycopg.connect(dsn, autocommit=True) as connection:
        off = []
        for where, truth in questions:
            query = f"SELECT COUNT(*) FROM asked WHERE {where}"
            row = connection.execute("SELECT * FROM kanon.estimate_count(%s)", [query]).fetchone()
            if row is not None:
                off.append(abs(row[0] - truth) / truth)
    return float(np.median(off))


# -- a few people ------------------------------------------------------------------------------

PEOPLE: Final = pd.DataFrame(
    {
        "age": [31, 34, 38, 46, 49, 55, 62, 63],
        "town": ["Ede", "Ede", "Ede", "Lier", "Lier", "Lier", "Mol", "Mol"],
        "ill": ["flu", "asthma", "flu", "gout", "gout", "flu", "asthma", "gout"],
    }
)
_ACCEPTED: Final = {"combined_releases": "a picture of every kind"}
_TITLES: Final = {
    "before": "before",
    "buckets": "buckets: who is in which bucket, and which values each has",
    "generalized": "generalized: ranges and sets that k rows share",
    "freeform": "freeform: each row has its own",
    "suppressed": "suppressed: what too few share is hidden",
}


def _publish_few(dsn: str, kanon: kanon_db.Kanon) -> dict[str, list[pd.DataFrame]]:
    """Publish eight people in four ways."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "people.csv")
        PEOPLE.to_csv(path, index=False)
        kanon.load(path, "people")
    kanon.register_source("people", quasi_identifiers=["age", "town"], sensitive="ill")
    kanon.publish_buckets("people", "buckets", privacy='{"l": 2}', accept=_ACCEPTED)
    kanon.publish_generalized("people", "generalized", k=2, accept=_ACCEPTED)
    kanon.publish_freeform("people", "freeform", k=2, accept=_ACCEPTED)
    kanon.publish_suppressed("people", "suppressed", k=2, accept=_ACCEPTED)
    with psycopg.connect(dsn, autocommit=True) as connection:

        def read(statement: str) -> pd.DataFrame:
            cursor = connection.execute(f"SELECT * FROM ({statement}) AS s ORDER BY 1, 2")
            names = [column.name for column in cursor.description or ()]
            return pd.DataFrame([list(map(_text, row)) for row in cursor], columns=names)

        rows = "SELECT age, town, ill FROM published.{}"
        return {
            "before": [PEOPLE.map(_text)],
            "buckets": [
                read("SELECT bucket_id AS bucket, age, town FROM published.buckets_qit"),
                read("SELECT bucket_id AS bucket, ill, count FROM published.buckets_sat"),
            ],
            **{kind: [read(rows.format(kind))] for kind in ROWS},
        }


def _text(value: object) -> str:
    """Write a cell as people read it."""
    if value is None:
        return "*"
    if isinstance(value, Range):
        low, high = value.lower, value.upper - 1
        return str(low) if low == high else f"{low} to {high}"
    if isinstance(value, list):
        return " or ".join(map(str, value))
    return str(value)


# -- pictures ---------------------------------------------------------------------------------


def _draw_errors(errors: Mapping[str, Sequence[float]]) -> None:
    plt = _pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
    for axis, names, values, label in (
        (axes[0], BUCKETS, LS, "l: nobody's value is inferred with more than 1/l"),
        (axes[1], ROWS, KS, "k: so many rows look alike"),
    ):
        for name in names:
            axis.plot(range(len(values)), errors[name], marker="o", label=name)
        axis.set_xticks(range(len(values)), list(map(str, values)))
        axis.set_xlabel(label)
        axis.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", alpha=0.3)
        axis.legend(frameon=False)
    axes[0].set_ylabel("median relative error of a count")
    figure.savefig(FIGURES / "protection.svg", metadata={"Date": None})
    plt.close(figure)


def _draw_rows(few: Mapping[str, Sequence[pd.DataFrame]]) -> None:
    plt = _pyplot()
    panels = [(kind, frames) for kind, frames in few.items()]
    figure, axes = plt.subplots(2, 3, figsize=(11, 4.6), layout="constrained")
    for axis in axes.flat:
        axis.axis("off")
    places = [axes[0, 0], axes[0, 1], axes[1, 0], axes[1, 1], axes[1, 2]]
    for axis, (kind, frames) in zip(places, panels, strict=True):
        axis.set_title(_TITLES[kind], fontsize=9, loc="left")
        both = [axis] if len(frames) == 1 else [axes[0, 1], axes[0, 2]]
        for place, frame in zip(both, frames, strict=True):
            drawn = place.table(
                cellText=frame.to_numpy().tolist(), colLabels=list(frame), loc="upper left",
                cellLoc="left", edges="horizontal",
            )  # fmt: skip
            drawn.auto_set_font_size(False)  # its only parameter
            drawn.set_fontsize(8)
    figure.savefig(FIGURES / "kinds.svg", metadata={"Date": None})
    plt.close(figure)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "kanon_db"  # the same results give the same file
    from matplotlib import pyplot as plt

    return plt
