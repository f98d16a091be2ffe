-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- draw(): records drawn from a publication: of buckets, each with one sensitive value.
CREATE OR REPLACE FUNCTION kanon.python_draw(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'draw', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_draw IS 'called by kanon.draw; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.draw(
    name text,
    seed bigint DEFAULT NULL
) RETURNS TABLE(record jsonb)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_draw(jsonb_build_object(
        'name', draw.name,
        'seed', draw.seed));
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
        AS found (record jsonb);
END
$function$;
COMMENT ON FUNCTION kanon.draw IS 'records drawn from a publication: of buckets, each with one sensitive value';

REVOKE ALL ON FUNCTION
    kanon.draw(text, bigint),
    kanon.python_draw(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.draw(text, bigint),
    kanon.python_draw(jsonb)
TO kanon_publisher, kanon_analyst, kanon_user;
