-- verify(): checks a publication from its published relations alone. For analysts and publishers.
CREATE OR REPLACE FUNCTION kanon.verify(name text)
RETURNS TABLE ("check" text, bound text, measured text, holds boolean)
LANGUAGE plpython3u VOLATILE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import verify
return verify(plpy, name)
$python$;
COMMENT ON FUNCTION kanon.verify IS 'check a publication from its published relations alone';
