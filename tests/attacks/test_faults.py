"""Publishing is disturbed at a random moment: nothing is half-published, and nothing is left.

This is the quick form of ``python -m benchmarks faults``, whose figures
docs/reference/reliability.md has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle

import numpy as np
import pytest

from benchmarks.faults.injections import FAULTS, Fault
from benchmarks.faults.server import Server, breakable_server
from benchmarks.faults.traces import orphaned_files, read_trace
from benchmarks.faults.trial import Bench
from benchmarks.faults.ways import WAYS

N_RECORDS = 500
QUICK = ("buckets random", "suppressed")
CASES = [
    pytest.param(
        way,
        fault,
        bool(number // 2 % 2),
        number,
        id=f"{fault.name}, {way}",
        marks=[pytest.mark.long] if number % 4 else [],
    )
    for number, (fault, way) in enumerate(zip(FAULTS.values(), cycle(QUICK)))
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with breakable_server() as server:
        yield server


@pytest.fixture(scope="module")
def bench(server: Server) -> Callable[[str], Bench]:
    made: dict[str, Bench] = {}

    def of(way: str) -> Bench:
        if way not in made:
            made[way] = Bench(server, WAYS[way], N_RECORDS, np.random.default_rng(len(made)))
        return made[way]

    return of


@pytest.mark.slow("a server of its own is made to fail and recovers")
@pytest.mark.pitfall(18)
@pytest.mark.parametrize(("way", "fault", "replaces", "seed"), CASES)
def test_nothing_is_left(
    server: Server, bench: Callable[[str], Bench], way: str, fault: Fault, replaces: bool, seed: int
) -> None:
    """Killed, cancelled or out of disk at a random moment: no relation, lock or file is left."""
    if fault.needs_disk and server.disk is None:
        pytest.skip("only root may mount a small file system")
    fraction = np.random.default_rng(seed).random()
    assert bench(way).run(fault, replaces=replaces, fraction=fraction).findings == []


def test_what_is_left_is_seen(server: Server) -> None:
    """The other tests here could not fail otherwise."""
    before = read_trace(server)
    assert read_trace(server).differences(before) == []
    with server.connect() as admin:
        admin.execute("CREATE TABLE published.kanon_0f0f (age int)")
        found = read_trace(server).differences(before)
        assert "relation left: published.kanon_0f0f" in found
        assert any(difference.startswith("pg_class") for difference in found)
        admin.execute("DROP TABLE published.kanon_0f0f")
        folder = server.data / "base" / "pgsql_tmp"
        folder.mkdir(exist_ok=True)
        (database,) = admin.execute("SELECT oid::text FROM pg_database WHERE datname = 'kanon'")
    stray = folder / "pgsql_tmp1.0", server.data / "core", server.data / "base" / database[0] / "1"
    for path in stray:
        path.touch()
    found = read_trace(server).differences(before)
    assert found == [f"file left: {stray[1]}", "file left: base/pgsql_tmp/pgsql_tmp1.0"]
    assert "base/" + database[0] + "/1" in orphaned_files(server)
    for path in stray:
        path.unlink()
