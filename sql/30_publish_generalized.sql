-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- publish_generalized(): publish a registered source k-anonymously, with ranges and sets that rows share.
CREATE OR REPLACE FUNCTION kanon.python_publish_generalized(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'publish_generalized', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_publish_generalized IS 'called by kanon.publish_generalized; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.publish_generalized(
    source regclass,
    publication text,
    k integer,
    method text DEFAULT 'auto',
    weights jsonb DEFAULT NULL,
    options jsonb DEFAULT NULL,
    constraints jsonb DEFAULT NULL,
    max_suppressed numeric DEFAULT 0,
    refine boolean DEFAULT true,
    readers text[] DEFAULT NULL,
    replace boolean DEFAULT false,
    accept jsonb DEFAULT '{}',
    dry_run boolean DEFAULT false,
    figures jsonb DEFAULT NULL,
    draws boolean DEFAULT false
) RETURNS TABLE(publication_id bigint, name text, guarantee text, records bigint, metrics jsonb, seconds double precision)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_publish_generalized(jsonb_build_object(
        'source', publish_generalized.source::text,
        'publication', publish_generalized.publication,
        'k', publish_generalized.k,
        'method', publish_generalized.method,
        'weights', publish_generalized.weights::text,
        'options', publish_generalized.options::text,
        'constraints', publish_generalized.constraints::text,
        'max_suppressed', publish_generalized.max_suppressed::text,
        'refine', publish_generalized.refine,
        'readers', publish_generalized.readers,
        'replace', publish_generalized.replace,
        'accept', publish_generalized.accept::text,
        'dry_run', publish_generalized.dry_run,
        'figures', publish_generalized.figures::text,
        'draws', publish_generalized.draws));
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
        AS found (publication_id bigint, name text, guarantee text, records bigint, metrics jsonb, seconds double precision);
END
$function$;
COMMENT ON FUNCTION kanon.publish_generalized IS 'publish a registered source k-anonymously, with ranges and sets that rows share';

REVOKE ALL ON FUNCTION
    kanon.publish_generalized(regclass, text, integer, text, jsonb, jsonb, jsonb, numeric, boolean, text[], boolean, jsonb, boolean, jsonb, boolean),
    kanon.python_publish_generalized(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.publish_generalized(regclass, text, integer, text, jsonb, jsonb, jsonb, numeric, boolean, text[], boolean, jsonb, boolean, jsonb, boolean),
    kanon.python_publish_generalized(jsonb)
TO kanon_publisher;
