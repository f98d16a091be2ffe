-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- publish_model(): publish a model of a registered source, which readers ask and cannot read.
CREATE OR REPLACE FUNCTION kanon.python_publish_model(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'publish_model', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_publish_model IS 'called by kanon.publish_model; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.publish_model(
    source regclass,
    publication text,
    label text,
    features jsonb DEFAULT NULL,
    members integer DEFAULT 50,
    method text DEFAULT 'disjoint',
    budget jsonb DEFAULT NULL,
    input_noise numeric DEFAULT 0.1,
    logits boolean DEFAULT false,
    labels text[] DEFAULT NULL,
    options jsonb DEFAULT NULL,
    readers text[] DEFAULT NULL,
    replace boolean DEFAULT false,
    accept jsonb DEFAULT '{}',
    dry_run boolean DEFAULT false,
    draws boolean DEFAULT false
) RETURNS TABLE(publication_id bigint, name text, guarantee text, records bigint, metrics jsonb, seconds double precision)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_publish_model(jsonb_build_object(
        'source', publish_model.source::text,
        'publication', publish_model.publication,
        'label', publish_model.label,
        'features', publish_model.features::text,
        'members', publish_model.members,
        'method', publish_model.method,
        'budget', publish_model.budget::text,
        'input_noise', publish_model.input_noise::text,
        'logits', publish_model.logits,
        'labels', publish_model.labels,
        'options', publish_model.options::text,
        'readers', publish_model.readers,
        'replace', publish_model.replace,
        'accept', publish_model.accept::text,
        'dry_run', publish_model.dry_run,
        'draws', publish_model.draws));
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
COMMENT ON FUNCTION kanon.publish_model IS 'publish a model of a registered source, which readers ask and cannot read';

REVOKE ALL ON FUNCTION
    kanon.publish_model(regclass, text, text, jsonb, integer, text, jsonb, numeric, boolean, text[], jsonb, text[], boolean, jsonb, boolean, boolean),
    kanon.python_publish_model(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.publish_model(regclass, text, text, jsonb, integer, text, jsonb, numeric, boolean, text[], jsonb, text[], boolean, jsonb, boolean, boolean),
    kanon.python_publish_model(jsonb)
TO kanon_publisher;
