-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- inspect_relation(): look at the columns of a table before it is registered, and guess their roles.
CREATE OR REPLACE FUNCTION kanon.python_inspect_relation(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'inspect_relation', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_inspect_relation IS 'called by kanon.inspect_relation; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.inspect_relation(
    source regclass
) RETURNS TABLE(name text, type text, role text, reason text, distinct_values bigint, missing double precision, once double precision, notes text, sql text, command text)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_inspect_relation(jsonb_build_object(
        'source', inspect_relation.source::text));
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
        AS found (name text, type text, role text, reason text, distinct_values bigint, missing double precision, once double precision, notes text, sql text, command text);
END
$function$;
COMMENT ON FUNCTION kanon.inspect_relation IS 'look at the columns of a table before it is registered, and guess their roles';

REVOKE ALL ON FUNCTION
    kanon.inspect_relation(regclass),
    kanon.python_inspect_relation(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.inspect_relation(regclass),
    kanon.python_inspect_relation(jsonb)
TO kanon_publisher;
