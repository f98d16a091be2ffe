-- publish_buckets(): publishes QIT, SAT and their weighted view. For publishers.
CREATE OR REPLACE FUNCTION kanon.publish_buckets(
    source          regclass,
    publication     text,
    method          text DEFAULT 'two_size',
    privacy         jsonb DEFAULT NULL,
    max_bucket_size integer DEFAULT 50,
    assignment      text DEFAULT 'random',
    readers         text[] DEFAULT NULL,
    replace         boolean DEFAULT false,
    options         jsonb DEFAULT NULL
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
from kanon_db.interfaces.plpython import publish_buckets
return publish_buckets(
    plpy, source, publication, method, privacy, max_bucket_size, assignment, readers, replace,
    options
)
$python$;
COMMENT ON FUNCTION kanon.publish_buckets IS
    'publish a registered source as buckets under F''-privacy: tables <name>_qit, <name>_sat, view <name>';
