-- Who has been published, and what is drawn: called by run_errand only, with the rights of whoever calls.
--
-- Of each release, the ledger keeps a key and, of each entity, HMAC-SHA-256 under that key. Of those
-- in m-invariant buckets, it also keeps the number of their signature, where several buckets have it:
-- nothing else of them. Nobody but kanon_owner reads either. All hashes of a release are written anew, in
-- their own order, whenever some are added: neither their place nor their transaction tells who came
-- with whom.
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
    _known   bigint;
BEGIN
    SELECT d.* INTO _pads FROM kanon.release_key AS k CROSS JOIN kanon.key_pads(k.key) AS d
    WHERE k.release_id = _release;
    IF NOT FOUND OR cardinality(_tables) <> 2 THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = 'only the role that published a publication can ask who is new to it';
    END IF;
    EXECUTE format(
        'INSERT INTO %s (digest, signature) SELECT s.digest, e.signature FROM %s AS s'
        ' LEFT JOIN kanon.release_entity AS e'
        ' ON e.release_id = $1 AND e.hash = sha256($3 || sha256($2 || s.digest))'
        ' WHERE e.hash IS NULL OR e.signature IS NOT NULL', _tables[2], _tables[1])
    USING _release, _pads.inner_pad, _pads.outer_pad;
    EXECUTE format('SELECT count(DISTINCT digest) FROM %s WHERE signature IS NOT NULL', _tables[2])
    INTO _known;
    RETURN to_jsonb((SELECT count(*) FROM kanon.release_entity AS e
                     WHERE e.release_id = _release AND e.signature IS NOT NULL) - _known);
END
$function$;
COMMENT ON FUNCTION kanon.owner_unknown IS
    'copies, of the entities that the caller staged, those that the caller has not published, and'
    ' those that have a signature, with it; answers how many with a signature are not among them';

CREATE OR REPLACE FUNCTION kanon.owner_keep_entities(
    publication kanon.publication, caller oid, given jsonb
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET work_mem = '64MB'
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
    EXECUTE format('DROP TABLE %s', _table);
END
$function$;
COMMENT ON FUNCTION kanon.owner_keep_entities IS
    'adds the entities that the caller staged to those that a release has published; of others, the'
    ' signature is forgotten';

CREATE OR REPLACE FUNCTION kanon.owner_forget_entities(release bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    DELETE FROM kanon.release_entity AS e WHERE e.release_id = release;
    DELETE FROM kanon.release_key AS k WHERE k.release_id = release;
END
$function$;
COMMENT ON FUNCTION kanon.owner_forget_entities IS
    'takes the keyed hashes, and their key, of a release that is gone';
