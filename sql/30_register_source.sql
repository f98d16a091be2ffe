-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- register_source(): describe microdata by the roles of its columns; returns its id.
CREATE OR REPLACE FUNCTION kanon.python_register_source(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'register_source', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_register_source IS 'called by kanon.register_source; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.register_source(
    source regclass,
    quasi_identifiers text[],
    sensitive text DEFAULT NULL,
    identifiers text[] DEFAULT '{}',
    attributes jsonb DEFAULT NULL,
    insensitive text[] DEFAULT '{}',
    entity text DEFAULT NULL,
    arrival text DEFAULT NULL,
    also_sensitive text[] DEFAULT '{}',
    keep text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_register_source(jsonb_build_object(
        'source', register_source.source::text,
        'quasi_identifiers', register_source.quasi_identifiers,
        'sensitive', register_source.sensitive,
        'identifiers', register_source.identifiers,
        'attributes', register_source.attributes::text,
        'insensitive', register_source.insensitive,
        'entity', register_source.entity,
        'arrival', register_source.arrival,
        'also_sensitive', register_source.also_sensitive,
        'keep', register_source.keep));
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
    RETURN (_answer ->> 'value')::bigint;
END
$function$;
COMMENT ON FUNCTION kanon.register_source IS 'describe microdata by the roles of its columns; returns its id';

REVOKE ALL ON FUNCTION
    kanon.register_source(regclass, text[], text, text[], jsonb, text[], text, text, text[], text),
    kanon.python_register_source(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.register_source(regclass, text[], text, text[], jsonb, text[], text, text, text[], text),
    kanon.python_register_source(jsonb)
TO kanon_publisher;
