-- reached(), fingerprint(): what a source is made of, from the server's catalogs alone.
CREATE OR REPLACE FUNCTION kanon.reached(source oid)
RETURNS TABLE (relation oid, kind "char", owner oid)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY
    WITH RECURSIVE found AS (
        SELECT source AS oid
        UNION
        SELECT next.oid FROM found AS f CROSS JOIN LATERAL (
            SELECT d.refobjid FROM pg_rewrite AS r JOIN pg_depend AS d
            ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
            AND d.refclassid = 'pg_class'::regclass
            WHERE r.ev_class = f.oid
            UNION ALL
            SELECT i.inhrelid FROM pg_inherits AS i WHERE i.inhparent = f.oid
        ) AS next (oid)
    )
    SELECT c.oid, c.relkind, c.relowner FROM found AS f JOIN pg_class AS c ON c.oid = f.oid;
END
$function$;
COMMENT ON FUNCTION kanon.reached IS
    'a relation, its children, and what its views and rules refer to, with the owner of each';

CREATE OR REPLACE FUNCTION kanon.fingerprint(source oid) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
AS $function$
BEGIN
    RETURN (
        SELECT md5(string_agg(line, E'\n' ORDER BY line COLLATE "C")) FROM (
            SELECT format('column %s %s %s %s %s', a.attrelid, a.attnum, a.attname,
                          format_type(a.atttypid, a.atttypmod), a.attcollation)
            FROM pg_attribute AS a
            WHERE a.attrelid = source AND a.attnum > 0 AND NOT a.attisdropped
            UNION ALL
            SELECT format('view %s %s', r.relation, pg_get_viewdef(r.relation))
            FROM kanon.reached(source) AS r WHERE r.kind IN ('v', 'm')
        ) AS part (line));
END
$function$;
COMMENT ON FUNCTION kanon.fingerprint IS
    'changes when a relation is created anew, its columns change, or a view behind it is redefined';
