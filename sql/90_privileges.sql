-- Privileges, last: nothing for PUBLIC. Those of functions are in the functions' own files.
REVOKE ALL ON SCHEMA kanon FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA kanon FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA kanon FROM PUBLIC;

GRANT USAGE ON SCHEMA kanon TO kanon_publisher, kanon_analyst;
GRANT SELECT ON kanon.publications TO kanon_publisher, kanon_analyst;
GRANT SELECT ON kanon.setting TO kanon_publisher, kanon_analyst;
GRANT SELECT, INSERT, UPDATE, DELETE ON kanon.source, kanon.publication TO kanon_publisher;
