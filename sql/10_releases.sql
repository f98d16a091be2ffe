-- releases: the ledger. For publishers: what they released themselves; for administrators: all.
-- Rights of the view's owner, as kanon.publications; nothing in it ties a person to a bucket or row.
CREATE OR REPLACE VIEW kanon.releases WITH (security_barrier) AS
SELECT r.release_id,
       r.name,
       r.kind,
       r.method,
       r.source,
       r.columns,
       r.parameters,
       r.records AS rows,
       r.guarantee,
       r.digest,
       r.released_at,
       r.released_by,
       coalesce(d.readers, '[]') AS readers,
       r.measured,
       CASE WHEN r.ended IS NOT NULL THEN r.ended WHEN d.readers IS NULL THEN 'draft' ELSE 'live' END
           AS state,
       r.ended_at,
       r.batches,
       -- How far the source has moved since, as far as the server has counted it.
       CASE WHEN r.ended IS NULL THEN greatest((
           SELECT sum(pg_catalog.pg_stat_get_tuples_inserted(b)
                      + pg_catalog.pg_stat_get_tuples_updated(b)
                      + pg_catalog.pg_stat_get_tuples_deleted(b)) FROM unnest(r.bases) AS b
           ) - r.changes, 0)::bigint END AS source_changes,
       b.budgets,
       -- Two releases that share any of these may be about the same people.
       r.bases,
       r.base_names
FROM kanon.release AS r
CROSS JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object('role', d.role_name, 'since', d.since, 'until', d.until)
                     ORDER BY d.since, d.role_name) AS readers
    FROM kanon.release_reader AS d WHERE d.release_id = r.release_id
) AS d
CROSS JOIN LATERAL (
    -- What each reader role may ask of a model; asked, once the release is gone.
    SELECT jsonb_agg(jsonb_build_object('role', b.role_name, 'epsilon', b.epsilon, 'delta', b.delta,
                                        'noise', b.noise, 'answers', b.answers, 'asked', b.asked)
                     ORDER BY b.budget_id) AS budgets
    FROM kanon.budget AS b WHERE b.release_id = r.release_id
) AS b
WHERE r.publisher = (SELECT u.oid FROM pg_catalog.pg_roles AS u WHERE u.rolname = current_user)
   OR (pg_catalog.pg_has_role('kanon_owner', 'USAGE')
       OR kanon.is_administrator((SELECT a.oid FROM pg_catalog.pg_roles AS a
                                  WHERE a.rolname = current_user)));
COMMENT ON VIEW kanon.releases IS
    'every release that was ever made, dropped and replaced ones too, with who could read it when';
