-- plan_count(): turns an analyst's COUNT query into SQL over published tables. For analysts and
-- publishers; estimate_count runs what it returns.
CREATE OR REPLACE FUNCTION kanon.plan_count(
    query text, OUT statement text, OUT "values" text[], OUT matches bytea
)
LANGUAGE plpython3u STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
AS $python$
# environment
from kanon_db.server.entry import plan_count
return plan_count(plpy, query)
$python$;
COMMENT ON FUNCTION kanon.plan_count IS 'the statement, and its bound values, that answer a COUNT query';
