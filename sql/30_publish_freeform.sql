-- publish_freeform(): publishes rows with cells of their own as a materialized view. For publishers.
CREATE OR REPLACE FUNCTION kanon.publish_freeform(
    source      regclass,
    publication text,
    k           integer,
    method      text DEFAULT 'sort_greedy',
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
from kanon_db.interfaces.plpython import publish_freeform
return publish_freeform(
    plpy, source, publication, k, method, weights, options, readers, replace
)
$python$;
COMMENT ON FUNCTION kanon.publish_freeform IS
    'publish a registered source k-anonymously, each row with cells of its own: materialized view <name>';
