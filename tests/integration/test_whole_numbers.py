"""Columns of whole numbers are read together: as the server groups and orders their values."""

from __future__ import annotations

import numpy as np

from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer._packed_columns import are_close
from kanon_db.transfer.allowance import Allowance
from kanon_db.transfer.coded_columns import count_in_sample, read_columns
from kanon_db.transfer.columns import column_types, find_relation
from kanon_db.transfer.snapshot import take_snapshot
from kanon_db.transfer.values import distinct_values, read_codes
from tests.integration.parties import Parties, fetch

CLOSE = {
    "small": "(CASE WHEN i % 2 = 0 THEN 32767 ELSE -32768 END)::smallint",
    "negative": "nullif(-(i % 50), -7)",
    "large": "9223372036854775807 - i % 3",
    "low": "-9223372036854775807 + i % 3",
    "many": "i + 2000000000",
    "alone": "5",
    "rare": "CASE WHEN i = 1 THEN 1 END::bigint",
    **{f"wide_{n}": f"i * 200 % {400_000 - n}" for n in range(4)},  # do not fit into one number
}
OTHERS = {
    "apart": "i % 2 * 2000000000",
    "least": "-9223372036854775807 - i % 2",
    "empty": "NULL::integer",
    "word": "'w' || i % 5",
}


def test_as_the_server_groups_them(parties: Parties) -> None:
    columns = ", ".join(f"{sql} AS {name}" for name, sql in {**CLOSE, **OTHERS}.items())
    fetch(parties.publisher, f"CREATE TABLE data.numbers AS SELECT {columns}"
          " FROM generate_series(1, 2000) AS i")  # fmt: skip
    session = PsycopgSession(parties.publisher)
    with session.transaction():
        relation, oid, _ = find_relation(session, "data.numbers")
        types = column_types(session, oid)
        taken = take_snapshot(session, relation, list(types), Allowance.of(session))
        assert [name for name in types if are_close(taken.ends, types[name])] == list(CLOSE)
        sampled = count_in_sample(taken, list(types.values()))
        found = read_columns(taken, list(types.values()), sampled)
        assert list(found) == list(types)
        for name, column in found.items():
            alone = distinct_values(taken, types[name])
            assert column.values.labels == alone.labels
            assert column.values.counts.tolist() == alone.counts.tolist()
            assert np.array_equal(column.codes, read_codes(taken, [alone])[:, 0])
            assert type_of(session, column.values.table) == type_of(session, alone.table)


def type_of(session: PsycopgSession, table: str) -> str:
    (row,) = session.fetch(f"SELECT pg_typeof(value)::text AS type FROM {table} LIMIT 1")
    return str(row["type"])
