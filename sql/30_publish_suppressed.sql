-- publish_suppressed(): publishes rows with suppressed cells as a materialized view. For publishers.
CREATE OR REPLACE FUNCTION kanon.publish_suppressed(
    source      regclass,
    publication text,
    k           integer,
    patterns    text[] DEFAULT NULL,
    method      text DEFAULT 'greedy',
    rules       jsonb DEFAULT NULL,
    weights     jsonb DEFAULT NULL,
    options     jsonb DEFAULT NULL,
    readers     text[] DEFAULT NULL,
    replace     boolean DEFAULT false
) RETURNS TABLE (
    publication_id bigint,
    name           text,
    guarantee      text,
    records        bigint,
    metrics        jsonb,
    seconds        double precision
)
LANGUAGE plpython3u VOLATILE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import publish_suppressed
return publish_suppressed(
    plpy, source, publication, k, patterns, method, rules, weights, options, readers, replace
)
$python$;
COMMENT ON FUNCTION kanon.publish_suppressed IS
    'publish a registered source k-anonymously by suppressing cells by pattern vectors: materialized view <name>';
