-- While it is installed, functions and rights are not all there: 95_watch.sql watches again.
DO $watch$
DECLARE
    _watch name;
BEGIN
    FOR _watch IN
        SELECT t.evtname FROM pg_catalog.pg_event_trigger AS t
        WHERE t.evtname IN ('kanon_watch_grants', 'kanon_keep_publications')
    LOOP
        EXECUTE pg_catalog.format('ALTER EVENT TRIGGER %I DISABLE', _watch);
    END LOOP;
END
$watch$;
