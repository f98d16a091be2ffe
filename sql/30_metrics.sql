-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- metrics(): measure a publication from its published relations.
CREATE OR REPLACE FUNCTION kanon.python_metrics(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'metrics', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_metrics IS 'called by kanon.metrics; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.metrics(
    name text
) RETURNS TABLE(metric text, value double precision)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_metrics(jsonb_build_object(
        'name', metrics.name));
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
        AS found (metric text, value double precision);
END
$function$;
COMMENT ON FUNCTION kanon.metrics IS 'measure a publication from its published relations';

REVOKE ALL ON FUNCTION
    kanon.metrics(text),
    kanon.python_metrics(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.metrics(text),
    kanon.python_metrics(jsonb)
TO kanon_publisher, kanon_analyst, kanon_user;
