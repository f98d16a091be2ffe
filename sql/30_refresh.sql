-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- refresh(): publish the people that came since, as a batch of their own under the same guarantee.
CREATE OR REPLACE FUNCTION kanon.python_refresh(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'refresh', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_refresh IS 'called by kanon.refresh; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.refresh(
    publication text,
    accept jsonb DEFAULT '{}'
) RETURNS TABLE(publication_id bigint, name text, guarantee text, records bigint, added bigint, waiting bigint, missing text, metrics jsonb, seconds double precision, withdrawn bigint, left_out bigint, corrected bigint, waits jsonb)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_refresh(jsonb_build_object(
        'publication', refresh.publication,
        'accept', refresh.accept::text));
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
        AS found (publication_id bigint, name text, guarantee text, records bigint, added bigint, waiting bigint, missing text, metrics jsonb, seconds double precision, withdrawn bigint, left_out bigint, corrected bigint, waits jsonb);
END
$function$;
COMMENT ON FUNCTION kanon.refresh IS 'publish the people that came since, as a batch of their own under the same guarantee';

REVOKE ALL ON FUNCTION
    kanon.refresh(text, jsonb),
    kanon.python_refresh(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.refresh(text, jsonb),
    kanon.python_refresh(jsonb)
TO kanon_publisher;
