-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- recommend(): try what could be published of a source, and set it side by side, the best first.
CREATE OR REPLACE FUNCTION kanon.python_recommend(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'recommend', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_recommend IS 'called by kanon.recommend; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.recommend(
    source regclass,
    purpose text DEFAULT 'counts',
    protection text DEFAULT 'standard',
    time_limit double precision DEFAULT '60.0'
) RETURNS TABLE(place integer, candidate text, guarantee text, certain_people bigint, count_error double precision, loss double precision, loss_by_column jsonb, attack_rate double precision, attacks jsonb, seconds double precision, tried_on bigint, records bigint, objection text, sql text, command text)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_recommend(jsonb_build_object(
        'source', recommend.source::text,
        'purpose', recommend.purpose,
        'protection', recommend.protection,
        'time_limit', recommend.time_limit));
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
        AS found (place integer, candidate text, guarantee text, certain_people bigint, count_error double precision, loss double precision, loss_by_column jsonb, attack_rate double precision, attacks jsonb, seconds double precision, tried_on bigint, records bigint, objection text, sql text, command text);
END
$function$;
COMMENT ON FUNCTION kanon.recommend IS 'try what could be published of a source, and set it side by side, the best first';

REVOKE ALL ON FUNCTION
    kanon.recommend(regclass, text, text, double precision),
    kanon.python_recommend(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.recommend(regclass, text, text, double precision),
    kanon.python_recommend(jsonb)
TO kanon_publisher;
