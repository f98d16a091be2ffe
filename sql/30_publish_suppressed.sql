-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- publish_suppressed(): publish a registered source k-anonymously, with suppressed cells.
CREATE OR REPLACE FUNCTION kanon.python_publish_suppressed(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'publish_suppressed', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_publish_suppressed IS 'called by kanon.publish_suppressed; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.publish_suppressed(
    source regclass,
    publication text,
    k integer,
    patterns text[] DEFAULT NULL,
    method text DEFAULT 'greedy',
    rules jsonb DEFAULT NULL,
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
    _answer CONSTANT jsonb := kanon.python_publish_suppressed(jsonb_build_object(
        'source', publish_suppressed.source::text,
        'publication', publish_suppressed.publication,
        'k', publish_suppressed.k,
        'patterns', publish_suppressed.patterns,
        'method', publish_suppressed.method,
        'rules', publish_suppressed.rules::text,
        'weights', publish_suppressed.weights::text,
        'options', publish_suppressed.options::text,
        'readers', publish_suppressed.readers,
        'replace', publish_suppressed.replace,
        'accept', publish_suppressed.accept::text,
        'dry_run', publish_suppressed.dry_run,
        'figures', publish_suppressed.figures::text,
        'draws', publish_suppressed.draws));
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
COMMENT ON FUNCTION kanon.publish_suppressed IS 'publish a registered source k-anonymously, with suppressed cells';

REVOKE ALL ON FUNCTION
    kanon.publish_suppressed(regclass, text, integer, text[], text, jsonb, jsonb, jsonb, text[], boolean, jsonb, boolean, jsonb, boolean),
    kanon.python_publish_suppressed(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.publish_suppressed(regclass, text, integer, text[], text, jsonb, jsonb, jsonb, text[], boolean, jsonb, boolean, jsonb, boolean),
    kanon.python_publish_suppressed(jsonb)
TO kanon_publisher;
