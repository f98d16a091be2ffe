-- Written by `make generate` from the declarations in kanon_db/operations.py: change those.
-- classify(): ask a model about a row: its label, and the share of members that agree.
CREATE OR REPLACE FUNCTION kanon.python_classify(arguments jsonb) RETURNS jsonb
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
return call(plpy, 'classify', arguments)
$python$;
COMMENT ON FUNCTION kanon.python_classify IS 'called by kanon.classify; not meant to be used directly';

CREATE OR REPLACE FUNCTION kanon.classify(
    publication text,
    features jsonb
) RETURNS TABLE(label text, agreement double precision, logits jsonb, answers_left bigint)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
#variable_conflict use_column
DECLARE
    _answer CONSTANT jsonb := kanon.python_classify(jsonb_build_object(
        'publication', classify.publication,
        'features', classify.features::text));
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
        AS found (label text, agreement double precision, logits jsonb, answers_left bigint);
END
$function$;
COMMENT ON FUNCTION kanon.classify IS 'ask a model about a row: its label, and the share of members that agree';

REVOKE ALL ON FUNCTION
    kanon.classify(text, jsonb),
    kanon.python_classify(jsonb)
FROM PUBLIC, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.classify(text, jsonb),
    kanon.python_classify(jsonb)
TO kanon_publisher, kanon_analyst, kanon_user;
