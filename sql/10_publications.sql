-- publications: the live publications that the current role may read. For analysts and publishers.
-- Rights of the view's owner (not security_invoker): analysts have no right on kanon.publication;
-- what they may see is decided here, by their right to read the publication itself.
CREATE OR REPLACE VIEW kanon.publications WITH (security_barrier) AS
SELECT p.publication_id,
       p.name,
       p.kind,
       p.method,
       p.source_schema || '.' || p.source_relation AS source,
       p.parameters,
       p.records AS rows,
       p.guarantee,
       -- What was measured from the source can tell what is hidden: only the publisher sees it.
       CASE WHEN p.published_by = current_user THEN p.metrics || p.source_metrics ELSE p.metrics
       END AS metrics,
       p.layout,
       p.published_at,
       p.published_by::text AS published_by,
       CASE WHEN p.published_by = current_user THEN p.attacks END AS attacks
FROM kanon.publication AS p
WHERE p.published_by = current_user
   OR EXISTS (
       SELECT FROM kanon.setting AS s
       JOIN pg_catalog.pg_namespace AS n ON n.nspname = s.value
       JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = p.name
       WHERE s.name = 'published_schema'
         AND pg_catalog.has_table_privilege(c.oid, 'SELECT'));
COMMENT ON VIEW kanon.publications IS 'live publications that the current role may read';
