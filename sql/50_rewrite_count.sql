-- rewrite_count(): shows the SQL that answers a COUNT query. For analysts and publishers.
CREATE OR REPLACE FUNCTION kanon.rewrite_count(query text) RETURNS text
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import rewrite_count
return rewrite_count(plpy, query)
$python$;
COMMENT ON FUNCTION kanon.rewrite_count IS 'the SQL that answers a COUNT query, as text';
