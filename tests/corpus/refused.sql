SELECT COUNT(*) FROM nobody -- there is no such publication
SELECT COUNT(*) FROM ill_qit -- there is no such publication
SELECT COUNT(*) FROM data.people -- names a source
SELECT COUNT(*) FROM ill WHERE bucket_id = 1 -- names a column
SELECT COUNT(*) FROM ill WHERE ctid = '(0,1)' -- names a column
SELECT COUNT(*) FROM ill WHERE ill = 'x' -- names a column
SELECT COUNT(*) FROM ill WHERE people.age = 1 -- qualified
SELECT COUNT(*) FROM ill AS i WHERE ill.age = 1 -- qualified
SELECT COUNT(*) FROM ill WHERE age -- a condition is needed here
SELECT COUNT(*) FROM ill WHERE 'true' -- a condition is needed here
SELECT COUNT(*) FROM ill WHERE age AND sex = 'f' -- a condition is needed here
SELECT COUNT(*) FROM ill WHERE age = 'old' -- cannot be read as integer
SELECT COUNT(*) FROM ill WHERE age = '1.5' -- cannot be read as integer
SELECT COUNT(*) FROM ill WHERE born = 'soon' -- cannot be read as date
SELECT COUNT(*) FROM ill WHERE born = DATE '2020-02-30' -- cannot be read as date
SELECT COUNT(*) FROM ill WHERE member = 'perhaps' -- cannot be read as boolean
SELECT COUNT(*) FROM ill WHERE age = 1e999999 -- cannot be read as numeric
SELECT COUNT(*) FROM ill WHERE age = sex -- cannot be compared
SELECT COUNT(*) FROM ill WHERE sex = 1 -- cannot be compared
SELECT COUNT(*) FROM ill WHERE age = TRUE -- cannot be compared
SELECT COUNT(*) FROM ill WHERE born > 1980 -- cannot be compared
SELECT COUNT(*) FROM ill WHERE age IN (1, TRUE) -- cannot be compared
SELECT COUNT(*) FROM ill WHERE age = NULL -- never true
SELECT COUNT(*) FROM ill WHERE age NOT IN (1, NULL) -- never true
SELECT COUNT(*) FROM ill WHERE age LIKE '1%' -- LIKE cannot compare
SELECT COUNT(*) FROM ill WHERE sex + 1 = 2 -- arithmetic is only supported for numbers
SELECT COUNT(*) FROM ill WHERE born + 1.5 = DATE '2020-01-01' -- moved by whole days
SELECT COUNT(*) FROM ill WHERE born + seen = DATE '2020-01-01' -- moved by whole days
SELECT COUNT(*) FROM ill WHERE upper(age) = 'X' -- upper is given something else
SELECT COUNT(*) FROM ill WHERE left(sex, age) = 'X' -- left is given something else
SELECT COUNT(*) FROM ill WHERE replace(sex, 'f', 'ff') = 'X' -- replace is given something else
SELECT COUNT(*) FROM ill WHERE sex || born = 'X' -- cannot be joined
SELECT COUNT(*) FROM ill WHERE age <@ int8range(1, 2) -- holds values of type bigint
SELECT COUNT(*) FROM ill WHERE age <@ int4range(2, 1) -- ends before it begins
SELECT COUNT(*) FROM ill WHERE seen AT TIME ZONE 'Mars' > '2020-01-01' -- arithmetic fails
SELECT COUNT(*) FROM ill WHERE seen AT TIME ZONE '../x' > '2020-01-01' -- time zone
SELECT sex, 1.0 * COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY age) FROM ill GROUP BY sex -- GROUP BY does not
SELECT sex, 1.0 * COUNT(*) / SUM(COUNT(*)) OVER () FROM ill GROUP BY sex HAVING COUNT(*) > 1 -- not supported with HAVING
SELECT SUM(weight) FROM ill -- weighted already
SELECT COUNT(*) FROM ill WHERE age + '1' = 2 -- arithmetic is only supported for numbers
SELECT COUNT(*) FROM ill WHERE height % 2 = 1 -- floating-point
SELECT COUNT(*) FROM ill WHERE 10 / (age - age) = 1 -- arithmetic fails
SELECT COUNT(*) FROM ill WHERE 10 / zip = 1 AND illness = 'flu' -- arithmetic fails
SELECT COUNT(*) FROM ill WHERE age * 2000000000 = 1 -- arithmetic fails
SELECT COUNT(*) FROM paid WHERE cost / zip = 1 -- arithmetic fails
SELECT COUNT(*) FROM ill WHERE EXTRACT(year FROM age) = 1 -- only dates and timestamps
SELECT COUNT(*) FROM ill WHERE EXTRACT(hour FROM born) = 1 -- no such part
SELECT COUNT(*) FROM ill WHERE CASE WHEN age THEN 1 END = 1 -- condition is needed
SELECT COUNT(*) FROM ill WHERE CASE WHEN member THEN age ELSE sex END = 1 -- results of a CASE
SELECT age, COUNT(*) FROM ill -- GROUP BY does not name
SELECT sex, COUNT(*) FROM ill GROUP BY age -- GROUP BY does not name
SELECT COUNT(*) FROM ill WHERE 2 > COUNT(*) -- contains an aggregate
SELECT COUNT(*) FILTER (WHERE age > 30) / COUNT(*) FROM ill -- cut to a whole number
SELECT COUNT(*) + age FROM ill GROUP BY age -- calculations with aggregates
SELECT COUNT(*) % 2 FROM ill -- calculations with aggregates
SELECT CASE WHEN COUNT(*) > 2 THEN sex END FROM ill GROUP BY sex -- calculations with aggregates
SELECT COUNT(*)::text FROM ill -- calculations with aggregates
SELECT 1e400 * COUNT(*) FROM ill -- too large
SELECT 1.0 / COUNT(*) FROM ill WHERE age > 100 -- arithmetic fails
SELECT 1.0 * COUNT(*) AS x FROM ill GROUP BY x -- an aggregate is not allowed here
SELECT COUNT(*) FROM ill GROUP BY 7 -- not the position
SELECT COUNT(*) FROM ill GROUP BY 1 -- GROUP BY contains an aggregate
SELECT COUNT(*) FROM ill GROUP BY 'x' -- GROUP BY contains a constant
SELECT sex, COUNT(*) FROM ill GROUP BY sex ORDER BY age -- neither in GROUP BY nor an aggregate
SELECT sex, COUNT(*) FROM ill GROUP BY sex HAVING sex = 'f' -- HAVING can only compare aggregates
SELECT COUNT(*) FROM ill HAVING COUNT(*) / 2 > 1 -- cut to a whole number
SELECT COUNT(*) FROM ill HAVING age / 2.0 > 1 -- HAVING can only compare aggregates
SELECT COUNT(*) FROM ill HAVING ROUND(age) > 1 -- HAVING can only compare aggregates
SELECT ROUND(AVG(height), 1) FROM ill -- needs a numeric
SELECT ROUND(AVG(age), COUNT(*)) FROM ill -- not a number that is written out
SELECT ROUND(AVG(age), 21) FROM ill -- not a number that is written out
SELECT COUNT(*) FROM ill WHERE ROUND(height, 1) = 1 -- digits of a floating-point number
SELECT SUM(sex) FROM ill -- only supported for numbers
SELECT AVG(born) FROM ill -- only supported for numbers
SELECT COUNT(*) FROM data.regions LEFT JOIN ill ON regions.zip = ill.zip -- without a record would count
SELECT COUNT(*) FROM data.secret JOIN ill ON secret.zip = ill.zip -- no such lookup table
SELECT COUNT(*) FROM ill JOIN data.secret ON secret.zip = ill.zip -- no such lookup table
SELECT COUNT(*) FROM ill JOIN data.nothing ON nothing.zip = ill.zip -- no such lookup table
SELECT COUNT(*) FROM ill JOIN data.people ON people.age = ill.age -- no such lookup table
SELECT COUNT(*) FROM ill JOIN data.region_view AS r ON r.zip = ill.zip -- only a table or a materialized view
SELECT COUNT(*) FROM ill JOIN data.doubled USING (zip) -- several rows for one value
SELECT COUNT(*) FROM ill JOIN data.regions ON regions.zip = ill.sex -- cannot be joined with
SELECT COUNT(*) FROM ill JOIN data.regions ON regions.zip = regions.price -- does not compare a column
SELECT COUNT(*) FROM ill JOIN data.regions ON ill.zip = ill.age -- does not compare a column
SELECT COUNT(*) FROM ill JOIN data.regions AS ill ON ill.zip = ill.zip -- the same name
SELECT COUNT(*) FROM ill JOIN data.regions ON regions.zip = ill.zip WHERE zip = 1 -- several relations
SELECT COUNT(*) FROM ill JOIN published.paid_sat AS s ON s.cost = ill.age -- cannot be lookup tables
SELECT COUNT(*) FROM ill JOIN pg_catalog.pg_class AS c ON c.relname = ill.sex -- cannot be lookup tables
SELECT COUNT(*) FROM ill JOIN kanon.setting AS s ON s.name = ill.sex -- cannot be lookup tables
SELECT COUNT(*) FROM ill JOIN information_schema.tables AS t ON t.table_name = ill.sex -- cannot be lookup tables
SELECT COUNT(*) FROM ill JOIN regions ON regions.zip = ill.zip -- without its schema
SELECT COUNT(*) FROM ill; DROP TABLE data.people -- several statements
SELECT COUNT(*) FROM ill WHERE pg_sleep(1) IS NULL -- function calls
SELECT COUNT(*) FROM ill WHERE sex ~ '(x+x+)\1+y' -- what it found before
SELECT COUNT(*) FROM ill WHERE sex ~ '(' -- a regular expression cannot be read
SELECT COUNT(*) FROM ill WHERE COALESCE(age, sex) = 1 -- results of a COALESCE
SELECT COUNT(*) FROM ill WHERE COALESCE(age, 'x') = 1 -- cannot be read as integer
SELECT COUNT(*) FROM ill WHERE COALESCE(sex, 'x') = 1 -- cannot be compared
SELECT COUNT(*) FROM ill WHERE NULLIF(age, sex) = 1 -- cannot be compared
SELECT COUNT(*) FROM ill WHERE COALESCE(age, 1) -- a condition is needed
SELECT COUNT(*) FROM ill WHERE sex::int = 1 -- could fail on some value
SELECT COUNT(*) FROM ill WHERE illness::date IS NULL -- could fail on some value
SELECT COUNT(*) FROM ill WHERE born::text = '1980-01-15' -- depends on a setting
SELECT COUNT(*) FROM ill WHERE height::text = '1.5' -- depends on a setting
SELECT COUNT(*) FROM ill WHERE (age / 2.0)::text = '1.5' -- digits
SELECT COUNT(*) FROM ill WHERE born::int = 1 -- cannot be cast
SELECT COUNT(*) FROM ill WHERE height::boolean -- cannot be cast
SELECT COUNT(*) FROM ill WHERE member::numeric = 1 -- cannot be cast
SELECT COUNT(*) FROM ill WHERE 'x'::int = age -- cannot be read as integer
SELECT COUNT(*) FROM ill WHERE (zip * 10000)::smallint = 1 -- arithmetic fails
SELECT COUNT(*) FROM ill WHERE age > 'NaN'::numeric::int -- arithmetic fails
SELECT COUNT(*) FROM ill WHERE AGE(DATE '2024-01-01', born) > '5 years' -- where a part of it is taken
SELECT COUNT(*) FROM ill WHERE EXTRACT(hour FROM AGE(seen, born)) > 5 -- years, months and days
SELECT COUNT(*) FROM ill WHERE EXTRACT(year FROM AGE(age, 5)) > 5 -- for dates and timestamps
SELECT COUNT(*) FROM ill WHERE EXTRACT(year FROM AGE(DATE '2001-02-30', born)) > 5 -- cannot be read as date
SELECT COUNT(*) FROM (SELECT age, nosuch FROM ill) AS t -- names a column
SELECT COUNT(*) FROM (SELECT age, sex + 1 AS x FROM ill) AS t -- arithmetic is only supported
SELECT COUNT(*) FROM (SELECT 'x'::int AS x FROM ill) AS t -- cannot be read as integer
SELECT COUNT(*) FROM (SELECT age FROM data.people) AS t -- names a source
WITH t AS (SELECT age FROM people) SELECT COUNT(*) FROM t -- names a source
SELECT sex, COUNT(*) FROM (SELECT age, sex FROM ill) AS t GROUP BY age -- GROUP BY does not name
SELECT DISTINCT COUNT(*) FROM ill -- only supported for columns
SELECT DISTINCT sex FROM ill GROUP BY sex -- only supported for columns
SELECT DISTINCT sex FROM ill ORDER BY COUNT(*) -- only supported for columns
SELECT DISTINCT sex FROM ill ORDER BY age -- neither in GROUP BY nor an aggregate
SELECT DISTINCT 1 FROM ill -- SELECT DISTINCT contains a constant
SELECT DISTINCT ON (sex) age FROM ill -- SELECT DISTINCT ON
SELECT SUM(DISTINCT age) FROM ill -- DISTINCT is only supported in
SELECT MAX(born) - MIN(born) FROM ill -- calculated from a date
SELECT MAX(sex) FROM ill -- only supported for numbers
SELECT MAX(member) FROM ill -- only supported for numbers
SELECT percentile_cont(1.5) WITHIN GROUP (ORDER BY age) FROM ill -- not a number from 0 to 1
SELECT percentile_cont(zip) WITHIN GROUP (ORDER BY age) FROM ill -- not a number from 0 to 1
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY age DESC) FROM ill -- ascending
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY age, zip) FROM ill -- ascending
SELECT MAX(age) / 2 FROM ill -- cut to a whole number
SELECT mode() WITHIN GROUP (ORDER BY sex) FROM ill -- mode() is not supported
SELECT MEDIAN(age) FROM ill -- MEDIAN(...) is not supported
