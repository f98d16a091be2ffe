-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- verify(): check a publication, using only its published relations.
CREATE OR REPLACE FUNCTION kanon.python_verify(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'verify', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_verify IS 'called by kanon.verify; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.verify(
    name text
) RETURNS TABLE("check" text, bound text, measured text, holds boolean)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_verify(jsonb_build_object(
        'name', verify.name));
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
    RETURN QUERY SELECT * FROM jsonb_to_recordset(_answer -> 'rows')
        AS found ("check" text, bound text, measured text, holds boolean);
END
$function$;
COMMENT ON FUNCTION kanon.verify IS 'check a publication, using only its published relations';

REVOKE ALL ON FUNCTION
    kanon.verify(text),
    kanon.python_verify(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.verify(text),
    kanon.python_verify(jsonb)
TO kanon_publisher, kanon_analyst, kanon_user;
