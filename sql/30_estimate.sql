-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- estimate(): estimate the aggregates of a query, a row for each group and aggregate.
CREATE OR REPLACE FUNCTION kanon.python_estimate(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'estimate', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_estimate IS 'called by kanon.estimate; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.estimate(
    query text,
    figures jsonb DEFAULT NULL,
    params jsonb DEFAULT NULL,
    publication text DEFAULT NULL
) RETURNS TABLE(group_key jsonb, aggregate text, estimate double precision, std_error double precision, lower_bound double precision, upper_bound double precision, likely_low double precision, likely_high double precision)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_estimate(jsonb_build_object(
        'query', estimate.query,
        'figures', estimate.figures::text,
        'params', estimate.params::text,
        'publication', estimate.publication));
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
        AS found (group_key jsonb, aggregate text, estimate double precision, std_error double precision, lower_bound double precision, upper_bound double precision, likely_low double precision, likely_high double precision);
END
$function$;
COMMENT ON FUNCTION kanon.estimate IS 'estimate the aggregates of a query, a row for each group and aggregate';

REVOKE ALL ON FUNCTION
    kanon.estimate(text, jsonb, jsonb, text),
    kanon.python_estimate(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.estimate(text, jsonb, jsonb, text),
    kanon.python_estimate(jsonb)
TO kanon_publisher, kanon_analyst, kanon_user;
