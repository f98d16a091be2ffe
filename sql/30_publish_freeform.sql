-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- publish_freeform(): publish a registered source k-anonymously, each row with ranges and sets of its own.
CREATE OR REPLACE FUNCTION kanon.python_publish_freeform(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'publish_freeform', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_publish_freeform IS 'called by kanon.publish_freeform; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.publish_freeform(
    source regclass,
    publication text,
    k integer,
    method text DEFAULT 'sort_greedy',
    weights jsonb DEFAULT NULL,
    options jsonb DEFAULT NULL,
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
    _answer CONSTANT jsonb := kanon.python_publish_freeform(jsonb_build_object(
        'source', publish_freeform.source::text,
        'publication', publish_freeform.publication,
        'k', publish_freeform.k,
        'method', publish_freeform.method,
        'weights', publish_freeform.weights::text,
        'options', publish_freeform.options::text,
        'readers', publish_freeform.readers,
        'replace', publish_freeform.replace,
        'accept', publish_freeform.accept::text,
        'dry_run', publish_freeform.dry_run,
        'figures', publish_freeform.figures::text,
        'draws', publish_freeform.draws));
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
COMMENT ON FUNCTION kanon.publish_freeform IS 'publish a registered source k-anonymously, each row with ranges and sets of its own';

REVOKE ALL ON FUNCTION
    kanon.publish_freeform(regclass, text, integer, text, jsonb, jsonb, text[], boolean, jsonb, boolean, jsonb, boolean),
    kanon.python_publish_freeform(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.publish_freeform(regclass, text, integer, text, jsonb, jsonb, text[], boolean, jsonb, boolean, jsonb, boolean),
    kanon.python_publish_freeform(jsonb)
TO kanon_publisher;
