-- How relations of publications are told from others, and what statements call them.
CREATE OR REPLACE FUNCTION kanon.mark(publication_id bigint) RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$SELECT format('publication %s of kanon_db: ', publication_id)$function$;
COMMENT ON FUNCTION kanon.mark IS 'how the comments on a publication''s relations begin';

CREATE OR REPLACE FUNCTION kanon.relation_kind(kind "char") RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$SELECT CASE kind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END$function$;
COMMENT ON FUNCTION kanon.relation_kind IS 'what statements call a relation of this pg_class.relkind';
