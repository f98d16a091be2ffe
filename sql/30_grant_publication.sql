-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- grant_publication(): let more roles read a publication, under the rules for publishing it to them.
CREATE OR REPLACE FUNCTION kanon.python_grant_publication(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'grant_publication', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_grant_publication IS 'called by kanon.grant_publication; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.grant_publication(
    name text,
    readers text[],
    accept jsonb DEFAULT '{}'
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_grant_publication(jsonb_build_object(
        'name', grant_publication.name,
        'readers', grant_publication.readers,
        'accept', grant_publication.accept::text));
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
END
$function$;
COMMENT ON FUNCTION kanon.grant_publication IS 'let more roles read a publication, under the rules for publishing it to them';

REVOKE ALL ON FUNCTION
    kanon.grant_publication(text, text[], jsonb),
    kanon.python_grant_publication(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.grant_publication(text, text[], jsonb),
    kanon.python_grant_publication(jsonb)
TO kanon_publisher;
