-- Relations in the making: called by run_errand only, with the rights of whoever calls.
CREATE OR REPLACE FUNCTION kanon.owner_staged(caller oid, prefix text, suffixes text[])
RETURNS TABLE (relation oid, kind "char", name text, suffix text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN QUERY
    SELECT c.oid, c.relkind, format('%I.%I', n.nspname, c.relname), s.suffix
    FROM unnest(suffixes) WITH ORDINALITY AS s (suffix, position)
    JOIN pg_class AS c ON c.relname = prefix || s.suffix
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN kanon.setting AS o ON o.name = 'published_schema' AND o.value = n.nspname
    JOIN pg_roles AS u ON u.oid = c.relowner AND u.rolname = current_user
    WHERE prefix ~ '^kanon_[0-9a-f]{32}$'
      AND EXISTS (SELECT FROM aclexplode(c.relacl) AS a
                  WHERE a.grantee = caller AND a.privilege_type = 'INSERT')
    ORDER BY s.position;
END
$function$;
COMMENT ON FUNCTION kanon.owner_staged IS 'the relations that a role is about to publish';

CREATE OR REPLACE FUNCTION kanon.owner_create_table(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _schema  CONSTANT text := (SELECT value FROM kanon.setting WHERE setting.name = 'published_schema');
    _table   CONSTANT text := format('%I.%I', _schema, (given ->> 'prefix') || (given ->> 'suffix'));
    _columns text;
    _refused text;
    _column  text;
BEGIN
    IF (given ->> 'prefix') !~ '^kanon_[0-9a-f]{32}$' THEN
        RAISE EXCEPTION USING MESSAGE = 'a staged relation has another name', ERRCODE = '42602';
    END IF;
    -- The owner of a type can attach casts to it, and drop the column with it.
    SELECT string_agg(format('%I %s%s', c.name, format_type(c.type, c.modifier),
                             CASE WHEN l.oid IS NOT NULL
                             THEN format(' COLLATE %I.%I', m.nspname, l.collname) END),
                      ', ' ORDER BY c.position),
           string_agg(c.name, ', ') FILTER (
               WHERE NOT coalesce(kanon.is_safe_type(c.type)
                                  AND kanon.is_safe_collation(c.collating), false))
    INTO _columns, _refused
    FROM ROWS FROM (jsonb_to_recordset(given -> 'columns')
             AS (name text, type oid, modifier integer, collating oid))
         WITH ORDINALITY AS c (name, type, modifier, collating, position)
    LEFT JOIN pg_type AS t ON t.oid = c.type
    LEFT JOIN pg_collation AS l ON l.oid = c.collating AND l.oid <> t.typcollation
    LEFT JOIN pg_namespace AS m ON m.oid = l.collnamespace;
    IF _refused IS NOT NULL THEN
        RAISE EXCEPTION USING
            MESSAGE = 'columns have a type or a collation that does not belong to a superuser',
            DETAIL = _refused, ERRCODE = '42804';
    END IF;
    EXECUTE format('CREATE TABLE %s (%s)', _table, _columns);
    FOR _column IN SELECT jsonb_array_elements_text(given -> 'uncompressed') LOOP
        EXECUTE format('ALTER TABLE %s ALTER %I SET STORAGE EXTERNAL', _table, _column);
    END LOOP;
    EXECUTE format('GRANT SELECT, INSERT ON %s TO %I', _table, pg_get_userbyid(caller));
    PERFORM kanon.owner_close_type(_table::regclass);
    RETURN to_jsonb(_table);
END
$function$;
COMMENT ON FUNCTION kanon.owner_create_table IS 'creates an empty table that the caller may fill';

CREATE OR REPLACE FUNCTION kanon.owner_close_type(relation regclass) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- Otherwise anybody's column of this type would keep the relation from being dropped.
    EXECUTE format('REVOKE USAGE ON TYPE %s FROM PUBLIC',
                   (SELECT c.reltype::regtype FROM pg_class AS c WHERE c.oid = relation));
END
$function$;
COMMENT ON FUNCTION kanon.owner_close_type IS 'keeps others from making columns of a relation''s type';

CREATE OR REPLACE FUNCTION kanon.owner_create_view(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _schema CONSTANT text := (SELECT value FROM kanon.setting WHERE setting.name = 'published_schema');
    _view   CONSTANT text := format('%I.%I', _schema, concat(given ->> 'prefix', given ->> 'suffix'));
    _tables CONSTANT text[] := ARRAY(
        SELECT s.name FROM kanon.owner_staged(caller, given ->> 'prefix',
            ARRAY(SELECT jsonb_array_elements_text(given -> 'tables'))) AS s);
    _table  text;
    _guard  CONSTANT text := format('%I.require_visible', _schema);
    _query  text;
BEGIN
    IF cardinality(_tables) <> jsonb_array_length(given -> 'tables') THEN
        RAISE EXCEPTION USING MESSAGE = 'a view is made of tables that the caller staged',
            ERRCODE = '42501';
    END IF;
    IF given ? 'layout' THEN
        PERFORM kanon.owner_provide_guard(_schema);
        EXECUTE format('CREATE VIEW %s AS %s', _view, CASE cardinality(_tables)
            WHEN 2 THEN kanon.weighted_join(given -> 'layout', _guard, _tables[1], _tables[2])
            ELSE kanon.learned_join(given -> 'layout', _guard, _tables[1], _tables[2], _tables[3]) END);
    ELSE
        _query := format('SELECT * FROM %s', _tables[1]);
        IF given ? 'number' THEN
            _query := format(
                'SELECT %s FROM %s JOIN %s USING (%I)',
                (SELECT string_agg(format('%I', name), ', ' ORDER BY position)
                 FROM jsonb_array_elements_text(given -> 'columns')
                      WITH ORDINALITY AS c (name, position)),
                _tables[1], _tables[2], given ->> 'number');
        END IF;
        -- None ever changes again, so there is nothing to vacuum. A worker that looks after all has
        -- a lock for half a minute, and whoever takes the publication's place waits for it.
        FOREACH _table IN ARRAY _tables LOOP
            EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', _table);
        END LOOP;
        EXECUTE format('CREATE MATERIALIZED VIEW %s WITH (autovacuum_enabled = off)'
                       ' AS %s WITH NO DATA', _view, _query);
        -- Its rows are visible to transactions with an older snapshot, unlike those of a table.
        EXECUTE format('REFRESH MATERIALIZED VIEW %s', _view);
    END IF;
    -- INSERT marks what is staged by whom; nothing can be inserted into either kind of view.
    EXECUTE format('GRANT SELECT, INSERT ON %s TO %I', _view, pg_get_userbyid(caller));
    PERFORM kanon.owner_close_type(_view::regclass);
    RETURN to_jsonb(_view);
END
$function$;
COMMENT ON FUNCTION kanon.owner_create_view IS 'creates a view of a publication';

-- It lies beside the views that call it, and belongs to no extension, so that a dump takes it along to
-- where no kanon_db is. They call it with the rights of readers, who may be members of no role of ours.
-- `kanon install` makes it, since the first two publishers would wait for each other; the script of the
-- extension does not, since a dump creates it after the extension.
CREATE OR REPLACE FUNCTION kanon.owner_provide_guard(schema text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    IF to_regprocedure(format('%I.require_visible(boolean)', schema)) IS NOT NULL THEN
        RETURN;
    END IF;
    EXECUTE format($create$
        CREATE FUNCTION %I.require_visible(has_rows boolean) RETURNS boolean
        LANGUAGE plpgsql STABLE PARALLEL SAFE
        SET search_path = pg_catalog, pg_temp
        AS $guard$
        BEGIN
            IF NOT has_rows THEN
                RAISE EXCEPTION USING ERRCODE = '40001',
                    MESSAGE = 'the publication took the place of another after this transaction began to read',
                    HINT = 'repeat what failed, in a new transaction';
            END IF;
            RETURN true;
        END
        $guard$
        $create$, schema);
    EXECUTE format($comment$
        COMMENT ON FUNCTION %I.require_visible IS
        'true, or a serialization failure where a snapshot is older than the rows of a publication'
        $comment$, schema);
    EXECUTE format('ALTER FUNCTION %I.require_visible OWNER TO kanon_owner', schema);
    EXECUTE format('GRANT EXECUTE ON FUNCTION %I.require_visible TO PUBLIC', schema);
EXCEPTION WHEN unique_violation THEN
    NULL;  -- somebody else has just made it
END
$function$;
COMMENT ON FUNCTION kanon.owner_provide_guard IS 'creates the function that views of buckets call, once';

CREATE OR REPLACE FUNCTION kanon.weighted_join(
    layout jsonb, guard text, qit text, sat text
) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _sizes  CONSTANT integer[] := ARRAY(SELECT jsonb_array_elements_text(layout -> 'sizes')::integer);
    _firsts CONSTANT integer[] := ARRAY(
        SELECT jsonb_array_elements_text(layout -> 'first_bucket_ids')::integer);
    _size   CONSTANT text := CASE cardinality(_sizes) WHEN 1 THEN _sizes[1]::text
        ELSE format('(ARRAY[%s])[width_bucket(s.%I, ARRAY[%s])]', array_to_string(_sizes, ', '),
                    layout ->> 'bucket_id', array_to_string(_firsts, ', ')) END;
BEGIN
    -- The condition has no column, so the server checks it once, before it reads a row.
    RETURN format(
        'SELECT %s, %s, s.%I::float8 / %s AS %I FROM %s AS q JOIN %s AS s ON s.%I = q.%I'
        ' WHERE %10$s(EXISTS (SELECT FROM %7$s))',
        (SELECT string_agg(format('q.%I', name), ', ' ORDER BY position)
         FROM jsonb_array_elements_text(layout -> 'quasi_identifiers')
              WITH ORDINALITY AS c (name, position)),
        (SELECT string_agg(format('s.%I', name), ', ' ORDER BY position)
         FROM unnest(ARRAY[layout ->> 'sensitive']
              || ARRAY(SELECT jsonb_array_elements_text(layout -> 'also_sensitive')))
              WITH ORDINALITY AS c (name, position)),
        layout ->> 'count', _size, layout ->> 'weight',
        qit, sat, layout ->> 'bucket_id', layout ->> 'bucket_id', guard);
END
$function$;
COMMENT ON FUNCTION kanon.weighted_join IS
    'a query that joins QIT and SAT, weighting each possible value by its share of the bucket';

CREATE OR REPLACE FUNCTION kanon.learned_join(
    layout jsonb, guard text, qit text, sat text, learned text
) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _bucket  CONSTANT text := quote_ident(layout ->> 'bucket_id');
    _value   CONSTANT text := quote_ident(layout ->> 'sensitive');
    _planes  CONSTANT text := quote_ident(layout ->> 'weights');
    _columns CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(layout -> 'quasi_identifiers'));
    _digits  CONSTANT integer[] := ARRAY(SELECT generate_series(0, (layout ->> 'planes')::integer - 1));
    _bytes   CONSTANT integer := 240;  -- of a piece
    _zeros   CONSTANT text := format('decode(repeat(''00'', %s), ''hex'')', _bytes);
    _length  bigint;  -- bytes of a bitmap
    _lows    bigint[];
    _steps   bigint[];
    _firsts  bigint[];
    _class   text;
BEGIN
    -- The record of a bucket that comes as the i-th has the bit low + bucket + i * step, and the
    -- buckets of a size have the same low and step; see algorithms/bucketization/buckets.py.
    SELECT (sum(c.size * c.step)::bigint + 7) / 8,
           array_agg(c.before - c.step - c.first ORDER BY c.first),
           array_agg(c.step ORDER BY c.first), array_agg(c.first ORDER BY c.first)
    INTO _length, _lows, _steps, _firsts
    FROM (SELECT r.*, sum(r.size * r.step) OVER (ORDER BY r.first) - r.size * r.step AS before
          FROM (SELECT s.value::bigint AS size, f.value::bigint AS first,
                       lead(f.value::bigint, 1, (layout ->> 'n_buckets')::bigint + 1)
                           OVER (ORDER BY f.value::bigint) - f.value::bigint AS step
                FROM ROWS FROM (jsonb_array_elements_text(layout -> 'sizes')) WITH ORDINALITY AS s (value, i)
                JOIN ROWS FROM (jsonb_array_elements_text(layout -> 'first_bucket_ids'))
                     WITH ORDINALITY AS f (value, i) USING (i)) AS r) AS c;
    _class := format('[width_bucket(q.%s, ARRAY[%s])]', _bucket, array_to_string(_firsts, ', '));
    -- Bits are looked up in pieces: for each bit, a whole bitmap would be fetched anew.
    RETURN format(
        'WITH records (%1$s, bucket, bit) AS ('
        'SELECT %2$s, q.%3$s, (ARRAY[%4$s])%5$s + q.%3$s'
        ' + (ARRAY[%6$s])%5$s * row_number() OVER (PARTITION BY q.%3$s ORDER BY %7$s)'
        ' FROM %8$s AS q WHERE %21$s(EXISTS (SELECT FROM %8$s))'
        '), weights AS MATERIALIZED ('
        'SELECT ARRAY[w.%9$s] AS value, w.%10$s AS parts, w.%11$s AS planes,'
        ' row_number() OVER () AS number FROM %12$s AS w'
        '), pieces (number, piece, %13$s) AS MATERIALIZED ('
        'SELECT w.number, p.piece, %14$s FROM weights AS w, generate_series(0, %15$s) AS p (piece)'
        ') SELECT %16$s, s.%9$s, (%17$s)::float8 / w.parts AS %18$s'
        ' FROM records AS r JOIN %19$s AS s ON s.%3$s = r.bucket'
        ' JOIN weights AS w ON w.value = ARRAY[s.%9$s]'
        ' JOIN pieces AS p ON p.number = w.number AND p.piece = r.bit / %20$s',
        (SELECT string_agg(format('c%s', i), ', ' ORDER BY i) FROM generate_subscripts(_columns, 1) AS i),
        (SELECT string_agg(format('q.%I', c), ', ' ORDER BY i)
         FROM unnest(_columns) WITH ORDINALITY AS c (c, i)),
        _bucket, array_to_string(_lows, ', '), _class, array_to_string(_steps, ', '),
        (SELECT string_agg(format('q.%I', c) || CASE WHEN layout -> 'bytewise' ? c
                           THEN ' COLLATE pg_catalog."C"' ELSE '' END, ', ' ORDER BY i)
         FROM jsonb_array_elements_text(layout -> 'placed_by') WITH ORDINALITY AS c (c, i)),
        qit,
        _value, quote_ident(layout ->> 'parts'), _planes, learned,
        (SELECT string_agg(format('d%s', d), ', ' ORDER BY d) FROM unnest(_digits) AS d),
        (SELECT string_agg(format(
             'CASE WHEN length(w.planes) > %1$s THEN substr(w.planes, %1$s + 1 + p.piece * %2$s, %2$s)'
             ' ELSE %3$s END', d * _length, _bytes, _zeros), ', ' ORDER BY d) FROM unnest(_digits) AS d),
        (_length - 1) / _bytes,
        (SELECT string_agg(format('r.c%s AS %I', i, c), ', ' ORDER BY i)
         FROM unnest(_columns) WITH ORDINALITY AS c (c, i)),
        (SELECT string_agg(format('(get_bit(p.d%1$s, (r.bit %% %2$s)::integer) << %1$s)', d, 8 * _bytes),
                           ' + ' ORDER BY d) FROM unnest(_digits) AS d),
        quote_ident(layout ->> 'weight'), sat, 8 * _bytes, guard);
END
$function$;
COMMENT ON FUNCTION kanon.learned_join IS
    'a query that joins QIT and SAT, weighting each possible value by how likely it was found to be';

CREATE OR REPLACE FUNCTION kanon.owner_drop_staged(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _staged record;
BEGIN
    FOR _staged IN SELECT * FROM kanon.owner_staged(caller, given ->> 'prefix',
        ARRAY(SELECT jsonb_array_elements_text(given -> 'suffixes'))) AS s
    LOOP
        EXECUTE format('DROP %s %s', kanon.relation_kind(_staged.kind), _staged.name);
    END LOOP;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION kanon.owner_drop_staged IS 'drops relations that the caller staged';

CREATE OR REPLACE FUNCTION kanon.owner_analyze(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _columns CONSTANT text := (
        SELECT format('(%s)', string_agg(format('%I', name), ', '))
        FROM jsonb_array_elements_text(given -> 'columns') AS c (name) HAVING count(*) > 0);
    _keys CONSTANT text := (
        SELECT format('(%s)', string_agg(format('%I', name), ', ' ORDER BY position))
        FROM jsonb_array_elements_text(given -> 'keys') WITH ORDINALITY AS c (name, position)
        HAVING count(*) > 0);
    _table text;
BEGIN
    FOR _table IN SELECT s.name FROM kanon.owner_staged(caller, given ->> 'prefix',
        ARRAY(SELECT jsonb_array_elements_text(given -> 'suffixes'))) AS s
    LOOP
        EXECUTE format('ANALYZE %s %s', _table, _columns);
        IF _keys IS NOT NULL THEN
            EXECUTE format('CREATE UNIQUE INDEX ON %s %s', _table, _keys);
        END IF;
    END LOOP;
    RETURN NULL;
END
$function$;
COMMENT ON FUNCTION kanon.owner_analyze IS
    'gathers the planner''s statistics of staged relations, and makes an index of their keys';
