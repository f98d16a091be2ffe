-- estimate_count(): answers a COUNT query from published tables. For analysts and publishers.
-- PL/pgSQL runs the statement: unlike plpy it plans it for parallel workers, values bound.
CREATE OR REPLACE FUNCTION kanon.estimate_count(query text)
RETURNS TABLE (
    estimate    double precision,
    std_error   double precision,
    lower_bound bigint,
    upper_bound bigint
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
AS $plpgsql$
DECLARE
    plan record;
BEGIN
    SELECT p.statement, p."values", p.matches INTO STRICT plan FROM kanon.plan_count(query) AS p;
    RETURN QUERY EXECUTE plan.statement USING plan."values", plan.matches;
END
$plpgsql$;
COMMENT ON FUNCTION kanon.estimate_count IS
    'estimate a COUNT query from a publication: estimate, standard error, certain bounds';
