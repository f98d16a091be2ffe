-- evaluate_counts(): compares a bucketization's answers with its source's. For publishers, who can
-- read the source.
CREATE OR REPLACE FUNCTION kanon.evaluate_counts(
    name           text,
    queries        integer DEFAULT 1000,
    dimensionality integer[] DEFAULT NULL,
    selectivity    double precision[] DEFAULT NULL,
    seed           bigint DEFAULT NULL
) RETURNS TABLE (
    expected_selectivity  double precision,
    n_queries             bigint,
    undefined             bigint,
    mean_relative_error   double precision,
    median_relative_error double precision
)
LANGUAGE plpython3u VOLATILE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import evaluate_counts
return evaluate_counts(plpy, name, queries, dimensionality, selectivity, seed)
$python$;
COMMENT ON FUNCTION kanon.evaluate_counts IS
    'relative errors of a bucketization''s answers to random count queries, beside its source';
