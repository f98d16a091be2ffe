from __future__ import annotations

from types import SimpleNamespace

import pytest

from kanon_db.counting.check import CountQuery, check
from kanon_db.counting.layout import Column
from kanon_db.counting.parse import parse_count
from kanon_db.counting.predicate import And, columns
from kanon_db.errors import UnsupportedQueryError


def column(name: str, type_name: str, category: str) -> Column:
    return Column(name=name, sql=f'"{name}"', type_name=type_name, category=category)


LAYOUT = SimpleNamespace(  # what check() looks at
    quasi_identifiers={
        "age": column("age", "integer", "integer"),
        "sex": column("sex", "text", "text"),
        "member": column("member", "boolean", "boolean"),
        "born": column("born", "date", "moment"),
    },
    sensitive=column("illness", "text", "text"),
)


def checked(condition: str) -> CountQuery:
    return check(parse_count(f"SELECT COUNT(*) FROM t WHERE {condition}").predicate, LAYOUT)


def test_no_condition() -> None:
    assert check(None, LAYOUT) == CountQuery(None, None)


def test_the_parts_go_to_their_sides() -> None:
    query = checked("illness <> 'Flu' AND (age = 1 OR sex = 'f') AND illness <> 'Cold'")
    assert columns(query.quasi_identifiers) == {"age", "sex"}
    assert isinstance(query.sensitive, And)
    assert len(query.sensitive.parts) == 2


def test_one_side_alone() -> None:
    assert checked("age = 1").sensitive is None
    assert checked("illness = 'Flu' OR illness IS NULL").quasi_identifiers is None


@pytest.mark.parametrize(
    "condition",
    [
        "age = 1 OR illness = 'Flu'",
        "NOT (age = 1 AND illness = 'Flu')",
        "age = 1 AND (age = 2 OR illness = 'Flu')",
    ],
)
def test_mixed_parts_are_refused(condition: str) -> None:
    with pytest.raises(UnsupportedQueryError) as refused:
        checked(condition)
    assert "illness" in refused.value.hint


def test_an_unknown_column_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedQueryError) as refused:
        checked("bucket_id = 1")
    assert "age, sex, member, born, illness" in refused.value.hint


@pytest.mark.parametrize(
    "condition",
    ["age = 1.5", "age = '1'", "sex = 'f'", "member = TRUE", "member = 't'", "born = '2020-01-31'",
     "born < DATE '2020-01-31'", "born < TIMESTAMP '2020-01-31'", "age IS NULL"],
)  # fmt: skip
def test_constants_that_compare(condition: str) -> None:
    assert checked(condition).quasi_identifiers is not None


@pytest.mark.parametrize(
    "condition",
    ["age = TRUE", "age = DATE '2020-01-31'", "sex = 1", "sex = TRUE", "sex IN ('f', 1)",
     "member = 1", "born = 2020", "born BETWEEN '2020-01-01' AND 2020", "illness < 5"],
)  # fmt: skip
def test_constants_that_postgresql_would_not_compare(condition: str) -> None:
    with pytest.raises(UnsupportedQueryError, match="does not compare") as refused:
        checked(condition)
    assert refused.value.hint
