"""Memory and reaction to a timeout of queries that are meant to take the server down.

They ask a bucketization, and generalized rows, of the 1,000,000-row table of
`benchmarks.publication`. Each runs in a backend of its own that has answered one small query
before, under a `statement_timeout` of 5 s. Memory is the largest private memory (`RssAnon`) during
the call, above that of the backend before it: shared buffers, which exist anyway, are not in it.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg

from benchmarks.harness import PrivateMemory, private_server, table
from benchmarks.publication import PRIVACY, make_census

_TIMEOUT = 5
_SOME = "SELECT COUNT(*) FROM census_b WHERE sex = 'sex 1' AND occupation = 'occupation 9'"
_THREE = "age, native_country, education"
_SEVEN = "age, workclass, education, marital_status, race, sex, native_country"


def queries() -> list[tuple[str, str, str]]:
    """Return the queries: what they are, the function that is asked, the text."""
    numbers = ", ".join(map(str, range(14_000)))
    texts = ", ".join(f"'c{i}'" for i in range(9_000))
    some = "SELECT COUNT(*) FROM census_b WHERE"
    listed = f"{some} native_country IN ({texts})"
    chain = " OR ".join(f"age = {i}" for i in range(6_500))
    mixed = " OR ".join(f"(age = {i} AND sex = 'sex 1')" for i in range(600))
    pairs = " AND ".join(f"(age <> {i} OR occupation <> 'o{i}')" for i in range(400))
    many = ", ".join(f"SUM(age + {i})" for i in range(3_000))
    sums = ", ".join(f"SUM(age + {i})" for i in range(50))
    sums_of = f"SELECT {{}} FROM census_b WHERE occupation = 'x' OR {mixed}".format
    nested = "(" * 20 + "age = 1 AND sex = 'sex 1'" + " IS UNKNOWN)" * 20

    def groups(keys: str, aggregate: str = "COUNT(*)", where: str = "true") -> str:
        return f"SELECT {keys}, {aggregate} FROM census_b WHERE {where} GROUP BY {keys}"

    in_cells = f"SELECT COUNT(*) FROM census_g WHERE age IN ({numbers})"
    some_values = "occupation <> 'occupation 1'"
    two, three = "age, native_country", "sex, education, native_country"
    return [
        ("`IN` of 14,000 numbers", "estimate_count", f"{some} age IN ({numbers})"),
        ("`IN` of 9,000 texts", "estimate_count", listed),
        ("the same", "explain_count", listed),
        ("the same", "rewrite_count", listed),
        ("6,500 comparisons, joined by `OR`", "estimate_count", f"{some} {chain}"),
        ("600 pairs of comparisons", "estimate_count", f"{some} {mixed}"),
        ("400 conditions on both sides", "estimate_count", f"{some} {pairs}"),
        ("`IS UNKNOWN`, nested 20 times", "rewrite_count", f"{some} {nested}"),
        ("3,000 sums", "estimate", sums_of(many)),
        ("50 sums of long conditions", "estimate", sums_of(sums)),
        ("the same", "rewrite_count", sums_of(sums)),
        ("groups of two attributes", "estimate_counts", groups(two, where=some_values)),
        ("groups of three attributes", "estimate_counts", groups(_THREE)),
        ("groups of three and the sensitive", "estimate_counts", groups(f"{_THREE}, occupation")),
        ("sums in groups of three", "estimate", groups(three, "SUM(age)", some_values)),
        ("groups of seven attributes", "estimate_counts", groups(_SEVEN)),
        ("the same", "explain_count", groups(_SEVEN)),
        ("rows: `IN` of 9,000 texts", "estimate_count", listed.replace("census_b", "census_g")),
        ("rows: `IN` of 14,000 numbers", "estimate_count", in_cells),
        ("the same", "rewrite_count", in_cells),
        ("rows: groups of two", "estimate_counts", groups(two).replace("census_b", "census_g")),
        (
            "rows: groups of seven",
            "estimate_counts",
            groups(_SEVEN).replace("census_b", "census_g"),
        ),
    ]


def main() -> str:
    """Return the results as Markdown."""
    with private_server() as dsn:
        make_census(dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "SELECT * FROM kanon.publish_buckets('public.census', 'census_b',"
                f" method => 'two_size', assignment => 'random', privacy => '{PRIVACY}')"
            )
            connection.execute(
                "SELECT * FROM kanon.publish_generalized('public.census', 'census_g', k => 10,"
                " method => 'mondrian')"
            )
        rows = [[name, *_asked(dsn, *asked)] for name, *asked in queries()]
    said = (
        f"Each query runs under a `statement_timeout` of {_TIMEOUT} s, on 1,000,000 records. The"
        " memory is the largest private memory of the backend during the call, above that before"
        " it; the limit is 200 MB.\n\n"
    )
    return said + table(["query", "function", "memory", "time", "answer"], rows)


def _asked(dsn: str, function: str, query: str) -> list[str]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SELECT * FROM kanon.estimate_count(%s)", (_SOME,)).fetchall()
        connection.execute(f"SET statement_timeout = '{_TIMEOUT}s'")
        started = time.perf_counter()
        with PrivateMemory(connection.info.backend_pid) as memory:
            answer = _answer(connection, f"SELECT count(*) FROM kanon.{function}(%s)", query)
        taken = time.perf_counter() - started
    return [f"`{function}`", f"{memory.needed:.0f} MB", f"{taken:.1f} s", answer]


def _answer(connection: psycopg.Connection[Any], statement: str, query: str) -> str:
    """Ask, and say how it ended."""
    try:
        (n,) = connection.execute(statement.encode(), (query,)).fetchone() or (0,)
    except psycopg.errors.QueryCanceled:
        return "cancelled"
    except psycopg.Error as error:
        return f"refused: {error.diag.message_primary}"
    return f"{n} rows"


if __name__ == "__main__":
    print(main())
