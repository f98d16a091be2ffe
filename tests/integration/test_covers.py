"""Whether a value lies within a range: told by its ends, as by the server's own operator."""

from __future__ import annotations

import numpy as np
import pytest

from kanon_db.algorithms.recoding import Attribute
from kanon_db.publications.rows.recoded_cells import GeneralizedColumn
from kanon_db.session.psycopg_session import PsycopgSession
from kanon_db.transfer.columns import ColumnType
from kanon_db.transfer.values import DistinctValues
from tests.integration.parties import Parties

TYPES = {
    "int4range": ("integer", ["-2147483648", "3", "4", "5", "2147483646"]),
    "int8range": ("bigint", ["-9223372036854775808", "3", "4", "5", "9223372036854775806"]),
    "numrange": ("numeric", ["-1.5", "3", "4.0", "5", "9"]),
    "daterange": ("date", ["0001-01-01", "2000-01-01", "2000-01-02", "2000-01-03", "9999-01-01"]),
}
RANGES = ("[{1},{2}]", "[{1},{1}]", "[{0},{3}]", "(,)", "[{2},)", "(,{2}]", "[{0},{4}]", None)


@pytest.mark.parametrize("range_type", TYPES)
def test_the_ends_of_ranges_tell_what_they_cover(parties: Parties, range_type: str) -> None:
    type_name, values = TYPES[range_type]
    session = PsycopgSession(parties.publisher)
    of_column = ColumnType("v", type_name, "N", None, has_constant_input=True)
    column = GeneralizedColumn(
        DistinctValues(session, of_column, "", [], np.zeros(0, dtype=np.int64)),
        Attribute(1, numbers=np.zeros(1)),
        range_type,
    )
    ranges = [None if text is None else text.format(*values) for text in RANGES]
    ends = ", ".join(f"{sql} AS {end}" for sql, end in column.ends("v", "low", "high"))
    kept = "" if column.has_whole_ends else ", c.v"
    with session.transaction():
        rows = session.fetch(
            f"SELECT {column.covers('v', 'low', 'high')} AS found,"
            f" CASE WHEN num_nulls(s.v) = 1 THEN num_nulls(c.cell) = 1"
            " OR (lower_inf(c.cell) AND upper_inf(c.cell))"
            " ELSE coalesce(s.v <@ c.cell, false) END AS wanted"
            f" FROM (SELECT v::{type_name} AS v FROM unnest($1::text[]) AS v) AS s CROSS JOIN"
            f" (SELECT c.cell, {ends}{kept} FROM (SELECT v::{range_type} AS v, v::{range_type} AS"
            " cell FROM unnest($2::text[]) AS v) AS c) AS c",
            [*values, None],
            ranges,
        )
    assert len(rows) == 6 * len(RANGES)
    assert [row["found"] for row in rows] == [row["wanted"] for row in rows]
