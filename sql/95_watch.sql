-- Notes who is granted a publication; see kanon.watch_grants.
CREATE EVENT TRIGGER kanon_watch_grants ON ddl_command_end
    WHEN TAG IN ('GRANT', 'REVOKE', 'DROP OWNED', 'CREATE SCHEMA')
    EXECUTE FUNCTION kanon.watch_grants();
ALTER EVENT TRIGGER kanon_watch_grants ENABLE ALWAYS;
