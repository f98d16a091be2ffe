-- What tools send, one question a line, below the name of the tool; read by asked.py.
-- values
SELECT COUNT(*) FROM people WHERE race ~ '^[ab]' AND dx ~* 'FLU|cancer'
SELECT COUNT(*) FROM people WHERE race !~ 'hi+t' OR dx !~* '^a'
SELECT COUNT(*) FROM people WHERE race || dx ~ 'n.*u$'
SELECT COUNT(*) FROM people WHERE regexp_like(dx, 'F', 'i') AND race LIKE ANY (ARRAY['a%', '%k'])
SELECT COUNT(*) FROM people WHERE race NOT LIKE ALL (ARRAY['a%', 'w%']) AND dx LIKE ANY ('{f%,"c%"}')
SELECT COUNT(*) FROM people WHERE race = ANY('{asian, "White "}') AND sex = ANY('{f}'::text[])
SELECT race, COUNT(*) FROM people WHERE mod(age, 10) = 3 AND dx = 'flu' GROUP BY race
SELECT COUNT(*) FROM people WHERE width_bucket(age, 20, 80, 6) = 2 AND dx <> 'flu'
SELECT COUNT(*) FROM people WHERE width_bucket(income, 20000, 50000, 3) > 1
SELECT COUNT(*) FROM people WHERE greatest(age, 40) > least(60, age) AND greatest(race, dx) = dx
SELECT COUNT(*) FROM people WHERE split_part(race, 'i', 1) = 'as' AND split_part(dx, 'n', -1) = 'cer'
SELECT COUNT(*) FROM people WHERE regexp_replace(race, '[aeiou]', '', 'g') = 'blck' OR regexp_replace(dx, 'F', 'f') = 'flu'
SELECT COUNT(*) FROM people WHERE to_char(born, 'YYYY-MM') < '1960-06' AND dx = 'asthma'
SELECT COUNT(*) FROM people WHERE to_char(date_trunc('month', born), 'Mon YYYY') = 'Jan 1970'
SELECT COUNT(*) FROM people WHERE DATE(seen) = '2021-02-03' OR date('1970-01-01') > born
SELECT COUNT(*) FROM people WHERE age BETWEEN SYMMETRIC 60 AND 30 AND born BETWEEN SYMMETRIC '1990-01-01'::date AND '1950-01-01'::date
SELECT COUNT(*) FROM people WHERE CAST(income AS NUMERIC(10, 2)) > 30000 AND income::numeric(8) = 20000
SELECT COUNT(*) FROM people WHERE sign(age - 40) = 1 AND dx = 'flu'
-- Looker
SELECT COALESCE(SUM(people.age), 0) AS "people.total" FROM people WHERE dx = 'flu'
SELECT people.race, COALESCE(SUM(people.age) FILTER (WHERE dx = 'flu'), 0) AS total FROM people GROUP BY 1
SELECT COALESCE(AVG(age), -1) AS a, COALESCE(COUNT(dx), 0) AS n FROM people WHERE age > 99
SELECT COALESCE(SUM(age) / NULLIF(COUNT(dx), 0.0), 0) AS mean FROM people WHERE sex = 'm'
SELECT CAST(SUM(age) AS NUMERIC(12, 2)) AS a, CAST(AVG(age) AS NUMERIC(10, 1)) AS b, AVG(age)::int AS c, COUNT(*)::bigint AS d FROM people WHERE dx = 'asthma'
SELECT (TO_CHAR(DATE_TRUNC('month', people.born), 'YYYY-MM')) AS month, COUNT(*) AS n FROM people WHERE age > 60 GROUP BY 1 ORDER BY 1 DESC LIMIT 500
SELECT (DATE(people.born)) AS day, COUNT(*) AS n FROM people WHERE age < 20 GROUP BY 1
SELECT 'db' AS source, 1 AS one, race, COUNT(*) AS n FROM people GROUP BY 1, 2, 3
SELECT CASE WHEN COUNT(*) > 50 THEN 1 WHEN COUNT(*) > 20 THEN 0.5 ELSE 0 END AS many, race FROM people WHERE dx = 'flu' GROUP BY race
SELECT CASE WHEN SUM(age) > 4000 THEN AVG(age) ELSE 0 END AS a FROM people WHERE dx = 'flu'
SELECT count(*) as failures, count(*) != 0 as should_warn, count(*) > 1000 as should_error FROM (SELECT dx FROM people WHERE dx IS NULL) AS dbt_internal_test
SELECT MIN(born) AS "MIN(born)", MAX(born) AS "MAX(born)" FROM people WHERE dx = 'flu'
SELECT sex, MAX(seen) AS last FROM people GROUP BY sex ORDER BY last DESC
SELECT extract(epoch from date_trunc('year', born)) AS time, COUNT(*) AS n FROM people GROUP BY date_trunc('year', born) ORDER BY 1
SELECT race, COUNT(*) AS n FROM people GROUP BY race HAVING COUNT(*) IN (80, 81) OR COALESCE(SUM(age), 0) > 10
-- Power BI
SELECT * FROM (SELECT race, COUNT(*) AS n FROM people WHERE age > 30 GROUP BY race) AS x WHERE n > 50 ORDER BY n DESC
SELECT race, n FROM (SELECT race, sex, COUNT(*) AS n FROM people GROUP BY race, sex) AS t WHERE sex = 'f' AND n > 10 ORDER BY 2 DESC LIMIT 2
WITH g AS (SELECT dx, COUNT(*) AS n, AVG(age) AS a FROM people GROUP BY dx) SELECT dx, n * 2 AS m, a FROM g WHERE a > 30 OR n < 20
SELECT "source"."race" AS "race", "source"."count" AS "count" FROM (SELECT race, COUNT(*) AS "count" FROM people WHERE dx = 'flu' GROUP BY race) AS "source" WHERE "source"."count" > 3 LIMIT 2000
SELECT q.sex, q.m FROM (SELECT sex, SUM(age) AS m FROM people GROUP BY sex ORDER BY 2) AS q WHERE q.m > 0
select unique_field, n_records from (select dx as unique_field, count(*) as n_records from people where dx is not null group by dx having count(*) > 1) dbt_internal_test
SELECT * FROM (SELECT COUNT(*) AS n, SUM(age) AS s FROM people WHERE sex = 'm') AS q
SELECT sex, race, COUNT(*) AS n, GROUPING(race) AS is_total, GROUPING(sex) AS is_sum FROM people GROUP BY ROLLUP (sex, race) ORDER BY 1, 2
SELECT sex, dx, SUM(age) AS total, COUNT(*) AS n, GROUPING(sex) AS s, GROUPING(dx) AS d FROM people WHERE age > 30 GROUP BY CUBE (1, dx)
SELECT date_trunc('year', born) AS y, dx, COUNT(*) AS n, GROUPING(dx) AS d FROM people GROUP BY GROUPING SETS ((date_trunc('year', born)), (dx), ())
SELECT dx, COUNT(*) AS n FROM people GROUP BY dx ORDER BY 2 DESC LIMIT ALL OFFSET 0
-- over groups
SELECT COUNT(*) AS n FROM (SELECT race, sex, COUNT(*) AS n FROM people GROUP BY race, sex HAVING COUNT(*) > 40) AS t
SELECT COUNT(*) AS rowcount FROM (SELECT age AS age, dx AS dx, COUNT(*) AS count FROM people GROUP BY age, dx LIMIT 50000) AS rowcount_qry
SELECT COUNT(*) AS n, COUNT(dx) AS m FROM (SELECT DISTINCT age, dx FROM people WHERE sex = 'f') AS t
SELECT SUM(n) AS s, AVG(n) AS a, MAX(n) AS m, MIN(n) AS l, COUNT(*) AS c FROM (SELECT age, dx, COUNT(*) AS n FROM people GROUP BY age, dx) AS t
SELECT sex, SUM(n) AS s, AVG(n) AS a, MAX(n) AS m FROM (SELECT sex, dx, COUNT(*) AS n FROM people GROUP BY sex, dx) AS t GROUP BY sex ORDER BY s DESC
SELECT AVG("source"."count") AS "avg" FROM (SELECT DATE_TRUNC('year', "published"."people"."born") AS "born", COUNT(*) AS "count" FROM "published"."people" GROUP BY DATE_TRUNC('year', "published"."people"."born")) AS "source"
SELECT AVG(m) AS a, MAX(m) AS x, MIN(s) AS l FROM (SELECT dx, AVG(age) AS m, SUM(age) AS s FROM people GROUP BY dx) AS t WHERE dx IS NOT NULL
SELECT COUNT(*) AS n, SUM(CASE WHEN n > 20 THEN 1 ELSE 0 END) AS big FROM (SELECT dx, COUNT(*) AS n FROM people GROUP BY dx) AS t WHERE n > 5
SELECT ROUND(AVG(n), 1) AS a, 100.0 * MAX(n) / SUM(n) AS share, COALESCE(SUM(n) FILTER (WHERE n < 60), 0) AS few FROM (SELECT race, COUNT(*) AS n FROM people GROUP BY race) AS t
with by_both as (select dx, sex, count(*) as n from people group by dx, sex), by_dx as (select dx, sum(n) as n, max(n) as m from by_both group by dx) select dx, n, m from by_dx where dx <> 'flu' order by n desc
with source as (select * from published.people), counts as (select race, sex, count(*) as n from source where age > 30 group by race, sex), final as (select sex, max(n) as most, avg(n) as mean from counts group by sex) select * from final
select count(*) as failures, count(*) <> 0 as should_warn from (select dx, count(*) as n from people group by dx having count(*) > 1000) as dbt_internal_test
-- more of what tools spell
SELECT COUNT(*) AS n FROM people WHERE (sex, race) IN (('f', 'asian'), ('m', 'black'))
SELECT COUNT(*) AS n FROM people WHERE (sex, race) NOT IN (('f', 'asian'), ('m', 'black')) AND dx = 'flu'
SELECT SUBSTRING(race FROM 1 FOR 2) AS s, COUNT(*) AS n FROM people GROUP BY SUBSTRING(race FROM 1 FOR 2)
SELECT COUNT(*) AS n FROM people WHERE SUBSTRING(dx FOR 2) = 'fl' OR SUBSTRING(race FROM 4) = 'te'
SELECT sex, CAST(SUM(CASE WHEN dx = 'flu' THEN 1 ELSE 0.0 END) AS FLOAT) / CASE WHEN COUNT(*) = 0 THEN NULL ELSE COUNT(*) END AS share FROM people GROUP BY sex
SELECT extract(epoch FROM MAX(seen)) AS last FROM people WHERE dx = 'flu'
SELECT COUNT(*) AS n FROM people WHERE seen >= timestamp with time zone '2021-02-01 00:00:00.000Z' AND seen < timestamptz '2021-03-01 00:00:00Z'
SELECT COUNT(*) AS n FROM people WHERE born >= (DATE_TRUNC('year', DATE_TRUNC('day', CURRENT_TIMESTAMP)) + (-60 || ' year')::INTERVAL) AND born < now() - '10 years'::interval
SELECT COUNT(*) AS failures FROM (WITH all_values AS (SELECT sex AS value_field, COUNT(*) AS n_records FROM people GROUP BY sex) SELECT * FROM all_values WHERE value_field NOT IN ('f', 'x')) AS dbt_internal_test
SELECT COUNT(*) AS n FROM people WHERE seen < CAST('2021-05-01' AS timestamp) - CAST('1 month' AS interval)
SELECT sex, 7 AS seven, COUNT(*) AS n, 2 AS two FROM people GROUP BY sex, 2
