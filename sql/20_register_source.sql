-- register_source(): describes microdata once. For publishers, with their own SELECT on it.
CREATE OR REPLACE FUNCTION kanon.register_source(
    source            regclass,
    quasi_identifiers text[],
    sensitive         text DEFAULT NULL,
    identifiers       text[] DEFAULT '{}',
    attributes        jsonb DEFAULT NULL
) RETURNS bigint
LANGUAGE plpython3u VOLATILE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import register_source
return register_source(plpy, source, quasi_identifiers, sensitive, identifiers, attributes)
$python$;
COMMENT ON FUNCTION kanon.register_source IS
    'describe microdata: quasi-identifiers, sensitive attribute, identifiers; returns its id';
