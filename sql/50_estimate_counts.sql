-- estimate_counts(): answers a COUNT query with GROUP BY. For analysts and publishers.
CREATE OR REPLACE FUNCTION kanon.estimate_counts(query text)
RETURNS TABLE (
    group_key   jsonb,
    estimate    double precision,
    std_error   double precision,
    lower_bound bigint,
    upper_bound bigint
)
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import estimate_counts
return estimate_counts(plpy, query)
$python$;
COMMENT ON FUNCTION kanon.estimate_counts IS
    'estimate a COUNT query of each group: the group''s values, estimate, standard error, bounds';
