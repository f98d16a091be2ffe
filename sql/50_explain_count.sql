-- explain_count(): says how a query is answered, and how well. For analysts and publishers.
CREATE OR REPLACE FUNCTION kanon.explain_count(query text)
RETURNS TABLE (
    part        text,
    description text,
    accuracy    text,
    std_error   double precision
)
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import explain_count
return explain_count(plpy, query)
$python$;
COMMENT ON FUNCTION kanon.explain_count IS
    'what of a query is exact, what is estimated, the expected error, and the SQL that answers it';
