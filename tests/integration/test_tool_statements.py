"""The statements that BI tools send, on `<name>_draws`: their numbers are those of the source.

Those of Superset are what its version 6.1.0 wrote, but for line breaks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.integration.parties import Parties, create_source, fetch
from tests.integration.test_kept_draws import COLUMNS, KNOWN, people

# {0} is the schema, {1} the table.
STATEMENTS: Mapping[str, str] = {
    "Superset, a bar chart":
        "SELECT city AS city, COUNT(*) AS count, AVG(age) AS \"AVG(age)\" FROM {0}.{1}"
        " WHERE ill IN ('u', 'v', 'w') GROUP BY city ORDER BY count DESC LIMIT 10000",
    "Superset, a time grain":
        "SELECT DATE_TRUNC('year', born) AS born, COUNT(*) AS count, SUM(d) AS \"SUM(d)\""
        " FROM {0}.{1} WHERE born >= TO_DATE('1950-01-01', 'YYYY-MM-DD') AND born <"
        " TO_DATE('1960-01-01', 'YYYY-MM-DD') GROUP BY DATE_TRUNC('year', born) LIMIT 50000",
    "Superset, a series limit":
        "SELECT city AS city, ill AS ill, COUNT(*) AS count FROM {0}.{1} JOIN (SELECT ill AS ill__,"
        " COUNT(*) AS mme_inner__ FROM {0}.{1} GROUP BY ill ORDER BY COUNT(*) DESC LIMIT 3) AS"
        " series_limit ON ill = ill__ GROUP BY city, ill ORDER BY count DESC LIMIT 10000",
    "Superset, the number of rows":
        "SELECT COUNT(*) AS rowcount FROM (SELECT city AS city, ill AS ill, COUNT(*) AS count"
        " FROM {0}.{1} GROUP BY city, ill LIMIT 50000) AS rowcount_qry",
    "Superset, a pivot table":
        "SELECT city AS city, v AS v, sum(weight) AS \"SUM(weight)\", min(age) AS \"MIN(age)\","
        " count(DISTINCT born) AS \"COUNT_DISTINCT(born)\" FROM {0}.{1} GROUP BY city, v"
        " LIMIT 50000",
    "Superset, values of a filter": "SELECT city AS city FROM {0}.{1} GROUP BY city LIMIT 50000",
    "Superset, big number": "SELECT COUNT(*) AS count FROM {0}.{1} LIMIT 50000",
    "Metabase, count by":
        'SELECT "{0}"."{1}"."city" AS "city", COUNT(*) AS "count", AVG("{0}"."{1}"."age") AS "avg"'
        ' FROM "{0}"."{1}" WHERE ("{0}"."{1}"."ill" = \'u\') OR ("{0}"."{1}"."ill" = \'v\')'
        ' GROUP BY "{0}"."{1}"."city" ORDER BY "{0}"."{1}"."city" ASC',
    "Metabase, by month":
        'SELECT CAST(DATE_TRUNC(\'month\', "{0}"."{1}"."born") AS DATE) AS "born",'
        ' SUM("{0}"."{1}"."d") AS "sum" FROM "{0}"."{1}"'
        ' GROUP BY CAST(DATE_TRUNC(\'month\', "{0}"."{1}"."born") AS DATE) ORDER BY'
        ' CAST(DATE_TRUNC(\'month\', "{0}"."{1}"."born") AS DATE) ASC',
    "Metabase, in bins":
        'SELECT FLOOR((("{0}"."{1}"."age" - 20.0) / 10.0)) * 10.0 + 20.0 AS "age", COUNT(*) AS'
        ' "count" FROM "{0}"."{1}" GROUP BY FLOOR((("{0}"."{1}"."age" - 20.0) / 10.0)) * 10.0 +'
        ' 20.0 ORDER BY 1 ASC',
    "Metabase, a nested question":
        'SELECT "source"."count" AS "count", "source"."ill" AS "ill" FROM (SELECT'
        ' "{0}"."{1}"."ill" AS "ill", COUNT(*) AS "count" FROM "{0}"."{1}" GROUP BY'
        ' "{0}"."{1}"."ill" ORDER BY "{0}"."{1}"."ill" ASC) AS "source" WHERE "source"."count" > 10'
        ' LIMIT 1048575',
    "Metabase, a fingerprint":
        'SELECT COUNT(distinct "{0}"."{1}"."city") AS "count", MIN("{0}"."{1}"."age") AS "min",'
        ' MAX("{0}"."{1}"."age") AS "max" FROM "{0}"."{1}"',
    "Tableau":
        'SELECT "{1}"."city" AS "city", SUM(1) AS "sum:Number of Records:ok",'
        ' AVG(CAST("{1}"."age" AS DOUBLE PRECISION)) AS "avg:age:ok" FROM "{0}"."{1}" "{1}"'
        ' GROUP BY 1',
    "Power BI":
        'select "rows"."city" as "city", count(1) as "a0", sum("rows"."d") as "a1" from (select'
        ' "_"."city", "_"."d" from "{0}"."{1}" "_" where "_"."age" >= 30 and "_"."age" < 50)'
        ' "rows" group by "city" limit 1000001',
}  # fmt: skip
EXACT = ("Superset, big number", "Superset, the number of rows", "Superset, a pivot table",
         "Superset, values of a filter", "Metabase, a fingerprint",
         "Superset, a time grain", "Metabase, by month", "Metabase, in bins",
         "Metabase, a nested question", "Power BI")  # fmt: skip
"""Those that ask for quasi-identifiers only, or for the sensitive attribute only."""


@pytest.fixture(scope="module")
def published(parties: Parties) -> Parties:
    own = create_source(parties.publisher, "data.asked", COLUMNS, people(1_000), KNOWN, "ill")
    own.publish("data.asked", "asked", privacy='{"default": 0.6}', draws=True)
    return parties


def answers(parties: Parties, name: str) -> tuple[list[Any], list[Any]]:
    drawn, true = (
        sorted(fetch(connection, STATEMENTS[name].format(schema, table)), key=repr)
        for connection, schema, table in (
            (parties.analyst, "published", "asked_draws"), (parties.publisher, "data", "asked"),
        )
    )  # fmt: skip
    return drawn, true


@pytest.mark.parametrize("name", EXACT)
def test_one_side_is_exact(published: Parties, name: str) -> None:
    drawn, true = answers(published, name)
    assert drawn == true != []


@pytest.mark.parametrize("name", sorted({*STATEMENTS} - {*EXACT}))
def test_both_sides_are_near(published: Parties, name: str) -> None:
    """The same groups, each figure of more than 100 people as near as chance lets it be."""
    drawn, true = answers(published, name)
    figures = lambda rows: [float(one) for row in rows for one in row if not isinstance(one, str)]
    texts = lambda rows: {tuple(one for one in row if isinstance(one, str)) for row in rows}
    assert texts(drawn) == texts(true)
    if name != "Superset, a series limit":
        assert figures(drawn) == pytest.approx(figures(true), rel=0.25)
