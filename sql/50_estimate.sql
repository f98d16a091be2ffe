-- estimate(): answers a query of COUNT, SUM and AVG, with GROUP BY or without. For analysts and
-- publishers.
CREATE OR REPLACE FUNCTION kanon.estimate(query text)
RETURNS TABLE (
    group_key   jsonb,
    aggregate   text,
    estimate    double precision,
    std_error   double precision,
    lower_bound double precision,
    upper_bound double precision
)
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import estimate
return estimate(plpy, query)
$python$;
COMMENT ON FUNCTION kanon.estimate IS
    'estimate the counts, sums and averages of a query, a row for each group and aggregate';
