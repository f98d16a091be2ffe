-- Nobody outside of the server may read the members of a model, and none of Python is inside.
CREATE OR REPLACE FUNCTION kanon.python_vote(given jsonb, inputs bytea) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN jsonb_build_object('error', jsonb_build_object(
        'message', 'this server cannot ask models',
        'detail', 'members vote inside of the server, which has no PL/Python',
        'hint', 'restore the publication on a server that has it',
        'sqlstate', '0A000'));
END
$function$;
COMMENT ON FUNCTION kanon.python_vote IS 'called by kanon.owner_classify: says why nobody votes here';
