-- Privileges, last: nothing for PUBLIC; publishers register and publish, analysts read and estimate.
REVOKE ALL ON SCHEMA kanon FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA kanon FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA kanon FROM PUBLIC;

GRANT USAGE ON SCHEMA kanon TO kanon_publisher, kanon_analyst;
GRANT SELECT ON kanon.publications TO kanon_publisher, kanon_analyst;
GRANT SELECT ON kanon.setting TO kanon_publisher, kanon_analyst;
GRANT SELECT, INSERT, UPDATE, DELETE ON kanon.source, kanon.publication TO kanon_publisher;

GRANT EXECUTE ON FUNCTION
    kanon.version(),
    kanon.verify(text),
    kanon.metrics(text),
    kanon.rewrite_count(text),
    kanon.estimate_count(text),
    kanon.estimate_counts(text),
    kanon.estimate(text),
    kanon.explain_count(text)
TO kanon_publisher, kanon_analyst;

GRANT EXECUTE ON FUNCTION
    kanon.register_source(regclass, text[], text, text[], jsonb),
    kanon.publish_buckets(regclass, text, text, jsonb, integer, text, text[], boolean, jsonb),
    kanon.publish_suppressed(
        regclass, text, integer, text[], text, jsonb, jsonb, jsonb, text[], boolean
    ),
    kanon.publish_generalized(
        regclass, text, integer, text, jsonb, jsonb, jsonb, numeric, boolean, text[], boolean
    ),
    kanon.publish_freeform(
        regclass, text, integer, text, jsonb, jsonb, text[], boolean
    ),
    kanon.suppression_patterns(regclass, text[], jsonb, jsonb),
    kanon.evaluate_counts(text, integer, integer[], double precision[], bigint),
    kanon.drop_publication(text)
TO kanon_publisher;
