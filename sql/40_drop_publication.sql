-- drop_publication(): drops a publication's relations and its entry. For the role that published.
CREATE OR REPLACE FUNCTION kanon.drop_publication(name text) RETURNS void
LANGUAGE plpython3u VOLATILE
SET search_path = pg_catalog, pg_temp
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import drop_publication
drop_publication(plpy, name)
$python$;
COMMENT ON FUNCTION kanon.drop_publication IS 'drop a publication';
