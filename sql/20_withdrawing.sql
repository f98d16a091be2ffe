-- Taking published relations back: called by run_errand only, with the rights of whoever calls.
--
-- Anybody who reaches the schema of publications can make a view, a function or a policy of a
-- relation there, even without a right to read it. None of these keeps a publisher from withdrawing
-- or replacing a publication, and none is dropped: what they depend on is emptied, closed and put
-- aside, until nothing depends on it; or, where the new relation has the same columns, it gets its
-- rows and takes its place.
--
-- Nor does anybody who keeps it in use, which a statement that is only prepared does: taking rights
-- (REVOKE) and comments locks no reader out, so it never waits for one. Rows and names go later.
CREATE OR REPLACE FUNCTION kanon.closed_mark(publication_id bigint) RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$SELECT 'withdrawn from kanon_db: nobody may read it, and it is dropped once nobody keeps it in use'
    || coalesce(' (publication ' || publication_id || ')', '')$function$;
COMMENT ON FUNCTION kanon.closed_mark IS
    'the comment on relations that lost their rights only, or how all of these begin';

CREATE OR REPLACE FUNCTION kanon.closed() RETURNS TABLE (relation oid, kind "char", name text, mark text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY
    SELECT c.oid, c.relkind, c.relname::text, obj_description(c.oid, 'pg_class')
    FROM kanon.setting AS s
    JOIN pg_namespace AS n ON s.name = 'published_schema' AND n.nspname = s.value
    JOIN pg_class AS c ON c.relnamespace = n.oid
    JOIN pg_roles AS u ON u.oid = c.relowner AND u.rolname = 'kanon_owner'
    WHERE starts_with(obj_description(c.oid, 'pg_class'), kanon.closed_mark(NULL));
END
$function$;
COMMENT ON FUNCTION kanon.closed IS
    'relations that are withdrawn, and still have their rows and names since they were in use';

CREATE OR REPLACE FUNCTION kanon.withdrawn() RETURNS TABLE (relation oid, kind "char", name text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY
    SELECT c.oid, c.relkind, format('%I.%I', n.nspname, c.relname)
    FROM kanon.setting AS s
    JOIN pg_namespace AS n ON s.name = 'published_schema' AND n.nspname = s.value
    JOIN pg_class AS c ON c.relnamespace = n.oid
    JOIN pg_roles AS u ON u.oid = c.relowner AND u.rolname = 'kanon_owner'
    WHERE c.relname ~ '^kanon_[0-9a-f]{32}'
          AND obj_description(c.oid, 'pg_class') = kanon.withdrawn_mark()
       OR c.oid IN (SELECT d.relation FROM kanon.closed() AS d)
    ORDER BY c.relkind IN ('v', 'm') DESC, c.oid;
END
$function$;
COMMENT ON FUNCTION kanon.withdrawn IS
    'relations that are withdrawn, and only there because something depends on them';

CREATE OR REPLACE FUNCTION kanon.withdrawn_mark() RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$SELECT 'withdrawn from kanon_db: it has no rows, and is dropped once nothing depends on it'$function$;
COMMENT ON FUNCTION kanon.withdrawn_mark IS 'the comment on withdrawn relations';

CREATE OR REPLACE FUNCTION kanon.owner_close(relation regclass) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _owner    CONSTANT oid := (SELECT c.relowner FROM pg_class AS c WHERE c.oid = relation);
    _kind     CONSTANT text := (SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END
        FROM pg_class AS c WHERE c.oid = relation);
    _passed   record;
    _grantees text;
BEGIN
    -- CASCADE reaches what was passed on of a column only from a right on this column.
    FOR _passed IN
        SELECT DISTINCT b.attname, pg_get_userbyid(t.grantor) AS grantor
        FROM pg_attribute AS b CROSS JOIN aclexplode(b.attacl) AS t
        WHERE b.attrelid = relation AND t.grantor <> _owner
    LOOP
        EXECUTE format('GRANT SELECT (%I) ON %s TO %I WITH GRANT OPTION',
                       _passed.attname, relation, _passed.grantor);
    END LOOP;
    -- Among them is what ALTER DEFAULT PRIVILEGES has granted to others.
    _grantees := (
        SELECT string_agg(DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC'
            ELSE quote_ident(pg_get_userbyid(a.grantee)) END, ', ')
        FROM (
            SELECT t.grantee FROM pg_class AS c CROSS JOIN aclexplode(c.relacl) AS t
            WHERE c.oid = relation
            UNION ALL
            SELECT t.grantee FROM pg_attribute AS b CROSS JOIN aclexplode(b.attacl) AS t
            WHERE b.attrelid = relation
        ) AS a WHERE a.grantee <> _owner);
    IF _grantees IS NOT NULL THEN
        EXECUTE format('REVOKE ALL ON %s %s FROM %s CASCADE', _kind, relation, _grantees);
    END IF;
END
$function$;
COMMENT ON FUNCTION kanon.owner_close IS 'takes all rights on a relation and its columns from everybody';

CREATE OR REPLACE FUNCTION kanon.owner_drop_or_close(relation regclass) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _kind   CONSTANT text := (
        SELECT kanon.relation_kind(c.relkind) FROM pg_class AS c WHERE c.oid = relation);
BEGIN
    EXECUTE format('DROP %s %s', _kind, relation);
EXCEPTION WHEN dependent_objects_still_exist THEN
    PERFORM kanon.owner_close(relation), kanon.owner_mark(relation, kanon.withdrawn_mark());
END
$function$;
COMMENT ON FUNCTION kanon.owner_drop_or_close IS
    'drops a relation; where something depends on it, leaves it without rights and comments';

CREATE OR REPLACE FUNCTION kanon.owner_mark(relation regclass, mark text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _kind   CONSTANT text := (
        SELECT kanon.relation_kind(c.relkind) FROM pg_class AS c WHERE c.oid = relation);
    _column text;
BEGIN
    EXECUTE format('COMMENT ON %s %s IS %L', _kind, relation, mark);
    FOR _column IN
        SELECT a.attname FROM pg_attribute AS a
        WHERE a.attrelid = relation AND col_description(relation, a.attnum) IS NOT NULL
    LOOP
        EXECUTE format('COMMENT ON COLUMN %s.%I IS NULL', relation, _column);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION kanon.owner_mark IS
    'comments on a withdrawn relation, in place of all comments on it and its columns';

CREATE OR REPLACE FUNCTION kanon.owner_withdraw(publication kanon.publication, aside text)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _owned CONSTANT regclass[] := ARRAY(SELECT o.relation FROM kanon.owned(publication) AS o);
BEGIN
    DELETE FROM kanon.publication AS p WHERE p.publication_id = publication.publication_id;
    PERFORM kanon.owner_take_away(_owned, ARRAY(
        SELECT aside || substr(c.relname, length(publication.name) + 1)
        FROM unnest(_owned) WITH ORDINALITY AS o (oid, position)
        JOIN pg_class AS c ON c.oid = o.oid ORDER BY o.position));
END
$function$;
COMMENT ON FUNCTION kanon.owner_withdraw IS
    'takes rows, rights and names from a publication, and drops of it what nothing depends on';

CREATE OR REPLACE FUNCTION kanon.owner_close_all(publication kanon.publication) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    PERFORM kanon.owner_close(o.relation::regclass),
            kanon.owner_mark(o.relation::regclass, kanon.closed_mark(publication.publication_id))
    FROM kanon.owned(publication) AS o;
    DELETE FROM kanon.publication AS p WHERE p.publication_id = publication.publication_id;
END
$function$;
COMMENT ON FUNCTION kanon.owner_close_all IS
    'takes all rights on a publication that is in use; what was theirs is dropped later';

CREATE OR REPLACE FUNCTION kanon.owner_make_way(names text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    PERFORM kanon.owner_take_away(
        array_agg(c.relation::regclass ORDER BY c.kind IN ('v', 'm') DESC, c.relation),
        array_agg(kanon.aside()))
    FROM kanon.closed() AS c GROUP BY c.mark HAVING array_agg(c.name) && names;
END
$function$;
COMMENT ON FUNCTION kanon.owner_make_way IS
    'takes rows and names from what was closed and has one of these names; waits for its readers';

CREATE OR REPLACE FUNCTION kanon.owner_take_away(owned regclass[], asides text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _relation record;
BEGIN
    BEGIN
        FOR _relation IN
            SELECT c.oid::regclass AS name, c.relkind AS kind
            FROM unnest(owned) WITH ORDINALITY AS o (oid, position)
            JOIN pg_class AS c ON c.oid = o.oid ORDER BY o.position
        LOOP
            EXECUTE format('DROP %s %s', kanon.relation_kind(_relation.kind), _relation.name);
        END LOOP;
        RETURN;
    EXCEPTION WHEN dependent_objects_still_exist THEN
        NULL;  -- none is dropped
    END;
    -- All are locked before one loses a row: the view, which readers come through, first.
    FOR _relation IN
        SELECT o.oid AS name, o.aside
        FROM unnest(owned, asides) WITH ORDINALITY AS o (oid, aside, position)
        JOIN pg_class AS c ON c.oid = o.oid ORDER BY o.position
    LOOP
        EXECUTE format('ALTER TABLE %s RENAME TO %I', _relation.name, _relation.aside);
    END LOOP;
    FOR _relation IN
        SELECT c.oid::regclass AS name, c.oid, c.relkind AS kind
        FROM unnest(owned) AS o (oid) JOIN pg_class AS c ON c.oid = o.oid
        ORDER BY c.relkind = 'm'  -- when the tables that they read are empty
    LOOP
        EXECUTE CASE _relation.kind
            WHEN 'v' THEN format('CREATE OR REPLACE VIEW %s AS SELECT %s WHERE false', _relation.name, (
                SELECT string_agg(format(
                    'NULL::%s%s AS %I', format_type(a.atttypid, a.atttypmod),
                    CASE WHEN l.oid IS NOT NULL
                    THEN format(' COLLATE %I.%I', m.nspname, l.collname) END, a.attname),
                    ', ' ORDER BY a.attnum)
                FROM pg_attribute AS a LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
                LEFT JOIN pg_namespace AS m ON m.oid = l.collnamespace
                WHERE a.attrelid = _relation.oid AND a.attnum > 0))
            WHEN 'm' THEN format('REFRESH MATERIALIZED VIEW %s', _relation.name)
            -- The planner's statistics outlive rows, and whoever reads what takes their place reads
            -- these: they become those of a row of NULLs.
            ELSE format('TRUNCATE %1$s; INSERT INTO %1$s DEFAULT VALUES; ANALYZE %1$s; TRUNCATE %1$s',
                        _relation.name) END;
    END LOOP;
    FOR _relation IN SELECT unnest(owned) AS name LOOP
        PERFORM kanon.owner_drop_or_close(_relation.name);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION kanon.owner_take_away IS
    'drops relations; where something depends on one, all lose rows, rights and names';

CREATE OR REPLACE FUNCTION kanon.aside() RETURNS text
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$SELECT 'kanon_' || replace(gen_random_uuid()::text, '-', '')$function$;
COMMENT ON FUNCTION kanon.aside IS 'a new name that no publication can have';

CREATE OR REPLACE FUNCTION kanon.owner_sweep() RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '10ms'
AS $function$
DECLARE
    _relation record;
BEGIN
    FOR _relation IN SELECT DISTINCT c.mark FROM kanon.closed() AS c LOOP
        BEGIN
            PERFORM kanon.owner_make_way(ARRAY(
                SELECT c.name FROM kanon.closed() AS c WHERE c.mark = _relation.mark));
        EXCEPTION WHEN lock_not_available OR object_in_use OR undefined_table THEN
            NULL;  -- another time
        END;
    END LOOP;
    FOR _relation IN SELECT * FROM kanon.withdrawn() LOOP
        BEGIN
            EXECUTE format('DROP %s %s', kanon.relation_kind(_relation.kind), _relation.name);
        EXCEPTION WHEN dependent_objects_still_exist OR lock_not_available OR object_in_use
            OR undefined_table THEN
            NULL;  -- another time
        END;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION kanon.owner_sweep IS 'drops withdrawn relations on which nothing depends any more';

CREATE OR REPLACE FUNCTION kanon.owner_living(caller oid, given jsonb, aside text)
RETURNS TABLE (old oid, new oid)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _left  CONSTANT oid[] := ARRAY(
        SELECT w.relation FROM kanon.withdrawn() AS w JOIN pg_class AS c ON c.oid = w.relation
        WHERE starts_with(c.relname, aside));
    _old   oid[];
    _new   oid[];
    _bound oid[];
BEGIN
    SELECT array_agg(o.oid ORDER BY s.relation), array_agg(s.relation ORDER BY s.relation)
    INTO _old, _new
    FROM kanon.owner_staged(caller, given ->> 'prefix',
        ARRAY(SELECT jsonb_array_elements_text(given -> 'suffixes'))) AS s
    JOIN pg_class AS o ON o.oid = ANY (_left) AND o.relname = aside || s.suffix
        AND o.relkind = s.kind
    CROSS JOIN LATERAL (
        SELECT array_agg(row(a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attstorage)::text
                         ORDER BY a.attnum) FILTER (WHERE a.attrelid = o.oid) AS old,
               array_agg(row(a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attstorage)::text
                         ORDER BY a.attnum) FILTER (WHERE a.attrelid = s.relation) AS new
        FROM pg_attribute AS a WHERE a.attrelid IN (o.oid, s.relation) AND a.attnum > 0
    ) AS c
    WHERE c.old = c.new
      -- Rights that roles gave each other in a circle cannot be taken.
      AND NOT EXISTS (SELECT FROM pg_class AS h CROSS JOIN aclexplode(h.relacl) AS t
                      WHERE h.oid = o.oid AND t.grantee <> h.relowner)
      AND NOT EXISTS (SELECT FROM pg_attribute AS h CROSS JOIN aclexplode(h.attacl) AS t
                      WHERE h.attrelid = o.oid);
    -- A materialized view cannot be made to read other tables: they live on together.
    _bound := ARRAY(
        SELECT d.refobjid FROM pg_class AS m JOIN pg_rewrite AS r ON r.ev_class = m.oid
        JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
            AND d.refclassid = 'pg_class'::regclass
        WHERE m.relkind = 'm' AND m.oid = ANY (_left || ARRAY(
            SELECT s.relation FROM kanon.owner_staged(caller, given ->> 'prefix',
                ARRAY(SELECT jsonb_array_elements_text(given -> 'suffixes'))) AS s)));
    RETURN QUERY
    SELECT p.old, p.new FROM unnest(_old, _new) AS p (old, new)
    WHERE _bound <@ (_old || _new) OR p.old <> ALL (_bound) AND p.new <> ALL (_bound);
END
$function$;
COMMENT ON FUNCTION kanon.owner_living IS
    'which relations that were just put aside have the columns of those that come in their place';

CREATE OR REPLACE FUNCTION kanon.owner_live_on(caller oid, given jsonb, aside text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET synchronize_seqscans = off  -- rows stay in their order
AS $function$
DECLARE
    _schema CONSTANT text := (SELECT value FROM kanon.setting WHERE setting.name = 'published_schema');
    _pair   record;
    _pairs  jsonb;
    _view   record;
    _views  jsonb;
    _columns text;
BEGIN
    _pairs := (
        SELECT jsonb_agg(jsonb_build_object(
            'old', l.old, 'new', l.new, 'kind', c.relkind, 'name', c.relname)
            -- Tables before what reads them.
            ORDER BY c.relkind IN ('v', 'm'))
        FROM kanon.owner_living(caller, given, aside) AS l JOIN pg_class AS c ON c.oid = l.new);
    IF _pairs IS NULL THEN
        RETURN;
    END IF;
    -- With the staged names in it, which those that live on are about to get.
    _views := (
        SELECT jsonb_agg(jsonb_build_object(
            'name', format('%I.%I', _schema, (given ->> 'prefix') || s.suffix),
            'query', pg_get_viewdef(s.relation)))
        FROM kanon.owner_staged(caller, given ->> 'prefix',
            ARRAY(SELECT jsonb_array_elements_text(given -> 'suffixes'))) AS s
        WHERE s.kind = 'v');
    FOR _pair IN
        SELECT p.old, p.new, p.kind, p.name
        FROM jsonb_to_recordset(_pairs) AS p (old regclass, new regclass, kind "char", name text)
    LOOP
        IF _pair.kind = 'r' THEN
            EXECUTE format('INSERT INTO %s SELECT * FROM %s', _pair.old, _pair.new);
        ELSIF _pair.kind = 'm' THEN
            EXECUTE format('REFRESH MATERIALIZED VIEW %s', _pair.old);
        END IF;
        _columns := (SELECT string_agg(format('%I', s.attname), ', ') FROM pg_stats AS s
                     WHERE s.schemaname = _schema AND s.tablename = _pair.name);
        EXECUTE format('ALTER TABLE %s RENAME TO %I', _pair.new, aside || _pair.new::oid);
        EXECUTE format('ALTER TABLE %s RENAME TO %I', _pair.old, _pair.name);
        EXECUTE format('GRANT INSERT ON %s TO %I', _pair.old, pg_get_userbyid(caller));
        IF _columns IS NOT NULL THEN
            EXECUTE format('ANALYZE %s (%s)', _pair.old, _columns);
        END IF;
    END LOOP;
    FOR _view IN
        SELECT v.name, v.query FROM jsonb_to_recordset(_views) AS v (name text, query text)
    LOOP
        EXECUTE format('CREATE OR REPLACE VIEW %s AS %s', _view.name, _view.query);
    END LOOP;
    FOR _pair IN
        SELECT p.new, p.kind
        FROM jsonb_to_recordset(_pairs) AS p (new regclass, kind "char")
        ORDER BY p.kind IN ('v', 'm') DESC
    LOOP
        EXECUTE format('DROP %s %s', kanon.relation_kind(_pair.kind), _pair.new);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION kanon.owner_live_on IS
    'lets relations that something depends on have the rows and the names of staged ones';
