"""Every query of the corpus, asked of rows: bounds hold the truth, or it is refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.corpus.oracle import split
from tests.corpus.tables import COLUMNS, people
from tests.corpus.test_corpus import ANSWERED, REFUSED
from tests.integration.parties import Functions, Parties, create_table, fetch, sqlstate_of
from tests.meaning.questions import FROM
from tests.meaning.verdict import ask

KINDS = {
    "ranged": ("generalized", {"k": 3, "method": "mondrian"}),
    "matched": ("freeform", {"k": 3}),
    "starred": ("suppressed", {"k": 3}),
}
CUT = ("HAVING", "LIMIT", "OFFSET")
"""Groups are cut by their estimates."""
AGGREGATE = re.compile(r"\b(COUNT|SUM|AVG|MIN|MAX|percentile_\w+) ?\(")


@pytest.fixture(scope="module", autouse=True)
def published(parties: Parties) -> None:
    """The people of the corpus as rows of each kind, and as views of the same names."""
    columns = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
    create_table(parties.publisher, "data.rows", f"{columns}, illness text, cost int", people())
    create_table(parties.publisher, "data.regions", "zip int, region text, price int",
                 [(0, "north", 5), (1, "south", 7), (2, "north", None), (3, None, 1)])  # fmt: skip
    create_table(parties.publisher, "data.severity", "illness text, grade int",
                 [("flu", 1), ("HIV", 3), ("cold", 1)])  # fmt: skip
    fetch(parties.publisher, "GRANT USAGE ON SCHEMA data TO kanon_analyst")
    fetch(parties.publisher, "GRANT SELECT ON data.regions, data.severity TO kanon_analyst")
    fetch(parties.publisher, "CREATE SCHEMA truth")
    kanon = Functions(parties.publisher)
    kanon.register("data.rows", [*COLUMNS], "illness", insensitive=["cost"])
    for name, (kind, given) in KINDS.items():
        kanon.call(f"publish_{kind}", "data.rows", name, **given)
        fetch(parties.publisher, f"CREATE VIEW truth.{name} AS SELECT * FROM data.rows")


def is_one_figure(query: str) -> bool:
    """Whether a query asks for one figure of each group, and shows what the groups are."""
    *keys, last = split(query.partition(" FROM ")[0])
    grouped = split(query.partition(" GROUP BY ")[2].partition(" ORDER BY ")[0])
    return (
        not any(word in query for word in CUT)
        and len(AGGREGATE.findall(last)) == 1
        and not any(map(AGGREGATE.search, keys))
        and len(keys) == len(grouped)
    )


def asked_of(name: str, queries: list[str]) -> Iterator[str]:
    """Ask a publication of rows what was to be asked of buckets."""
    for query in queries:
        moved = re.sub(r"\bFROM (published\.)?(ill|paid)\b", f"FROM {FROM}", query)
        yield re.sub(r"\b(published\.)?(ill|paid)\.", f"{name}.", moved)


@pytest.mark.pitfall(48)
@pytest.mark.parametrize("name", KINDS)
def test_bounds_hold_the_truth(parties: Parties, name: str) -> None:
    """Questions of the corpus, of rows of each kind."""
    outcomes: Counter[str] = Counter()
    faults = []
    queries = [query for query, _ in ANSWERED if is_one_figure(query)]
    assert len(queries) > 100
    for query in asked_of(name, queries):
        found = ask(
            parties.analyst, parties.admin, name, f"truth.{name}", query,
            lists_all=name != "starred",
        )  # fmt: skip
        outcomes[found.outcome] += 1
        faults += [f"{query}: {fault}" for fault in found.faults]
    assert not faults, "\n".join([f"{len(faults)} of {outcomes}", *faults[:20]])
    assert outcomes["answered"] > 0.8 * len(queries), outcomes


@pytest.mark.pitfall(11)
@pytest.mark.parametrize("name", KINDS)
def test_refused(parties: Parties, name: str) -> None:
    """What cannot be asked of buckets for its form cannot be asked of rows."""
    kanon = Functions(parties.analyst)
    asked = [query.replace(FROM, name) for query in asked_of(name, [one for one, _ in REFUSED])]
    ended = {query: sqlstate_of(lambda: kanon.estimate(query)) for query in asked}
    assert {query for query, state in ended.items() if state not in ("0A000", "42704")} == set()
