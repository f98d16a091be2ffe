"""What hostile input is about: people with canaries in every column, published in every way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.integration.parties import Functions, Parties, create_table, fetch

CANARY: Final = "canary7f3b"
NUMBER: Final = 918273
CANARIES: Final = (CANARY, str(NUMBER), "1918-03-07")
"""Parts of data values, which no message may contain."""

COLUMNS: Final = (
    "age int, sex text, zip int, born date, seen timestamp, height float8, member boolean,"
    " illness text, cost int"
)
QUASI_IDENTIFIERS: Final = ("age", "sex", "zip", "born", "seen", "height", "member")
SOURCES: Final = {"ill": "data.people", "paid": "data.patients"}
N_PEOPLE: Final = 60

PUBLICATIONS: Final[Mapping[str, tuple[str, str, Mapping[str, Any]]]] = {
    "ill": ("publish_buckets", "data.people", {"privacy": '{"l": 2}'}),
    "paid": ("publish_buckets", "data.patients", {"privacy": '{"l": 2}'}),
    "ranged": ("publish_generalized", "data.people", {"k": 3, "method": "mondrian"}),
    "free": ("publish_freeform", "data.people", {"k": 2}),
    "masked": ("publish_suppressed", "data.people", {"k": 3}),
}
"""The publications: how they are made, and of what."""


def people(n: int = N_PEOPLE) -> list[tuple[Any, ...]]:
    """Rows of canaries, with some ordinary values among them that conditions can hit."""
    return [
        (
            None if i % 11 == 0 else NUMBER if i % 7 == 0 else 18 + i % 40,
            (f"{CANARY} f", "f", "m", None)[i % 4],
            (NUMBER, 0, 1, 2, 3)[i % 5],
            ("1918-03-07", "1980-01-15", "2020-01-31")[i % 3],
            (None, "1918-03-07 01:02:03", "2020-01-31 12:30")[i % 3],
            (NUMBER / 10, 1.5, 0.1, None)[i % 4],
            (True, False, None)[i % 3],
            (f"{CANARY} a", "flu", "cold", f"{CANARY} b", "hay fever")[i % 5],
            (NUMBER, 0, 10, -5)[i % 4],
        )
        for i in range(n)
    ]


def make_tables(parties: Parties, n: int = N_PEOPLE) -> None:
    """Create the sources, the publications, and tables to join."""
    owner = parties.publisher
    for source in ("data.people", "data.patients", "data.spare"):
        create_table(owner, source, COLUMNS, people(n))
        register(parties, source)
    create_table(
        owner, "data.regions", "zip int, region text, price int",
        [(0, f"{CANARY} north", 5), (1, "south", NUMBER), (2, None, None)],
    )  # fmt: skip
    create_table(owner, "data.severity", "illness text, grade int", [("flu", 1), ("cold", NUMBER)])
    fetch(owner, "GRANT USAGE ON SCHEMA data TO kanon_analyst")
    fetch(owner, "GRANT SELECT ON data.regions, data.severity TO kanon_analyst")
    restore(parties)


def register(parties: Parties, source: str) -> None:
    """Register a source as it is meant."""
    sensitive = "cost" if source == "data.patients" else "illness"
    Functions(parties.publisher).register(source, QUASI_IDENTIFIERS, sensitive)


def restore(parties: Parties) -> None:
    """Make sure that exactly the publications are there, of their sources."""
    kanon = Functions(parties.publisher)
    found = dict(fetch(parties.publisher, "SELECT name, source FROM kanon.publications"))
    meant = {name: source for name, (_, source, _) in PUBLICATIONS.items()}
    for name in found.keys() - {
        name for name, source in meant.items() if found.get(name) == source
    }:
        kanon.drop(name)
        del found[name]
    for name in meant.keys() - found.keys():
        function, source, given = PUBLICATIONS[name]
        register(parties, source)
        kanon.call(function, source, name, **given)
