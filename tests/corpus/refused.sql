SELECT COUNT(*) FROM nobody -- there is no such publication
SELECT COUNT(*) FROM ill_qit -- there is no such publication
SELECT COUNT(*) FROM data.people -- only published relations
SELECT COUNT(*) FROM ill WHERE bucket_id = 1 -- names a column
SELECT COUNT(*) FROM ill WHERE ctid = '(0,1)' -- names a column
SELECT COUNT(*) FROM ill WHERE ill = 'x' -- names a column
SELECT COUNT(*) FROM ill WHERE people.age = 1 -- qualified
SELECT COUNT(*) FROM ill AS i WHERE ill.age = 1 -- qualified
SELECT COUNT(*) FROM ill WHERE age -- stands where a condition is needed
SELECT COUNT(*) FROM ill WHERE 'true' -- stands where a condition is needed
SELECT COUNT(*) FROM ill WHERE age AND sex = 'f' -- stands where a condition is needed
SELECT COUNT(*) FROM ill WHERE age = 'old' -- does not read as integer
SELECT COUNT(*) FROM ill WHERE age = '1.5' -- does not read as integer
SELECT COUNT(*) FROM ill WHERE born = 'soon' -- does not read as date
SELECT COUNT(*) FROM ill WHERE born = DATE '2020-02-30' -- does not read as date
SELECT COUNT(*) FROM ill WHERE member = 'perhaps' -- does not read as boolean
SELECT COUNT(*) FROM ill WHERE age = 1e999999 -- does not read as numeric
SELECT COUNT(*) FROM ill WHERE age = sex -- does not compare
SELECT COUNT(*) FROM ill WHERE sex = 1 -- does not compare
SELECT COUNT(*) FROM ill WHERE age = TRUE -- does not compare
SELECT COUNT(*) FROM ill WHERE born > 1980 -- does not compare
SELECT COUNT(*) FROM ill WHERE age IN (1, TRUE) -- does not compare
SELECT COUNT(*) FROM ill WHERE age = NULL -- never true
SELECT COUNT(*) FROM ill WHERE age NOT IN (1, NULL) -- never true
SELECT COUNT(*) FROM ill WHERE age LIKE '1%' -- LIKE does not compare
SELECT COUNT(*) FROM ill WHERE sex + 1 = 2 -- arithmetic is only supported on numbers
SELECT COUNT(*) FROM ill WHERE born + 1 = DATE '2020-01-01' -- arithmetic is only supported on numbers
SELECT COUNT(*) FROM ill WHERE age + '1' = 2 -- arithmetic is only supported on numbers
SELECT COUNT(*) FROM ill WHERE height % 2 = 1 -- floating-point
SELECT COUNT(*) FROM ill WHERE 10 / (age - age) = 1 -- arithmetic fails
SELECT COUNT(*) FROM ill WHERE 10 / zip = 1 AND illness = 'flu' -- arithmetic fails
SELECT COUNT(*) FROM ill WHERE age * 2000000000 = 1 -- arithmetic fails
SELECT COUNT(*) FROM paid WHERE cost / zip = 1 -- arithmetic fails
SELECT COUNT(*) FROM ill WHERE EXTRACT(year FROM age) = 1 -- dates and timestamps only
SELECT COUNT(*) FROM ill WHERE EXTRACT(hour FROM born) = 1 -- no such part
SELECT COUNT(*) FROM ill WHERE CASE WHEN age THEN 1 END = 1 -- condition is needed
SELECT COUNT(*) FROM ill WHERE CASE WHEN member THEN age ELSE sex END = 1 -- results of a CASE
SELECT age, COUNT(*) FROM ill -- no GROUP BY names
SELECT sex, COUNT(*) FROM ill GROUP BY age -- no GROUP BY names
SELECT sex FROM ill GROUP BY sex -- no COUNT, SUM or AVG
SELECT COUNT(*) * 2 FROM ill -- aggregate stands where it cannot
SELECT COUNT(*) FROM ill GROUP BY 7 -- names no item
SELECT COUNT(*) FROM ill GROUP BY 1 -- aggregate stands in GROUP BY
SELECT COUNT(*) FROM ill GROUP BY 'x' -- GROUP BY names a constant
SELECT sex, COUNT(*) FROM ill GROUP BY sex ORDER BY age -- neither grouped by nor counted
SELECT sex, COUNT(*) FROM ill GROUP BY sex HAVING sex = 'f' -- HAVING compares aggregates
SELECT COUNT(*) FROM ill HAVING COUNT(*) / 2 > 1 -- HAVING compares aggregates
SELECT SUM(sex) FROM ill -- only supported on numbers
SELECT AVG(born) FROM ill -- only supported on numbers
SELECT COUNT(*) FROM ill JOIN data.secret ON secret.zip = ill.zip -- no such lookup table
SELECT COUNT(*) FROM ill JOIN data.nothing ON nothing.zip = ill.zip -- no such lookup table
SELECT COUNT(*) FROM ill JOIN data.people ON people.age = ill.age -- no such lookup table
SELECT COUNT(*) FROM ill JOIN data.region_view AS r ON r.zip = ill.zip -- only a table or a materialized view
SELECT COUNT(*) FROM ill JOIN data.doubled USING (zip) -- several rows for one value
SELECT COUNT(*) FROM ill JOIN data.regions ON regions.zip = ill.sex -- is not joined with
SELECT COUNT(*) FROM ill JOIN data.regions ON regions.zip = regions.price -- does not compare a column
SELECT COUNT(*) FROM ill JOIN data.regions ON ill.zip = ill.age -- does not compare a column
SELECT COUNT(*) FROM ill JOIN data.regions AS ill ON ill.zip = ill.zip -- the same name
SELECT COUNT(*) FROM ill JOIN data.regions ON regions.zip = ill.zip WHERE zip = 1 -- several relations
SELECT COUNT(*) FROM ill JOIN published.paid_sat AS s ON s.cost = ill.age -- no lookup table
SELECT COUNT(*) FROM ill JOIN pg_catalog.pg_class AS c ON c.relname = ill.sex -- no lookup table
SELECT COUNT(*) FROM ill JOIN kanon.setting AS s ON s.name = ill.sex -- no lookup table
SELECT COUNT(*) FROM ill JOIN information_schema.tables AS t ON t.table_name = ill.sex -- no lookup table
SELECT COUNT(*) FROM ill JOIN regions ON regions.zip = ill.zip -- without its schema
SELECT COUNT(*) FROM ill; DROP TABLE data.people -- several statements
SELECT COUNT(*) FROM ill WHERE pg_sleep(1) IS NULL -- function calls
SELECT COUNT(*) FROM ill WHERE sex ~ '(x+x+)+y' -- operator
