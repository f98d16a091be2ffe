-- Privileges, last. First, nobody has any, whatever ALTER DEFAULT PRIVILEGES grants, but for what our
-- roles may execute with their own rights, which is in the files of operations and cells.
DO $closed$
DECLARE
    _statement text;
BEGIN
    FOR _statement IN
        SELECT DISTINCT pg_catalog.format('REVOKE ALL ON %s %s FROM %s CASCADE', o.kind, o.name,
            CASE a.grantee WHEN 0 THEN 'PUBLIC'
                ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END)
        FROM pg_catalog.pg_namespace AS n CROSS JOIN LATERAL (
            SELECT 'SCHEMA' AS kind, pg_catalog.quote_ident(n.nspname) AS name, n.nspowner AS owner,
                n.nspacl AS acl, false AS is_kept
            UNION ALL
            SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
                c.oid::pg_catalog.regclass::text, c.relowner, c.relacl, false
            FROM pg_catalog.pg_class AS c
            WHERE c.relnamespace = n.oid AND c.relkind IN ('r', 'v', 'm', 'S')
            UNION ALL
            SELECT 'FUNCTION', p.oid::pg_catalog.regprocedure::text, p.proowner,
                coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner)), NOT p.prosecdef
            FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = n.oid
        ) AS o CROSS JOIN LATERAL pg_catalog.aclexplode(o.acl) AS a
        WHERE n.nspname IN ('kanon', 'kanon_queue') AND a.grantee <> o.owner
          AND NOT (o.is_kept AND a.grantee <> 0 AND pg_catalog.pg_get_userbyid(a.grantee)
                   = ANY ('{everybody}'::text[] || 'kanon_owner'::text))
    LOOP
        EXECUTE _statement;
    END LOOP;
END
$closed$;

GRANT USAGE ON SCHEMA kanon TO kanon_owner, kanon_publisher, kanon_analyst, kanon_user;
GRANT SELECT ON kanon.progress, kanon.publications TO kanon_publisher, kanon_analyst, kanon_user;
GRANT SELECT ON kanon.setting TO kanon_owner, kanon_publisher, kanon_analyst, kanon_user;
GRANT INSERT, UPDATE, DELETE ON kanon.setting TO kanon_owner;

-- Only kanon_owner writes. Whoever may UPDATE or DELETE could also lock a whole table.
GRANT SELECT, INSERT, UPDATE, DELETE ON kanon.source, kanon.publication TO kanon_owner;
-- Nothing is taken out of the ledger.
GRANT SELECT, INSERT, UPDATE ON kanon.release, kanon.release_reader, kanon.base, kanon.label TO kanon_owner;
-- Who has been published is forgotten with the publication.
GRANT SELECT, INSERT, DELETE ON kanon.release_key, kanon.release_entity, kanon.release_record
    TO kanon_owner;
GRANT SELECT ON kanon.draw_key, kanon.record_key TO kanon_owner;
GRANT SELECT, INSERT, UPDATE ON kanon.budget TO kanon_owner;
GRANT SELECT, INSERT, UPDATE, DELETE ON kanon.job, kanon.job_end TO kanon_owner;
GRANT SELECT, INSERT, UPDATE ON kanon.submitter TO kanon_owner;
GRANT SELECT ON kanon.releases TO kanon_publisher;
GRANT SELECT ON kanon.source TO kanon_publisher;
-- Which names are taken, and what was made of which source; all else is in the view.
GRANT SELECT (publication_id, name, source_schema, source_relation, relations)
    ON kanon.publication TO kanon_publisher;

GRANT INSERT (task, given), SELECT (answer) ON kanon.errand TO kanon_publisher;
GRANT INSERT (task, given, inputs), SELECT (answer) ON kanon.question
    TO kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.is_safe_collation(oid), kanon.is_safe_schema(oid), kanon.is_safe_type(oid),
    kanon.is_administrator(oid), kanon.mark(bigint), kanon.reached(oid)
TO kanon_owner, kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION kanon.fingerprint(oid) TO kanon_owner, kanon_publisher;
GRANT EXECUTE ON FUNCTION
    kanon.owner_analyze(oid, jsonb), kanon.owner_close_type(regclass),
    kanon.owner_create_table(oid, jsonb),
    kanon.owner_create_view(oid, jsonb), kanon.owner_drop(oid, jsonb),
    kanon.owner_enter(oid, jsonb, kanon.source), kanon.owner_keep_attacks(oid, jsonb),
    kanon.owner_note(kanon.publication, oid, jsonb),
    kanon.owner_open(oid, jsonb, oid, text), kanon.owner_publish(oid, jsonb),
    kanon.owner_register(oid, jsonb), kanon.places(kanon.source, text[], oid),
    kanon.renamed_sources(), kanon.follow_renamed(oid), kanon.owner_remove(kanon.publication),
    kanon.owner_staged(oid, text, text[]), kanon.is_publisher(oid, kanon.publication),
    kanon.owned(kanon.publication), kanon.relation_kind("char"),
    kanon.errand_fields(), kanon.errand_rules(), kanon.is_own_label(oid, text, bigint),
    kanon.is_own_staged(oid, text), kanon.is_plain(text), kanon.releases_of(jsonb),
    kanon.ticket(oid, bigint),
    kanon.require_own_description(oid, oid), kanon.require_told(oid, text, jsonb),
    kanon.require_readable(oid, kanon.source), kanon.weighted_join(jsonb, text, text, text),
    kanon.learned_join(jsonb, text, text, text, text), kanon.owner_provide_guard(text),
    kanon.base_names(oid[]), kanon.bases(oid), kanon.earlier_releases(oid[], oid[], bigint),
    kanon.earlier_named(oid[], text[], oid[], bigint), kanon.name_elsewhere(text),
    kanon.source_elsewhere(text),
    kanon.named(text, text), kanon.granted(kanon.publication), kanon.login_readers(oid[], oid[]),
    kanon.batch(bigint, jsonb), kanon.combined_with(jsonb), kanon.kept_grants(jsonb), kanon.grants(bigint), kanon.owner_drop_staged(oid, jsonb), kanon.changes(oid[]), kanon.owner_batches(oid, jsonb),
    kanon.owner_refresh_release(kanon.publication, jsonb),
    kanon.key_pads(bytea), kanon.owner_seed(oid, jsonb), kanon.owner_unknown(oid, jsonb),
    kanon.owner_keep_entities(kanon.publication, oid, jsonb),
    kanon.owner_forget_entities(bigint), kanon.record_pads(bigint), kanon.knows_records(bigint),
    kanon.owner_keep_waits(oid, jsonb),
    kanon.owner_earlier(oid, jsonb), kanon.owner_end_release(kanon.publication, text),
    kanon.owner_admit(kanon.publication, oid[]),
    kanon.owner_grant(oid, jsonb), kanon.owner_note_names(),
    kanon.owner_note_readers(kanon.publication),
    kanon.newcomers(kanon.publication, name), kanon.owner_take_back(regclass),
    kanon.owner_release(kanon.publication, oid, jsonb),
    kanon.owner_require_alone(jsonb, kanon.publication, oid[]), kanon.readers(kanon.publication),
    kanon.asked(oid, jsonb), kanon.counted(kanon.budget), kanon.counter_name(kanon.budget),
    kanon.members_of(kanon.publication),
    kanon.owner_budget(oid, kanon.publication, bigint), kanon.owner_classify(oid, jsonb, bytea),
    kanon.owner_close_budgets(bigint), kanon.owner_draw(bigint, bigint),
    kanon.owner_members(oid, jsonb), kanon.owner_open_budgets(kanon.publication),
    kanon.python_vote(jsonb, bytea),
    kanon.aside(), kanon.owner_close(regclass), kanon.owner_drop_or_close(regclass),
    kanon.owner_live_on(oid, jsonb, text), kanon.owner_living(oid, jsonb, text),
    kanon.owner_sweep(), kanon.owner_withdraw(kanon.publication, text), kanon.withdrawn(),
    kanon.withdrawn_mark(), kanon.closed(), kanon.closed_mark(bigint), kanon.owner_mark(regclass, text),
    kanon.owner_close_all(kanon.publication), kanon.owner_make_way(text[]),
    kanon.owner_take_away(regclass[], text[]), kanon.here(), kanon.come_home(boolean),
    kanon.is_lost(kanon.publication)
TO kanon_owner;

-- Restored publications: a dump does not have the rights on tables' types.
DO $$
DECLARE
    _relation regclass;
BEGIN
    FOR _relation IN
        SELECT c.oid FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_roles AS r ON r.oid = c.relowner AND r.rolname = 'kanon_owner'
        WHERE c.reltype <> 0
    LOOP
        PERFORM kanon.owner_close_type(_relation);
    END LOOP;
END
$$;
