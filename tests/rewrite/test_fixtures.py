"""Each query of the fixtures is read as PostgreSQL reads it, or refused for its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query.parse import parse_query

FIXTURES = Path(__file__).parent / "fixtures"
ANSWERED = (FIXTURES / "answered.sql").read_text(encoding="utf-8").splitlines()
REFUSED = [
    tuple(line.rsplit(" -- ", 1))
    for line in (FIXTURES / "refused.sql").read_text(encoding="utf-8").splitlines()
]


def test_read_as_postgresql_reads_it() -> None:
    from tests.rewrite.postgres_reading import canonical, read

    for query in ANSWERED:
        found = parse_query(query)
        assert found.publication[:2] == ("published", "census_b"), query
        assert canonical(found) == canonical(read(query)), query


def test_refused_with_its_reason() -> None:
    for query, reason in REFUSED:
        with pytest.raises(UnsupportedQueryError) as refused:
            parse_query(query)
        assert reason in refused.value.message, query
        assert refused.value.hint, query
