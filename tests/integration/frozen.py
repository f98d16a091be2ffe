"""Tables with publications that no test changes: who only reads them imports `parties` from here.

One worker runs the modules that do (`FROZEN` in `tests/conftest.py`): all is published once a run.
What a module makes beside it goes after the module.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.integration.parties import FROZEN, Gathering, Parties, create_source, fetch

RELATED = "age int, sex text, ill int"
PRIVACY = '{"default": 0.7, "values": {"4": 0.3}}'
"""One strict value, so that buckets are large, and others have room."""
N_DRAWN, N_SKEWED = 2_400, 400
SKEWED = ("age", "job", "pay", "day")
"""Quasi-identifiers of ``frozen.skewed``, whose other columns are sick, ward and note."""
ROWS = {"ranged": "generalized", "matched": "freeform", "partly": "suppressed"}
"""How ``frozen.people`` is published beside the buckets ``people``."""


def draw_related(n: int, seed: int = 16, related: float = 0.75) -> list[tuple[Any, ...]]:
    """People whose ages decide on the illness in part; NULLs on both sides."""
    draw = random.Random(seed)  # noqa: S311  # made-up data
    rows: list[tuple[Any, ...]] = []
    for _ in range(n):
        age = draw.randrange(20, 60)
        illness = age // 10 if draw.random() < related else draw.randrange(8)
        rows.append(
            (None if draw.random() < 0.05 else age, draw.choice("mf"),
             None if illness == 7 else illness)
        )  # fmt: skip
    return rows


def freeze(parties: Parties) -> None:
    """Make the tables, and publish them."""
    fetch(parties.publisher, f"CREATE SCHEMA {FROZEN}")
    _freeze_drawn(parties)
    _freeze_skewed(parties)
    _freeze_people(parties)


def _freeze_drawn(parties: Parties) -> None:
    """Buckets that weights are learned from, ``drawn``, and without weights, ``by_paper``."""
    kanon = create_source(parties.publisher, "frozen.drawn", RELATED, draw_related(N_DRAWN))
    for name, estimates in (("drawn", "capped"), ("by_paper", "paper")):
        kanon.publish(
            "frozen.drawn", name, privacy=PRIVACY, assignment="random", estimates=estimates
        )


def _freeze_skewed(parties: Parties) -> None:
    """Skewed columns, with NULLs, and more amounts of pay than an axis has parts."""
    draw, other = random.Random(15), random.Random(16)  # noqa: S311  # made-up data
    rows = [
        (
            None if draw.random() < 0.1 else 20 + int(40 * draw.random() ** 3),
            draw.choices(["nurse", "clerk", "cook", None], [20, 5, 2, 1])[0],
            int(100_000 * draw.random() ** 4),
            f"2020-01-{1 + int(28 * draw.random() ** 2):02}",
            draw.choice(["flu", "cold", None]),
            other.randrange(5),
            other.choice(["{}", '{"a": 1}', None]),
        )
        for _ in range(N_SKEWED)
    ]
    columns = "age int, job text, pay int, day date, sick text, ward int, note json"
    kanon = create_source(
        parties.publisher, "frozen.skewed", columns, rows, SKEWED, "sick",
        insensitive=["ward", "note"],
    )  # fmt: skip
    kanon.generalize("frozen.skewed", "classes", k=4, method="mondrian")
    kanon.freeform("frozen.skewed", "graph", k=4)
    kanon.suppress("frozen.skewed", "stars", k=4, patterns=["..**", ".***", "*.**", "****"])


def _freeze_people(parties: Parties) -> None:
    """300 people, ten of each age."""
    rows = [(f"name {i}", i % 30, "mf"[i % 2], f"disease {i % 5}") for i in range(300)]
    columns = "name text, age int, sex text, sick text"
    kanon = create_source(
        parties.publisher, "frozen.people", columns, rows, ["age", "sex"], "sick",
        identifiers=["name"],
    )  # fmt: skip
    kanon.publish("frozen.people", "people", privacy='{"l": 3}')
    for name, kind in ROWS.items():
        kanon.of_kind(kind, "frozen.people", name)


@pytest.fixture(scope="module")
def parties(gathering: Gathering) -> Parties:
    """One of each kind in a database with what is frozen."""
    return gathering.parties(freeze)
