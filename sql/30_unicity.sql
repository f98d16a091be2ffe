-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- unicity(): which columns, and combinations of columns, tell records apart, and how many.
CREATE OR REPLACE FUNCTION kanon.python_unicity(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'unicity', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_unicity IS 'called by kanon.unicity; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.unicity(
    source regclass
) RETURNS TABLE(columns text[], records bigint, share double precision, meaning text)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_unicity(jsonb_build_object(
        'source', unicity.source::text));
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
        AS found (columns text[], records bigint, share double precision, meaning text);
END
$function$;
COMMENT ON FUNCTION kanon.unicity IS 'which columns, and combinations of columns, tell records apart, and how many';

REVOKE ALL ON FUNCTION
    kanon.unicity(regclass),
    kanon.python_unicity(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.unicity(regclass),
    kanon.python_unicity(jsonb)
TO kanon_publisher;
