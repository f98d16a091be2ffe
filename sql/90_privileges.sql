-- Privileges, last: nothing for PUBLIC. Those of functions are in the functions' own files.
REVOKE ALL ON SCHEMA kanon FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA kanon FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA kanon FROM PUBLIC;

GRANT USAGE ON SCHEMA kanon TO kanon_publisher, kanon_analyst;
GRANT SELECT ON kanon.publications TO kanon_publisher, kanon_analyst;
GRANT SELECT ON kanon.setting TO kanon_publisher, kanon_analyst;
GRANT SELECT, INSERT, UPDATE, DELETE ON kanon.source TO kanon_publisher;
GRANT INSERT, UPDATE, DELETE ON kanon.publication TO kanon_publisher;
-- All but source_metrics and attacks, which the view shows to the one who published.
REVOKE SELECT ON kanon.publication FROM kanon_publisher;
GRANT SELECT (publication_id, name, kind, method, source_schema, source_relation, parameters,
              layout, records, guarantee, metrics, relations, published_by, published_at)
    ON kanon.publication TO kanon_publisher;
