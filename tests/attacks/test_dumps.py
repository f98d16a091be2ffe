"""Attacks with a backup: what a dump has of the people, whoever makes it.

Every value of the source is a canary: names, by which nobody may be found; zip codes, of which each
person has an own one; and illnesses. A line with one person's zip code and an illness would be the
secret half of a publication.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import subprocess
from collections.abc import Iterator

import pytest

from kanon_db.cluster._host import find_programs
from tests.integration.parties import KINDS, Functions, Parties, create_source, fetch, value

N_RECORDS = 120
NAME, ZIP, ILLNESS = "name canary", "zip canary", "illness canary"
PEOPLE = [
    (f"{NAME} {i}", 20 + i % 40, f"{ZIP} {i:03}", f"ward {i % 3}", f"{ILLNESS} {i % 4}")
    for i in range(N_RECORDS)
]
TABLES = (
    "base budget draw_key label release release_entity release_key release_reader release_record"
)
LEDGER = [f"kanon.{name}" for name in TABLES.split()]
LARGER = {"k": 4}
OURS = ["--schema=kanon", "--schema=published"]


@pytest.fixture(scope="module")
def published(parties: Parties) -> Parties:
    """A publication of each kind, attacked, so that the catalog has all that it can have."""
    columns = "name text, age int, zip text, ward text, sick text"
    kanon = create_source(
        parties.publisher, "data.people", columns, PEOPLE, ["age", "zip"], "sick",
        insensitive=["ward"], entity="name",
    )  # fmt: skip
    for kind in KINDS:
        kanon.of_kind(kind, "data.people", kind, **(LARGER if kind != "buckets" else {}))
        kanon.attack(kind)
    return parties


def dump(parties: Parties, who: str, *arguments: str) -> tuple[str, str]:
    """What pg_dump writes with somebody's rights, and what it says."""
    dsn = parties.dsn_of(who)
    command = [find_programs(None).path("pg_dump"), f"--dbname={dsn}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout, done.stderr


def tables(dump: str) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Each table's name, columns and rows."""
    for name, columns, rows in re.findall(
        r"^COPY (\S+) \((.*?)\) FROM stdin;\n(.*?)^\\\.$", dump, re.MULTILINE | re.DOTALL
    ):
        yield name, columns.split(", "), [line.split("\t") for line in rows.splitlines()]


def found_in(text: str) -> set[str]:
    return set(re.findall(rf"{NAME} \d+|{ZIP} \d+|{ILLNESS} \d", text))


@pytest.mark.long
@pytest.mark.pitfall(19)
def test_an_analyst_dumps_what_an_analyst_reads(published: Parties) -> None:
    """Of a whole database, or of our schemas, nothing; of published relations, what they show."""
    for arguments in ([], OURS, ["--table=data.people"], ["--table=published.generalized_row"]):
        written, said = dump(published, "analyst", *arguments)
        assert "permission denied" in said
        assert found_in(written + said) == set()
    written, said = dump(published, "analyst", "--table=published.buckets*")
    assert said == ""
    assert {name for name, *_ in tables(written)} == {
        f"published.buckets_{suffix}" for suffix in ("qit", "sat", "est", "val", "cod")
    }
    assert NAME not in written


@pytest.mark.slow("publishes and attacks every kind, for its module")
@pytest.mark.pitfall(19)
@pytest.mark.parametrize("who", ["publisher", "admin"])
def test_no_dump_has_the_secret_half(published: Parties, who: str) -> None:
    """No name, and no line with one person's zip code and an illness, whoever dumps."""
    arguments = ["--schema=published"] if who == "publisher" else OURS
    written, said = dump(published, who, *arguments)
    assert said == ""
    assert NAME not in written
    zips = {person[2] for person in PEOPLE}
    assert zips <= found_in(written)  # the canaries sing where they may
    for name, columns, rows in tables(written):
        for row in rows:
            line = "\t".join(row)
            seen = found_in(line) & zips
            assert ILLNESS not in line or len(seen) != 1, name
            if name == "published.buckets_val":
                filled = [
                    column for column, cell in zip(columns, row, strict=True) if cell != "\\N"
                ]
                assert filled in [
                    ["column_no", "code", column] for column in ("age", "zip", "sick")
                ]


@pytest.mark.pitfall(19)
def test_the_catalog_of_a_dump_has_nobody(published: Parties) -> None:
    """Entries describe what was published, and nothing in them has an element for each record."""
    written, said = dump(published, "admin", "--schema=kanon")
    assert said == ""
    found = {name: rows for name, _, rows in tables(written)}
    others = [
        f"kanon.{name}"
        for name in (
            "alembic_version",
            "job",
            "job_end",
            "publication",
            "setting",
            "source",
            "submitter",
        )
    ]
    assert sorted(found) == sorted([*others, *LEDGER])
    assert found_in(written) == set()
    assert found["kanon.job"] == found["kanon.job_end"] == []  # the server has PL/Python
    assert len(found["kanon.publication"]) == len(KINDS)
    for table, least in (("kanon.publication", 10), ("kanon.release", 1)):
        entries = fetch(published.admin, f"SELECT to_jsonb(p) FROM {table} AS p")
        assert least < max(longest(entry) for (entry,) in entries) < N_RECORDS // 2


def longest(found: object) -> int:
    """The most elements of any list or object in a JSON value."""
    if isinstance(found, dict):
        found = [*found.values()]
    if isinstance(found, list):
        return max([len(found), *map(longest, found)])
    return 0


@pytest.mark.pitfall(19)
def test_a_dump_cannot_confirm_what_somebody_has(published: Parties) -> None:
    """Whoever has it may try names and values: the key of their hashes is in no dump."""
    written, _ = dump(published, "admin", *OURS)
    table = {name: rows for name, _, rows in tables(written)}
    assert "CREATE MATERIALIZED VIEW kanon.record_key" in written
    assert "kanon.record_key" not in table
    kept = {bytes.fromhex(row[1][3:]) for row in table["kanon.release_record"]}
    keys = [bytes.fromhex(row[1][3:]) for row in table["kanon.release_key"]]
    assert len(kept) > N_RECORDS
    assert len(keys) == len(KINDS)
    tried = fetch(
        published.admin, "SELECT sha256(convert_to(name, 'UTF8')) || sha256(convert_to("
        "ROW(age::text, zip, ward, sick)::text, 'UTF8')) || int4send(1) FROM data.people",
    )  # fmt: skip
    assert len(tried) == N_RECORDS

    def found(key: bytes) -> int:
        return sum(hmac.digest(key, message, "sha256")[:16] in kept for (message,) in tried)

    (drawn,) = (bytes.fromhex(row[1][3:]) for row in table["kanon.draw_key"])
    for known in (b"", drawn):
        assert all(found(hashlib.sha256(key + known).digest()) == 0 for key in keys)
    assert all(found(key) == 0 for key in keys)
    # The server's owner, who may read the source as well.
    secret = value(published.admin, "SELECT key FROM kanon.record_key")
    of_rows = [found(hashlib.sha256(key + secret).digest()) for key in keys]
    assert sorted(set(of_rows)) == [0, N_RECORDS]  # buckets have no wards


@pytest.mark.pitfall(19)
def test_a_dump_does_not_have_what_was_dropped(published: Parties) -> None:
    """Nothing of a publication stays in our schemas when it is dropped, or only tried.

    But in the ledger: that there was a release, which has nobody's data.
    """
    before, _ = dump(published, "admin", *OURS)
    kanon = Functions(published.publisher)
    kanon.publish("data.people", "tried", privacy='{"l": 2}', dry_run=True)
    kanon.publish("data.people", "gone", privacy='{"l": 2}')
    kanon.drop("gone")
    after, _ = dump(published, "admin", *OURS)
    assert "published.buckets_qit" in before
    assert lines(after) == lines(before)
    assert fetch(published.admin, "SELECT FROM kanon.publication WHERE name = 'gone'") == []
    ledger = [(name, row) for name, _, rows in tables(after) if name in LEDGER for row in rows]
    released = [row for name, row in ledger if name == "kanon.release"]
    assert [row for row in released if "gone" in row and "dropped" in row]
    assert not [row for row in released if "tried" in row]
    assert found_in(str(ledger)) == set()


def lines(dump: str) -> list[str]:
    """Lines of a dump; the ledger, what is new in every dump, and numbers of sequences aside."""
    dump = re.sub(
        rf"^COPY ({'|'.join(LEDGER)}) .*?^\\\.$", "", dump, flags=re.MULTILINE | re.DOTALL
    )
    volatile = re.compile(r"^\\(un)?restrict |setval")
    return [line for line in dump.splitlines() if not volatile.search(line)]
