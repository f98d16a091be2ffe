"""How often a published row describes exactly one person, who is singled out so.

Run from the root of the repository: ``python -m benchmarks singling_out``. The data are looked for
in ``data/`` of the folder named by KANON_SHARED, or of ``../shared``.
"""

from __future__ import annotations

import psycopg

import kanon_db
from benchmarks.generalization import DATA, TABLES
from benchmarks.harness import private_server, table

SENSITIVE = {"adult": "salary-class", "ipums": "inctot", "fars": "injury"}
PUBLICATIONS = {
    "generalized, k = 5, Mondrian": "publish_generalized(%s, 'attacked', k => 5,"
    " method => 'mondrian', refine => false)",
    "generalized, k = 5, Greedy Search": "publish_generalized(%s, 'attacked', k => 5,"
    """ method => 'greedy_search', refine => false, options => '{"block_size": 5000}')""",
    "buckets, θ 1.2, base 0.05": "publish_buckets(%s, 'attacked',"
    """ privacy => '{"theta": 1.2, "base": 0.05}')""",
}
N_RECORDS = 5000
_SAMPLED = (
    "CREATE TABLE public.{0} AS SELECT * FROM public.whole_{0} AS record"
    " ORDER BY md5(record::text) LIMIT {1}"
)


def main() -> str:
    """Return the results as Markdown."""
    with private_server() as dsn:
        for name, sensitive in SENSITIVE.items():
            file, columns, *_ = TABLES[name]
            with kanon_db.connect(dsn) as kanon:
                kanon.load(DATA / f"{file}.csv.gz", f"whole_{name}")
                with psycopg.connect(dsn, autocommit=True) as connection:
                    connection.execute(_SAMPLED.format(name, N_RECORDS).encode())
                kanon.register_source(
                    f"public.{name}", quasi_identifiers=columns.split(), sensitive=sensitive
                )
        with psycopg.connect(dsn, autocommit=True) as connection:
            rows = [
                [name, sensitive, title, *_play(connection, f"public.{name}", call)]
                for name, sensitive in SENSITIVE.items()
                for title, call in PUBLICATIONS.items()
            ]
    heading = ["table", "sensitive", "publication", "rate", "base rate", "rows"]
    return (
        f"{N_RECORDS:,} records of each table; what the rates mean is [on the page of"
        " attacks](../understand/attacks.md#singling-out):\n\n" + table(heading, rows)
    )


def _play(connection: psycopg.Connection[tuple[object, ...]], source: str, call: str) -> list[str]:
    connection.execute(f"SELECT kanon.{call}".encode(), [source])
    ((rate, base_rate, n_rows),) = connection.execute(
        "SELECT round(rate::numeric, 3), round(base_rate::numeric, 3), people"
        " FROM kanon.attack('attacked') WHERE attack = 'singling out'"
    ).fetchall()
    connection.execute("SELECT kanon.drop_publication('attacked')")
    return [str(rate), str(base_rate), f"{n_rows:,}"]


if __name__ == "__main__":
    print(main())
