-- Who has been published, and what is drawn: called by run_errand only, with the rights of whoever calls.
--
-- Of each release, the ledger keeps a key and, of each entity, HMAC-SHA-256 under that key. Of those
-- in m-invariant buckets, it also keeps the number of their signature, where several buckets have it:
-- nothing else of them. Nobody but kanon_owner reads either. All hashes of a release are written anew, in
-- their own order, whenever some are added: neither their place nor their transaction tells who came
-- with whom.
--
-- Of the records, it keeps half of HMAC-SHA-256 of the entity, the published values and how many
-- records alike there were before; of the second and further records of an entity, also that of the
-- entity and their number. Whoever can compute these can also try values: so their key is derived
-- from the release's and from kanon.record_key, a materialized view, which no dump has. That of
-- nothing is there, too: where it is not found, the key is another one, or no records were kept.
CREATE OR REPLACE FUNCTION kanon.key_pads(key bytea) RETURNS TABLE (inner_pad bytea, outer_pad bytea)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _inner bytea := decode(repeat('36', 64), 'hex');
    _outer bytea := decode(repeat('5c', 64), 'hex');
BEGIN
    FOR i IN 0 .. length(key) - 1 LOOP
        _inner := set_byte(_inner, i, get_byte(_inner, i) # get_byte(key, i));
        _outer := set_byte(_outer, i, get_byte(_outer, i) # get_byte(key, i));
    END LOOP;
    RETURN QUERY SELECT _inner, _outer;
END
$function$;
COMMENT ON FUNCTION kanon.key_pads IS
    'what HMAC (RFC 2104) puts before a message, for a key of at most 64 bytes';

CREATE OR REPLACE FUNCTION kanon.owner_seed(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _seed bytea;
BEGIN
    -- The caller first: nobody gets a seed of another role's draws, whatever they hash.
    SELECT sha256(d.outer_pad || sha256(d.inner_pad || convert_to(jsonb_build_array(
        caller::text, given ->> 'digest', given -> 'dry_run'
    )::text, 'UTF8'))) INTO STRICT _seed
    FROM kanon.draw_key AS k CROSS JOIN kanon.key_pads(k.key) AS d;
    RETURN to_jsonb(encode(_seed, 'hex'));
END
$function$;
COMMENT ON FUNCTION kanon.owner_seed IS
    'what the caller draws a publication from: HMAC-SHA-256 of the caller, of a digest of the request'
    ' and the records, and of whether it is a dry run';

-- A dump for others leaves the key out. From the operating system's generator: 244 bits.
INSERT INTO kanon.draw_key (key)
VALUES (pg_catalog.uuid_send(pg_catalog.gen_random_uuid())
        OPERATOR(pg_catalog.||) pg_catalog.uuid_send(pg_catalog.gen_random_uuid()))
ON CONFLICT DO NOTHING;

-- A restored schema without data has none.
DO $$
BEGIN
    IF NOT (SELECT c.relispopulated FROM pg_catalog.pg_class AS c
            WHERE c.oid = 'kanon.record_key'::regclass) THEN
        REFRESH MATERIALIZED VIEW kanon.record_key;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION kanon.owner_unknown(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET work_mem = '64MB'
AS $function$
DECLARE
    _tables  CONSTANT text[] := ARRAY(
        SELECT s.name FROM kanon.owner_staged(caller, given ->> 'prefix', '{"",_new}') AS s);
    _release CONSTANT bigint := (
        SELECT r.release_id FROM kanon.publication AS p
        JOIN kanon.release AS r ON r.publication_id = p.publication_id
        WHERE p.name = given ->> 'name' AND kanon.is_publisher(caller, p));
    _pads    record;
    _own     record;
    _has     record;
    _found   jsonb;
BEGIN
    SELECT d.* INTO _pads FROM kanon.release_key AS k CROSS JOIN kanon.key_pads(k.key) AS d
    WHERE k.release_id = _release;
    IF NOT FOUND OR cardinality(_tables) <> 2 THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = 'only the role that published a publication can ask who is new to it';
    END IF;
    -- Who may not read the source any more could ask what somebody has.
    PERFORM kanon.require_readable(caller, s) FROM kanon.publication AS p JOIN kanon.source AS s
        ON s.schema_name = p.source_schema AND s.relation_name = p.source_relation
    WHERE p.name = given ->> 'name';
    IF NOT FOUND THEN
        RAISE EXCEPTION USING MESSAGE = 'the source is not registered', ERRCODE = '42501';
    END IF;
    SELECT * INTO _own FROM kanon.record_pads(_release);
    -- Where anybody has a signature, those without one are not in the publication any more.
    SELECT count(*) AS known, count(e.signature) AS signed INTO _has
    FROM kanon.release_entity AS e WHERE e.release_id = _release;
    -- Further records of an entity are looked up one by one: most have none. OFFSET 0 keeps the
    -- hashes columns: as conditions of joins they would be calculated again for each row found.
    EXECUTE format(
        'WITH hashed AS ('
        ' SELECT s.digest, s.record, sha256($3 || sha256($2 || s.digest)) AS hash FROM %s AS s OFFSET 0'
        '), seen AS MATERIALIZED ('
        ' SELECT s.digest, s.record, e.hash IS NULL AS is_new, e.signature,'
        ' e.signature IS NOT NULL OR e.hash IS NOT NULL AND $4 AS is_in,'
        ' row_number() OVER (PARTITION BY s.digest)::int4 AS number,'
        ' row_number() OVER (PARTITION BY s.digest, s.record)::int4 AS copy'
        ' FROM hashed AS s LEFT JOIN kanon.release_entity AS e'
        ' ON e.release_id = $1 AND e.hash = s.hash'
        '), told AS (INSERT INTO %s (digest, signature)'
        ' SELECT s.digest, s.signature FROM seen AS s WHERE s.is_new OR s.signature IS NOT NULL'
        '), compared AS ('
        ' SELECT s.digest, s.is_new, s.is_in, s.number, CASE WHEN s.is_in THEN substr(sha256($6'
        ' || sha256($5 || s.digest || s.record || int4send(s.copy))), 1, 16) END AS hash'
        ' FROM seen AS s OFFSET 0'
        ') SELECT jsonb_build_object('
        ' ''records'', count(*) FILTER (WHERE s.is_in),'
        ' ''people'', count(*) FILTER (WHERE s.is_in AND s.number = 1),'
        ' ''out'', count(*) FILTER (WHERE NOT s.is_in AND NOT s.is_new),'
        ' ''further'', count(*) FILTER (WHERE s.is_in AND s.number > 1 AND EXISTS ('
        ' SELECT FROM kanon.release_record AS f WHERE f.release_id = $1 AND f.hash = substr(sha256($6'
        ' || sha256($5 || s.digest || int4send(s.number))), 1, 16))),'
        ' ''same'', count(r.hash))'
        ' FROM compared AS s LEFT JOIN kanon.release_record AS r'
        ' ON r.release_id = $1 AND r.hash = s.hash', _tables[1], _tables[2])
    INTO _found
    USING _release, _pads.inner_pad, _pads.outer_pad, _has.signed = 0, _own.inner_pad, _own.outer_pad;
    RETURN _found || jsonb_build_object(
        'known', CASE _has.signed WHEN 0 THEN _has.known ELSE _has.signed END,
        'knows_records', kanon.knows_records(_release));
END
$function$;
COMMENT ON FUNCTION kanon.owner_unknown IS
    'copies, of the entities that the caller staged, those that the caller has not published, and'
    ' those that have a signature, with it; counts what the others have of the publication';

CREATE OR REPLACE FUNCTION kanon.record_pads(release bigint)
RETURNS TABLE (inner_pad bytea, outer_pad bytea)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY SELECT d.* FROM kanon.release_key AS k CROSS JOIN kanon.record_key AS r
    CROSS JOIN kanon.key_pads(sha256(k.key || r.key)) AS d WHERE k.release_id = release;
END
$function$;
COMMENT ON FUNCTION kanon.record_pads IS
    'what HMAC puts before a record of a release, with a key that no dump has';

CREATE OR REPLACE FUNCTION kanon.knows_records(release bigint) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN EXISTS (
        SELECT FROM kanon.record_pads(release) AS d JOIN kanon.release_record AS r
        ON r.release_id = release AND r.hash = substr(sha256(d.outer_pad || sha256(d.inner_pad)), 1, 16));
END
$function$;
COMMENT ON FUNCTION kanon.knows_records IS
    'whether the records of a release were kept, under the key that there is now';

CREATE OR REPLACE FUNCTION kanon.owner_keep_entities(
    publication kanon.publication, caller oid, given jsonb
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET work_mem = '64MB'
SET enable_hashagg = off  -- hashes are sorted anyway, and equal ones follow each other then
AS $function$
DECLARE
    _table   CONSTANT text := (
        SELECT s.name FROM kanon.owner_staged(caller, given ->> 'entities', '{""}') AS s);
    _release CONSTANT bigint := (SELECT r.release_id FROM kanon.release AS r
        WHERE r.publication_id = publication.publication_id);
    _pads    record;
BEGIN
    IF _table IS NULL THEN
        RETURN;
    END IF;
    -- From the operating system's generator, as each of these: 244 bits.
    INSERT INTO kanon.release_key (release_id, key)
    VALUES (_release, uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
    ON CONFLICT DO NOTHING;
    SELECT d.* INTO _pads FROM kanon.release_key AS k CROSS JOIN kanon.key_pads(k.key) AS d
    WHERE k.release_id = _release;
    EXECUTE format(
        'WITH before AS (DELETE FROM kanon.release_entity AS e WHERE e.release_id = $1'
        ' RETURNING e.hash)'
        ' INSERT INTO kanon.release_entity (release_id, hash, signature)'
        ' SELECT $1, h.hash, max(h.signature) FROM ('
        ' SELECT b.hash, NULL::integer FROM before AS b'
        ' UNION ALL SELECT sha256($3 || sha256($2 || s.digest)), s.signature FROM %s AS s'
        ') AS h (hash, signature) GROUP BY h.hash ORDER BY h.hash',
        _table) USING _release, _pads.inner_pad, _pads.outer_pad;
    -- A batch of a publication whose other records are not known would pass for all of it.
    IF NOT given ? 'refreshes' OR given ? 'withdrawn' OR kanon.knows_records(_release) THEN
        SELECT * INTO _pads FROM kanon.record_pads(_release);
        IF given ? 'withdrawn' THEN
            DELETE FROM kanon.release_record AS r WHERE r.release_id = _release;
        END IF;
        EXECUTE format(
            'WITH before AS (DELETE FROM kanon.release_record AS r WHERE r.release_id = $1'
            ' RETURNING r.hash), staged AS (SELECT s.digest, s.record,'
            ' row_number() OVER (PARTITION BY s.digest)::int4 AS number,'
            ' row_number() OVER (PARTITION BY s.digest, s.record)::int4 AS copy FROM %s AS s)'
            ' INSERT INTO kanon.release_record (release_id, hash) SELECT $1, h.hash FROM ('
            ' SELECT b.hash FROM before AS b'
            ' UNION SELECT substr(sha256($3 || sha256($2 || m.message)), 1, 16) FROM ('
            ' SELECT ''''::bytea AS message'
            ' UNION ALL SELECT s.digest || s.record || int4send(s.copy) FROM staged AS s'
            ' UNION ALL SELECT s.digest || int4send(s.number) FROM staged AS s WHERE s.number > 1'
            ') AS m) AS h ORDER BY h.hash',
            _table) USING _release, _pads.inner_pad, _pads.outer_pad;
    END IF;
    EXECUTE format('DROP TABLE %s', _table);
END
$function$;
COMMENT ON FUNCTION kanon.owner_keep_entities IS
    'adds the entities and records that the caller staged to those that a release has published; of'
    ' others, the signature is forgotten';

CREATE OR REPLACE FUNCTION kanon.owner_forget_entities(release bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    DELETE FROM kanon.release_entity AS e WHERE e.release_id = release;
    DELETE FROM kanon.release_record AS r WHERE r.release_id = release;
    DELETE FROM kanon.release_key AS k WHERE k.release_id = release;
END
$function$;
COMMENT ON FUNCTION kanon.owner_forget_entities IS
    'takes the keyed hashes, and their key, of a release that is gone';
