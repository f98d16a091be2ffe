-- Describing sources: called by run_errand only, with the rights of whoever calls.
CREATE OR REPLACE FUNCTION kanon.owner_register(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _relation  CONSTANT oid := (given ->> 'relation')::oid;
    _new       kanon.source;
    _old       kanon.source;
    _published text[];
    _roles     text[];
BEGIN
    PERFORM kanon.follow_renamed(_relation);
    -- What is not given comes from the server's catalogs.
    _new := (
        SELECT jsonb_populate_record(NULL::kanon.source, given || jsonb_build_object(
            'schema_name', n.nspname, 'relation_name', c.relname, 'relation_oid', c.oid,
            'columns', a.names, 'numbers', a.numbers))
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        CROSS JOIN LATERAL (
            SELECT coalesce(jsonb_agg(a.attname ORDER BY a.attnum), '[]') AS names,
                   coalesce(jsonb_agg(a.attnum ORDER BY a.attnum), '[]') AS numbers
            FROM pg_attribute AS a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS a
        WHERE c.oid = _relation AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
          AND c.relpersistence <> 't');
    IF NOT (kanon.is_plain(_new.schema_name) AND kanon.is_plain(_new.relation_name)) THEN
        RAISE EXCEPTION USING ERRCODE = '42602',
            MESSAGE = 'a name has control characters, or characters that turn text around';
    END IF;
    PERFORM kanon.require_readable(caller, _new);

    SELECT * INTO _old FROM kanon.source AS s
    WHERE s.schema_name = _new.schema_name AND s.relation_name = _new.relation_name FOR UPDATE;
    IF FOUND AND current_setting('transaction_isolation') <> 'read committed' THEN
        -- An older snapshot does not have what was published meanwhile.
        RAISE EXCEPTION USING ERRCODE = '25001',
            MESSAGE = 'register it again in a transaction that is READ COMMITTED';
    END IF;
    -- Once more: somebody may have registered it meanwhile.
    PERFORM kanon.require_own_description(caller, _relation);
    _published := ARRAY(SELECT p.name FROM kanon.publication AS p
        WHERE p.source_schema = _new.schema_name AND p.source_relation = _new.relation_name
        ORDER BY p.name);
    -- While it is published, all that has a role other than identifier stays what it is. Others
    -- may go or get another name, and what is new has no role, or is an identifier.
    _roles := _old.quasi_identifiers || _old.insensitive || _old.also_sensitive
        || array_remove(ARRAY[_old.sensitive, _old.entity, _old.arrival], NULL);
    IF _published <> '{}' AND (
        _old.source_id IS NULL
        OR (_new.quasi_identifiers, _new.sensitive, _new.entity, _new.attributes, _new.insensitive,
            _new.also_sensitive, _new.keep, kanon.places(_new, _roles, _old.relation_oid))
           IS DISTINCT FROM
           (_old.quasi_identifiers, _old.sensitive, _old.entity, _old.attributes, _old.insensitive,
            _old.also_sensitive, _old.keep, kanon.places(_old, _roles, _new.relation_oid))
        OR _new.arrival IS DISTINCT FROM coalesce(_old.arrival, _new.arrival)
        OR EXISTS (SELECT FROM unnest(_old.identifiers) AS i
                   WHERE i = ANY (_new.columns) AND i <> ALL (_new.identifiers))
        OR EXISTS (SELECT FROM unnest(_new.identifiers) AS i
                   WHERE i = ANY (_old.columns) AND i <> ALL (_old.identifiers))
    ) THEN
        RETURN jsonb_build_object('published', _published);
    END IF;
    INSERT INTO kanon.source AS s (schema_name, relation_name, quasi_identifiers, sensitive,
        identifiers, attributes, columns, insensitive, entity, arrival, also_sensitive, keep,
        registered_by, relation_oid, numbers, fingerprint)
    VALUES (_new.schema_name, _new.relation_name, _new.quasi_identifiers, _new.sensitive,
        _new.identifiers, _new.attributes, _new.columns, _new.insensitive, _new.entity, _new.arrival,
        _new.also_sensitive, _new.keep, caller, _new.relation_oid, _new.numbers,
        kanon.fingerprint(_relation))
    ON CONFLICT ON CONSTRAINT source_relation_unique DO UPDATE SET
        quasi_identifiers = excluded.quasi_identifiers, sensitive = excluded.sensitive,
        identifiers = excluded.identifiers, attributes = excluded.attributes,
        columns = excluded.columns, insensitive = excluded.insensitive, entity = excluded.entity,
        arrival = excluded.arrival, also_sensitive = excluded.also_sensitive, keep = excluded.keep,
        registered_by = excluded.registered_by, registered_at = clock_timestamp(),
        relation_oid = excluded.relation_oid, numbers = excluded.numbers,
        fingerprint = excluded.fingerprint
    RETURNING * INTO _new;
    RETURN jsonb_build_object('source_id', _new.source_id);
END
$function$;
COMMENT ON FUNCTION kanon.owner_register IS
    'describes a source that the caller may read; answers with its publications if that is refused';

CREATE OR REPLACE FUNCTION kanon.places(source kanon.source, roles text[], other oid)
RETURNS text[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- A column that was dropped and made again, or took the name of another, has another number. In
    -- a relation that was created anew, names are what is left.
    RETURN ARRAY(
        SELECT CASE WHEN source.relation_oid = other AND source.numbers <> '{}'
                    THEN format('%s %s', source.numbers[c.place], c.name) ELSE c.name END
        FROM unnest(source.columns) WITH ORDINALITY AS c (name, place)
        WHERE c.name = ANY (roles) ORDER BY c.place);
END
$function$;
COMMENT ON FUNCTION kanon.places IS
    'the columns with roles, in their order; of the same relation, with their numbers';

CREATE OR REPLACE FUNCTION kanon.renamed_sources()
RETURNS TABLE (source_id bigint, schema_name text, relation_name text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY SELECT s.source_id, n.nspname::text, c.relname::text
    FROM kanon.source AS s
    JOIN pg_class AS c ON c.oid = s.relation_oid
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE kanon.named(s.schema_name, s.relation_name) IS NULL
      AND NOT EXISTS (SELECT FROM kanon.source AS o
                      WHERE o.schema_name = n.nspname AND o.relation_name = c.relname);
END
$function$;
COMMENT ON FUNCTION kanon.renamed_sources IS
    'sources whose relations have got another name or schema, with that';

CREATE OR REPLACE FUNCTION kanon.follow_renamed(source oid) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _old  kanon.source;
    _name record;
BEGIN
    SELECT r.* INTO _name FROM kanon.renamed_sources() AS r
    JOIN kanon.source AS s ON s.source_id = r.source_id WHERE s.relation_oid = follow_renamed.source;
    IF NOT FOUND OR NOT (kanon.is_plain(_name.schema_name) AND kanon.is_plain(_name.relation_name)) THEN
        RETURN;
    END IF;
    SELECT s.* INTO _old FROM kanon.source AS s WHERE s.source_id = _name.source_id FOR UPDATE;
    UPDATE kanon.source AS s
    SET schema_name = _name.schema_name, relation_name = _name.relation_name
    WHERE s.source_id = _old.source_id;
    UPDATE kanon.publication AS p
    SET source_schema = _name.schema_name, source_relation = _name.relation_name
    WHERE p.source_schema = _old.schema_name AND p.source_relation = _old.relation_name;
    -- A restored ledger finds relations by their names.
    UPDATE kanon.release AS r
    SET source = format('%I.%I', _name.schema_name, _name.relation_name)
    WHERE r.source_oid = _old.relation_oid;
    UPDATE kanon.release AS r SET base_names = kanon.base_names(r.bases)
    WHERE _old.relation_oid = ANY (r.bases);
END
$function$;
COMMENT ON FUNCTION kanon.follow_renamed IS
    'enters the name that a source''s relation has by now: it is the same one';

CREATE OR REPLACE FUNCTION kanon.require_readable(role oid, source kanon.source) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _relation CONSTANT oid := (SELECT c.oid FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = source.schema_name AND c.relname = source.relation_name);
BEGIN
    -- Every column that is named must be there: nobody may describe what does not exist.
    IF _relation IS NULL OR EXISTS (
        SELECT FROM unnest(source.quasi_identifiers || source.insensitive || source.identifiers
                           || source.also_sensitive
                           || array_remove(ARRAY[source.sensitive, source.entity, source.arrival], NULL)) AS name
        WHERE NOT EXISTS (SELECT FROM pg_attribute AS a
                          WHERE a.attrelid = _relation AND a.attname = name
                            AND a.attnum > 0 AND NOT a.attisdropped)) THEN
        RAISE EXCEPTION USING MESSAGE = 'the source has no such columns', ERRCODE = '42703';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE oid = role AND rolsuper) AND EXISTS (
        SELECT FROM unnest(source.quasi_identifiers || source.insensitive || source.also_sensitive
                           || array_remove(ARRAY[source.sensitive, source.entity, source.arrival], NULL)) AS name
        WHERE has_column_privilege(role, _relation, name, 'SELECT') IS NOT TRUE) THEN
        RAISE EXCEPTION USING MESSAGE = 'the source cannot be read', ERRCODE = '42501';
    END IF;
    -- What is released of a view counts against all that it reads. Children are read by their parent.
    IF EXISTS (
        SELECT FROM kanon.reached(_relation) AS r
        JOIN pg_class AS c ON c.oid = r.relation
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname NOT IN ('pg_catalog', 'information_schema')
          AND r.kind IN ('r', 'p', 'v', 'm', 'f')
          AND has_any_column_privilege(role, r.relation, 'SELECT') IS NOT TRUE
          AND NOT EXISTS (SELECT FROM pg_inherits AS i
                          JOIN kanon.reached(_relation) AS o ON o.relation = i.inhparent
                          WHERE i.inhrelid = r.relation)) THEN
        RAISE EXCEPTION USING MESSAGE = 'a relation that the source reads cannot be read',
            HINT = 'grant SELECT on what the view reads to the publisher', ERRCODE = '42501';
    END IF;
END
$function$;
COMMENT ON FUNCTION kanon.require_readable IS 'refuses a role that may not SELECT the source''s columns';

CREATE OR REPLACE FUNCTION kanon.require_own_description(role oid, relation oid) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _other kanon.source;
BEGIN
    SELECT s.* INTO _other FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN kanon.source AS s ON s.schema_name = n.nspname AND s.relation_name = c.relname
    WHERE c.oid = relation AND s.registered_by <> role AND NOT pg_has_role(role, c.relowner, 'USAGE');
    IF FOUND THEN
        RAISE EXCEPTION USING MESSAGE = 'another role registered the source', ERRCODE = '42501';
    END IF;
END
$function$;
COMMENT ON FUNCTION kanon.require_own_description IS
    'refuses a role that would change another''s description of a source';
