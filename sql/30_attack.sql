-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- attack(): play known attacks against a publication, and compare what they achieve with its bound.
CREATE OR REPLACE FUNCTION kanon.python_attack(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'attack', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_attack IS 'called by kanon.attack; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.attack(
    name text
) RETURNS TABLE(attack text, bound double precision, base_rate double precision, rate double precision, people bigint)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_attack(jsonb_build_object(
        'name', attack.name));
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
        AS found (attack text, bound double precision, base_rate double precision, rate double precision, people bigint);
END
$function$;
COMMENT ON FUNCTION kanon.attack IS 'play known attacks against a publication, and compare what they achieve with its bound';

REVOKE ALL ON FUNCTION
    kanon.attack(text),
    kanon.python_attack(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.attack(text),
    kanon.python_attack(jsonb)
TO kanon_publisher;
