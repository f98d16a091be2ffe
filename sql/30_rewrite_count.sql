-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- rewrite_count(): the estimates of a query, as one readable SQL statement.
CREATE OR REPLACE FUNCTION kanon.python_rewrite_count(arguments jsonb) RETURNS jsonb
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET extra_float_digits = '1'
SET quote_all_identifiers = off
SET jit = off
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import call
return call(plpy, 'rewrite_count', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_rewrite_count IS 'called by kanon.rewrite_count; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.rewrite_count(
    query text,
    params jsonb DEFAULT NULL,
    publication text DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_rewrite_count(jsonb_build_object(
        'query', rewrite_count.query,
        'params', rewrite_count.params::text,
        'publication', rewrite_count.publication));
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
    RETURN (_answer ->> 'value')::text;
END
$function$;
COMMENT ON FUNCTION kanon.rewrite_count IS 'the estimates of a query, as one readable SQL statement';

REVOKE ALL ON FUNCTION
    kanon.rewrite_count(text, jsonb, text),
    kanon.python_rewrite_count(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.rewrite_count(text, jsonb, text),
    kanon.python_rewrite_count(jsonb)
TO kanon_publisher, kanon_analyst, kanon_user;
