-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- drop_publication(): drop a publication: its relations and its entry in the catalog.
CREATE OR REPLACE FUNCTION kanon.python_drop_publication(arguments jsonb) RETURNS jsonb
LANGUAGE plpython3u VOLATILE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET extra_float_digits = '1'
SET quote_all_identifiers = off
SET jit = off
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import call
return call(plpy, 'drop_publication', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_drop_publication IS 'called by kanon.drop_publication; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.drop_publication(
    name text
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_drop_publication(jsonb_build_object(
        'name', drop_publication.name));
    _error  CONSTANT jsonb := _answer -> 'error';
BEGIN
    -- RAISE does not accept NULL, so each combination of detail and hint has its own statement.
    IF _error ? 'detail' AND _error ? 'hint' THEN
        RAISE EXCEPTION USING MESSAGE = _error ->> 'message', DETAIL = _error ->> 'detail',
            HINT = _error ->> 'hint', ERRCODE = _error ->> 'sqlstate';
    ELSIF _error ? 'detail' THEN
        RAISE EXCEPTION USING MESSAGE = _error ->> 'message', DETAIL = _error ->> 'detail',
            ERRCODE = _error ->> 'sqlstate';
    ELSIF _error ? 'hint' THEN
        RAISE EXCEPTION USING MESSAGE = _error ->> 'message', HINT = _error ->> 'hint',
            ERRCODE = _error ->> 'sqlstate';
    ELSIF _error IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = _error ->> 'message', ERRCODE = _error ->> 'sqlstate';
    END IF;
END
$function$;
COMMENT ON FUNCTION kanon.drop_publication IS 'drop a publication: its relations and its entry in the catalog';

REVOKE ALL ON FUNCTION
    kanon.drop_publication(text),
    kanon.python_drop_publication(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.drop_publication(text),
    kanon.python_drop_publication(jsonb)
TO kanon_publisher;
