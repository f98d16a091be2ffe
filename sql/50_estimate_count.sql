-- estimate_count(): answers a COUNT query from published tables. For analysts and publishers.
CREATE OR REPLACE FUNCTION kanon.estimate_count(query text)
RETURNS TABLE (
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
from kanon_db.interfaces.plpython import estimate_count
return estimate_count(plpy, query)
$python$;
COMMENT ON FUNCTION kanon.estimate_count IS
    'estimate a COUNT query from a publication: estimate, standard error, certain bounds';
