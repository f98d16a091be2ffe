-- Publishing what was staged: called by run_errand only, with the rights of whoever calls.
CREATE OR REPLACE FUNCTION kanon.owned(publication kanon.publication)
RETURNS TABLE (relation oid, kind "char", name text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY
    SELECT c.oid, c.relkind, format('%I.%I', n.nspname, c.relname)
    FROM unnest(publication.relations) WITH ORDINALITY AS r (name, position)
    JOIN pg_class AS c ON c.relname = r.name
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN kanon.setting AS s ON s.name = 'published_schema' AND s.value = n.nspname
    JOIN pg_roles AS u ON u.oid = c.relowner AND u.rolname = 'kanon_owner'
    -- A relation of this name may belong to another publication by now.
    WHERE starts_with(obj_description(c.oid, 'pg_class'), kanon.mark(publication.publication_id))
    ORDER BY r.position;
END
$function$;
COMMENT ON FUNCTION kanon.owned IS 'the relations of a publication, in the order to drop them';

CREATE OR REPLACE FUNCTION kanon.is_publisher(role oid, publication kanon.publication)
RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN kanon.is_administrator(role) OR EXISTS (
        SELECT FROM kanon.owned(publication) AS o JOIN pg_class AS c ON c.oid = o.relation
        CROSS JOIN aclexplode(c.relacl) AS a
        WHERE a.grantee = role AND a.grantor = c.relowner AND a.is_grantable)
    -- Where nothing is left of it, only the ledger tells.
    OR EXISTS (SELECT FROM kanon.release AS r
               WHERE r.publication_id = publication.publication_id AND r.publisher = role)
       AND NOT EXISTS (SELECT FROM kanon.owned(publication));
END
$function$;
COMMENT ON FUNCTION kanon.is_publisher IS
    'whether a role may replace or drop a publication: kanon_owner lets it grant SELECT';

CREATE OR REPLACE FUNCTION kanon.kept_grants(given jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- As they are now: somebody may have granted or revoked while this was computed.
    RETURN (
        SELECT jsonb_object_agg(s.suffix, ARRAY(
            SELECT CASE a.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(a.grantee) END
            FROM aclexplode(c.relacl) AS a
            WHERE a.privilege_type = 'SELECT' AND a.grantee <> c.relowner
              AND NOT (a.grantor = c.relowner AND a.is_grantable)))
        FROM kanon.publication AS p
        CROSS JOIN (SELECT jsonb_array_elements_text(given -> 'suffixes') UNION SELECT '')
            AS s (suffix)
        JOIN kanon.owned(p) AS o ON true
        JOIN pg_class AS c ON c.oid = o.relation AND c.relname = p.name || s.suffix
        WHERE p.name = given ->> 'name' AND (given ->> 'keeps_grants')::boolean
          -- Of what was closed to readers, nothing is to be kept.
          AND EXISTS (SELECT FROM aclexplode(c.relacl) AS a
                      WHERE a.grantor = c.relowner AND a.is_grantable));
END
$function$;
COMMENT ON FUNCTION kanon.kept_grants IS
    'who may read each open relation of a publication, where what takes its place is to keep that';

CREATE OR REPLACE FUNCTION kanon.source_elsewhere(label text) RETURNS kanon.source
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    IF label IS NULL OR octet_length(label) NOT BETWEEN 1 AND 1000 THEN
        RAISE EXCEPTION USING MESSAGE = 'a source elsewhere cannot have this label', ERRCODE = '42602';
    END IF;
    -- No schema has an empty name.
    RETURN jsonb_populate_record(NULL::kanon.source, jsonb_build_object(
        'schema_name', '', 'relation_name', label));
END
$function$;
COMMENT ON FUNCTION kanon.source_elsewhere IS
    'the source of a publication that was made elsewhere: a label that people gave it';

CREATE OR REPLACE FUNCTION kanon.owner_publish(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _name     CONSTANT text := given ->> 'name';
    _suffixes CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(given -> 'suffixes'));
    _left     text[] := _suffixes;
    _source   kanon.source;
    _kept     CONSTANT jsonb := kanon.kept_grants(given);
    _aside    CONSTANT text := kanon.aside();
    _new      kanon.publication;
    _readers  oid[];
    _staged   record;
BEGIN
    IF _name IS NULL OR _name ~ '^kanon_[0-9a-f]{32}' OR octet_length(_name) NOT BETWEEN 1 AND 59
       OR EXISTS (SELECT FROM unnest(_suffixes) AS s WHERE octet_length(_name || s) > 63) THEN
        RAISE EXCEPTION USING MESSAGE = 'a publication cannot have this name', ERRCODE = '42602';
    END IF;
    IF _suffixes = '{}' THEN
        RAISE EXCEPTION USING MESSAGE = 'a publication has relations', ERRCODE = '42501';
    END IF;
    IF given ? 'label' THEN
        _source := kanon.source_elsewhere(given ->> 'label');
    ELSE
        -- From here to the end of the transaction the source cannot be described anew.
        SELECT * INTO _source FROM kanon.source AS s
        WHERE s.source_id = (given ->> 'source_id')::bigint FOR SHARE;
        IF _source.registered_at IS DISTINCT FROM (given ->> 'registered_at')::timestamptz THEN
            RAISE EXCEPTION USING ERRCODE = '40001',
                MESSAGE = 'the source was registered anew while it was being published: publish again';
        END IF;
        PERFORM kanon.require_readable(caller, _source);
    END IF;
    PERFORM kanon.owner_make_way(ARRAY(SELECT _name || s FROM unnest(_suffixes) AS s));
    _new := kanon.owner_enter(caller, given || jsonb_build_object('aside', _aside), _source);
    PERFORM kanon.owner_live_on(caller, given, _aside);
    FOR _staged IN SELECT * FROM kanon.owner_staged(caller, given ->> 'prefix', _suffixes) LOOP
        PERFORM kanon.owner_open(
            caller, CASE WHEN _kept IS NULL THEN given ELSE given || jsonb_build_object(
                -- Relations that the old one lacked get the readers of the view.
                'readers', coalesce(_kept -> _staged.suffix, _kept -> '', '[]')) END,
            _staged.relation, _staged.suffix);
        PERFORM kanon.owner_note(_new, _staged.relation, given -> 'notes' -> _staged.suffix);
        EXECUTE format('ALTER TABLE %s RENAME TO %I', _staged.name, _name || _staged.suffix);
        _left := array_remove(_left, _staged.suffix);
    END LOOP;
    IF _left <> '{}' THEN
        RAISE EXCEPTION USING MESSAGE = 'a relation of the publication was not staged',
            ERRCODE = '42P01';
    END IF;
    -- What is staged stays open to its publisher: nothing that was published may depend on it. An
    -- index goes with its table, and keeps a name that nobody else can have taken.
    IF EXISTS (SELECT FROM pg_class AS c
               WHERE starts_with(c.relname, given ->> 'prefix') AND c.relkind <> 'i') THEN
        RAISE EXCEPTION USING MESSAGE = 'all relations that were staged must be published',
            ERRCODE = '42P17';
    END IF;
    IF given ? 'refreshes' THEN
        PERFORM kanon.owner_refresh_release(_new, given);
    ELSE
        PERFORM kanon.owner_release(_new, caller, given);
    END IF;
    PERFORM kanon.owner_keep_entities(_new, caller, given);
    PERFORM kanon.owner_open_budgets(_new);
    PERFORM kanon.owner_note_readers(_new);
    _readers := ARRAY(SELECT r.role FROM kanon.readers(_new) AS r);
    PERFORM kanon.owner_require_alone(given, _new, _readers);
    PERFORM kanon.owner_admit(_new, _readers);
    PERFORM kanon.owner_sweep();
    RETURN to_jsonb(_new.publication_id);
END
$function$;
COMMENT ON FUNCTION kanon.owner_publish IS
    'gives staged relations their names, in place of an old publication, and opens them to readers';

CREATE OR REPLACE FUNCTION kanon.owner_enter(caller oid, given jsonb, source kanon.source)
RETURNS kanon.publication
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _name CONSTANT text := given ->> 'name';
    _old  kanon.publication;
    _new  kanon.publication;
BEGIN
    LOOP  -- until nobody else enters a publication of this name between the two statements
        SELECT * INTO _old FROM kanon.publication AS p WHERE p.name = _name FOR UPDATE;
        IF FOUND THEN
            IF NOT coalesce((given ->> 'replace')::boolean, false) THEN
                RAISE EXCEPTION USING ERRCODE = '42710',
                    MESSAGE = 'a publication of this name exists';
            ELSIF NOT kanon.is_publisher(caller, _old) THEN
                RAISE EXCEPTION USING ERRCODE = '42501',
                    MESSAGE = 'only the role that published a publication can drop or replace it';
            END IF;
            IF (given ->> 'refreshes')::bigint IS DISTINCT FROM _old.publication_id THEN
                PERFORM kanon.owner_end_release(_old, 'replaced');
            END IF;
            PERFORM kanon.owner_withdraw(_old, given ->> 'aside');
        END IF;
        INSERT INTO kanon.publication (name, kind, method, source_schema, source_relation,
            parameters, layout, records, guarantee, promise, metrics, source_metrics, published_by,
            relations)
        VALUES (_name, given ->> 'kind', given ->> 'method', source.schema_name,
            source.relation_name,
            -- A restored database grants it to these.
            (given -> 'parameters') - 'combined_with' || kanon.combined_with(given)
                || jsonb_build_object('readers', given -> 'readers'),
            given -> 'layout',
            (given ->> 'records')::bigint, given ->> 'guarantee',
            coalesce(given -> 'promise', '{}'), given -> 'metrics',
            given -> 'source_metrics', pg_get_userbyid(caller),
            ARRAY(SELECT _name || s FROM jsonb_array_elements_text(given -> 'suffixes') AS s))
        ON CONFLICT DO NOTHING
        RETURNING * INTO _new;
        IF FOUND THEN
            RETURN _new;
        ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION USING ERRCODE = '40001',
                MESSAGE = 'somebody else has published under this name: begin a new transaction';
        END IF;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION kanon.owner_enter IS 'enters a publication into the catalog, in place of an old one';

CREATE OR REPLACE FUNCTION kanon.owner_open(caller oid, given jsonb, staged oid, suffix text)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _name    CONSTANT text := (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = staged);
    _role    CONSTANT text := quote_ident(pg_get_userbyid(caller));
    _grantee text;
BEGIN
    PERFORM kanon.owner_close(staged);
    IF given -> 'closed' ? suffix THEN
        EXECUTE format('GRANT SELECT ON %s TO %s', _name, _role);
    ELSE
        FOR _grantee IN SELECT quote_ident(r) FROM jsonb_array_elements_text(given -> 'readers') AS r
        LOOP
            EXECUTE format('GRANT SELECT ON %s TO %s', _name, _grantee);
        END LOOP;
        EXECUTE format('GRANT SELECT ON %s TO %s WITH GRANT OPTION', _name, _role);
    END IF;
END
$function$;
COMMENT ON FUNCTION kanon.owner_open IS 'lets readers and the publisher read a relation, and nobody else';

CREATE OR REPLACE FUNCTION kanon.owner_note(
    publication kanon.publication, relation oid, note jsonb
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _name   CONSTANT text := (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = relation);
    _kind   CONSTANT text := (
        SELECT kanon.relation_kind(c.relkind) FROM pg_class AS c WHERE c.oid = relation);
    -- Everybody who may connect can read comments: of drafts, they say nothing.
    _note   CONSTANT jsonb := CASE WHEN EXISTS (
        SELECT FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS a WHERE c.oid = relation
        AND a.grantee <> c.relowner AND NOT (a.grantor = c.relowner AND a.is_grantable)) THEN note END;
    _column record;
BEGIN
    -- The mark comes first: it tells which publication the relation belongs to.
    EXECUTE format('COMMENT ON %s %s IS %L', _kind, _name,
        kanon.mark(publication.publication_id) || coalesce(_note ->> 'use', ''));
    FOR _column IN
        SELECT c.key, c.value FROM jsonb_each_text(_note -> 'columns') AS c
        UNION ALL
        -- Where there is nothing to say of columns, each says what the relation is for.
        SELECT a.attname::text, _note ->> 'use' FROM pg_attribute AS a
        WHERE a.attrelid = owner_note.relation AND a.attnum > 0 AND _note -> 'columns' = '{}'
    LOOP
        EXECUTE format('COMMENT ON COLUMN %s.%I IS %L', _name, _column.key, _column.value);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION kanon.owner_note IS
    'comments on a relation and its columns: a mark and, unless nobody else may read it, how to use them';

CREATE OR REPLACE FUNCTION kanon.owner_drop(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _publication kanon.publication;
BEGIN
    SELECT * INTO _publication FROM kanon.publication WHERE publication.name = given ->> 'name'
    FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING MESSAGE = 'there is no such publication', ERRCODE = '42704';
    ELSIF NOT kanon.is_publisher(caller, _publication) THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = 'only the role that published a publication can drop or replace it';
    END IF;
    PERFORM kanon.owner_end_release(_publication, 'dropped');
    IF (given ->> 'close')::boolean THEN
        PERFORM kanon.owner_close_all(_publication);
    ELSE
        PERFORM kanon.owner_remove(_publication);
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION kanon.owner_drop IS
    'drops the caller''s publication, or only closes it, for which no reader is waited for';

CREATE OR REPLACE FUNCTION kanon.owner_remove(publication kanon.publication) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    PERFORM kanon.owner_withdraw(publication, kanon.aside());
    PERFORM kanon.owner_sweep();
END
$function$;
COMMENT ON FUNCTION kanon.owner_remove IS
    'withdraws a publication, and drops what was withdrawn before and nothing depends on';

CREATE OR REPLACE FUNCTION kanon.owner_keep_attacks(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    UPDATE kanon.publication AS p
    SET attacks = jsonb_build_object('at', now(), 'found', given -> 'found')
    WHERE p.name = given ->> 'name' AND kanon.is_publisher(caller, p);
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = 'only the role that published a publication can keep attacks with it';
    END IF;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION kanon.owner_keep_attacks IS 'keeps what attacks on the caller''s publication achieved';
