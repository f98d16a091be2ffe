-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- check_relation(): measure k, l, t and the risks of any table or view, and count the classes beyond a bound.
CREATE OR REPLACE FUNCTION kanon.python_check_relation(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'check_relation', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_check_relation IS 'called by kanon.check_relation; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.check_relation(
    relation regclass,
    quasi_identifiers text[],
    sensitive text[] DEFAULT '{}',
    entity text DEFAULT NULL,
    survey_weight text DEFAULT NULL,
    k integer DEFAULT NULL,
    l integer DEFAULT NULL,
    t numeric DEFAULT NULL
) RETURNS TABLE(measure text, value double precision, bound double precision, classes bigint, records bigint, holds boolean)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_check_relation(jsonb_build_object(
        'relation', check_relation.relation::text,
        'quasi_identifiers', check_relation.quasi_identifiers,
        'sensitive', check_relation.sensitive,
        'entity', check_relation.entity,
        'survey_weight', check_relation.survey_weight,
        'k', check_relation.k,
        'l', check_relation.l,
        't', check_relation.t::text));
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
        AS found (measure text, value double precision, bound double precision, classes bigint, records bigint, holds boolean);
END
$function$;
COMMENT ON FUNCTION kanon.check_relation IS 'measure k, l, t and the risks of any table or view, and count the classes beyond a bound';

REVOKE ALL ON FUNCTION
    kanon.check_relation(regclass, text[], text[], text, text, integer, integer, numeric),
    kanon.python_check_relation(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.check_relation(regclass, text[], text[], text, text, integer, integer, numeric),
    kanon.python_check_relation(jsonb)
TO kanon_publisher, kanon_analyst, kanon_user;
