-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- evaluate_counts(): relative errors of a bucketization's answers to random count queries, against its source.
CREATE OR REPLACE FUNCTION kanon.python_evaluate_counts(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'evaluate_counts', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_evaluate_counts IS 'called by kanon.evaluate_counts; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.evaluate_counts(
    name text,
    queries integer DEFAULT 1000,
    dimensionality integer[] DEFAULT NULL,
    selectivity double precision[] DEFAULT NULL,
    seed bigint DEFAULT NULL
) RETURNS TABLE(expected_selectivity double precision, n_queries bigint, undefined bigint, mean_relative_error double precision, median_relative_error double precision)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_evaluate_counts(jsonb_build_object(
        'name', evaluate_counts.name,
        'queries', evaluate_counts.queries,
        'dimensionality', evaluate_counts.dimensionality,
        'selectivity', evaluate_counts.selectivity,
        'seed', evaluate_counts.seed));
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
        AS found (expected_selectivity double precision, n_queries bigint, undefined bigint, mean_relative_error double precision, median_relative_error double precision);
END
$function$;
COMMENT ON FUNCTION kanon.evaluate_counts IS 'relative errors of a bucketization''s answers to random count queries, against its source';

REVOKE ALL ON FUNCTION
    kanon.evaluate_counts(text, integer, integer[], double precision[], bigint),
    kanon.python_evaluate_counts(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.evaluate_counts(text, integer, integer[], double precision[], bigint),
    kanon.python_evaluate_counts(jsonb)
TO kanon_publisher;
