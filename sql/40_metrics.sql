-- metrics(): measures a publication from its published relations. For analysts and publishers.
CREATE OR REPLACE FUNCTION kanon.metrics(name text)
RETURNS TABLE (metric text, value double precision)
LANGUAGE plpython3u VOLATILE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import metrics
return metrics(plpy, name)
$python$;
COMMENT ON FUNCTION kanon.metrics IS 'measure a publication from its published relations';
