-- suppression_patterns(): shows the patterns that publish_suppressed would use. For publishers.
CREATE OR REPLACE FUNCTION kanon.suppression_patterns(
    source   regclass,
    patterns text[] DEFAULT NULL,
    rules    jsonb DEFAULT NULL,
    weights  jsonb DEFAULT NULL
) RETURNS TABLE (
    "position" integer,
    pattern    text,
    suppressed text[],
    cost       double precision
)
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import suppression_patterns
return suppression_patterns(plpy, source, patterns, rules, weights)
$python$;
COMMENT ON FUNCTION kanon.suppression_patterns IS
    'the pattern vectors that a list or rules allow, in the order in which they are tried';
