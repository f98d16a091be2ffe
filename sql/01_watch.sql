-- While it is installed, functions and rights are not all there: 95_watch.sql watches again.
DROP EVENT TRIGGER IF EXISTS kanon_watch_grants;
