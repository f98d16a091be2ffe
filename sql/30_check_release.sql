-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- check_release(): measure what a publication would tell together with earlier releases of the same people.
CREATE OR REPLACE FUNCTION kanon.python_check_release(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'check_release', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_check_release IS 'called by kanon.check_release; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.check_release(
    source regclass,
    publication text,
    readers text[] DEFAULT NULL
) RETURNS TABLE("check" text, result text, releases text, people bigint, certain bigint, share double precision, bound double precision, holds boolean)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_check_release(jsonb_build_object(
        'source', check_release.source::text,
        'publication', check_release.publication,
        'readers', check_release.readers));
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
        AS found ("check" text, result text, releases text, people bigint, certain bigint, share double precision, bound double precision, holds boolean);
END
$function$;
COMMENT ON FUNCTION kanon.check_release IS 'measure what a publication would tell together with earlier releases of the same people';

REVOKE ALL ON FUNCTION
    kanon.check_release(regclass, text, text[]),
    kanon.python_check_release(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.check_release(regclass, text, text[]),
    kanon.python_check_release(jsonb)
TO kanon_publisher;
