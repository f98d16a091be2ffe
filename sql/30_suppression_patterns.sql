-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- suppression_patterns(): the pattern vectors that patterns or rules allow, in the order in which they are tried.
CREATE OR REPLACE FUNCTION kanon.python_suppression_patterns(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'suppression_patterns', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_suppression_patterns IS 'called by kanon.suppression_patterns; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.suppression_patterns(
    source regclass,
    patterns text[] DEFAULT NULL,
    rules jsonb DEFAULT NULL,
    weights jsonb DEFAULT NULL
) RETURNS TABLE("position" integer, pattern text, suppressed text[], cost double precision)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_suppression_patterns(jsonb_build_object(
        'source', suppression_patterns.source::text,
        'patterns', suppression_patterns.patterns,
        'rules', suppression_patterns.rules::text,
        'weights', suppression_patterns.weights::text));
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
        AS found ("position" integer, pattern text, suppressed text[], cost double precision);
END
$function$;
COMMENT ON FUNCTION kanon.suppression_patterns IS 'the pattern vectors that patterns or rules allow, in the order in which they are tried';

REVOKE ALL ON FUNCTION
    kanon.suppression_patterns(regclass, text[], jsonb, jsonb),
    kanon.python_suppression_patterns(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.suppression_patterns(regclass, text[], jsonb, jsonb),
    kanon.python_suppression_patterns(jsonb)
TO kanon_publisher;
