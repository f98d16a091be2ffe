-- publish_generalized(): publishes rows with ranges and sets as a materialized view. For publishers.
CREATE OR REPLACE FUNCTION kanon.publish_generalized(
    source         regclass,
    publication    text,
    k              integer,
    method         text DEFAULT 'auto',
    weights        jsonb DEFAULT NULL,
    options        jsonb DEFAULT NULL,
    constraints    jsonb DEFAULT NULL,
    max_suppressed numeric DEFAULT 0,
    refine         boolean DEFAULT true,
    readers        text[] DEFAULT NULL,
    replace        boolean DEFAULT false
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
from kanon_db.interfaces.plpython import publish_generalized
return publish_generalized(
    plpy, source, publication, k, method, weights, options, constraints, max_suppressed, refine,
    readers, replace
)
$python$;
COMMENT ON FUNCTION kanon.publish_generalized IS
    'publish a registered source k-anonymously with ranges and sets: materialized view <name>';
