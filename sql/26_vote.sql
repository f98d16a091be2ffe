-- The members of a model vote: called by kanon.owner_classify only.
CREATE OR REPLACE FUNCTION kanon.python_vote(given jsonb, inputs bytea) RETURNS jsonb
LANGUAGE plpython3u VOLATILE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, YMD'
SET extra_float_digits = '1'
SET quote_all_identifiers = off
SET jit = off
SET row_security = on
AS $python$
# environment
from kanon_db.interfaces.plpython import vote
return vote(plpy, given, inputs)
$python$;
COMMENT ON FUNCTION kanon.python_vote IS 'called by kanon.owner_classify, with the rights of kanon_owner';
