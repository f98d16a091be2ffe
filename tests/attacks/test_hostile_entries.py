"""Entries of the catalog that a patched client wrote: readers get a refusal, and take no memory."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kanon_db.errors import KanonError
from kanon_db.interfaces.python import Kanon
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import Functions, Parties, create_people, fetch, warn_only

DELETED = object()
FIGURES: dict[str, Sequence[object]] = {
    "n_buckets": (10**8, 0, -1, "x", None, DELETED),
    "sizes": ([10**8], [0], [[2]], "x", DELETED),
    "first_bucket_ids": ([10**8], [1, 2, 3], [], None),
    "store": (
        None,
        [],
        {},
        {"column_no": "a"},
        {
            "column_no": "column_no",
            "code": "code",
            "chunk": "chunk",
            "codes": "codes",
            "records": 10**9,
            "columns": [["nobody", 0, 10**12, 0]],
        },
        {
            "column_no": "column_no",
            "code": "code",
            "chunk": "chunk",
            "codes": "codes",
            "records": 0,
            "columns": [["age", 0, 10**12, 0], ["sick", 0, -1, 1]],
        },
        *(
            {
                "column_no": "column_no",
                "code": "code",
                "chunk": "chunk",
                "codes": "codes",
                "records": 1,
                "columns": [["age", 0, 2, 0, flag]],
                "chunks": chunks,
            }
            for flag, chunks in ((True, [[10**12, 1]]), (True, [[1]]), (True, "x"), (2, []))
        ),
    ),
    "sensitive": (None, "nobody", [], 10**8),
    "quasi_identifiers": ([], [None], ["nobody"], [{"name": "nobody", "cell": "range"}], "age"),
    "others": (["nobody"], None, {}),
    "columns": ("age", [10**8], DELETED),
    "types": ([], {"age": None}, {"age": {"type": ["x"]}}, "x"),
    "pattern": (10**8, [], {}),
    "weighted": ([1], "sick", None),
    "assignment": ([], 10**8, "nothing"),
    "batches": ("x", [1], [[]], [[0]], [["x"]], [[10**400]], [[1], None]),
    "strengths": (
        [0.1],
        {"sick": 0.1},
        *({"sick": {"age": one}} for one in ("x", -1, 10**400, True, None)),
    ),
}
"""What stands in a layout instead of what kanon_db wrote, by its name."""
PARAMETERS: dict[str, Sequence[object]] = {
    "suppressed": (10**12, -1, "x", None),
    "not_kept": ("x", -1, []),
    "k": (None, "x", DELETED),
    "privacy": (None, [], DELETED),
}
LAYOUTS = ("buckets", "generalized", "suppressed")


@pytest.fixture(scope="module", autouse=True)
def publications(parties: Parties) -> None:
    warn_only(parties.admin)
    kanon = create_people(parties.publisher)
    for kind in LAYOUTS:
        kanon.of_kind(kind, "data.people", f"people_{kind}")


def changed(parties: Parties, kind: str) -> Iterator[tuple[str, str, object]]:
    """Enter one wrong thing after the other; in the end, the entry is as it was."""
    name = f"people_{kind}"
    for place, given in (("layout", FIGURES), ("parameters", PARAMETERS)):
        asked = f"SELECT {place}::text FROM kanon.publication WHERE name = $1"
        ((text,),) = fetch(parties.admin, asked, name)
        for key, values in given.items():
            written: dict[str, Any] = json.loads(text)
            if key not in written and key not in ("batches", "pattern", "not_kept"):
                continue
            for value in values:
                entry = copy.deepcopy(written)
                entry[key] = value
                if value is DELETED:
                    del entry[key]
                _enter(parties, name, place, json.dumps(entry))
                yield place, key, value
        _enter(parties, name, place, text)


def _enter(parties: Parties, name: str, place: str, text: str) -> None:
    fetch(
        parties.admin,
        f"UPDATE kanon.publication SET {place} = $1::text::jsonb WHERE name = $2",
        text, name,
    )  # fmt: skip


def asked_of(parties: Parties, name: str) -> dict[str, Callable[[], object]]:
    kanon = Kanon(PsycopgSession(parties.analyst))
    return {
        "estimate": lambda: kanon.count(f"SELECT COUNT(*) FROM {name} WHERE age > 3 OR sick = 'x'"),
        "explain": lambda: kanon.explain_count(f"SELECT COUNT(*) FROM {name} WHERE age > 3"),
        "verify": lambda: kanon.verify(name),
        "draw": lambda: kanon.draw(name, seed=1),
    }


@pytest.mark.slow("changes every figure of an entry")
@pytest.mark.pitfall(67)
@pytest.mark.parametrize("kind", LAYOUTS)
def test_figures_of_an_entry_are_refused_or_harmless(parties: Parties, kind: str) -> None:
    """No session takes what an entry says instead of what its relations have; nothing crashes."""
    crashed, refused = [], 0
    calls = asked_of(parties, f"people_{kind}")
    for place, key, value in changed(parties, kind):
        for operation, call in calls.items():
            try:
                call()
            except KanonError as error:
                refused += 1
                if not error.hint:
                    crashed.append(f"{operation}, {place} {key} = {value!r}: {error!r}")
            except Exception as error:  # noqa: BLE001  # whatever it is, it is a fault
                crashed.append(f"{operation}, {place} {key} = {value!r}: {error!r}")
    assert crashed == []
    assert refused > 40
    assert all(good for *_, good in Functions(parties.publisher).verify(f"people_{kind}"))


def test_records_are_not_more_than_their_relation_holds(parties: Parties) -> None:
    for kind in LAYOUTS:
        name, change = f"people_{kind}", "UPDATE kanon.publication SET records = $1 WHERE name = $2"
        fetch(parties.admin, change, 10**9, name)
        for operation, call in asked_of(parties, name).items():
            with pytest.raises(KanonError, match=r"cannot be read|drawn from"):
                call()
            assert operation
        fetch(parties.admin, change, 300, name)
