DO $watch$
BEGIN
    -- Notes who is granted a publication; see kanon.watch_grants.
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_event_trigger AS t
                   WHERE t.evtname = 'kanon_watch_grants') THEN
        CREATE EVENT TRIGGER kanon_watch_grants ON ddl_command_end
            WHEN TAG IN ('GRANT', 'REVOKE', 'DROP OWNED', 'CREATE SCHEMA')
            EXECUTE FUNCTION kanon.watch_grants();
    END IF;
    -- Keeps DROP EXTENSION from taking publications along; see kanon.keep_publications.
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_event_trigger AS t
                   WHERE t.evtname = 'kanon_keep_publications') THEN
        CREATE EVENT TRIGGER kanon_keep_publications ON ddl_command_start
            WHEN TAG IN ('DROP EXTENSION', 'DROP SCHEMA', 'DROP OWNED')
            EXECUTE FUNCTION kanon.keep_publications();
    END IF;
END
$watch$;
ALTER EVENT TRIGGER kanon_watch_grants ENABLE ALWAYS;
ALTER EVENT TRIGGER kanon_keep_publications ENABLE ALWAYS;
