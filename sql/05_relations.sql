-- How relations of publications are told from others, and what statements call them.
CREATE OR REPLACE FUNCTION kanon.mark(publication_id bigint) RETURNS text
LANGUAGE plpgsql IMMUTABLE  -- which keeps its plans, unlike SQL
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN format('publication %s of kanon_db: ', publication_id);
END
$function$;
COMMENT ON FUNCTION kanon.mark IS 'how the comments on a publication''s relations begin';

CREATE OR REPLACE FUNCTION kanon.relation_kind(kind "char") RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$SELECT CASE kind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END$function$;
COMMENT ON FUNCTION kanon.relation_kind IS 'what statements call a relation of this pg_class.relkind';

-- On a server whose administrators are no superusers, the one who installed kanon_db takes their part.
CREATE OR REPLACE FUNCTION kanon.is_administrator(role oid) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = role AND r.rolsuper)
        OR EXISTS (SELECT FROM pg_namespace AS n WHERE n.nspname = 'kanon' AND n.nspowner = role);
END
$function$;
COMMENT ON FUNCTION kanon.is_administrator IS
    'whether a role is a superuser, or the one to which the schema kanon belongs';
