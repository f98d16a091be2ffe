"""Each query of the fixtures is read, or refused for the reason beside it."""

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


@pytest.mark.parametrize("query", ANSWERED)
def test_answered(query: str) -> None:
    publication = parse_query(query).publication
    assert (publication.schema, publication.name) == ("published", "census_b")


@pytest.mark.parametrize(("query", "reason"), REFUSED)
def test_refused_with_its_reason(query: str, reason: str) -> None:
    with pytest.raises(UnsupportedQueryError) as refused:
        parse_query(query)
    assert reason in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("query", ANSWERED)
def test_read_as_postgresql_reads_it(query: str) -> None:
    from tests.rewrite.postgres_reading import canonical, read

    assert canonical(parse_query(query)) == canonical(read(query))
