-- publications: the live publications that the current role may read. For analysts and publishers.
-- Rights of the view's owner (not security_invoker): analysts have no right on kanon.publication;
-- what they may see is decided here, by their right to read the publication itself.
-- Everything is read from the statement's snapshot, so that a publication which is being replaced
-- is there in its old state or in its new one.
CREATE OR REPLACE VIEW kanon.publications WITH (security_barrier) AS
SELECT p.publication_id,
       p.name,
       p.kind,
       p.method,
       -- What was loaded has a label of its source, which is elsewhere.
       concat_ws('.', nullif(p.source_schema, ''), p.source_relation) AS source,
       p.parameters,
       p.records AS rows,
       p.guarantee,
       -- What was measured from the source can tell what is hidden: only the publisher sees it.
       CASE WHEN o.is_publisher THEN p.metrics || p.source_metrics ELSE p.metrics END AS metrics,
       p.layout,
       p.published_at,
       o.published_by,
       CASE WHEN o.is_publisher THEN p.attacks END AS attacks,
       o.state,
       -- How far the source has moved since, as far as the server has counted it.
       CASE WHEN o.is_publisher THEN (
           SELECT greatest(sum(pg_catalog.pg_stat_get_tuples_inserted(b)
                               + pg_catalog.pg_stat_get_tuples_updated(b)
                               + pg_catalog.pg_stat_get_tuples_deleted(b)) - r.changes, 0)::bigint
           FROM kanon.release AS r CROSS JOIN unnest(r.bases) AS b
           WHERE r.publication_id = p.publication_id GROUP BY r.release_id
       ) END AS source_changes,
       -- As of the last refresh. It tells something of values: nobody else sees it.
       CASE WHEN w.waits IS NOT NULL THEN (
           SELECT coalesce(sum((e.value ->> 'records')::bigint), 0)::bigint
           FROM pg_catalog.jsonb_each(w.waits) AS e) END AS waiting,
       w.waits,
       p.promise
FROM kanon.publication AS p
CROSS JOIN LATERAL (
    SELECT -- The publisher is the one to whom kanon_owner granted the right to grant SELECT.
           max(pg_catalog.pg_get_userbyid(a.grantee)::text) FILTER (
               WHERE a.is_grantable AND a.grantor = c.relowner AND a.grantee <> c.relowner
           ) AS published_by,
           coalesce(bool_or(a.grantee = u.oid) FILTER (
               WHERE a.is_grantable AND a.grantor = c.relowner), false) AS is_publisher,
           coalesce(bool_or(a.grantee = 0 OR pg_catalog.pg_has_role(a.grantee, 'USAGE')) FILTER (
               WHERE c.relname = p.name AND a.privilege_type = 'SELECT'), false) AS is_readable,
           CASE -- The server answers NULL for a relation that is in the snapshot, but gone by now,
                -- and another file than the snapshot has for one that was filled anew.
               WHEN bool_or(pg_catalog.has_table_privilege(c.oid, 'SELECT') IS NULL
                            OR pg_catalog.pg_relation_filenode(c.oid) <> c.relfilenode)
               THEN 'replaced'
               WHEN count(DISTINCT c.oid) = cardinality(p.relations) THEN 'whole'
               ELSE 'changed'
           END AS state
    FROM kanon.setting AS s
    JOIN pg_catalog.pg_namespace AS n ON n.nspname = s.value
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid AND c.relname = ANY (p.relations)
    JOIN pg_catalog.pg_description AS d ON d.objoid = c.oid AND d.objsubid = 0
        AND d.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass
    JOIN pg_catalog.pg_roles AS o ON o.oid = c.relowner AND o.rolname = 'kanon_owner'
    JOIN pg_catalog.pg_roles AS u ON u.rolname = current_user
    CROSS JOIN LATERAL pg_catalog.aclexplode(
        coalesce(c.relacl, pg_catalog.acldefault('r', c.relowner))) AS a
    WHERE s.name = 'published_schema'
      AND pg_catalog.starts_with(d.description, (SELECT kanon.mark(p.publication_id)))
) AS o
LEFT JOIN kanon.release AS w ON w.publication_id = p.publication_id
    AND (o.is_publisher OR (pg_catalog.pg_has_role('kanon_owner', 'USAGE')
       OR kanon.is_administrator((SELECT a.oid FROM pg_catalog.pg_roles AS a
                                  WHERE a.rolname = current_user))))
WHERE o.is_publisher OR o.is_readable OR (pg_catalog.pg_has_role('kanon_owner', 'USAGE')
       OR kanon.is_administrator((SELECT a.oid FROM pg_catalog.pg_roles AS a
                                  WHERE a.rolname = current_user)))
   OR pg_catalog.pg_has_role('pg_read_all_data', 'USAGE');
COMMENT ON VIEW kanon.publications IS 'live publications that the current role may read';
