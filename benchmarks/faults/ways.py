"""What is published while faults happen: every kind, new or in place of an older publication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.faults.server import Connection

NAME = "disturbed"
"""The publication's name."""


@dataclass(frozen=True)
class Way:
    """One way to publish, and how many records keep it busy for some tenths of a second."""

    name: str
    records: int
    function: str
    given: str

    def source(self, side: str) -> str:
        """Name the source of the old publication or of the new one."""
        return f"data.{self.name.replace(' ', '_')}_{side}"

    def publish(self, connection: Connection, side: str, *, replace: bool) -> dict[str, Any]:
        """Publish a source in this way; the row that the function returns."""
        cursor = connection.execute(self.statement(side, replace=replace))
        names = [column.name for column in cursor.description or ()]
        (row,) = cursor.fetchall()
        return dict(zip(names, row, strict=True))

    def statement(self, side: str, *, replace: bool, options: str = "") -> str:
        """Write the call."""
        return (
            f"SELECT * FROM kanon.{self.function}('{self.source(side)}', '{NAME}',"
            f" replace => {replace}, {self.given}{options})"
        )


_BUCKETS = "privacy => '{\"l\": 3}'"
WAYS = {
    way.name: way
    for way in (
        Way("buckets cells", 15_000, "publish_buckets", _BUCKETS),
        Way("buckets random", 40_000, "publish_buckets", f"{_BUCKETS}, assignment => 'random'"),
        Way(
            "buckets optimal",
            40_000,
            "publish_buckets",
            """privacy => '{"theta": 2, "base": 0.02}', method => 'optimal',"""
            " assignment => 'random'",
        ),
        Way(
            "mondrian",
            40_000,
            "publish_generalized",
            "k => 5, method => 'mondrian', refine => false",
        ),
        Way(
            "greedy_search",
            10_000,
            "publish_generalized",
            "k => 5, method => 'greedy_search', refine => false",
        ),
        Way("freeform", 3_000, "publish_freeform", "k => 5, options => '{\"refine\": false}'"),
        Way("suppressed", 40_000, "publish_suppressed", "k => 5"),
    )
}  # fmt: skip


def make_source(admin: Connection, way: Way, side: str, n_records: int, owner: str) -> None:
    """Make and register a source: four whole numbers for each record.

    The two sources of a way are of the same shape, and differ in how many records they have.
    """
    source = way.source(side)
    admin.execute(
        f"CREATE TABLE {source} AS SELECT (18 + i * 7919 % 60)::int AS age, (i % 2)::int AS sex,"
        " (i * 104729 % 97)::int AS zip, ((i * 31 + i / 7) % 11)::int AS sick"
        f" FROM generate_series(1::int8, {n_records}) AS i"
    )
    admin.execute(f"ALTER TABLE {source} OWNER TO {owner}")
    admin.execute(f"SET ROLE {owner}")
    admin.execute(
        f"SELECT kanon.register_source('{source}', '{{age,sex,zip}}', sensitive => 'sick')"
    )
    admin.execute("RESET ROLE")


def answers(connection: Connection) -> list[Any]:
    """Ask the publication in several ways: what it says now, as the role that asks.

    Everything is the same again for the same publication, and the number of records, the first
    one, is that of its source.
    """
    questions = ("true", "age < 40", "sick = 3", "sex = 1 AND sick <> 4")
    asked = [f"SELECT COUNT(*) FROM {NAME} WHERE {where}" for where in questions]
    estimates = [
        connection.execute("SELECT * FROM kanon.estimate_count(%s)", [query]).fetchone()
        for query in asked
    ]
    ((rows,),) = connection.execute(
        f"SELECT md5(string_agg(md5(p::text), '' ORDER BY md5(p::text))) FROM published.{NAME} AS p"
    ).fetchall()
    verified = connection.execute("SELECT * FROM kanon.verify(%s)", [NAME]).fetchall()
    entry = connection.execute(
        "SELECT to_jsonb(p) FROM kanon.publications AS p WHERE name = %s", [NAME]
    ).fetchall()
    return [*estimates, rows, verified, entry]


def broken_promises(connection: Connection) -> list[str]:
    """Verify the publication; names the checks that do not hold."""
    found = connection.execute("SELECT * FROM kanon.verify(%s)", [NAME]).fetchall()
    if not found:
        return ["nothing was verified"]
    return [f"verify: {check}" for check, *_, holds in found if not holds]
