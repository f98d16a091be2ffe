"""Questions as people type them, and as Superset, Metabase, Tableau, pandas and dbt write them.

``people`` is the publication's name, ``published`` its schema. The columns are age (integer), sex,
race, income (numeric), born (date), seen (timestamp) and the sensitive dx.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Asked(NamedTuple):
    """A question; if it is refused, what the hint says, and the lines that it says to write."""

    tool: str
    question: str
    hint: str = ""
    instead: tuple[str, ...] = ()
    is_of_ranges: bool = False  # Whether only rows with continuous ranges refuse it


_EACH_INTERVAL = "write COUNT(*) FILTER (WHERE x >= 10 AND x < 20) for each interval"

PEOPLE = (
    Asked("people", "SELECT COUNT(*) FROM people WHERE race = ANY (ARRAY['asian', 'white'])"),
    Asked(
        "people",
        "SELECT percentile_cont(ARRAY[0.25, 0.5, 0.75]) WITHIN GROUP (ORDER BY age) FROM people",
    ),
    Asked("people", "SELECT sex || '/' || race AS who, COUNT(*) FROM people GROUP BY 1"),
    Asked(
        "people",
        "SELECT COUNT(*) FROM people WHERE age ^ 2 > 2500",
        "x * x for x ^ 2",
        ("SELECT COUNT(*) FROM people WHERE age * age > 2500",),
    ),
    Asked("people", "SELECT COUNT(*) FROM people WHERE age <@ int4range(20, 40)"),
    Asked("people", "SELECT COUNT(*) FROM people WHERE born + 30 > DATE '1980-01-01'"),
    Asked(
        "people",
        "SELECT COUNT(*) FROM people WHERE age > (SELECT AVG(age) FROM people)",
        "ask SELECT AVG(...) FROM <publication> first, and write its number",
        ("SELECT AVG(age) FROM people", "SELECT COUNT(*) FROM people WHERE age > 52.3"),
    ),
    Asked(
        "people",
        "SELECT COUNT(*) FROM people WHERE born >= TO_DATE('1970-01-01', 'YYYY-MM-DD')",
    ),
    Asked(
        "people",
        "SELECT COUNT(*) FROM people WHERE seen AT TIME ZONE 'UTC' >= '2021-02-01 00:00+00'",
    ),
    Asked("people", "SELECT FLOOR(age/10.0)*10 AS decade, COUNT(*) FROM people GROUP BY 1"),
    Asked(
        "people",
        "-- how many are there?\n/* all /* of */ them */ SELECT COUNT(*) -- people\nFROM people",
    ),
    Asked(
        "people",
        "SELECT race, COUNT(*) FROM people GROUP BY race ORDER BY 2 DESC FETCH FIRST 2 ROWS ONLY",
    ),
    Asked("people", "SELECT COUNT(*) FROM people WHERE born < CURRENT_DATE - 20000"),
    Asked("people", "SELECT COUNT(*) FROM people WHERE UPPER(dx) = 'FLU' OR LOWER(sex) = 'f'"),
    Asked("people", "SELECT left(race, 1) AS initial, COUNT(*) FROM people GROUP BY 1"),
    Asked(
        "people",
        "SELECT race, ROUND(COUNT(*) * 100.0 / SUM(COUNT(*)) OVER (), 1) FROM people GROUP BY race",
    ),
    Asked(
        "people",
        "SELECT sex, race, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY sex) AS share"
        " FROM people WHERE dx = 'flu' GROUP BY sex, race",
    ),
    Asked(
        "people",
        "SELECT dx, 100.0 * COUNT(*) / (SELECT COUNT(*) FROM people) AS share FROM people"
        " WHERE age > 40 GROUP BY dx",
    ),
    Asked(
        "people",
        "SELECT race, SUM(weight) FROM people WHERE dx = 'flu' GROUP BY race",
        "write COUNT(*)",
        ("SELECT race, COUNT(*) FROM people WHERE dx = 'flu' GROUP BY race",),
    ),
    Asked(
        "people",
        "SELECT COUNT(*) FROM people WHERE agee > 30",
        'write "age"',
        ("SELECT COUNT(*) FROM people WHERE age > 30",),
    ),
    Asked("people", "SELECT race, COUNT(*) FROM people GROUP BY race ORDER BY count DESC"),
    Asked("people", "SELECT sex, AVG(age) FROM people WHERE dx = 'flu' GROUP BY sex ORDER BY avg"),
    Asked("people", "SELECT sex, MAX(age) FROM people GROUP BY sex ORDER BY max"),
    Asked(
        "people",
        "SELECT COUNT(*) FROM people WHERE born > '1970'",
        "write DATE '",
        ("SELECT COUNT(*) FROM people WHERE born > DATE '1970-01-01'",),
    ),
)

SUPERSET = (
    Asked(
        "Superset",
        "SELECT DATE_TRUNC('month', seen) AS __timestamp, COUNT(*) AS count FROM published.people"
        " WHERE seen >= TO_TIMESTAMP('2021-01-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')"
        " AND seen < TO_TIMESTAMP('2021-06-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')"
        " GROUP BY DATE_TRUNC('month', seen) ORDER BY count DESC LIMIT 50000",
        _EACH_INTERVAL,
        (
            (
                "SELECT COUNT(*) AS count FROM published.people WHERE seen >= TIMESTAMP '2021-01-01"
                " 00:00' AND seen < TIMESTAMP '2021-06-01 00:00'"
            ),
        ),
        is_of_ranges=True,
    ),
    Asked(
        "Superset",
        'SELECT sex AS sex, SUM(age) AS "SUM(age)" FROM published.people GROUP BY sex'
        ' ORDER BY "SUM(age)" DESC LIMIT 1000',
    ),
    Asked(
        "Superset",
        'SELECT race AS race, AVG(age) AS "AVG(age)" FROM (SELECT * FROM people) AS virtual_table'
        " GROUP BY race LIMIT 1000",
    ),
    Asked(
        "Superset",
        "SELECT race AS race, COUNT(*) AS count FROM (SELECT race, dx, age FROM people\nWHERE age"
        " > 20) AS virtual_table WHERE dx IN ('flu', 'asthma') GROUP BY race"
        " HAVING ((COUNT(*) > 5)) ORDER BY count DESC LIMIT 10000",
    ),
    Asked(
        "Superset",
        "SELECT DATE_TRUNC('year', born) AS born, COUNT(DISTINCT race) AS"
        ' "COUNT_DISTINCT(race)" FROM published.people'
        " WHERE born >= TO_DATE('1950-01-01', 'YYYY-MM-DD')"
        " AND born < TO_DATE('1999-01-01', 'YYYY-MM-DD') GROUP BY DATE_TRUNC('year', born)"
        " LIMIT 50000;",
    ),
    Asked(
        "Superset",
        "SELECT CASE WHEN age < 40 THEN 'young' ELSE 'old' END AS generation, COUNT(*) AS count"
        " FROM published.people WHERE ((1=1)) GROUP BY CASE WHEN age < 40 THEN 'young'"
        " ELSE 'old' END ORDER BY count DESC LIMIT 100",
    ),
    Asked(
        "Superset",
        "SELECT COUNT(*) AS rowcount FROM published.people WHERE LOWER(race) LIKE LOWER('%an%')",
    ),
    Asked(
        "Superset",
        'SELECT race AS race, MIN(age) AS "MIN(age)", MAX(age) AS "MAX(age)" FROM people WHERE'
        " race ILIKE '%a%' GROUP BY race ORDER BY \"MAX(age)\" DESC LIMIT 100",
    ),
    Asked(
        "Superset",
        "SELECT dx AS dx, sum(CASE WHEN sex = 'f' THEN 1 ELSE 0 END) AS women FROM people"
        " WHERE dx IS NOT NULL GROUP BY dx ORDER BY women DESC LIMIT 100",
    ),
    Asked(
        "Superset",
        "SELECT race AS race FROM people GROUP BY race ORDER BY COUNT(*) DESC LIMIT 1000",
    ),
)

METABASE = (
    Asked(
        "Metabase",
        "-- Metabase:: userID: 1 queryType: MBQL queryHash: 84312c35be25\n"
        'SELECT "published"."people"."race" AS "race", COUNT(*) AS "count" FROM'
        ' "published"."people" GROUP BY "published"."people"."race" ORDER BY'
        ' "published"."people"."race" ASC',
    ),
    Asked(
        "Metabase",
        'SELECT CAST(DATE_TRUNC(\'month\', "published"."people"."born") AS date) AS "born",'
        ' AVG("published"."people"."age") AS "avg" FROM "published"."people" GROUP BY'
        ' CAST(DATE_TRUNC(\'month\', "published"."people"."born") AS date) ORDER BY'
        ' CAST(DATE_TRUNC(\'month\', "published"."people"."born") AS date) ASC',
    ),
    Asked(
        "Metabase",
        'SELECT ((FLOOR((("published"."people"."age" - 0.0) / 10.0)) * 10.0) + 0.0) AS "age",'
        ' COUNT(*) AS "count" FROM "published"."people" GROUP BY'
        ' ((FLOOR((("published"."people"."age" - 0.0) / 10.0)) * 10.0) + 0.0) ORDER BY'
        ' ((FLOOR((("published"."people"."age" - 0.0) / 10.0)) * 10.0) + 0.0) ASC',
    ),
    Asked(
        "Metabase",
        'SELECT COUNT(*) AS "count" FROM "published"."people" WHERE'
        ' (LOWER("published"."people"."dx") LIKE \'%as%\')',
    ),
    Asked(
        "Metabase",
        'SELECT COUNT(*) AS "count" FROM "published"."people" WHERE'
        ' "published"."people"."born" >= CAST((CAST(NOW() AS timestamp)'
        " + (INTERVAL '-40 year')) AS date)",
    ),
    Asked(
        "Metabase",
        'SELECT "source"."sex" AS "sex", COUNT(*) AS "count" FROM (SELECT'
        ' "published"."people"."sex" AS "sex", "published"."people"."age" AS "age" FROM'
        ' "published"."people") AS "source" WHERE "source"."age" > 30 GROUP BY "source"."sex"'
        ' ORDER BY "source"."sex" ASC LIMIT 1048575',
    ),
    Asked(
        "Metabase",
        'SELECT SUM(CASE WHEN "published"."people"."age" > 30 THEN 1 ELSE 0.0 END) AS "n"'
        ' FROM "published"."people"',
    ),
    Asked(
        "Metabase",
        'SELECT CAST(SUM(CASE WHEN "published"."people"."dx" = \'flu\' THEN 1 ELSE 0.0 END) AS'
        ' DOUBLE PRECISION) / NULLIF(CAST(COUNT(*) AS DOUBLE PRECISION), 0.0) AS "share" FROM'
        ' "published"."people"',
    ),
    Asked(
        "Metabase",
        'SELECT PERCENTILE_CONT(0.5) within group (order by "published"."people"."age") AS "median"'
        ' FROM "published"."people"',
    ),
    Asked(
        "Metabase",
        'SELECT "published"."people"."dx" AS "dx", COUNT(DISTINCT "published"."people"."race") AS'
        ' "count" FROM "published"."people" WHERE ("published"."people"."sex" <> \'f\' OR'
        ' "published"."people"."sex" IS NULL) AND "published"."people"."age" BETWEEN 20 AND 60'
        ' GROUP BY "published"."people"."dx" ORDER BY "count" DESC,'
        ' "published"."people"."dx" ASC LIMIT 2000',
    ),
)

TABLEAU = (
    Asked(
        "Tableau",
        'SELECT CAST("people"."race" AS TEXT) AS "race", COUNT(1) AS "cnt:people:ok" FROM'
        ' "published"."people" "people" GROUP BY 1',
    ),
    Asked(
        "Tableau",
        'SELECT SUM(1) AS "sum:Number of Records:ok" FROM "published"."people" "people"'
        " HAVING (COUNT(1) > 0)",
    ),
    Asked(
        "Tableau",
        'SELECT "people"."sex" AS "sex", AVG(CAST("people"."age" AS DOUBLE PRECISION)) AS'
        ' "avg:age:ok" FROM "published"."people" "people" GROUP BY 1',
    ),
    Asked(
        "Tableau",
        'SELECT CAST(TRUNC(EXTRACT(YEAR FROM "people"."born")) AS INTEGER) AS "yr:born:ok",'
        ' COUNT(1) AS "n" FROM "published"."people" "people" GROUP BY 1',
    ),
    Asked(
        "Tableau",
        'SELECT DATE_TRUNC( \'MONTH\', CAST("people"."seen" AS TIMESTAMP) ) AS "tmn:seen:ok",'
        ' COUNT(1) AS "n" FROM "published"."people" "people" GROUP BY 1',
        _EACH_INTERVAL,
        (
            (
                "SELECT COUNT(*) FILTER (WHERE seen >= '2021-01-01' AND seen < '2021-02-01')"
                " AS january, COUNT(*) FILTER (WHERE seen >= '2021-02-01' AND seen <"
                " '2021-03-01') AS february FROM people"
            ),
        ),
        is_of_ranges=True,
    ),
    Asked(
        "Tableau",
        "SELECT (CASE WHEN CAST(\"people\".\"race\" AS TEXT) IN ('asian', 'black') THEN 'asian'"
        ' ELSE CAST("people"."race" AS TEXT) END) AS "grouped", COUNT(1) AS "n" FROM'
        ' "published"."people" "people" GROUP BY 1',
    ),
    Asked(
        "Tableau",
        'SELECT COUNT(DISTINCT "people"."age") AS "ctd:age:ok" FROM "published"."people" "people"'
        ' WHERE (("people"."dx" = \'flu\') AND ("people"."sex" = \'m\')) HAVING (COUNT(1) > 0)',
    ),
    Asked(
        "Tableau",
        'SELECT LEFT(CAST("people"."race" AS TEXT), 2) AS "start", COUNT(1) AS "n" FROM'
        ' "published"."people" "people" WHERE (CAST("people"."dx" AS TEXT) >= \'b\') GROUP BY 1',
    ),
    Asked(
        "Tableau",
        'SELECT CAST(FLOOR("people"."age" / 5.0) AS BIGINT) AS "age (bin)", SUM(1) AS "n" FROM'
        ' "published"."people" "people" WHERE ("people"."age" >= 18) GROUP BY 1',
    ),
    Asked(
        "Tableau",
        'SELECT "t0"."dx" AS "dx", COUNT(1) AS "n" FROM (SELECT "people"."dx" AS "dx",'
        ' "people"."age" AS "age" FROM "published"."people" "people") "t0" WHERE'
        ' (NOT ("t0"."age" <= 30)) GROUP BY 1 ORDER BY 1 ASC',
    ),
)

PANDAS = (
    Asked("pandas", "SELECT count(*) AS count_1 \nFROM published.people"),
    Asked(
        "pandas",
        "SELECT people.race, count(*) AS count_1 \nFROM published.people AS people"
        " \nWHERE people.age > 30 GROUP BY people.race ORDER BY count(*) DESC\n LIMIT 3",
    ),
    Asked(
        "pandas",
        "SELECT avg(people.age) AS avg_1, max(people.age) AS max_1 \nFROM published.people AS"
        " people \nWHERE people.dx IN ('flu', 'cancer') AND people.sex = 'f'",
    ),
    Asked(
        "pandas",
        "SELECT people.sex, people.dx, count(people.dx) AS n \nFROM published.people AS people"
        " GROUP BY people.sex, people.dx",
    ),
    Asked(
        "pandas",
        "SELECT count(*) AS n FROM published.people AS people"
        " WHERE people.race = ANY (ARRAY['asian', 'white']::text[])",
    ),
    Asked(
        "pandas",
        "SELECT CAST(people.age AS FLOAT) / 10 AS tenth, count(*) AS n FROM published.people AS"
        " people GROUP BY 1",
    ),
    Asked(
        "pandas",
        "SELECT anon_1.race, count(*) AS n \nFROM (SELECT people.race AS race, people.age AS age"
        " \nFROM published.people AS people \nWHERE people.age >= 21) AS anon_1 GROUP BY"
        " anon_1.race",
    ),
    Asked(
        "pandas",
        "SELECT EXTRACT(year FROM people.born) AS y, count(*) AS n FROM published.people AS people"
        " WHERE people.born IS NOT NULL GROUP BY EXTRACT(year FROM people.born)",
    ),
    Asked(
        "pandas",
        "SELECT lower(people.dx) AS lower_1, count(*) AS n FROM published.people AS people"
        " WHERE (people.dx LIKE '%' || 'l' || '%') GROUP BY lower(people.dx)",
    ),
    Asked(
        "pandas",
        "SELECT coalesce(people.dx, 'none') AS coalesce_1, count(*) AS n FROM published.people AS"
        " people WHERE people.age != 40 AND people.dx IS DISTINCT FROM 'flu'"
        " GROUP BY coalesce(people.dx, 'none')",
    ),
)

DBT = (
    Asked(
        "dbt",
        '/* {"app": "dbt", "dbt_version": "1.9.1", "node_id": "model.h.by_race"} */\n'
        'select\n    race,\n    count(*) as n_people\nfrom "db"."published"."people"\ngroup by 1',
    ),
    Asked(
        "dbt",
        "with source as (\n\n    select * from published.people\n\n),\n\nrenamed as (\n\n"
        "    select\n        age as patient_age,\n        dx as diagnosis\n\n    from source\n\n)\n"
        "\nselect diagnosis, avg(patient_age) as mean_age from renamed group by diagnosis",
    ),
    Asked(
        "dbt",
        "with adults as (\n    -- only adults\n    select * from published.people where age >= 18\n"
        ")\n\nselect sex, count(*) as n\nfrom adults\ngroup by sex\norder by n desc",
    ),
    Asked(
        "dbt",
        "select count(*) as failures from ( select dx from published.people where dx is null )"
        " dbt_internal_test",
    ),
    Asked(
        "dbt",
        "select race, sum(case when dx = 'flu' then 1 else 0 end) as flu, count(*) as n,"
        " round(100.0 * sum(case when dx = 'flu' then 1 else 0 end) / count(*), 2) as pct"
        " from published.people group by 1 order by 1",
    ),
    Asked(
        "dbt",
        "select date_trunc('quarter', born)::date as born_in, count(*) as n from published.people"
        " where born < '1990-01-01'::date group by 1 order by 1 limit 500",
    ),
    Asked(
        "dbt",
        "select trim(lower(race)) || '-' || sex as key, count(*) as n from published.people"
        " group by trim(lower(race)) || '-' || sex",
    ),
    Asked(
        "dbt",
        "select nullif(dx, 'none') as dx, count(*) filter (where age > 50) as older from"
        " published.people group by 1",
    ),
    Asked(
        "dbt",
        "select income_band, count(*) as n from (select case when income < 20000 then 'low' when"
        " income < 40000 then 'middle' else 'high' end as income_band from published.people) as b"
        " group by income_band",
        _EACH_INTERVAL,
        (
            (
                "select count(*) filter (where income < 20000) as low,"
                " count(*) filter (where income >= 20000 and income < 40000) as middle from people"
            ),
        ),
        is_of_ranges=True,
    ),
    Asked(
        "dbt",
        "select ceil(income / 10000.0) as step, count(*) as n, stddev(age) as spread from"
        " published.people where 1 = 1 and sex = 'f' group by 1 -- one row for each step\n",
        _EACH_INTERVAL,
        (
            (
                "select count(*) filter (where income > 20000 and income <= 30000) as step,"
                " count(*) from people"
            ),
        ),
        is_of_ranges=True,
    ),
)


def read_questions(file: str) -> Iterator[tuple[str, str]]:
    """Yield each question of a file, after the tool that sends it."""
    tool = ""
    for line in Path(__file__).with_name(file).read_text(encoding="utf-8").splitlines()[1:]:
        if line.startswith("-- "):
            tool = line[3:]
        else:
            yield tool, line


ASKED = PEOPLE + SUPERSET + METABASE + TABLEAU + PANDAS + DBT
ASKED += tuple(Asked(*one) for one in read_questions("asked.sql"))

HINTS = (
    Asked(
        "hint", "SELECT covar_pop(age, income) FROM people", "AVG(a * b) - AVG(a) * AVG(b)",
        ("SELECT AVG(age * income) - AVG(age) * AVG(income) AS c FROM people",),
    ),
    Asked(
        "hint", "SELECT COUNT(*) FROM people WHERE dx IN (NULL, 'flu') AND age > 50",
        "leave NULL out of the list, and write OR x IS NULL",
        ("SELECT COUNT(*) FROM people WHERE dx IN ('flu') AND age > 50",
         "SELECT COUNT(*) FROM people WHERE (dx IN ('flu') OR dx IS NULL) AND age > 50"),
    ),
    Asked(
        "hint", "SELECT dx, COUNT(*) FROM people GROUP BY dx ORDER BY 2 USING >",
        "write ASC, or DESC", ("SELECT dx, COUNT(*) FROM people GROUP BY dx ORDER BY 2 DESC",),
    ),
    Asked(
        "hint", "SELECT COUNT(*) FROM people WHERE dx COLLATE \"C\" > 'M'", "leave it out",
        ("SELECT COUNT(*) FROM people WHERE dx > 'M'",),
    ),
    Asked(
        "hint", "SELECT COUNT(*) AS n FROM people WHERE race IN (SELECT race FROM (SELECT race,"
        " COUNT(*) AS n FROM people GROUP BY race) AS t GROUP BY race HAVING MAX(n) > 5)",
        "ask it by itself first, and write its values, as in IN (1, 2, 3)",
        ("SELECT race, COUNT(*) AS n FROM people GROUP BY race HAVING COUNT(*) > 5",),
    ),
    Asked(
        "hint", "SELECT COUNT(*) FROM people WHERE age IN (SELECT MAX(age) FROM people)",
        "ask it by itself first, and write its values, as in IN (1, 2, 3)",
        ("SELECT MAX(age) AS m FROM people", "SELECT COUNT(*) FROM people WHERE age IN (88, 87)"),
    ),
    Asked(
        "hint", "SELECT t.n FROM people AS p JOIN (SELECT race, COUNT(*) AS n FROM people"
        " GROUP BY race) AS t ON t.race = p.race", "use the columns that it groups by",
        ("SELECT race, COUNT(*) AS n FROM people GROUP BY race",),
    ),
    Asked(
        "hint", "SELECT COUNT(*) FROM people WHERE dx = NULL", "write IS NULL",
        ("SELECT COUNT(*) FROM people WHERE dx IS NULL",),
    ),
    Asked(
        "hint", "SELECT DISTINCT ON (race) race FROM people", "SELECT DISTINCT a, b, or GROUP BY",
        ("SELECT DISTINCT race, sex FROM people",
         "SELECT race, sex, COUNT(*) FROM people GROUP BY race, sex"),
    ),
    Asked(
        "hint", "SELECT COUNT(*) / COUNT(dx) FROM people", "100.0 * COUNT(*)",
        ("SELECT 100.0 * COUNT(*) FILTER (WHERE dx = 'flu') / COUNT(*) AS share FROM people",),
    ),
    Asked(
        "hint", "SELECT MAX(dx) FROM people", "SELECT DISTINCT <column> ... ORDER BY 1",
        ("SELECT DISTINCT dx FROM people ORDER BY 1",),
    ),
    Asked(
        "hint", "SELECT COUNT(DISTINCT (age, sex)) FROM people", "compare column by column",
        ("SELECT COUNT(*) FROM people WHERE age = 30 AND sex = 'f'",),
    ),
    Asked(
        "hint", "SELECT COUNT(*) FROM people WHERE born::text LIKE '196%'",
        "compare dates with DATE '...', or take parts of them with EXTRACT",
        ("SELECT COUNT(*) FROM people WHERE EXTRACT(DECADE FROM born) = 196",
         "SELECT COUNT(*) FROM people WHERE born > DATE '1960-01-01'"),
    ),
    Asked(
        "hint", "SELECT SUM(sex = 'f') FROM people", "COUNT(*) FILTER (WHERE ...)",
        ("SELECT COUNT(*) FILTER (WHERE sex = 'f') AS n FROM people",),
    ),
    Asked(
        "hint", "SELECT SUM(age) OVER (PARTITION BY sex) FROM people",
        "SUM(COUNT(*)) OVER (), or OVER (PARTITION BY <a column of GROUP BY>)",
        ("SELECT sex, race, SUM(COUNT(*)) OVER (PARTITION BY sex) AS n FROM people GROUP BY 1, 2",),
    ),
    Asked(
        "hint", "SELECT median(age) FROM people",
        "write percentile_cont(0.5) WITHIN GROUP (ORDER BY <column>)",
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY age) AS m FROM people",),
    ),
    Asked(
        "hint", "SELECT COUNT(*) FROM people WHERE contains(dx, 'fl')", "write x LIKE 'ab%'",
        ("SELECT COUNT(*) FROM people WHERE dx LIKE '%fl%'",),
    ),
    Asked(
        "hint", "SELECT COUNT(*) FROM people WHERE year(born) = 1970",
        "EXTRACT(YEAR FROM <column>), or date_trunc('month', <column>)",
        ("SELECT COUNT(*) FROM people WHERE EXTRACT(YEAR FROM born) = 1970",),
    ),
    Asked(
        "hint", "SELECT IF(age > 30, 'old', 'young') AS a, COUNT(*) FROM people GROUP BY 1",
        "write CASE WHEN x > 1 THEN a ELSE b END",
        ("SELECT CASE WHEN age > 30 THEN 'old' ELSE '' END AS a, COUNT(*) FROM people GROUP BY 1",),
    ),
    Asked(
        "hint", "SELECT COUNT(*) FROM people WHERE to_char(age, '99') = '30'",
        "to_char(<column>, 'YYYY-MM'), or date_trunc('month', <column>)",
        ("SELECT COUNT(*) FROM people WHERE to_char(born, 'YYYY-MM') = '1960-01'",),
    ),
    Asked(
        "hint", "SELECT COUNT(*) FROM people WHERE width_bucket(age, ARRAY[1, 2]) = 1",
        "write", ("SELECT COUNT(*) FROM people WHERE width_bucket(age, 0, 100, 5) = 2",),
    ),
    Asked(
        "hint", "SELECT n, COUNT(*) FROM (SELECT dx, COUNT(*) AS n FROM people GROUP BY dx) AS t"
        " GROUP BY n", "ask the subquery itself, and group its answer",
        ("SELECT dx, COUNT(*) AS n FROM people GROUP BY dx",),
    ),
    Asked(
        "hint", "SELECT MAX(n) FROM (SELECT dx, COUNT(*) AS n FROM people GROUP BY dx ORDER BY n"
        " LIMIT 2) AS t", "leave LIMIT out",
        ("SELECT MAX(n) AS m FROM (SELECT dx, COUNT(*) AS n FROM people GROUP BY dx) AS t",),
    ),
)  # fmt: skip
"""Refused with a hint, which leads to a query that is answered."""


class AskedFirst(NamedTuple):
    """A question with a subquery that is answered first, and the same with its rows written out."""

    question: str
    subquery: str
    condition: str  # With {} for its values
    meant: str


FIRST = (
    AskedFirst(
        "SELECT race AS race, sex AS sex, COUNT(*) AS count FROM published.people JOIN ({}) AS"
        " series_limit ON race = race__ GROUP BY race, sex ORDER BY count DESC LIMIT 1000",
        "SELECT race AS race__, COUNT(*) AS mme_inner__ FROM published.people GROUP BY race"
        " ORDER BY mme_inner__ DESC LIMIT 3",
        "race IN ({})",
        "SELECT race, sex, COUNT(*) AS count FROM people WHERE {} GROUP BY race, sex",
    ),
    AskedFirst(
        'SELECT "people"."dx" AS "dx", SUM(1) AS "n" FROM "published"."people" "people" INNER JOIN'
        ' ({}) "t0" ON ("people"."dx" = "t0"."dx") GROUP BY 1',
        'SELECT "people"."dx" AS "dx", SUM("people"."age") AS "$__alias__0" FROM'
        ' "published"."people" "people" GROUP BY 1 ORDER BY 2 DESC LIMIT 2',
        "dx IN ({})",
        "SELECT dx, COUNT(*) AS n FROM people WHERE {} GROUP BY dx",
    ),
    AskedFirst(
        "SELECT CASE WHEN race IN ({}) THEN race ELSE 'Other' END AS r, AVG(age) AS a FROM people"
        " GROUP BY CASE WHEN race IN ({}) THEN race ELSE 'Other' END",
        "SELECT race FROM people GROUP BY race ORDER BY COUNT(*) DESC LIMIT 2",
        "race IN ({})",
        "SELECT CASE WHEN {0} THEN race ELSE 'Other' END AS r, AVG(age) AS a FROM people GROUP BY"
        " CASE WHEN {0} THEN race ELSE 'Other' END",
    ),
    AskedFirst(
        "SELECT COALESCE(t.race, 'Other') AS r, COUNT(*) AS n FROM people AS p LEFT JOIN ({}) AS t"
        " ON p.race = t.race GROUP BY 1",
        "SELECT race, COUNT(*) AS n FROM people WHERE dx = 'flu' GROUP BY race ORDER BY n DESC"
        " LIMIT 2",
        "race IN ({})",
        "SELECT CASE WHEN {0} THEN race ELSE 'Other' END AS r, COUNT(*) AS n FROM people GROUP BY"
        " CASE WHEN {0} THEN race ELSE 'Other' END",
    ),
    AskedFirst(
        "WITH top AS ({}) SELECT top.race, AVG(p.age) AS a FROM top JOIN people AS p"
        " ON p.race = top.race WHERE dx IS NOT NULL GROUP BY top.race",
        "SELECT race FROM people GROUP BY race HAVING COUNT(*) > 80.5",
        "race IN ({})",
        "SELECT race, AVG(age) AS a FROM people WHERE {} AND dx IS NOT NULL GROUP BY race",
    ),
    AskedFirst(
        "SELECT COUNT(*) AS n FROM people WHERE age NOT IN ({}) AND sex = 'f'",
        "SELECT age FROM people WHERE dx = 'flu' GROUP BY age HAVING COUNT(*) >= 2",
        "age IN ({})",
        "SELECT COUNT(*) AS n FROM people WHERE NOT {} AND sex = 'f'",
    ),
    AskedFirst(
        "SELECT COUNT(*) AS n, SUM(income) AS s FROM people WHERE race IN ({})",
        "SELECT DISTINCT race FROM people WHERE age < 30 AND sex = 'm'",
        "race IN ({})",
        "SELECT COUNT(*) AS n, SUM(income) AS s FROM people WHERE {}",
    ),
)
"""Questions whose subqueries are answered first."""
