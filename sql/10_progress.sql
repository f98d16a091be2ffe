-- progress: how far operations are that run now, as far as the current role may see it: those of its
-- own roles, and all of them with pg_read_all_stats. For analysts and publishers.
-- Operations say it in application_name (session/progress.py), as `kanon_db 3/6 40% ~12s writing`.
-- Whoever sets such a name says of the own session what is not so, and of no other.
CREATE OR REPLACE VIEW kanon.progress WITH (security_barrier) AS
SELECT a.pid,
       a.usename AS role,
       a.xact_start AS began,
       said.parts[1]::integer AS phase,
       said.parts[2]::integer AS phases,
       said.parts[6] AS step,
       said.parts[3]::integer / 100.0::double precision AS share,
       CASE said.parts[4]
           WHEN '~' THEN pg_catalog.format('about %s s left', said.parts[5])
           WHEN '<' THEN pg_catalog.format('time limit in %s s', said.parts[5])
       END AS remaining
FROM pg_catalog.pg_stat_activity AS a
CROSS JOIN LATERAL pg_catalog.regexp_match(
    a.application_name,
    '^kanon_db (?:([0-9]{1,4})/([0-9]{1,4}) )?(?:([0-9]{1,3})% )?(?:([~<])([0-9]{1,9})s )?(.+)$'
) AS said (parts)
WHERE a.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
  AND said.parts IS NOT NULL
  AND (pg_catalog.pg_has_role(a.usesysid, 'USAGE')
       OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'));
COMMENT ON VIEW kanon.progress IS 'how far the operations are that run now';
