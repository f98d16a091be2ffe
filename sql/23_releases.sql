-- The ledger of releases: called by run_errand only, with the rights of whoever calls.
CREATE OR REPLACE FUNCTION kanon.bases(source oid) RETURNS oid[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT r.relation FROM kanon.reached(source) AS r
        JOIN pg_class AS c ON c.oid = r.relation
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname NOT IN ('pg_catalog', 'information_schema')
        ORDER BY 1);
END
$function$;
COMMENT ON FUNCTION kanon.bases IS
    'what a source is made of: two sources that share any of it may be about the same people';

CREATE OR REPLACE FUNCTION kanon.named(schema_name text, relation_name text) RETURNS oid
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- to_regclass() would need a right on the schema.
    RETURN (SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
            WHERE n.nspname = schema_name AND c.relname = relation_name);
END
$function$;
COMMENT ON FUNCTION kanon.named IS 'the relation of a name, whoever may use its schema';

CREATE OR REPLACE FUNCTION kanon.base_names(bases oid[]) RETURNS text[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN ARRAY(
        SELECT format('%I.%I', n.nspname, c.relname) FROM unnest(bases) AS b
        JOIN pg_class AS c ON c.oid = b JOIN pg_namespace AS n ON n.oid = c.relnamespace
        ORDER BY 1);
END
$function$;
COMMENT ON FUNCTION kanon.base_names IS 'names by which a restored ledger finds relations again';

CREATE OR REPLACE FUNCTION kanon.login_readers(grantees oid[], publishers oid[])
RETURNS TABLE (role oid, name text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY
    SELECT l.oid, l.rolname::text FROM pg_roles AS l
    -- Whoever could log in once may do so again.
    WHERE (l.rolcanlogin OR EXISTS (SELECT FROM kanon.release_reader AS d WHERE d.role = l.oid))
      AND NOT kanon.is_administrator(l.oid)
      -- A worker's login for a role is that role, which counts.
      AND NOT EXISTS (SELECT FROM pg_auth_members AS m
                      WHERE m.member = l.oid AND l.rolname = 'kanon_as_' || m.roleid)
      AND EXISTS (SELECT FROM unnest(grantees) AS g
                  CROSS JOIN unnest(ARRAY[l.oid, (SELECT a.oid FROM pg_roles AS a
                      WHERE a.rolname = 'kanon_as_' || l.oid)]) AS r (role)
                  WHERE g = 0 OR pg_has_role(r.role, g, 'MEMBER'))
      AND NOT EXISTS (SELECT FROM unnest(publishers) AS p WHERE pg_has_role(l.oid, p, 'MEMBER'));
END
$function$;
COMMENT ON FUNCTION kanon.login_readers IS
    'who could log in and read what was granted to roles, through any membership; no administrators';

CREATE OR REPLACE FUNCTION kanon.granted(publication kanon.publication)
RETURNS TABLE (grantee oid, is_publisher boolean)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY
    SELECT a.grantee, bool_or(a.grantor = c.relowner AND a.is_grantable)
    FROM kanon.owned(publication) AS o
    JOIN pg_class AS c ON c.oid = o.relation
    CROSS JOIN LATERAL (
        SELECT t.grantee, t.grantor, t.is_grantable, t.privilege_type FROM aclexplode(c.relacl) AS t
        UNION ALL
        SELECT t.grantee, t.grantor, false, t.privilege_type FROM pg_attribute AS b
        CROSS JOIN aclexplode(b.attacl) AS t WHERE b.attrelid = c.oid
    ) AS a
    WHERE a.privilege_type = 'SELECT' AND a.grantee <> c.relowner
    GROUP BY a.grantee;
END
$function$;
COMMENT ON FUNCTION kanon.granted IS 'to whom a publication, or a column of it, is granted';

CREATE OR REPLACE FUNCTION kanon.readers(publication kanon.publication)
RETURNS TABLE (role oid, name text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY
    SELECT l.role, l.name FROM (
        SELECT coalesce(array_agg(g.grantee) FILTER (WHERE NOT g.is_publisher), '{}') AS readers,
               coalesce(array_agg(g.grantee) FILTER (WHERE g.is_publisher), '{}') AS publishers
        FROM kanon.granted(publication) AS g
    ) AS s CROSS JOIN kanon.login_readers(s.readers, s.publishers) AS l;
END
$function$;
COMMENT ON FUNCTION kanon.readers IS 'who can log in and read a publication now';

CREATE OR REPLACE FUNCTION kanon.grants(of bigint)
RETURNS TABLE (publication_id bigint, grants text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- For all publications at once: this runs after every GRANT in the database.
    RETURN QUERY
    SELECT p.publication_id,
           string_agg(concat_ws(' ', w.granted, a.granted), ' ' ORDER BY c.oid)
    FROM kanon.publication AS p
    CROSS JOIN unnest(p.relations) AS r (name)
    JOIN kanon.setting AS s ON s.name = 'published_schema'
    JOIN pg_namespace AS n ON n.nspname = s.value
    JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = r.name
    -- By the roles' identity: the text of an ACL has their names.
    CROSS JOIN LATERAL (
        SELECT string_agg(format('%s/%s/%s/%s', c.oid, t.grantee, t.grantor, t.privilege_type), ' '
                          ORDER BY t.grantee, t.privilege_type, t.grantor) AS granted
        FROM aclexplode(c.relacl) AS t
    ) AS w
    CROSS JOIN LATERAL (
        SELECT string_agg(
            format('%s/%s/%s/%s/%s', b.attrelid, t.grantee, t.grantor, t.privilege_type, b.attnum),
            ' ' ORDER BY b.attnum, t.grantee, t.privilege_type, t.grantor) AS granted
        FROM pg_attribute AS b CROSS JOIN aclexplode(b.attacl) AS t
        WHERE b.attrelid = c.oid AND b.attacl IS NOT NULL
    ) AS a
    WHERE grants.of IS NULL OR p.publication_id = grants.of
    GROUP BY p.publication_id;
END
$function$;
COMMENT ON FUNCTION kanon.grants IS
    'the rights on each publication, or on one, as words: relation, grantee, grantor, right, column';

CREATE OR REPLACE FUNCTION kanon.owner_note_names() RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _table text;
BEGIN
    FOREACH _table IN ARRAY ARRAY['release_reader', 'budget', 'job'] LOOP
        EXECUTE format(
            'UPDATE kanon.%I AS t SET role_name = u.rolname FROM pg_roles AS u'
            ' WHERE u.oid = t.role AND u.rolname <> t.role_name', _table);
    END LOOP;
    UPDATE kanon.release AS r SET released_by = u.rolname FROM pg_roles AS u
    WHERE u.oid = r.publisher AND u.rolname <> r.released_by;
    UPDATE kanon.publication AS p SET published_by = u.rolname
    FROM kanon.release AS r JOIN pg_roles AS u ON u.oid = r.publisher
    WHERE r.publication_id = p.publication_id AND u.rolname <> p.published_by;
END
$function$;
COMMENT ON FUNCTION kanon.owner_note_names IS
    'enters what roles are called by now, since a restored catalog finds them by their names';

CREATE OR REPLACE FUNCTION kanon.owner_note_readers(publication kanon.publication) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _release CONSTANT bigint := (SELECT r.release_id FROM kanon.release AS r
        WHERE r.publication_id = publication.publication_id);
    _now     CONSTANT oid[] := ARRAY(SELECT role FROM kanon.readers(publication));
BEGIN
    PERFORM kanon.owner_note_names();
    UPDATE kanon.release_reader AS r SET until = clock_timestamp()
    WHERE r.release_id = _release AND r.until IS NULL AND r.role <> ALL (_now);
    INSERT INTO kanon.release_reader (release_id, role, role_name, since)
    SELECT _release, n.role, pg_get_userbyid(n.role), clock_timestamp()
    FROM unnest(_now) AS n (role)
    WHERE _release IS NOT NULL AND NOT EXISTS (SELECT FROM kanon.release_reader AS r
        WHERE r.release_id = _release AND r.until IS NULL AND r.role = n.role);
    UPDATE kanon.release AS r SET grants = g.grants
    FROM kanon.grants(publication.publication_id) AS g
    WHERE r.release_id = _release AND r.grants IS DISTINCT FROM g.grants;
END
$function$;
COMMENT ON FUNCTION kanon.owner_note_readers IS 'notes in the ledger who can read a publication now';

CREATE OR REPLACE FUNCTION kanon.owner_admit(publication kanon.publication, readers oid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    UPDATE kanon.release_reader AS d SET admitted = clock_timestamp()
    FROM kanon.release AS r
    WHERE r.publication_id = publication.publication_id AND d.release_id = r.release_id
      AND d.until IS NULL AND d.role = ANY (readers);
END
$function$;
COMMENT ON FUNCTION kanon.owner_admit IS
    'notes that what these readers of a publication could combine was looked at, or accepted';

CREATE OR REPLACE FUNCTION kanon.changes(bases oid[]) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN (SELECT sum(pg_stat_get_tuples_inserted(b) + pg_stat_get_tuples_updated(b)
                       + pg_stat_get_tuples_deleted(b)) FROM unnest(bases) AS b);
END
$function$;
COMMENT ON FUNCTION kanon.changes IS
    'how many rows of relations the server has seen change: less after a crash or a reset';

CREATE OR REPLACE FUNCTION kanon.batch(records bigint, given jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN jsonb_build_array(jsonb_build_object(
        'at', clock_timestamp(), 'records', coalesce((given ->> 'added')::bigint, records),
        'digest', given -> 'digest') || CASE WHEN given ? 'withdrawn'
            THEN jsonb_build_object('withdrawn', given -> 'withdrawn') ELSE '{}' END);
END
$function$;
COMMENT ON FUNCTION kanon.batch IS 'what the ledger keeps of a batch of people';

CREATE OR REPLACE FUNCTION kanon.owner_refresh_release(
    publication kanon.publication, given jsonb
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    UPDATE kanon.release AS r SET publication_id = publication.publication_id,
        batches = r.batches || kanon.batch(publication.records - r.records, given),
        records = publication.records, guarantee = publication.guarantee,
        parameters = publication.parameters, digest = given ->> 'digest', upto = given ->> 'upto',
        measured = coalesce(given -> 'measured', r.measured), bases = b.all, changes = b.changes,
        base_names = ARRAY(SELECT DISTINCT n FROM unnest(r.base_names || b.names) AS n ORDER BY 1)
    FROM (
        -- It may have got partitions since.
        SELECT r.release_id, n.bases AS all, kanon.changes(n.bases) AS changes,
               kanon.base_names(n.bases) AS names
        FROM kanon.release AS r CROSS JOIN LATERAL (SELECT ARRAY(
            SELECT DISTINCT o FROM unnest(r.bases || kanon.bases(kanon.named(
                publication.source_schema, publication.source_relation))) AS o ORDER BY 1)) AS n (bases)
    ) AS b
    WHERE r.publication_id = (given ->> 'refreshes')::bigint AND r.ended IS NULL
      AND b.release_id = r.release_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '40001',
            MESSAGE = 'the publication was replaced while it was refreshed: refresh it again';
    END IF;
END
$function$;
COMMENT ON FUNCTION kanon.owner_refresh_release IS
    'adds a batch of new people to a release: who had it before has a part of it';

CREATE OR REPLACE FUNCTION kanon.owner_batches(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- Of two who are about to replace it, one waits here, before it has read what the other drops.
    PERFORM FROM kanon.publication AS p
    WHERE p.name = given ->> 'name' AND kanon.is_publisher(caller, p) FOR UPDATE;
    PERFORM kanon.follow_renamed(s.relation_oid) FROM kanon.publication AS p
    JOIN kanon.source AS s ON s.schema_name = p.source_schema AND s.relation_name = p.source_relation
    WHERE p.name = given ->> 'name' AND kanon.is_publisher(caller, p);
    RETURN (
        SELECT jsonb_build_object('publication_id', p.publication_id, 'upto', r.upto,
            'knows_entities', EXISTS (SELECT FROM kanon.release_key AS k
                                      WHERE k.release_id = r.release_id),
            'is_own', EXISTS (SELECT FROM kanon.granted(p) AS g
                              WHERE g.is_publisher AND g.grantee = caller), 'grantees',
            ARRAY(SELECT CASE g.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(g.grantee) END
                  FROM kanon.granted(p) AS g WHERE NOT g.is_publisher ORDER BY 1))
        FROM kanon.publication AS p
        JOIN kanon.release AS r ON r.publication_id = p.publication_id
        WHERE p.name = given ->> 'name' AND kanon.is_publisher(caller, p));
END
$function$;
COMMENT ON FUNCTION kanon.owner_batches IS
    'up to when the caller''s publication has everybody who came, and who may read it';

CREATE OR REPLACE FUNCTION kanon.owner_keep_waits(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _waits jsonb;
BEGIN
    -- Changed whether or not anything waits: anybody can read how often a table was.
    UPDATE kanon.release AS r SET waits = (
        SELECT coalesce(jsonb_object_agg(k.kind, jsonb_build_object('records', k.records)
            || CASE WHEN k.records > 0 THEN jsonb_build_object('is_exact', k.is_exact, 'since',
                coalesce(r.waits -> k.kind -> 'since', to_jsonb(clock_timestamp()))) ELSE '{}' END),
            '{}')
        FROM (
            SELECT n.kind, (w.told ->> 'records')::bigint AS records,
                   coalesce((w.told ->> 'is_exact')::boolean, true) AS is_exact
            FROM unnest('{new,late,again,corrected,deleted,left_out}'::text[]) AS n (kind)
            JOIN jsonb_each(given -> 'waits') AS w (kind, told) ON w.kind = n.kind
        ) AS k WHERE k.records IS DISTINCT FROM 0)
    FROM kanon.publication AS p
    WHERE p.name = given ->> 'name' AND kanon.is_publisher(caller, p)
      AND r.publication_id = p.publication_id
    RETURNING r.waits INTO _waits;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = 'only the role that published a publication can keep what waits with it';
    END IF;
    RETURN _waits;
END
$function$;
COMMENT ON FUNCTION kanon.owner_keep_waits IS
    'keeps how many records of each kind wait for the caller''s publication, and since when';

CREATE OR REPLACE FUNCTION kanon.owner_release(
    publication kanon.publication, caller oid, given jsonb
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _is_elsewhere CONSTANT boolean := publication.source_schema = '';
    _source CONSTANT text := CASE WHEN _is_elsewhere THEN publication.source_relation
        ELSE format('%I.%I', publication.source_schema, publication.source_relation) END;
    _oid    CONSTANT oid := kanon.named(publication.source_schema, publication.source_relation);
    _bases  CONSTANT oid[] := kanon.bases(_oid);
    _names  CONSTANT text[] := CASE WHEN _is_elsewhere
        THEN ARRAY[kanon.name_elsewhere(_source)] ELSE kanon.base_names(_bases) END;
BEGIN
    INSERT INTO kanon.release (publication_id, name, kind, method, source, source_oid, bases,
        base_names, columns, parameters, guarantee, records, digest, released_at, released_by,
        publisher, measured, upto, changes, batches)
    VALUES (publication.publication_id, publication.name, publication.kind, publication.method,
        _source, _oid, _bases, _names,
        coalesce(given -> 'columns', '{}'), publication.parameters, publication.guarantee,
        publication.records, given ->> 'digest', publication.published_at,
        publication.published_by, caller, given -> 'measured', given ->> 'upto',
        kanon.changes(_bases), kanon.batch(publication.records, given))
    ON CONFLICT DO NOTHING;
END
$function$;
COMMENT ON FUNCTION kanon.owner_release IS 'enters a publication into the ledger of releases';

CREATE OR REPLACE FUNCTION kanon.owner_end_release(publication kanon.publication, how text)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    PERFORM kanon.owner_note_readers(publication);
    UPDATE kanon.release AS r SET ended = how, ended_at = clock_timestamp(), waits = NULL
    WHERE r.publication_id = publication.publication_id;
    PERFORM kanon.owner_forget_entities(r.release_id), kanon.owner_close_budgets(r.release_id)
    FROM kanon.release AS r WHERE r.publication_id = publication.publication_id;
    UPDATE kanon.release_reader AS d SET until = clock_timestamp()
    FROM kanon.release AS r
    WHERE r.publication_id = publication.publication_id AND d.release_id = r.release_id
      AND d.until IS NULL;
END
$function$;
COMMENT ON FUNCTION kanon.owner_end_release IS 'notes in the ledger that a publication is gone';

CREATE OR REPLACE FUNCTION kanon.name_elsewhere(label text) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN 'elsewhere: ' || label;  -- no relation is written like this
END
$function$;
COMMENT ON FUNCTION kanon.name_elsewhere IS 'the ledger''s name of a source that is elsewhere';

CREATE OR REPLACE FUNCTION kanon.earlier_releases(bases oid[], readers oid[], but bigint)
RETURNS TABLE (release_id bigint, name text, kind text, ended text, shared text[])
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY SELECT * FROM kanon.earlier_named(
        earlier_releases.bases, kanon.base_names(earlier_releases.bases) || coalesce(
            -- A source elsewhere is told by its label alone.
            (SELECT r.base_names FROM kanon.release AS r
             WHERE r.publication_id = but AND r.bases = '{}'), '{}'), readers, but);
END
$function$;
COMMENT ON FUNCTION kanon.earlier_releases IS
    'releases about the same people, dropped ones too, that any of these roles could read';

CREATE OR REPLACE FUNCTION kanon.earlier_named(
    bases oid[], base_names text[], readers oid[], but bigint
) RETURNS TABLE (release_id bigint, name text, kind text, ended text, shared text[])
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _names CONSTANT text[] := ARRAY(SELECT u.rolname::text FROM pg_roles AS u
        WHERE u.oid = ANY (readers));
BEGIN
    RETURN QUERY
    SELECT r.release_id, r.name, r.kind, r.ended, array_agg(DISTINCT d.role_name ORDER BY d.role_name)
    FROM kanon.release AS r JOIN kanon.release_reader AS d ON d.release_id = r.release_id
    WHERE (r.bases && earlier_named.bases OR r.base_names && earlier_named.base_names)
      -- Also by name: a restored ledger, and a role that was made again.
      AND (d.role = ANY (readers) OR d.role_name = ANY (_names))
      AND r.publication_id IS DISTINCT FROM but
    GROUP BY r.release_id, r.name, r.kind, r.ended
    ORDER BY r.release_id;
END
$function$;
COMMENT ON FUNCTION kanon.earlier_named IS
    'releases of sources made of these relations, or of these names, that any of these roles could read';

CREATE OR REPLACE FUNCTION kanon.ticket(caller oid, release_id bigint) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN (
        SELECT release_id || ':' || encode(sha256(d.outer_pad || sha256(d.inner_pad || convert_to(
            jsonb_build_array('ticket', caller::text, pg_current_xact_id()::text, release_id)::text,
            'UTF8'))), 'hex')
        FROM kanon.draw_key AS k CROSS JOIN kanon.key_pads(k.key) AS d);
END
$function$;
COMMENT ON FUNCTION kanon.ticket IS
    'what only kanon_owner can write: that it told the caller of a release in this transaction';

CREATE OR REPLACE FUNCTION kanon.owner_earlier(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _source   kanon.source;
    _bases    oid[];
    _names    text[];
    _other    kanon.publication;
    _grantees oid[];
BEGIN
    IF given ->> 'label' IS NOT NULL THEN
        _source := kanon.source_elsewhere(given ->> 'label');
        _names := ARRAY[kanon.name_elsewhere(_source.relation_name)];
        _bases := '{}';
    ELSE
        SELECT * INTO _source FROM kanon.source AS s
        WHERE s.source_id = (given ->> 'source_id')::bigint;
        _bases := kanon.bases(kanon.named(_source.schema_name, _source.relation_name));
        _names := kanon.base_names(_bases);
    END IF;
    FOR _other IN
        SELECT p.* FROM kanon.publication AS p
        JOIN kanon.release AS r ON r.publication_id = p.publication_id
            AND (r.bases && _bases OR r.base_names && _names)
    LOOP
        PERFORM kanon.owner_note_readers(_other);
    END LOOP;
    -- No role can be called public: this is everybody.
    _grantees := ARRAY(
        SELECT u.oid FROM pg_roles AS u
        JOIN jsonb_array_elements_text(given -> 'readers') AS r (name) ON r.name = u.rolname
        UNION ALL SELECT 0 WHERE given -> 'readers' ? 'public');
    RETURN (
        SELECT coalesce(jsonb_agg(to_jsonb(e) || jsonb_build_object(
            'ticket', kanon.ticket(caller, e.release_id)) ORDER BY e.release_id), '[]')
        FROM kanon.earlier_named(_bases, _names,
            ARRAY(SELECT l.role FROM kanon.login_readers(_grantees, ARRAY[caller]) AS l),
            (given ->> 'publication_id')::bigint) AS e);
END
$function$;
COMMENT ON FUNCTION kanon.owner_earlier IS
    'releases that readers of a new one could set against it, those that are gone included';

CREATE OR REPLACE FUNCTION kanon.owner_require_alone(
    given jsonb, publication kanon.publication, readers oid[]
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _bases CONSTANT oid[] := kanon.bases(
        kanon.named(publication.source_schema, publication.source_relation));
    -- Tickets, as kanon.require_told() has checked.
    _seen  CONSTANT bigint[] := ARRAY(
        SELECT split_part(t, ':', 1)::bigint
        FROM jsonb_array_elements_text(coalesce(given -> 'seen', '[]')) AS t);
    -- Of a grant, or of what is published.
    _reason CONSTANT text := coalesce(given -> 'accept', given -> 'parameters' -> 'accept')
        ->> 'combined_releases';
    _warns  CONSTANT boolean := EXISTS (SELECT FROM kanon.setting AS s
        WHERE s.name = 'combined_releases' AND s.value = 'warn');
    _other  record;
BEGIN
    -- One at a time: two that do not see each other would both be allowed.
    INSERT INTO kanon.base (relation) SELECT unnest(_bases) ON CONFLICT DO NOTHING;
    PERFORM FROM kanon.base AS b WHERE b.relation = ANY (_bases) ORDER BY b.relation FOR UPDATE;
    -- A change, so that a transaction with an older snapshot fails.
    UPDATE kanon.base AS b SET released_at = clock_timestamp() WHERE b.relation = ANY (_bases);
    IF publication.source_schema = '' THEN
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION USING ERRCODE = '25001',
                MESSAGE = 'what was made elsewhere is loaded in a transaction that is READ COMMITTED';
        END IF;
        -- Rows that only kanon_owner can lock: anybody may take an advisory lock.
        INSERT INTO kanon.label (label) VALUES (publication.source_relation) ON CONFLICT DO NOTHING;
        PERFORM FROM kanon.label AS l WHERE l.label = publication.source_relation FOR UPDATE;
        IF NOT kanon.is_own_label(
            (SELECT r.publisher FROM kanon.release AS r
             WHERE r.publication_id = publication.publication_id),
            publication.source_relation, publication.publication_id) THEN
            RAISE EXCEPTION USING MESSAGE = 'another role has published under this label',
                ERRCODE = '42501';
        END IF;
    END IF;
    IF EXISTS (
        SELECT FROM kanon.earlier_releases(_bases, readers, publication.publication_id) AS e
        WHERE e.release_id <> ALL (_seen)
    ) AND NOT _warns THEN
        RAISE EXCEPTION USING ERRCODE = '40001',
            MESSAGE = 'something else was released of the same source while this was published:'
                ' publish it again';
    END IF;
    -- What both tell is measured in the publisher's session, who alone reads the source. But nobody
    -- can have measured what is gone, unless this transaction replaces it.
    SELECT e.name, e.shared INTO _other
    FROM kanon.earlier_releases(_bases, readers, publication.publication_id) AS e
    JOIN kanon.release AS r ON r.release_id = e.release_id
    WHERE publication.source_schema = '' OR r.ended_at < now() LIMIT 1;
    IF FOUND AND NOT _warns AND coalesce(btrim(_reason), '') = '' THEN
        RAISE EXCEPTION USING ERRCODE = 'KN005',
            MESSAGE = 'a known risk is not accepted: combined_releases',
            DETAIL = format('%s could also read %s', array_to_string(_other.shared, ', '), _other.name),
            HINT = 'say why it is acceptable: accept => ''{"combined_releases": "..."}''';
    END IF;
END
$function$;
COMMENT ON FUNCTION kanon.owner_require_alone IS
    'refuses a release that readers can set against another one, of which its publisher did not know';

CREATE OR REPLACE FUNCTION kanon.combined_with(given jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN coalesce((
        SELECT jsonb_build_object('combined_with', jsonb_agg(jsonb_build_object(
            'name', a -> 'name', 'readers', a -> 'shared') ORDER BY a ->> 'name'))
        FROM jsonb_array_elements(given -> 'measured' -> 'against') AS a
        HAVING count(*) > 0), '{}');
END
$function$;
COMMENT ON FUNCTION kanon.combined_with IS
    'the releases that readers of a new one can set beside it, and who they are, as its parameter';

CREATE OR REPLACE FUNCTION kanon.owner_grant(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _publication kanon.publication;
    _relation    text;
    _oid         oid;
    _grantee     text;
    _readers     oid[];
BEGIN
    SELECT * INTO _publication FROM kanon.publication AS p WHERE p.name = given ->> 'name' FOR UPDATE;
    IF NOT FOUND OR NOT kanon.is_publisher(caller, _publication) THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = 'only the role that published a publication can grant it';
    END IF;
    _readers := ARRAY(SELECT l.role FROM kanon.login_readers(
        ARRAY(SELECT u.oid FROM pg_roles AS u JOIN jsonb_array_elements_text(given -> 'readers')
              AS n (name) ON n.name = u.rolname
              UNION ALL SELECT 0 WHERE given -> 'readers' ? 'public'),
        ARRAY(SELECT g.grantee FROM kanon.granted(_publication) AS g WHERE g.is_publisher)) AS l);
    PERFORM kanon.owner_require_alone(given, _publication, _readers);
    -- First in the ledger, so that kanon.watch_grants() finds nobody new.
    INSERT INTO kanon.release_reader (release_id, role, role_name, since)
    SELECT r.release_id, l.role, pg_get_userbyid(l.role), clock_timestamp()
    FROM kanon.release AS r CROSS JOIN unnest(_readers) AS l (role)
    WHERE r.publication_id = _publication.publication_id
      AND NOT EXISTS (SELECT FROM kanon.release_reader AS d
          WHERE d.release_id = r.release_id AND d.role = l.role AND d.until IS NULL);
    -- What the publisher may not grant is closed.
    FOR _relation, _oid IN
        SELECT o.name, o.relation FROM kanon.owned(_publication) AS o JOIN pg_class AS c ON c.oid = o.relation
        WHERE EXISTS (SELECT FROM aclexplode(c.relacl) AS a
                      WHERE a.grantor = c.relowner AND a.is_grantable)
    LOOP
        FOR _grantee IN SELECT quote_ident(r) FROM jsonb_array_elements_text(given -> 'readers') AS r
        LOOP
            EXECUTE format('GRANT SELECT ON %s TO %s', _relation, _grantee);
        END LOOP;
        -- A draft's comments said nothing.
        PERFORM kanon.owner_note(_publication, _oid, (
            SELECT given -> 'notes' -> substr(c.relname, length(_publication.name) + 1)
            FROM pg_class AS c WHERE c.oid = _oid));
    END LOOP;
    UPDATE kanon.publication AS p SET parameters = p.parameters || jsonb_build_object(
        'readers', ARRAY(
            SELECT DISTINCT r FROM jsonb_array_elements_text(
                coalesce(p.parameters -> 'readers', '[]') || (given -> 'readers')) AS r ORDER BY r),
        'accept', coalesce(p.parameters -> 'accept', '{}') || (given -> 'accept'))
        || kanon.combined_with(given)
    WHERE p.publication_id = _publication.publication_id
    RETURNING * INTO _publication;
    PERFORM kanon.owner_open_budgets(_publication);
    UPDATE kanon.release AS r SET measured = coalesce(given -> 'measured', r.measured),
        parameters = _publication.parameters
    WHERE r.publication_id = _publication.publication_id;
    PERFORM kanon.owner_note_readers(_publication), kanon.owner_admit(_publication, _readers);
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION kanon.owner_grant IS 'lets more roles read the caller''s publication';

CREATE OR REPLACE FUNCTION kanon.newcomers(publication kanon.publication, caller name)
RETURNS oid[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _release    CONSTANT kanon.release := (SELECT r FROM kanon.release AS r
        WHERE r.publication_id = publication.publication_id);
    _publishers CONSTANT oid[] := ARRAY(
        SELECT g.grantee FROM kanon.granted(publication) AS g WHERE g.is_publisher);
    -- What an administrator grants has the owner as grantor. The ACL cannot be told anything else,
    -- unlike the caller, who is for administrators who are publishers themselves.
    _grantees   CONSTANT oid[] := ARRAY(
        SELECT split_part(w, '/', 2)::oid
        FROM kanon.grants(publication.publication_id) AS g
        CROSS JOIN string_to_table(g.grants, ' ') AS w
        JOIN pg_class AS c ON c.oid = split_part(w, '/', 1)::oid
        WHERE w <> ALL (string_to_array(coalesce(_release.grants, ''), ' '))
          AND split_part(w, '/', 4) = 'SELECT'
          AND (split_part(w, '/', 3)::oid <> c.relowner OR EXISTS (
              SELECT FROM unnest(_publishers) AS p WHERE pg_get_userbyid(p) = caller)));
BEGIN
    RETURN ARRAY(
        SELECT l.role FROM kanon.login_readers(_grantees, _publishers) AS l
        WHERE NOT EXISTS (SELECT FROM kanon.release_reader AS d
            WHERE d.release_id = _release.release_id AND d.role = l.role AND d.until IS NULL));
END
$function$;
COMMENT ON FUNCTION kanon.newcomers IS
    'who can read a publication only by what publishers have granted since its grants were noted';

CREATE OR REPLACE FUNCTION kanon.owner_take_back(relation regclass) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _owner     CONSTANT oid := (SELECT c.relowner FROM pg_class AS c WHERE c.oid = relation);
    _kind      CONSTANT text := (SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END
        FROM pg_class AS c WHERE c.oid = relation);
    _statement text;
    _granted   CONSTANT text[] := ARRAY(
        SELECT format('GRANT %s ON %s %s TO %s%s', a.privilege, _kind, relation,
            CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
            CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
        FROM (
            SELECT t.privilege_type AS privilege, t.grantee, t.grantor, t.is_grantable
            FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS t WHERE c.oid = relation
            UNION ALL
            SELECT format('%s (%I)', t.privilege_type, b.attname), t.grantee, t.grantor,
                   t.is_grantable
            FROM pg_attribute AS b CROSS JOIN aclexplode(b.attacl) AS t WHERE b.attrelid = relation
        ) AS a WHERE a.grantor = _owner AND a.grantee <> _owner);
BEGIN
    PERFORM kanon.owner_close(relation);
    FOREACH _statement IN ARRAY _granted LOOP
        EXECUTE _statement;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION kanon.owner_take_back IS
    'takes all rights on a relation and its columns that others than its owner have granted';

-- Publishers may GRANT what they published. A role that can read another release of the same people
-- gets it by kanon.grant_publication() only, which measures what both tell together.
CREATE OR REPLACE FUNCTION kanon.watch_grants() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER  -- as kanon_owner, who alone writes the ledger; it runs nobody else's code
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    -- Whoever gave the command, if nobody has changed that: current_user is this function's owner.
    _caller      CONSTANT name := CASE current_setting('role') WHEN 'none' THEN session_user
        ELSE current_setting('role') END;
    _warns       CONSTANT boolean := EXISTS (SELECT FROM kanon.setting AS s
        WHERE s.name = 'combined_releases' AND s.value = 'warn');
    _publication kanon.publication;
    _other       record;
BEGIN
    -- A dump's grants come one by one, to roles that have other numbers in the ledger still.
    IF EXISTS (SELECT FROM kanon.setting AS s WHERE s.name = 'numbers' AND s.value <> kanon.here()) THEN
        RETURN;
    END IF;
    FOR _publication IN
        SELECT p.* FROM kanon.publication AS p
        JOIN kanon.release AS r ON r.publication_id = p.publication_id
        JOIN kanon.grants(NULL) AS g ON g.publication_id = p.publication_id
        WHERE r.grants IS DISTINCT FROM g.grants
    LOOP
        SELECT e.* INTO _other FROM kanon.release AS r CROSS JOIN kanon.earlier_releases(
            r.bases, kanon.newcomers(_publication, _caller), _publication.publication_id) AS e
        WHERE r.publication_id = _publication.publication_id LIMIT 1;
        IF FOUND AND NOT _warns THEN
            RAISE EXCEPTION USING ERRCODE = 'KN005',
                MESSAGE = 'a known risk is not accepted: combined_releases',
                DETAIL = format('%s could also read %s', array_to_string(_other.shared, ', '),
                                _other.name),
                HINT = 'grant it with kanon.grant_publication, which measures what both tell';
        END IF;
        PERFORM kanon.owner_note_readers(_publication);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION kanon.watch_grants IS
    'notes new readers of publications, and refuses those who could set it against another release';
ALTER FUNCTION kanon.watch_grants() OWNER TO kanon_owner;
