-- is_safe_type(), is_safe_collation(): whether a published column may have a type or a collation.
--
-- Whoever owns a type can attach casts to it that run with the rights of readers, or drop it with
-- the columns that have it; whoever owns its schema, or its extension, can drop it, too.
CREATE OR REPLACE FUNCTION kanon.is_safe_schema(schema oid) RETURNS boolean
LANGUAGE plpgsql STABLE  -- which keeps its plans, unlike SQL
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'  -- or a session's first five calls would plan it anew
AS $function$
BEGIN
    RETURN (
        SELECT (r.rolsuper OR r.rolname = 'pg_database_owner')
               AND has_schema_privilege('kanon_owner', n.oid, 'USAGE')
        FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = n.nspowner WHERE n.oid = schema);
END
$function$;
COMMENT ON FUNCTION kanon.is_safe_schema IS
    'whether a schema belongs to a superuser or the database''s owner, and kanon_owner may use it';

CREATE OR REPLACE FUNCTION kanon.is_safe_type(type oid) RETURNS boolean
LANGUAGE plpgsql STABLE  -- which keeps its plans, unlike SQL
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'  -- or a session's first five calls would plan it anew
AS $function$
BEGIN
    RETURN (
        SELECT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.oid = t.typowner)
               AND t.typtype <> 'd' AND kanon.is_safe_schema(t.typnamespace)
               AND has_type_privilege('kanon_owner', t.oid, 'USAGE')
               AND NOT EXISTS (  -- who has created a trusted extension can drop it
                   SELECT FROM pg_depend AS d
                   JOIN pg_extension AS e ON e.oid = d.refobjid
                   JOIN pg_roles AS o ON o.oid = e.extowner
                   WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
                     AND d.refclassid = 'pg_extension'::regclass AND NOT o.rolsuper)
        FROM pg_type AS t WHERE t.oid = type);
END
$function$;
COMMENT ON FUNCTION kanon.is_safe_type IS 'whether a type belongs to a superuser, and is no domain';

CREATE OR REPLACE FUNCTION kanon.is_safe_collation(collating oid) RETURNS boolean
LANGUAGE plpgsql STABLE  -- which keeps its plans, unlike SQL
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'  -- or a session's first five calls would plan it anew
AS $function$
BEGIN
    RETURN (
        SELECT collating = 0 OR (
            SELECT (SELECT r.rolsuper FROM pg_roles AS r WHERE r.oid = c.collowner)
                   AND kanon.is_safe_schema(c.collnamespace)
            FROM pg_collation AS c WHERE c.oid = collating));
END
$function$;
COMMENT ON FUNCTION kanon.is_safe_collation IS 'whether a collation, if there is one, is a superuser''s';
