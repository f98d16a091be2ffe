-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- publish_buckets(): publish a registered source as buckets, with a bound on guessing (F'-privacy).
CREATE OR REPLACE FUNCTION kanon.python_publish_buckets(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'publish_buckets', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_publish_buckets IS 'called by kanon.publish_buckets; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.publish_buckets(
    source regclass,
    publication text,
    method text DEFAULT 'two_size',
    privacy jsonb DEFAULT NULL,
    max_bucket_size integer DEFAULT 50,
    assignment text DEFAULT 'cells',
    readers text[] DEFAULT NULL,
    replace boolean DEFAULT false,
    options jsonb DEFAULT NULL,
    accept jsonb DEFAULT '{}',
    dry_run boolean DEFAULT false,
    estimates text DEFAULT 'capped',
    figures jsonb DEFAULT NULL,
    draws boolean DEFAULT false
) RETURNS TABLE(publication_id bigint, name text, guarantee text, records bigint, metrics jsonb, seconds double precision)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_publish_buckets(jsonb_build_object(
        'source', publish_buckets.source::text,
        'publication', publish_buckets.publication,
        'method', publish_buckets.method,
        'privacy', publish_buckets.privacy::text,
        'max_bucket_size', publish_buckets.max_bucket_size,
        'assignment', publish_buckets.assignment,
        'readers', publish_buckets.readers,
        'replace', publish_buckets.replace,
        'options', publish_buckets.options::text,
        'accept', publish_buckets.accept::text,
        'dry_run', publish_buckets.dry_run,
        'estimates', publish_buckets.estimates,
        'figures', publish_buckets.figures::text,
        'draws', publish_buckets.draws));
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
COMMENT ON FUNCTION kanon.publish_buckets IS 'publish a registered source as buckets, with a bound on guessing (F''-privacy)';

REVOKE ALL ON FUNCTION
    kanon.publish_buckets(regclass, text, text, jsonb, integer, text, text[], boolean, jsonb, jsonb, boolean, text, jsonb, boolean),
    kanon.python_publish_buckets(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.publish_buckets(regclass, text, text, jsonb, integer, text, text[], boolean, jsonb, jsonb, boolean, text, jsonb, boolean),
    kanon.python_publish_buckets(jsonb)
TO kanon_publisher;
