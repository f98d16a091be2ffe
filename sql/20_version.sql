-- version(): the installed version of kanon_db. For analysts and publishers.
CREATE OR REPLACE FUNCTION kanon.version() RETURNS text
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp
AS $python$
# environment
from kanon_db.interfaces.plpython import version
return version()
$python$;
COMMENT ON FUNCTION kanon.version() IS 'version of kanon_db';
