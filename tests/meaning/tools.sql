-- What tools and analysts send of a table like Adult, one question a line, below the name of the tool.
-- Metabase
SELECT COUNT(*) AS "count" FROM "published"."adult"
SELECT "published"."adult"."education" AS "education", COUNT(*) AS "count" FROM "published"."adult" GROUP BY "published"."adult"."education" ORDER BY "published"."adult"."education" ASC
SELECT "published"."adult"."education" AS "education", COUNT(*) AS "count" FROM "published"."adult" GROUP BY "published"."adult"."education" ORDER BY "count" DESC, "published"."adult"."education" ASC
SELECT "published"."adult"."income" AS "income", AVG("published"."adult"."age") AS "avg" FROM "published"."adult" GROUP BY "published"."adult"."income" ORDER BY "published"."adult"."income" ASC
SELECT SUM("published"."adult"."capital_gain") AS "sum" FROM "published"."adult" WHERE "published"."adult"."income" = '>50K'
SELECT COUNT(DISTINCT "published"."adult"."occupation") AS "count" FROM "published"."adult"
SELECT COUNT(distinct "published"."adult"."native_country") AS "count" FROM "published"."adult" WHERE "published"."adult"."sex" = 'Female'
SELECT MIN("published"."adult"."age") AS "min", MAX("published"."adult"."age") AS "max" FROM "published"."adult"
SELECT STDDEV_POP("published"."adult"."age") AS "stddev" FROM "published"."adult"
SELECT VAR_POP("published"."adult"."hours_per_week") AS "var" FROM "published"."adult" WHERE "published"."adult"."income" = '>50K'
SELECT PERCENTILE_CONT(0.5) within group (order by "published"."adult"."hours_per_week") AS "median" FROM "published"."adult"
SELECT PERCENTILE_CONT(0.9) within group (order by "published"."adult"."age") AS "percentile" FROM "published"."adult" WHERE "published"."adult"."income" = '<=50K'
SELECT CAST(DATE_TRUNC('month', "published"."adult"."born") AS date) AS "born", COUNT(*) AS "count" FROM "published"."adult" GROUP BY CAST(DATE_TRUNC('month', "published"."adult"."born") AS date) ORDER BY CAST(DATE_TRUNC('month', "published"."adult"."born") AS date) ASC
SELECT DATE_TRUNC('year', "published"."adult"."born") AS "born", AVG("published"."adult"."capital_gain") AS "avg" FROM "published"."adult" GROUP BY DATE_TRUNC('year', "published"."adult"."born") ORDER BY DATE_TRUNC('year', "published"."adult"."born") ASC
SELECT CAST(DATE_TRUNC('quarter', "published"."adult"."born") AS date) AS "born", "published"."adult"."sex" AS "sex", COUNT(*) AS "count" FROM "published"."adult" GROUP BY CAST(DATE_TRUNC('quarter', "published"."adult"."born") AS date), "published"."adult"."sex" ORDER BY CAST(DATE_TRUNC('quarter', "published"."adult"."born") AS date) ASC, "published"."adult"."sex" ASC
SELECT CAST(DATE_TRUNC('week', ("published"."adult"."born" + INTERVAL '1 day')) + INTERVAL '-1 day' AS date) AS "born", COUNT(*) AS "count" FROM "published"."adult" GROUP BY CAST(DATE_TRUNC('week', ("published"."adult"."born" + INTERVAL '1 day')) + INTERVAL '-1 day' AS date) ORDER BY 1 ASC
SELECT CAST(EXTRACT(month from "published"."adult"."born") AS integer) AS "born", COUNT(*) AS "count" FROM "published"."adult" GROUP BY CAST(EXTRACT(month from "published"."adult"."born") AS integer) ORDER BY 1 ASC
SELECT CAST(EXTRACT(hour from "published"."adult"."seen") AS integer) AS "seen", COUNT(*) AS "count" FROM "published"."adult" GROUP BY CAST(EXTRACT(hour from "published"."adult"."seen") AS integer) ORDER BY CAST(EXTRACT(hour from "published"."adult"."seen") AS integer) ASC
SELECT (CAST(extract(dow from "published"."adult"."born") AS integer) + 1) AS "born", COUNT(*) AS "count" FROM "published"."adult" GROUP BY (CAST(extract(dow from "published"."adult"."born") AS integer) + 1) ORDER BY 1
SELECT ((floor((("published"."adult"."age" - 10.0) / 10.0)) * 10.0) + 10.0) AS "age", COUNT(*) AS "count" FROM "published"."adult" GROUP BY ((floor((("published"."adult"."age" - 10.0) / 10.0)) * 10.0) + 10.0) ORDER BY ((floor((("published"."adult"."age" - 10.0) / 10.0)) * 10.0) + 10.0) ASC
SELECT (FLOOR(("published"."adult"."hours_per_week" / 20.0)) * 20.0) AS "hours_per_week", "published"."adult"."income" AS "income", COUNT(*) AS "count" FROM "published"."adult" GROUP BY (FLOOR(("published"."adult"."hours_per_week" / 20.0)) * 20.0), "published"."adult"."income" ORDER BY 1 ASC, 2 ASC
SELECT COUNT(*) AS "count" FROM "published"."adult" WHERE ("published"."adult"."age" >= 30) AND ("published"."adult"."age" <= 40) AND ("published"."adult"."income" = '>50K')
SELECT COUNT(*) AS "count" FROM "published"."adult" WHERE ("published"."adult"."education" = 'Bachelors') OR ("published"."adult"."education" = 'Masters') OR ("published"."adult"."education" = 'Doctorate')
SELECT COUNT(*) AS "count" FROM "published"."adult" WHERE ("published"."adult"."workclass" <> 'Private') OR ("published"."adult"."workclass" IS NULL)
SELECT COUNT(*) AS "count" FROM "published"."adult" WHERE (LOWER("published"."adult"."occupation") LIKE '%exec%')
SELECT COUNT(*) AS "count" FROM "published"."adult" WHERE ("published"."adult"."occupation" LIKE 'Prof%')
SELECT COUNT(*) AS "count" FROM "published"."adult" WHERE NOT (LOWER("published"."adult"."native_country") LIKE '%united%') OR ("published"."adult"."native_country" IS NULL)
SELECT COUNT(*) AS "count" FROM "published"."adult" WHERE ("published"."adult"."occupation" IS NOT NULL) AND (("published"."adult"."occupation" <> '') OR ("published"."adult"."occupation" IS NULL))
SELECT COUNT(*) AS "count" FROM "published"."adult" WHERE "published"."adult"."born" >= DATE_TRUNC('year', (NOW() + (INTERVAL '-40 year'))) AND "published"."adult"."born" < DATE_TRUNC('year', NOW())
SELECT COUNT(*) AS "count" FROM "published"."adult" WHERE ("published"."adult"."born" >= DATE_TRUNC('month', (CAST(NOW() AS timestamp) + (INTERVAL '-600 month'))))
SELECT COUNT(*) AS "count" FROM "published"."adult" WHERE "published"."adult"."seen" >= timestamp '2021-02-01 00:00:00.000' AND "published"."adult"."seen" < timestamp '2021-03-01 00:00:00.000'
SELECT COUNT(*) AS "count" FROM "published"."adult" WHERE "published"."adult"."seen" >= timestamp with time zone '2021-02-01 00:00:00.000Z' AND "published"."adult"."seen" < timestamp with time zone '2021-03-01 00:00:00.000Z'
SELECT COUNT(*) AS "count" FROM "published"."adult" WHERE CAST("published"."adult"."seen" AS date) BETWEEN date '2021-02-01' AND date '2021-02-28'
SELECT SUM(CASE WHEN "published"."adult"."income" = '>50K' THEN 1 ELSE 0.0 END) AS "rich" FROM "published"."adult"
SELECT CAST(SUM(CASE WHEN "published"."adult"."income" = '>50K' THEN 1 ELSE 0.0 END) AS DOUBLE PRECISION) / NULLIF(CAST(COUNT(*) AS DOUBLE PRECISION), 0.0) AS "share" FROM "published"."adult"
SELECT "published"."adult"."sex" AS "sex", CAST(SUM(CASE WHEN "published"."adult"."income" = '>50K' THEN 1 ELSE 0.0 END) AS FLOAT) / CASE WHEN COUNT(*) = 0 THEN NULL ELSE COUNT(*) END AS "share" FROM "published"."adult" GROUP BY "published"."adult"."sex"
SELECT SUM(CASE WHEN "published"."adult"."sex" = 'Male' THEN "published"."adult"."capital_gain" ELSE 0.0 END) AS "sum-where" FROM "published"."adult"
SELECT "source"."education" AS "education", COUNT(*) AS "count" FROM (SELECT "published"."adult"."education" AS "education", "published"."adult"."age" AS "age", "published"."adult"."age" * 2 AS "double" FROM "published"."adult") AS "source" WHERE "source"."double" > 60 GROUP BY "source"."education" ORDER BY "source"."education" ASC
SELECT CASE WHEN "published"."adult"."age" < 30 THEN 'young' WHEN "published"."adult"."age" < 60 THEN 'middle' ELSE 'old' END AS "band", COUNT(*) AS "count" FROM "published"."adult" GROUP BY CASE WHEN "published"."adult"."age" < 30 THEN 'young' WHEN "published"."adult"."age" < 60 THEN 'middle' ELSE 'old' END ORDER BY 1 ASC
SELECT "source"."band" AS "band", AVG("source"."hours_per_week") AS "avg" FROM (SELECT CASE WHEN "published"."adult"."age" < 30 THEN 'young' ELSE 'old' END AS "band", "published"."adult"."hours_per_week" AS "hours_per_week" FROM "published"."adult") AS "source" GROUP BY "source"."band" ORDER BY "source"."band" ASC
SELECT "source"."race" AS "race", "source"."count" AS "count" FROM (SELECT "published"."adult"."race" AS "race", COUNT(*) AS "count" FROM "published"."adult" GROUP BY "published"."adult"."race" ORDER BY "published"."adult"."race" ASC) AS "source" WHERE "source"."count" > 50 LIMIT 1048575
SELECT AVG("source"."count") AS "avg" FROM (SELECT "published"."adult"."occupation" AS "occupation", COUNT(*) AS "count" FROM "published"."adult" GROUP BY "published"."adult"."occupation" ORDER BY "published"."adult"."occupation" ASC) AS "source"
SELECT MAX("source"."count") AS "max", MIN("source"."count") AS "min" FROM (SELECT "published"."adult"."education" AS "education", "published"."adult"."sex" AS "sex", COUNT(*) AS "count" FROM "published"."adult" GROUP BY "published"."adult"."education", "published"."adult"."sex") AS "source"
SELECT "source"."sex" AS "sex", SUM("source"."count") AS "sum" FROM (SELECT "published"."adult"."sex" AS "sex", "published"."adult"."race" AS "race", COUNT(*) AS "count" FROM "published"."adult" GROUP BY "published"."adult"."sex", "published"."adult"."race") AS "source" GROUP BY "source"."sex" ORDER BY "source"."sex" ASC
SELECT COUNT(*) AS "count" FROM (SELECT "published"."adult"."occupation" AS "occupation", COUNT(*) AS "count" FROM "published"."adult" GROUP BY "published"."adult"."occupation") AS "source" WHERE "source"."count" >= 100
SELECT "published"."adult"."race" AS "race", "published"."adult"."income" AS "income", COUNT(*) AS "count" FROM "published"."adult" GROUP BY "published"."adult"."race", "published"."adult"."income" ORDER BY "published"."adult"."race" ASC, "published"."adult"."income" ASC LIMIT 5000
SELECT "published"."adult"."id" AS "id", "published"."adult"."age" AS "age", "published"."adult"."education" AS "education" FROM "published"."adult" LIMIT 1048575
SELECT "published"."adult"."age" AS "age", "published"."adult"."education" AS "education", "published"."adult"."income" AS "income" FROM "published"."adult" LIMIT 2000
SELECT "published"."adult"."education" AS "education" FROM "published"."adult" GROUP BY "published"."adult"."education" ORDER BY "published"."adult"."education" ASC LIMIT 1000
SELECT "published"."adult"."native_country" AS "native_country" FROM "published"."adult" WHERE "published"."adult"."native_country" IS NOT NULL GROUP BY "published"."adult"."native_country" ORDER BY "published"."adult"."native_country" ASC LIMIT 5000
SELECT COUNT(*) AS "count", SUM("published"."adult"."hours_per_week") AS "sum", AVG("published"."adult"."hours_per_week") AS "avg" FROM "published"."adult" WHERE "published"."adult"."education_num" > 12
SELECT "published"."adult"."education" AS "education", (SUM("published"."adult"."capital_gain") / COUNT(*)) AS "per head" FROM "published"."adult" GROUP BY "published"."adult"."education"
SELECT COUNT(*) FILTER (WHERE "published"."adult"."income" = '>50K') AS "rich", COUNT(*) AS "all" FROM "published"."adult"
SELECT ROUND(AVG("published"."adult"."age"), 2) AS "expression" FROM "published"."adult"
SELECT UPPER("published"."adult"."sex") AS "sex", COUNT(*) AS "count" FROM "published"."adult" GROUP BY UPPER("published"."adult"."sex") ORDER BY 1 ASC
SELECT CONCAT("published"."adult"."sex", ' / ', "published"."adult"."race") AS "who", COUNT(*) AS "count" FROM "published"."adult" GROUP BY CONCAT("published"."adult"."sex", ' / ', "published"."adult"."race") ORDER BY 1 ASC
SELECT COALESCE("published"."adult"."occupation", 'none') AS "occupation", COUNT(*) AS "count" FROM "published"."adult" GROUP BY COALESCE("published"."adult"."occupation", 'none')
SELECT SUBSTRING("published"."adult"."education", 1, 3) AS "start", COUNT(*) AS "count" FROM "published"."adult" GROUP BY SUBSTRING("published"."adult"."education", 1, 3)
SELECT SUBSTRING("published"."adult"."education" FROM 1 FOR 3) AS "start", COUNT(*) AS "count" FROM "published"."adult" GROUP BY SUBSTRING("published"."adult"."education" FROM 1 FOR 3)
SELECT LENGTH("published"."adult"."occupation") AS "length", COUNT(*) AS "count" FROM "published"."adult" GROUP BY LENGTH("published"."adult"."occupation") ORDER BY 1 ASC
SELECT COUNT(*) AS "count" FROM "published"."adult" WHERE ("published"."adult"."income" = '>50K') AND ("published"."adult"."sex" IN ('Female', 'Male')) AND "published"."adult"."education_num" BETWEEN 10 AND 14
SELECT SUM(COUNT(*)) OVER (ORDER BY "published"."adult"."education_num" ASC ROWS UNBOUNDED PRECEDING) AS "count", "published"."adult"."education_num" FROM "published"."adult" GROUP BY "published"."adult"."education_num" ORDER BY "published"."adult"."education_num" ASC
SELECT LAG(COUNT(*), 1) OVER (ORDER BY "published"."adult"."education_num" ASC) AS "previous", "published"."adult"."education_num" FROM "published"."adult" GROUP BY "published"."adult"."education_num"
SELECT "published"."adult"."sex" AS "sex", COUNT(*) AS "count" FROM "published"."adult" WHERE "published"."adult"."age" > (SELECT AVG("published"."adult"."age") FROM "published"."adult") GROUP BY "published"."adult"."sex"
SELECT "published"."adult"."education" AS "education", COUNT(*) AS "count" FROM "published"."adult" WHERE "published"."adult"."education" IN (SELECT "published"."adult"."education" FROM "published"."adult" GROUP BY "published"."adult"."education" ORDER BY COUNT(*) DESC LIMIT 5) GROUP BY "published"."adult"."education"
SELECT COUNT(CASE WHEN "published"."adult"."age" >= 65 THEN 1 END) AS "retired" FROM "published"."adult"
SELECT MAX("published"."adult"."seen") AS "max" FROM "published"."adult"
SELECT MIN("published"."adult"."born") AS "min", MAX("published"."adult"."born") AS "max" FROM "published"."adult" WHERE "published"."adult"."income" = '>50K'
SELECT ABS("published"."adult"."education_num" - 10) AS "distance", COUNT(*) AS "count" FROM "published"."adult" GROUP BY ABS("published"."adult"."education_num" - 10) ORDER BY 1
SELECT CEIL(CAST("published"."adult"."age" AS DOUBLE PRECISION) / 10) AS "decade", COUNT(*) AS "count" FROM "published"."adult" GROUP BY 1 ORDER BY 1
SELECT POWER("published"."adult"."age", 2) AS "square", COUNT(*) AS "count" FROM "published"."adult" GROUP BY POWER("published"."adult"."age", 2)
SELECT SUM(LN("published"."adult"."age")) AS "sum" FROM "published"."adult"
SELECT TRIM("published"."adult"."race") AS "race", COUNT(*) AS "count" FROM "published"."adult" WHERE TRIM("published"."adult"."race") <> '' GROUP BY TRIM("published"."adult"."race")
-- Superset
SELECT education AS education, COUNT(*) AS count FROM published.adult GROUP BY education ORDER BY count DESC LIMIT 10000
SELECT education AS education, income AS income, COUNT(*) AS count FROM published.adult GROUP BY education, income ORDER BY count DESC LIMIT 50000
SELECT sex AS sex, AVG(age) AS "AVG(age)" FROM published.adult GROUP BY sex ORDER BY "AVG(age)" DESC LIMIT 1000
SELECT sex AS sex, SUM(capital_gain) AS "SUM(capital_gain)", COUNT(DISTINCT occupation) AS "COUNT_DISTINCT(occupation)" FROM published.adult GROUP BY sex ORDER BY "SUM(capital_gain)" DESC LIMIT 1000
SELECT COUNT(*) AS count FROM published.adult LIMIT 50000
SELECT COUNT(*) AS rowcount FROM (SELECT education AS education, COUNT(*) AS count FROM published.adult GROUP BY education LIMIT 50000) AS rowcount_qry
SELECT DATE_TRUNC('month', born) AS born, COUNT(*) AS count FROM published.adult WHERE born >= TO_DATE('1960-01-01', 'YYYY-MM-DD') AND born < TO_DATE('1980-01-01', 'YYYY-MM-DD') GROUP BY DATE_TRUNC('month', born) LIMIT 50000
SELECT DATE_TRUNC('day', seen) AS __timestamp, COUNT(*) AS count FROM published.adult WHERE seen >= TO_TIMESTAMP('2021-01-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') AND seen < TO_TIMESTAMP('2021-04-01 00:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') GROUP BY DATE_TRUNC('day', seen) ORDER BY count DESC LIMIT 50000
SELECT DATE_TRUNC('year', born) AS born, sex AS sex, AVG(hours_per_week) AS "AVG(hours_per_week)" FROM published.adult JOIN (SELECT sex AS sex__, AVG(hours_per_week) AS mme_inner__ FROM published.adult GROUP BY sex ORDER BY mme_inner__ DESC LIMIT 5) AS series_limit ON sex = sex__ GROUP BY DATE_TRUNC('year', born), sex ORDER BY "AVG(hours_per_week)" DESC LIMIT 10000
SELECT education AS education, occupation AS occupation, COUNT(*) AS count FROM published.adult JOIN (SELECT occupation AS occupation__, COUNT(*) AS mme_inner__ FROM published.adult GROUP BY occupation ORDER BY COUNT(*) DESC LIMIT 3) AS series_limit ON occupation = occupation__ GROUP BY education, occupation ORDER BY count DESC LIMIT 10000
SELECT sex AS sex, race AS race, COUNT(*) AS count FROM published.adult JOIN (SELECT sex AS sex__, race AS race__, COUNT(*) AS mme_inner__ FROM published.adult GROUP BY sex, race ORDER BY COUNT(*) DESC LIMIT 4) AS series_limit ON sex = sex__ AND race = race__ GROUP BY sex, race ORDER BY count DESC LIMIT 10000
SELECT CASE WHEN occupation IN ('Sales', 'Craft-repair') THEN occupation ELSE 'Others' END AS occupation, COUNT(*) AS count FROM published.adult GROUP BY CASE WHEN occupation IN ('Sales', 'Craft-repair') THEN occupation ELSE 'Others' END LIMIT 1000
SELECT sex AS sex, COUNT(*) AS count FROM published.adult WHERE income IN ('>50K') AND age >= 25 AND age <= 45 GROUP BY sex ORDER BY count DESC LIMIT 100
SELECT sex AS sex, COUNT(*) AS count FROM published.adult WHERE education NOT IN ('HS-grad', 'Some-college') GROUP BY sex ORDER BY count DESC LIMIT 100
SELECT sex AS sex, COUNT(*) AS count FROM published.adult WHERE occupation IS NULL GROUP BY sex LIMIT 100
SELECT COUNT(*) AS count FROM published.adult WHERE occupation LIKE '%clerical%' LIMIT 50000
SELECT COUNT(*) AS count FROM published.adult WHERE occupation ILIKE '%CLERICAL%' LIMIT 50000
SELECT COUNT(*) AS count FROM published.adult WHERE LOWER(occupation) LIKE LOWER('%Clerical%') LIMIT 50000
SELECT COUNT(*) AS count FROM published.adult WHERE sex = 'Male' AND (income = '>50K') LIMIT 50000
SELECT education AS education, SUM(CASE WHEN income = '>50K' THEN 1 ELSE 0 END) * 100.0 / COUNT(*) AS share FROM published.adult GROUP BY education ORDER BY share DESC LIMIT 100
SELECT education AS education, sum(capital_gain)/count(*) AS "gain per head" FROM published.adult GROUP BY education ORDER BY "gain per head" DESC LIMIT 100
SELECT education AS education, COUNT(*) AS count FROM published.adult GROUP BY education HAVING ((COUNT(*) > 100)) ORDER BY count DESC LIMIT 100
SELECT education AS education, AVG(age) AS "AVG(age)" FROM published.adult GROUP BY education HAVING ((AVG(age) > 38 AND COUNT(*) > 20)) ORDER BY "AVG(age)" DESC LIMIT 100
SELECT age AS age FROM published.adult LIMIT 10000
SELECT age AS age, hours_per_week AS hours_per_week, income AS income FROM published.adult LIMIT 1000
SELECT * FROM published.adult LIMIT 1001
SELECT education AS education FROM published.adult GROUP BY education LIMIT 1000
SELECT DISTINCT education AS education FROM published.adult ORDER BY education ASC LIMIT 1000
SELECT min(age) AS min, max(age) AS max FROM published.adult LIMIT 50000
SELECT MIN(born) AS "MIN(born)", MAX(born) AS "MAX(born)" FROM published.adult LIMIT 50000
SELECT sex AS sex, race AS race, SUM(hours_per_week) AS "SUM(hours_per_week)", AVG(hours_per_week) AS "AVG(hours_per_week)", MIN(hours_per_week) AS "MIN(hours_per_week)", MAX(hours_per_week) AS "MAX(hours_per_week)" FROM published.adult GROUP BY sex, race LIMIT 50000
SELECT race AS race, COUNT(*) AS count FROM (SELECT * FROM adult WHERE age > 20) AS virtual_table GROUP BY race ORDER BY count DESC LIMIT 1000
SELECT race AS race, COUNT(*) AS count FROM (SELECT race, age, income FROM adult WHERE hours_per_week >= 40) AS virtual_table WHERE income IN ('>50K') GROUP BY race ORDER BY count DESC LIMIT 1000
SELECT band AS band, COUNT(*) AS count FROM (SELECT CASE WHEN age < 40 THEN 'A' ELSE 'B' END AS band, income FROM adult) AS virtual_table GROUP BY band ORDER BY count DESC LIMIT 1000
SELECT race AS race, sum(n) AS "SUM(n)" FROM (SELECT race, sex, COUNT(*) AS n FROM adult GROUP BY race, sex) AS virtual_table GROUP BY race ORDER BY "SUM(n)" DESC LIMIT 1000
SELECT AVG(n) AS "AVG(n)" FROM (SELECT occupation, COUNT(*) AS n FROM adult GROUP BY occupation) AS virtual_table LIMIT 50000
SELECT COUNT(*) AS count FROM (SELECT occupation, income, COUNT(*) AS n FROM adult GROUP BY occupation, income) AS virtual_table WHERE n > 50 LIMIT 50000
SELECT DATE_TRUNC('week', born) AS born, COUNT(*) AS count FROM published.adult GROUP BY DATE_TRUNC('week', born) LIMIT 50000
SELECT DATE_TRUNC('quarter', born) + INTERVAL '2 months' AS born, COUNT(*) AS count FROM published.adult GROUP BY DATE_TRUNC('quarter', born) + INTERVAL '2 months' LIMIT 100
SELECT (DATE_TRUNC('week', born + INTERVAL '1 DAY')) - INTERVAL '1 DAY' AS born, COUNT(*) AS count FROM published.adult GROUP BY (DATE_TRUNC('week', born + INTERVAL '1 DAY')) - INTERVAL '1 DAY' LIMIT 100
SELECT EXTRACT(year FROM born) AS year, COUNT(*) AS count FROM published.adult GROUP BY EXTRACT(year FROM born) ORDER BY year ASC LIMIT 100
SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY age) AS q1, PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY age) AS q3 FROM published.adult LIMIT 100
SELECT sex AS sex, percentile_cont(0.5) WITHIN GROUP (ORDER BY hours_per_week) AS median FROM published.adult GROUP BY sex ORDER BY median DESC LIMIT 100
SELECT FLOOR(age / 5) * 5 AS bin, COUNT(*) AS count FROM published.adult GROUP BY FLOOR(age / 5) * 5 ORDER BY bin ASC LIMIT 1000
SELECT width_bucket(age, 0, 100, 10) AS bin, COUNT(*) AS count FROM published.adult GROUP BY width_bucket(age, 0, 100, 10) ORDER BY bin LIMIT 1000
SELECT count(*) AS count, sum(case when income='>50K' then 1 else 0 end) AS rich FROM published.adult WHERE ((sex='Male') AND (race='White')) LIMIT 10
SELECT sex AS sex, COUNT(*) AS "COUNT(*)" FROM published.adult WHERE 1 = 1 GROUP BY sex LIMIT 10
SELECT sex AS sex, education AS education, COUNT(*) AS count FROM published.adult GROUP BY ROLLUP (sex, education) LIMIT 1000
SELECT sex AS sex, race AS race, COUNT(*) AS count, GROUPING(sex) AS g FROM published.adult GROUP BY GROUPING SETS ((sex, race), (sex), ()) LIMIT 1000
SELECT age AS age, COUNT(*) AS count FROM published.adult WHERE age IS NOT NULL GROUP BY age ORDER BY age ASC LIMIT 1000
SELECT STDDEV(age) AS spread, VARIANCE(hours_per_week) AS v FROM published.adult LIMIT 10
SELECT CORR(age, hours_per_week) AS r FROM published.adult LIMIT 10
SELECT string_agg(DISTINCT education, ', ') AS list FROM published.adult LIMIT 10
SELECT sex AS sex, array_agg(DISTINCT race) AS races FROM published.adult GROUP BY sex LIMIT 10
SELECT sex AS sex, COUNT(*) AS count, SUM(COUNT(*)) OVER () AS total FROM published.adult GROUP BY sex LIMIT 10
SELECT education AS education, COUNT(*) AS count, RANK() OVER (ORDER BY COUNT(*) DESC) AS place FROM published.adult GROUP BY education LIMIT 10
SELECT education AS education, MAX(capital_gain) - MIN(capital_gain) AS span FROM published.adult GROUP BY education ORDER BY span DESC LIMIT 10
SELECT COALESCE(SUM(capital_gain), 0) AS total FROM published.adult WHERE age > 200 LIMIT 10
SELECT COUNT(CASE WHEN income = '>50K' THEN id END) AS rich FROM published.adult LIMIT 10
SELECT income AS income, COUNT(*) AS count FROM published.adult WHERE born >= '1960-01-01' AND born < '1990-01-01' GROUP BY income ORDER BY count DESC LIMIT 10
SELECT income AS income, COUNT(*) AS count FROM published.adult WHERE seen > now() - interval '20 years' GROUP BY income LIMIT 10
SELECT TO_CHAR(born, 'YYYY-MM') AS month, COUNT(*) AS count FROM published.adult GROUP BY TO_CHAR(born, 'YYYY-MM') ORDER BY month LIMIT 1000
SELECT AVG(CASE WHEN income = '>50K' THEN 1.0 ELSE 0.0 END) AS rate FROM published.adult LIMIT 10
SELECT AVG((income = '>50K')::int) AS rate FROM published.adult LIMIT 10
SELECT education AS education, COUNT(*)::float / (SELECT COUNT(*) FROM published.adult) AS share FROM published.adult GROUP BY education LIMIT 100
SELECT sex || '-' || race AS who, COUNT(*) AS count FROM published.adult GROUP BY sex || '-' || race ORDER BY count DESC LIMIT 100
-- Tableau
SELECT "adult"."education" AS "education", COUNT(1) AS "cnt:adult:ok" FROM "published"."adult" "adult" GROUP BY 1
SELECT CAST("adult"."education" AS TEXT) AS "education", SUM("adult"."capital_gain") AS "sum:capital_gain:ok" FROM "published"."adult" "adult" GROUP BY 1
SELECT SUM(1) AS "sum:Number of Records:ok" FROM "published"."adult" "adult" HAVING (COUNT(1) > 0)
SELECT AVG(CAST("adult"."age" AS DOUBLE PRECISION)) AS "avg:age:ok" FROM "published"."adult" "adult" HAVING (COUNT(1) > 0)
SELECT "adult"."sex" AS "sex", AVG(CAST("adult"."hours_per_week" AS DOUBLE PRECISION)) AS "avg:hours:ok", SUM("adult"."capital_gain") AS "sum:gain:ok" FROM "published"."adult" "adult" GROUP BY 1
SELECT COUNT(DISTINCT "adult"."occupation") AS "ctd:occupation:ok" FROM "published"."adult" "adult" HAVING (COUNT(1) > 0)
SELECT "adult"."race" AS "race", COUNT(DISTINCT "adult"."education") AS "ctd:education:ok" FROM "published"."adult" "adult" GROUP BY 1
SELECT CAST(TRUNC(EXTRACT(YEAR FROM "adult"."born")) AS INTEGER) AS "yr:born:ok", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT CAST(TRUNC(EXTRACT(QUARTER FROM "adult"."born")) AS INTEGER) AS "qr:born:ok", CAST(TRUNC(EXTRACT(YEAR FROM "adult"."born")) AS INTEGER) AS "yr:born:ok", COUNT(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1, 2
SELECT CAST(TRUNC(EXTRACT(MONTH FROM "adult"."born")) AS INTEGER) AS "mn:born:ok", AVG(CAST("adult"."age" AS DOUBLE PRECISION)) AS "a" FROM "published"."adult" "adult" GROUP BY 1
SELECT DATE_TRUNC( 'MONTH', CAST("adult"."born" AS TIMESTAMP) ) AS "tmn:born:ok", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT CAST(DATE_TRUNC( 'YEAR', CAST("adult"."born" AS DATE) ) AS DATE) AS "tyr:born:ok", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT (CAST("adult"."born" AS DATE) - CAST((CAST(EXTRACT(DOW FROM "adult"."born") AS INTEGER)) AS INTEGER)) AS "twk:born:ok", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT (1 + CAST(EXTRACT(DOW FROM "adult"."born") AS INTEGER)) AS "wd:born:ok", COUNT(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT CAST(TRUNC(EXTRACT(HOUR FROM "adult"."seen")) AS INTEGER) AS "hr:seen:ok", COUNT(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT CAST(FLOOR("adult"."age" / 10.0) AS BIGINT) AS "age (bin)", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT (CASE WHEN "adult"."age" < 30 THEN 'under 30' WHEN "adult"."age" < 50 THEN '30 to 50' ELSE 'over 50' END) AS "Calculation_1", COUNT(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT (CASE WHEN ("adult"."income" = '>50K') THEN 'high' ELSE 'low' END) AS "Calculation_2", SUM("adult"."hours_per_week") AS "h" FROM "published"."adult" "adult" GROUP BY 1
SELECT (CASE WHEN (CAST("adult"."workclass" AS TEXT) IN ('Local-gov', 'State-gov', 'Federal-gov')) THEN 'Government' WHEN (CAST("adult"."workclass" AS TEXT) IN ('Private')) THEN 'Private' ELSE CAST("adult"."workclass" AS TEXT) END) AS "workclass (group)", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT "adult"."sex" AS "sex" FROM "published"."adult" "adult" GROUP BY 1 ORDER BY 1 ASC
SELECT "adult"."occupation" AS "occupation" FROM "published"."adult" "adult" WHERE ("adult"."sex" = 'Female') GROUP BY 1 HAVING (COUNT(1) > 0) ORDER BY 1 ASC
SELECT MIN("adult"."age") AS "TEMP(min)", MAX("adult"."age") AS "TEMP(max)" FROM "published"."adult" "adult" HAVING (COUNT(1) > 0)
SELECT MIN("adult"."born") AS "lower", MAX("adult"."born") AS "upper", COUNT(1) AS "n" FROM "published"."adult" "adult"
SELECT "adult"."income" AS "income", SUM(1) AS "n" FROM "published"."adult" "adult" WHERE (("adult"."age" >= 25) AND ("adult"."age" <= 45)) GROUP BY 1
SELECT "adult"."income" AS "income", SUM(1) AS "n" FROM "published"."adult" "adult" WHERE (("adult"."born" >= (DATE '1960-01-01')) AND ("adult"."born" <= (DATE '1979-12-31'))) GROUP BY 1
SELECT "adult"."income" AS "income", SUM(1) AS "n" FROM "published"."adult" "adult" WHERE (("adult"."seen" >= (TIMESTAMP '2021-01-01 00:00:00.000')) AND ("adult"."seen" < (TIMESTAMP '2021-03-01 00:00:00.000'))) GROUP BY 1
SELECT "adult"."income" AS "income", SUM(1) AS "n" FROM "published"."adult" "adult" WHERE (NOT (("adult"."education" IN ('HS-grad', 'Masters')) OR ("adult"."education" IS NULL))) GROUP BY 1
SELECT "adult"."income" AS "income", SUM(1) AS "n" FROM "published"."adult" "adult" WHERE ((CASE WHEN "adult"."education" = 'Masters' THEN TRUE ELSE FALSE END)) GROUP BY 1
SELECT "adult"."income" AS "income", SUM(1) AS "n" FROM "published"."adult" "adult" WHERE (STRPOS(CAST(LOWER(CAST("adult"."occupation" AS TEXT)) AS TEXT),CAST('cler' AS TEXT)) > 0) GROUP BY 1
SELECT "adult"."income" AS "income", SUM(1) AS "n" FROM "published"."adult" "adult" WHERE (LEFT(CAST("adult"."occupation" AS TEXT), 4) = 'Prof') GROUP BY 1
SELECT "adult"."income" AS "income", SUM(1) AS "n" FROM "published"."adult" "adult" WHERE (CAST("adult"."occupation" AS TEXT) >= 'C') GROUP BY 1
SELECT "adult"."occupation" AS "occupation", SUM(1) AS "n" FROM "published"."adult" "adult" INNER JOIN (SELECT "adult"."occupation" AS "occupation", SUM("adult"."capital_gain") AS "$__alias__0" FROM "published"."adult" "adult" GROUP BY 1 ORDER BY 2 DESC LIMIT 10) "t0" ON ("adult"."occupation" = "t0"."occupation") GROUP BY 1
SELECT "adult"."occupation" AS "occupation", SUM("adult"."capital_gain") AS "g" FROM "published"."adult" "adult" INNER JOIN (SELECT "adult"."occupation" AS "occupation", COUNT(1) AS "$__alias__0" FROM "published"."adult" "adult" GROUP BY 1 ORDER BY 2 DESC, 1 ASC LIMIT 5) "t0" ON ("adult"."occupation" IS NOT DISTINCT FROM "t0"."occupation") GROUP BY 1
SELECT "t0"."sex" AS "sex", SUM("t0"."x_measure__0") AS "s" FROM (SELECT "adult"."sex" AS "sex", "adult"."race" AS "race", SUM("adult"."capital_gain") AS "x_measure__0" FROM "published"."adult" "adult" GROUP BY 1, 2) "t0" GROUP BY 1
SELECT "t0"."sex" AS "sex", AVG(CAST("t0"."x_measure__0" AS DOUBLE PRECISION)) AS "a" FROM (SELECT "adult"."sex" AS "sex", "adult"."education" AS "education", COUNT(1) AS "x_measure__0" FROM "published"."adult" "adult" GROUP BY 1, 2) "t0" GROUP BY 1
SELECT "adult"."sex" AS "sex", MAX("t0"."m") AS "m" FROM "published"."adult" "adult" INNER JOIN (SELECT "adult"."race" AS "race", AVG("adult"."age") AS "m" FROM "published"."adult" "adult" GROUP BY 1) "t0" ON ("adult"."race" = "t0"."race") GROUP BY 1
SELECT "t0"."income" AS "income", COUNT(1) AS "n" FROM (SELECT "adult"."income" AS "income", "adult"."age" AS "age" FROM "published"."adult" "adult") "t0" WHERE (NOT ("t0"."age" <= 30)) GROUP BY 1 ORDER BY 1 ASC
SELECT STDDEV("adult"."age") AS "std:age:ok", VARIANCE("adult"."age") AS "var:age:ok" FROM "published"."adult" "adult" HAVING (COUNT(1) > 0)
SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY "adult"."age") AS "med:age:ok" FROM "published"."adult" "adult"
SELECT (SUM((CASE WHEN ("adult"."income" = '>50K') THEN 1 ELSE 0 END)) / NULLIF(CAST(SUM(1) AS DOUBLE PRECISION),0)) AS "Calculation_3" FROM "published"."adult" "adult" HAVING (COUNT(1) > 0)
SELECT "adult"."education" AS "education", (CAST(SUM("adult"."capital_gain") AS DOUBLE PRECISION) / NULLIF(CAST(SUM("adult"."hours_per_week") AS DOUBLE PRECISION), 0)) AS "r" FROM "published"."adult" "adult" GROUP BY 1
SELECT "adult"."race" AS "race", SUM(1) AS "n", ((SUM(1) * 1.0) / SUM(SUM(1)) OVER ()) AS "share" FROM "published"."adult" "adult" GROUP BY 1
SELECT UPPER(CAST("adult"."race" AS TEXT)) AS "u", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT SPLIT_PART(CAST("adult"."occupation" AS TEXT), '-', 1) AS "first", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT REPLACE(CAST("adult"."workclass" AS TEXT), '-', ' ') AS "w", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT CAST("adult"."age" AS TEXT) AS "age text", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT CAST("adult"."education_num" AS DOUBLE PRECISION) AS "e", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT ROUND(CAST("adult"."age" AS NUMERIC), -1) AS "r", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT (("adult"."education_num" % 2) = 0) AS "even", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT (CASE WHEN "adult"."education_num" >= 13 THEN "adult"."capital_gain" ELSE NULL END) AS "x", COUNT(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT COUNT("adult"."capital_gain") AS "cnt:gain:ok", SUM((CASE WHEN ("adult"."capital_gain" IS NULL) THEN 1 ELSE 0 END)) AS "nulls" FROM "published"."adult" "adult"
SELECT "adult"."education" AS "education", "adult"."sex" AS "sex", "adult"."income" AS "income", SUM(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1, 2, 3
SELECT "adult"."age" AS "age", "adult"."income" AS "income" FROM "published"."adult" "adult" LIMIT 1000
SELECT (DATE '2024-01-01' - "adult"."born") AS "days", COUNT(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
SELECT FLOOR((DATE '2024-01-01' - "adult"."born") / 365.25) AS "years", COUNT(1) AS "n" FROM "published"."adult" "adult" GROUP BY 1
-- Power BI
select count(1) as "a0" from "published"."adult" "_"
select "_"."sex" as "sex", count(1) as "a0" from "published"."adult" "_" group by "_"."sex"
select "rows"."sex" as "sex", sum("rows"."capital_gain") as "a0" from (select "_"."sex", "_"."capital_gain" from "published"."adult" "_") "rows" group by "sex"
select "rows"."sex" as "sex", "rows"."income" as "income", count(1) as "a0" from (select "_"."sex", "_"."income" from "published"."adult" "_" where "_"."age" > 30) "rows" group by "sex", "income" limit 1000001
select "rows"."education" as "education", avg("rows"."age") as "a0", min("rows"."age") as "a1", max("rows"."age") as "a2" from (select "_"."education", "_"."age" from "published"."adult" "_") "rows" group by "education"
select "t0"."education", sum("t0"."hours_per_week") as "a0" from (select "$Table"."education" as "education", "$Table"."hours_per_week" as "hours_per_week" from "published"."adult" "$Table") as "t0" group by "t0"."education" limit 501
select sum(cast("_"."hours_per_week" as decimal)) as "a0" from "published"."adult" "_"
select "_"."race", "_"."a0" from (select "_"."race" as "race", sum("_"."capital_gain") as "a0" from "published"."adult" "_" group by "_"."race") "_" where not "_"."a0" is null
select "_"."race", "_"."a0" from (select "_"."race", count(*) as "a0" from "published"."adult" "_" group by "_"."race") "_" where "_"."a0" > 100 order by "_"."a0" desc
select distinct "_"."education" from "published"."adult" "_" order by "_"."education" limit 101
select "_"."education" from "published"."adult" "_" group by "_"."education" order by "_"."education" limit 1001
select count(distinct "_"."occupation") + max(case when "_"."occupation" is null then 1 else 0 end) as "a0" from "published"."adult" "_"
select count(distinct("_"."occupation")) as "a0" from "published"."adult" "_" where "_"."sex" = 'Male'
select "basetable0"."a0", "basetable0"."c1" from (select count("t0"."education") as "a0", "t0"."sex" as "c1" from (select "_"."education", "_"."sex" from "published"."adult" "_") "t0" group by "t0"."sex") "basetable0" where not ("basetable0"."a0" is null)
select "rows"."income" as "income", count(1) as "a0" from (select "_"."income" from "published"."adult" "_" where "_"."born" >= timestamp '1960-01-01 00:00:00' and "_"."born" < timestamp '1980-01-01 00:00:00') "rows" group by "income"
select "rows"."year" as "year", count(1) as "a0" from (select date_part('year', "_"."born") as "year" from "published"."adult" "_") "rows" group by "year"
select "rows"."decade" as "decade", count(1) as "a0" from (select floor("_"."age" / 10.0) * 10 as "decade" from "published"."adult" "_") "rows" group by "decade" order by "decade"
select "_"."education", "_"."sex", "_"."a0" from (select "_"."education" as "education", "_"."sex" as "sex", sum("_"."capital_gain") as "a0" from "published"."adult" "_" where ("_"."race" in ('White', 'Black')) and ("_"."income" = '>50K') group by "_"."education", "_"."sex") "_" where not "_"."a0" is null limit 1000001
select avg(cast("_"."age" as double precision)) as "a0" from "published"."adult" "_" where "_"."income" = '<=50K' and "_"."income" is not null
select sum("t0"."a0") as "total" from (select "_"."race", count(*) as "a0" from "published"."adult" "_" group by "_"."race") "t0"
select count(*) as "n" from (select distinct "_"."education", "_"."occupation" from "published"."adult" "_") "t0"
select max("t0"."n") as "most" from (select "_"."occupation", count(*) as "n" from "published"."adult" "_" where "_"."income" = '>50K' group by "_"."occupation") "t0"
select "_"."sex", stddev_samp("_"."age") as "a0", var_samp("_"."age") as "a1" from "published"."adult" "_" group by "_"."sex"
select "$Table"."age" as "age", "$Table"."income" as "income" from "published"."adult" "$Table" limit 200
select * from "published"."adult" limit 1000
select percentile_disc(0.5) within group (order by "_"."age") as "a0" from "published"."adult" "_"
select case when "_"."age" >= 18 and "_"."age" < 30 then '18-29' when "_"."age" >= 30 and "_"."age" < 50 then '30-49' else '50+' end as "g", count(1) as "a0" from "published"."adult" "_" group by case when "_"."age" >= 18 and "_"."age" < 30 then '18-29' when "_"."age" >= 30 and "_"."age" < 50 then '30-49' else '50+' end
select "_"."income", count(1) filter (where "_"."sex" = 'Male') as "m", count(1) filter (where "_"."sex" = 'Female') as "f" from "published"."adult" "_" group by "_"."income"
select sum(case when "_"."income" = '>50K' then 1.0 else 0.0 end) / count(1) as "a0" from "published"."adult" "_"
select cast(sum(case when "_"."income" = '>50K' then 1 else 0 end) as decimal(18, 4)) / cast(count(1) as decimal(18, 4)) as "a0" from "published"."adult" "_"
-- Looker
SELECT adult.education AS "adult.education", COUNT(*) AS "adult.count" FROM published.adult AS adult GROUP BY 1 ORDER BY 2 DESC LIMIT 500
SELECT (adult.sex) AS "adult.sex", COALESCE(SUM(adult.capital_gain), 0) AS "adult.total_gain" FROM published.adult AS adult GROUP BY 1 ORDER BY 2 DESC FETCH NEXT 500 ROWS ONLY
SELECT adult.income AS "adult.income", AVG(adult.age) AS "adult.average_age" FROM published.adult AS adult WHERE ((adult.age >= 20 AND adult.age < 40)) GROUP BY 1 ORDER BY 2 DESC LIMIT 500
SELECT (TO_CHAR(DATE_TRUNC('month', adult.born), 'YYYY-MM')) AS "adult.born_month", COUNT(*) AS "adult.count" FROM published.adult AS adult GROUP BY (DATE_TRUNC('month', adult.born)) ORDER BY 1 DESC LIMIT 500
SELECT (EXTRACT(YEAR FROM adult.born)::integer) AS "adult.born_year", COUNT(*) AS "adult.count" FROM published.adult AS adult GROUP BY 1 ORDER BY 1 DESC LIMIT 500
SELECT (DATE(adult.born)) AS "adult.born_date", COUNT(*) AS "adult.count" FROM published.adult AS adult WHERE ((adult.born >= (TIMESTAMP '1970-01-01') AND adult.born < (TIMESTAMP '1971-01-01'))) GROUP BY 1 ORDER BY 1 DESC LIMIT 500
SELECT CASE WHEN adult.age < 30 THEN '0' WHEN adult.age >= 30 AND adult.age < 50 THEN '1' WHEN adult.age >= 50 THEN '2' ELSE '3' END AS "adult.age_tier__sort_", CASE WHEN adult.age < 30 THEN 'Below 30' WHEN adult.age >= 30 AND adult.age < 50 THEN '30 to 49' WHEN adult.age >= 50 THEN '50 or Above' ELSE 'Undefined' END AS "adult.age_tier", COUNT(*) AS "adult.count" FROM published.adult AS adult GROUP BY 1, 2 ORDER BY 1 LIMIT 500
SELECT CASE WHEN adult.income = '>50K' THEN 'Yes' ELSE 'No' END AS "adult.is_rich", COUNT(*) AS "adult.count" FROM published.adult AS adult GROUP BY 1 ORDER BY 1 DESC LIMIT 500
SELECT COUNT(CASE WHEN (adult.income = '>50K') THEN 1 ELSE NULL END) AS "adult.rich" FROM published.adult AS adult LIMIT 500
SELECT COUNT(DISTINCT CASE WHEN (adult.income = '>50K') THEN adult.occupation ELSE NULL END) AS "adult.n" FROM published.adult AS adult LIMIT 500
SELECT COUNT(DISTINCT adult.occupation) AS "adult.n", COUNT(DISTINCT adult.education) AS "adult.m" FROM published.adult AS adult LIMIT 500
SELECT 1.0 * (COUNT(CASE WHEN adult.income = '>50K' THEN 1 ELSE NULL END)) / NULLIF((COUNT(*)), 0) AS "adult.rate" FROM published.adult AS adult LIMIT 500
SELECT adult.sex AS "adult.sex", 1.0 * (COUNT(CASE WHEN adult.income = '>50K' THEN 1 ELSE NULL END)) / NULLIF((COUNT(*)), 0) AS "adult.rate" FROM published.adult AS adult GROUP BY 1 ORDER BY 2 DESC LIMIT 500
SELECT COALESCE(SUM(CASE WHEN (adult.sex = 'Male') THEN adult.capital_gain ELSE NULL END), 0) AS "adult.gain_men" FROM published.adult AS adult LIMIT 500
SELECT AVG(CASE WHEN (adult.sex = 'Female') THEN adult.hours_per_week ELSE NULL END) AS "adult.h" FROM published.adult AS adult LIMIT 500
SELECT adult.education AS "adult.education", COUNT(*) AS "adult.count" FROM published.adult AS adult WHERE (adult.education) LIKE '%th%' GROUP BY 1 HAVING (COUNT(*)) > 10 ORDER BY 2 DESC LIMIT 500
SELECT adult.education AS "adult.education" FROM published.adult AS adult WHERE (UPPER(adult.education) LIKE UPPER('%b%')) GROUP BY 1 ORDER BY 1 LIMIT 500
SELECT COUNT(*) AS "adult.count" FROM published.adult AS adult WHERE (adult.workclass <> 'Private' OR adult.workclass IS NULL) AND (adult.sex = 'Male')
SELECT COUNT(*) AS "adult.count" FROM published.adult AS adult WHERE ((( adult.born ) >= ((DATE_TRUNC('year', DATE_TRUNC('day', CURRENT_TIMESTAMP)) + (-60 || ' year')::INTERVAL))))
SELECT COUNT(*) AS "adult.count" FROM published.adult AS adult WHERE adult.born >= (DATE_TRUNC('day', CURRENT_TIMESTAMP) + INTERVAL '-40 year')
SELECT PERCENTILE_CONT(0.75) WITHIN GROUP (ORDER BY adult.age ) AS "adult.p75" FROM published.adult AS adult LIMIT 500
SELECT MIN(adult.age) AS "adult.min", MAX(adult.age) AS "adult.max", COUNT(*) AS "adult.count" FROM published.adult AS adult WHERE adult.income = '>50K' LIMIT 500
WITH by_occupation AS (SELECT adult.occupation AS occupation, COUNT(*) AS n FROM published.adult AS adult GROUP BY 1) SELECT AVG(by_occupation.n) AS "by_occupation.average" FROM by_occupation LIMIT 500
WITH by_occupation AS (SELECT adult.occupation AS occupation, adult.sex AS sex, COUNT(*) AS n FROM published.adult AS adult GROUP BY 1, 2) SELECT by_occupation.sex AS "by_occupation.sex", COALESCE(SUM(by_occupation.n), 0) AS "by_occupation.total" FROM by_occupation GROUP BY 1 ORDER BY 2 DESC LIMIT 500
WITH top AS (SELECT adult.occupation, COUNT(*) AS n FROM published.adult AS adult GROUP BY 1 ORDER BY 2 DESC LIMIT 5) SELECT adult.income, COUNT(*) AS n FROM published.adult AS adult INNER JOIN top ON top.occupation = adult.occupation GROUP BY 1
SELECT adult.sex AS "adult.sex", adult.race AS "adult.race", COUNT(*) AS "adult.count" FROM published.adult AS adult GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT 5000
SELECT * FROM (SELECT *, DENSE_RANK() OVER (ORDER BY z___min_rank) as z___pivot_row_rank FROM (SELECT adult.sex, MIN(adult.age) AS z___min_rank FROM published.adult AS adult GROUP BY 1) ww) xx WHERE z___pivot_row_rank <= 500
SELECT COUNT(*) AS count FROM published.adult AS adult WHERE adult.age IN (20, 30, 40, 50) AND adult.hours_per_week NOT BETWEEN 35 AND 45
SELECT (adult.age + adult.hours_per_week) AS s, COUNT(*) AS n FROM published.adult AS adult GROUP BY 1 ORDER BY 2 DESC LIMIT 20
SELECT adult.education AS e, COALESCE(COALESCE(CAST((SUM(adult.capital_gain)) AS DOUBLE PRECISION) / NULLIF(COUNT(adult.capital_gain), 0), 0), 0) AS a FROM published.adult AS adult GROUP BY 1
-- dbt
select count(*) as failures, count(*) != 0 as should_warn, count(*) != 0 as should_error from (select education from published.adult where education is null) dbt_internal_test
select count(*) as failures, count(*) != 0 as should_warn, count(*) != 0 as should_error from (select education as unique_field, count(*) as n_records from published.adult where education is not null group by education having count(*) > 1) dbt_internal_test
select count(*) as failures from (with all_values as (select sex as value_field, count(*) as n_records from published.adult group by sex) select * from all_values where value_field not in ('Male','Female')) dbt_internal_test
with all_values as (select sex as value_field, count(*) as n_records from published.adult group by sex) select * from all_values where value_field not in ('Male', 'Female')
with source as (select * from published.adult), renamed as (select age as years, sex as gender, income as earns from source) select gender, count(*) as n from renamed group by 1
with source as (select * from published.adult where age >= 18), final as (select education, count(*) as n, avg(hours_per_week) as hours from source group by education) select * from final order by n desc
with source as (select education, occupation, income from published.adult), grouped as (select education, count(*) as n from source where income = '>50K' group by 1), filtered as (select education, n from grouped where n > 20) select * from filtered
with rich as (select education, count(*) as n_rich from published.adult where income = '>50K' group by 1), everybody as (select education, count(*) as n from published.adult group by 1) select e.education, r.n_rich * 1.0 / e.n as share from everybody e left join rich r on r.education = e.education
with counts as (select race, sex, count(*) as n from published.adult group by 1, 2) select race, sum(n) as n, max(n) as largest from counts group by 1 order by 2 desc
with counts as (select race, sex, count(*) as n from published.adult group by 1, 2), totals as (select race, sum(n) as total from counts group by 1) select counts.race, counts.sex, counts.n * 1.0 / totals.total as share from counts join totals using (race)
with ranked as (select occupation, count(*) as n, row_number() over (order by count(*) desc) as place from published.adult group by 1) select occupation, n from ranked where place <= 5
select education, count(*) as n, round(100.0 * count(*) / sum(count(*)) over (), 2) as pct from published.adult group by education
select date_trunc('year', born)::date as born_year, income, count(*) as n from published.adult group by 1, 2 order by 1, 2
select count(*) from published.adult where age not between 0 and 120
select count(*) filter (where occupation is null) as null_occupation, count(*) as total from published.adult
select sum(case when occupation is null then 1 else 0 end)::float / count(*) as null_share from published.adult
select min(age) as min_age, max(age) as max_age, avg(age) as avg_age, stddev(age) as sd_age, count(distinct age) as distinct_ages from published.adult
select 'adult' as relation, count(*) as n from published.adult
select md5(coalesce(cast(education as text), '') || '-' || coalesce(cast(sex as text), '')) as key, count(*) as n from published.adult group by 1
select income, count(*) as n, count(*) > 100 as is_large from published.adult group by 1
select cast(age / 10 as integer) * 10 as decade, count(*) from published.adult group by 1 order by 1
select coalesce(nullif(trim(occupation), ''), 'unknown') as occupation, count(*) as n from published.adult group by 1
select count(*) as n from (select distinct education, education_num from published.adult) as pairs
select max(n) as n from (select education, count(distinct education_num) as n from published.adult group by 1) as t
select education from published.adult group by education having count(distinct education_num) > 1
select count(*) from published.adult a where exists (select 1 from published.adult b where b.education = a.education and b.income = '>50K')
select education, sex, count(*) as n from published.adult group by cube (education, sex)
select * from published.adult where age < 0 limit 10
select case when count(*) > 0 then 1 else 0 end as has_rows from published.adult where income = '>50K'
select sex, bool_or(age > 80) as any_old from published.adult group by sex
select sex, max(case when income = '>50K' then 1 else 0 end) as has_rich from published.adult group by sex
select extract(epoch from max(seen)) as last_seen from published.adult
select max(seen) as max_loaded_at, current_timestamp as snapshotted_at from published.adult
select date_part('year', born)::int as y, sum(capital_gain)::bigint as g from published.adult group by 1 having sum(capital_gain) > 0 order by 1
-- pandas and SQLAlchemy
SELECT count(*) AS count_1 FROM published.adult
SELECT count(published.adult.age) AS count_1 FROM published.adult
SELECT published.adult.sex, count(*) AS count_1 FROM published.adult GROUP BY published.adult.sex
SELECT adult_1.sex, avg(adult_1.age) AS avg_1 FROM published.adult AS adult_1 WHERE adult_1.income = '>50K' GROUP BY adult_1.sex ORDER BY avg(adult_1.age) DESC
SELECT count(DISTINCT adult_1.occupation) AS count_1 FROM published.adult AS adult_1
SELECT count(*) AS count_1 FROM (SELECT adult_1.age AS age, adult_1.sex AS sex FROM published.adult AS adult_1 WHERE adult_1.age > 30) AS anon_1
SELECT count(*) AS count_1 FROM (SELECT DISTINCT adult_1.education AS education FROM published.adult AS adult_1) AS anon_1
SELECT anon_1.sex, avg(anon_1.n) AS avg_1 FROM (SELECT adult_1.sex AS sex, adult_1.education AS education, count(*) AS n FROM published.adult AS adult_1 GROUP BY adult_1.sex, adult_1.education) AS anon_1 GROUP BY anon_1.sex
WITH anon_1 AS (SELECT adult_1.education AS education, count(*) AS n FROM published.adult AS adult_1 GROUP BY adult_1.education) SELECT max(anon_1.n) AS max_1 FROM anon_1
SELECT adult_1.education, count(*) AS n FROM published.adult AS adult_1 WHERE adult_1.education IN (SELECT adult_2.education FROM published.adult AS adult_2 GROUP BY adult_2.education HAVING count(*) > 200) GROUP BY adult_1.education
SELECT adult_1.education, count(*) AS n FROM published.adult AS adult_1 JOIN (SELECT adult_2.education AS education FROM published.adult AS adult_2 GROUP BY adult_2.education ORDER BY count(*) DESC LIMIT 3) AS anon_1 ON anon_1.education = adult_1.education GROUP BY adult_1.education
SELECT sum(CASE WHEN (adult_1.income = '>50K') THEN 1 ELSE 0 END) AS rich FROM published.adult AS adult_1
SELECT CAST(sum(CASE WHEN (adult_1.income = '>50K') THEN 1 ELSE 0 END) AS FLOAT) / CAST(count(*) AS FLOAT) AS anon_1 FROM published.adult AS adult_1
SELECT EXTRACT(year FROM adult_1.born) AS anon_1, count(*) AS count_1 FROM published.adult AS adult_1 GROUP BY EXTRACT(year FROM adult_1.born) ORDER BY anon_1
SELECT date_trunc('month', adult_1.born) AS month, count(*) AS count_1 FROM published.adult AS adult_1 GROUP BY month ORDER BY month
SELECT adult_1.age, count(*) AS count_1 FROM published.adult AS adult_1 GROUP BY adult_1.age ORDER BY count(*) DESC LIMIT 10
SELECT adult_1.age, count(*) AS count_1 FROM published.adult AS adult_1 GROUP BY adult_1.age ORDER BY count(*) DESC LIMIT 10 OFFSET 10
SELECT count(*) AS count_1 FROM published.adult AS adult_1 WHERE adult_1.age BETWEEN 20 AND 30 AND adult_1.sex != 'Male'
SELECT count(*) AS count_1 FROM published.adult AS adult_1 WHERE adult_1.occupation IS NULL OR adult_1.workclass IS NULL
SELECT count(*) AS count_1 FROM published.adult AS adult_1 WHERE adult_1.occupation IS NOT NULL AND (adult_1.occupation NOT IN ('Sales', 'Other-service'))
SELECT count(*) AS count_1 FROM published.adult AS adult_1 WHERE (adult_1.occupation LIKE '%' || 'repair' || '%')
SELECT count(*) AS count_1 FROM published.adult AS adult_1 WHERE adult_1.occupation ILIKE '%repair%' AND NOT (adult_1.sex = 'Female')
SELECT count(*) AS count_1 FROM published.adult AS adult_1 WHERE adult_1.race = ANY (ARRAY['White', 'Black'])
SELECT count(*) AS count_1 FROM published.adult AS adult_1 WHERE adult_1.born >= '1970-01-01'::date AND adult_1.born < '1980-01-01'::date
SELECT count(*) AS count_1 FROM published.adult AS adult_1 WHERE (adult_1.age, adult_1.sex) IN ((30, 'Male'), (40, 'Female'))
SELECT adult_1.age, adult_1.education FROM published.adult AS adult_1 WHERE adult_1.income = '>50K'
SELECT adult_1.age + adult_1.education_num AS anon_1, count(*) AS n FROM published.adult AS adult_1 GROUP BY adult_1.age + adult_1.education_num
SELECT min(adult_1.age) AS min_1, max(adult_1.age) AS max_1, avg(adult_1.age) AS avg_1, sum(adult_1.age) AS sum_1 FROM published.adult AS adult_1
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY adult_1.age) AS anon_1 FROM published.adult AS adult_1 GROUP BY adult_1.sex
SELECT adult_1.sex, percentile_cont(ARRAY[0.25, 0.5, 0.75]) WITHIN GROUP (ORDER BY adult_1.age) AS q FROM published.adult AS adult_1 GROUP BY adult_1.sex
SELECT coalesce(adult_1.occupation, 'none') AS o, count(*) AS n FROM published.adult AS adult_1 GROUP BY coalesce(adult_1.occupation, 'none')
SELECT lower(adult_1.sex) AS lower_1, count(*) AS n FROM published.adult AS adult_1 GROUP BY lower(adult_1.sex)
SELECT adult_1.sex, adult_1.race, count(*) AS n FROM published.adult AS adult_1 GROUP BY GROUPING SETS ((adult_1.sex), (adult_1.race))
SELECT count(*) AS n FROM published.adult AS adult_1 TABLESAMPLE bernoulli(10)
SELECT corr(adult_1.age, adult_1.hours_per_week) AS corr_1 FROM published.adult AS adult_1
SELECT width_bucket(adult_1.age, 0, 100, 20) AS bucket, count(*) AS n FROM published.adult AS adult_1 GROUP BY bucket ORDER BY bucket
SELECT adult_1.education, count(*) FILTER (WHERE adult_1.income = '>50K') AS rich, count(*) AS n FROM published.adult AS adult_1 GROUP BY adult_1.education HAVING count(*) > 50
SELECT mode() WITHIN GROUP (ORDER BY adult_1.education) AS m FROM published.adult AS adult_1
SELECT adult_1.income, round(avg(adult_1.hours_per_week), 1) AS h, round(stddev_samp(adult_1.hours_per_week), 1) AS s FROM published.adult AS adult_1 GROUP BY adult_1.income
SELECT count(*) AS n FROM published.adult WHERE sex = 'Male' UNION ALL SELECT count(*) FROM published.adult WHERE sex = 'Female'
-- people
SELECT COUNT(*) FROM adult
SELECT COUNT(*) FROM adult;
select count(*) from adult where age > 30
select count(*) from adult where age>=30 and age<40 and income='>50K'
SELECT COUNT(*) FROM adult WHERE income = '>50K' AND sex = 'Female'
SELECT income, COUNT(*) FROM adult GROUP BY income
SELECT education, income, COUNT(*) FROM adult GROUP BY education, income ORDER BY education, income
SELECT education, COUNT(*) FROM adult GROUP BY education ORDER BY COUNT(*) DESC LIMIT 5
SELECT education, COUNT(*) AS n FROM adult WHERE income = '>50K' GROUP BY education ORDER BY n DESC
SELECT education, AVG(age), AVG(hours_per_week) FROM adult GROUP BY education
SELECT sex, AVG(age) FROM adult WHERE income = '>50K' GROUP BY sex
SELECT sex, ROUND(AVG(age), 1) AS mean_age FROM adult GROUP BY sex
SELECT sex, MIN(age), MAX(age) FROM adult GROUP BY sex
SELECT education, 100.0 * SUM(CASE WHEN income = '>50K' THEN 1 ELSE 0 END) / COUNT(*) AS pct FROM adult GROUP BY education ORDER BY pct DESC
SELECT education, ROUND(100.0 * COUNT(*) FILTER (WHERE income = '>50K') / COUNT(*), 1) AS pct FROM adult GROUP BY education
SELECT education, COUNT(*) FILTER (WHERE income = '>50K')::numeric / COUNT(*) AS share FROM adult GROUP BY education
SELECT sex, AVG(CASE WHEN income = '>50K' THEN 1 ELSE 0 END) AS share FROM adult GROUP BY sex
SELECT sex, AVG((income = '>50K')::int) FROM adult GROUP BY sex
SELECT COUNT(*) * 100.0 / (SELECT COUNT(*) FROM adult) AS pct FROM adult WHERE income = '>50K'
SELECT income, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER () AS pct FROM adult GROUP BY income
SELECT sex, income, COUNT(*) * 100.0 / SUM(COUNT(*)) OVER (PARTITION BY sex) AS pct FROM adult GROUP BY sex, income
SELECT (age / 10) * 10 AS decade, COUNT(*) FROM adult GROUP BY decade ORDER BY decade
SELECT FLOOR(age / 10.0) * 10 AS decade, income, COUNT(*) FROM adult GROUP BY 1, 2 ORDER BY 1, 2
SELECT CASE WHEN age < 30 THEN '<30' WHEN age < 50 THEN '30-49' ELSE '50+' END AS age_group, COUNT(*) FROM adult GROUP BY 1 ORDER BY 1
SELECT CASE WHEN age < 30 THEN '<30' WHEN age < 50 THEN '30-49' ELSE '50+' END AS age_group, AVG(hours_per_week) AS hours FROM adult GROUP BY age_group
SELECT COUNT(DISTINCT education) FROM adult
SELECT COUNT(DISTINCT (education, sex)) FROM adult
SELECT COUNT(*) FROM (SELECT DISTINCT education, sex FROM adult) AS t
SELECT DISTINCT education FROM adult ORDER BY education
SELECT DISTINCT sex, race FROM adult
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY age) AS median FROM adult WHERE income = '>50K'
SELECT sex, percentile_cont(0.5) WITHIN GROUP (ORDER BY hours_per_week) FROM adult GROUP BY sex
SELECT median(age) FROM adult
SELECT stddev(age), variance(age) FROM adult WHERE sex = 'Male'
SELECT COUNT(*) FROM adult WHERE education IN ('Bachelors', 'Masters', 'Doctorate') AND income = '>50K'
SELECT COUNT(*) FROM adult WHERE education = 'Bachelors' OR education = 'Masters'
SELECT COUNT(*) FROM adult WHERE NOT (sex = 'Male' AND income = '>50K')
SELECT COUNT(*) FROM adult WHERE occupation LIKE 'Exec%'
SELECT COUNT(*) FROM adult WHERE occupation ILIKE '%service%' AND hours_per_week > 40
SELECT COUNT(*) FROM adult WHERE occupation ~ '^(Exec|Prof)'
SELECT COUNT(*) FROM adult WHERE occupation SIMILAR TO '(Exec|Prof)%'
SELECT COUNT(*) FROM adult WHERE native_country <> 'United-States'
SELECT native_country, COUNT(*) FROM adult WHERE native_country <> 'United-States' GROUP BY native_country HAVING COUNT(*) >= 10 ORDER BY 2 DESC
SELECT COUNT(*) FROM adult WHERE age BETWEEN 25 AND 34 AND hours_per_week BETWEEN 40 AND 50
SELECT COUNT(*) FROM adult WHERE capital_gain > 0 AND income = '<=50K'
SELECT SUM(capital_gain) FROM adult WHERE income = '>50K'
SELECT AVG(capital_gain) FROM adult WHERE capital_gain > 0
SELECT income, SUM(hours_per_week) FROM adult GROUP BY income
SELECT COUNT(*) FROM adult WHERE EXTRACT(YEAR FROM born) = 1970
SELECT COUNT(*) FROM adult WHERE date_part('year', age(DATE '2024-01-01', born)) > 60
SELECT EXTRACT(YEAR FROM born) AS y, COUNT(*) FROM adult GROUP BY y ORDER BY y
SELECT to_char(born, 'YYYY') AS y, COUNT(*) FROM adult GROUP BY 1 ORDER BY 1
SELECT COUNT(*) FROM adult WHERE born BETWEEN '1960-01-01' AND '1969-12-31'
SELECT COUNT(*) FROM adult WHERE seen::date = '2021-02-03'
SELECT seen::date AS day, COUNT(*) FROM adult GROUP BY 1 ORDER BY 1
SELECT date_trunc('month', seen) AS month, COUNT(*) FROM adult GROUP BY 1 ORDER BY 1
SELECT COUNT(*) FROM adult WHERE age > (SELECT AVG(age) FROM adult)
SELECT * FROM adult WHERE age > 60
SELECT age, income FROM adult ORDER BY age DESC LIMIT 10
SELECT occupation, COUNT(*) AS n FROM adult GROUP BY occupation HAVING AVG(hours_per_week) > 40 ORDER BY n DESC
SELECT occupation, AVG(age) AS a FROM adult GROUP BY occupation HAVING COUNT(*) > 100 AND AVG(age) BETWEEN 35 AND 45
SELECT occupation FROM adult GROUP BY occupation ORDER BY COUNT(*) DESC LIMIT 3
SELECT occupation, income, COUNT(*) FROM adult WHERE occupation IN (SELECT occupation FROM adult GROUP BY occupation ORDER BY COUNT(*) DESC LIMIT 3) GROUP BY occupation, income
WITH t AS (SELECT occupation, COUNT(*) AS n FROM adult GROUP BY occupation) SELECT * FROM t WHERE n > 100
WITH t AS (SELECT occupation, COUNT(*) AS n FROM adult GROUP BY occupation) SELECT AVG(n), MAX(n) FROM t
SELECT MAX(n) FROM (SELECT occupation, COUNT(*) AS n FROM adult GROUP BY occupation) AS t
SELECT sex, MAX(n) FROM (SELECT sex, occupation, COUNT(*) AS n FROM adult GROUP BY sex, occupation) AS t GROUP BY sex
SELECT a.sex, COUNT(*) FROM adult a GROUP BY a.sex
SELECT COUNT(*) FROM adult AS a WHERE a.age > 30 AND a.income = '>50K'
SELECT COUNT(age) FROM adult WHERE occupation IS NULL
SELECT COUNT(*) - COUNT(occupation) AS missing FROM adult
SELECT COUNT(*) AS n, COUNT(occupation) AS known, COUNT(*) - COUNT(occupation) AS missing FROM adult
SELECT COALESCE(occupation, 'unknown'), COUNT(*) FROM adult GROUP BY 1
SELECT upper(sex), COUNT(*) FROM adult GROUP BY upper(sex)
SELECT left(education, 1) AS initial, COUNT(*) FROM adult GROUP BY 1 ORDER BY 2 DESC
SELECT length(education) AS l, COUNT(*) FROM adult GROUP BY 1
SELECT education_num > 12 AS graduate, COUNT(*) FROM adult GROUP BY 1
SELECT education_num > 12 AS graduate, income = '>50K' AS rich, COUNT(*) FROM adult GROUP BY 1, 2
SELECT sex, race, income, COUNT(*) FROM adult GROUP BY ROLLUP (sex, race, income)
SELECT SUM(age * hours_per_week) / SUM(hours_per_week) AS weighted FROM adult
SELECT AVG(hours_per_week * 52) AS hours_a_year FROM adult WHERE income = '>50K'
SELECT SUM(hours_per_week)::float / COUNT(*) FROM adult
SELECT COUNT(*) FROM adult WHERE hours_per_week * 52 > 2000
SELECT COUNT(*) FROM adult WHERE (age > 60 OR hours_per_week < 20) AND income = '<=50K'
SELECT COUNT(*) FROM adult WHERE age % 2 = 0
SELECT COUNT(*) FROM adult WHERE mod(age, 5) = 0 AND sex = 'Male'
SELECT COUNT(*) FROM adult WHERE sqrt(age) > 6
SELECT COUNT(*) FROM adult WHERE log(capital_gain + 1) > 3
SELECT COUNT(*) FROM adult WHERE age IS DISTINCT FROM 30
SELECT COUNT(*) FROM adult WHERE workclass IS NULL IS NOT TRUE
SELECT row_number() OVER (ORDER BY COUNT(*) DESC) AS place, education, COUNT(*) FROM adult GROUP BY education
SELECT education, COUNT(*), SUM(COUNT(*)) OVER (ORDER BY education) AS running FROM adult GROUP BY education
SELECT education, string_agg(DISTINCT sex, ',') FROM adult GROUP BY education
SELECT a.education, COUNT(*) FROM adult a JOIN adult b ON a.education = b.education GROUP BY a.education
SELECT COUNT(*) FROM adult WHERE education LIKE ANY (ARRAY['B%', 'M%'])
SELECT COUNT(*) FROM adult WHERE starts_with(education, 'B')
SELECT CAST(age AS text) || ' years', COUNT(*) FROM adult GROUP BY 1
SELECT greatest(age, hours_per_week) AS g, COUNT(*) FROM adult GROUP BY 1
SELECT COUNT(*) FROM adult WHERE sex = 'Male' GROUP BY education
SELECT education, COUNT(*) FROM adult GROUP BY education FETCH FIRST 3 ROWS ONLY
SELECT MAX(education_num) - MIN(education_num) AS span FROM adult WHERE income = '>50K'
SELECT income, AVG(age) - (SELECT AVG(age) FROM adult) AS above FROM adult GROUP BY income
SELECT corr(age, hours_per_week) FROM adult
SELECT regr_slope(hours_per_week, age) FROM adult
SELECT (SELECT COUNT(*) FROM adult WHERE sex = 'Male') AS men, (SELECT COUNT(*) FROM adult WHERE sex = 'Female') AS women
SELECT 'men' AS who, COUNT(*) FROM adult WHERE sex = 'Male'
SELECT sex, COUNT(*) FROM adult GROUP BY sex UNION SELECT race, COUNT(*) FROM adult GROUP BY race
-- Grafana and Redash
SELECT extract(epoch from date_trunc('month', born)) AS "time", count(*) AS n FROM published.adult GROUP BY 1 ORDER BY 1
SELECT born AS "time", count(*) AS n FROM published.adult WHERE born BETWEEN '1970-01-01T00:00:00Z' AND '1979-12-31T23:59:59Z' GROUP BY 1 ORDER BY 1
SELECT floor(extract(epoch from born)/2592000)*2592000 AS "time", avg(age) AS value FROM published.adult GROUP BY 1 ORDER BY 1
SELECT race AS metric, count(*) AS value FROM published.adult GROUP BY race ORDER BY 1
SELECT income AS metric, date_trunc('year', born) AS time, sum(hours_per_week) AS value FROM published.adult GROUP BY 1, 2 ORDER BY 2
SELECT to_char(date_trunc('quarter', born), 'YYYY "Q"Q') AS q, count(*) FROM published.adult GROUP BY 1
SELECT born::date, count(*) FROM published.adult WHERE born > '1980-06-01' GROUP BY 1 ORDER BY 1
SELECT education::text AS "education::filter", count(*) AS n FROM published.adult GROUP BY 1
SELECT count(*) AS value FROM published.adult WHERE seen BETWEEN '2021-01-15' AND '2021-02-15'
SELECT date_bin('1 day', seen, TIMESTAMP '2021-01-01') AS time, count(*) FROM published.adult GROUP BY 1
SELECT date_trunc('week', seen) AS time, count(DISTINCT education) AS n FROM published.adult GROUP BY 1 ORDER BY 1
SELECT round(avg(age)::numeric, 2) AS a, round(100.0 * sum((income = '>50K')::int) / count(*), 2) AS p FROM published.adult
SELECT sex, count(*) AS n FROM published.adult WHERE education = 'Masters' AND race IN ('White','Black') GROUP BY sex
SELECT round(age, -1) AS a, count(*) FROM published.adult GROUP BY 1
SELECT count(*) AS n, date_part('dow', born) AS d FROM published.adult GROUP BY d ORDER BY d
