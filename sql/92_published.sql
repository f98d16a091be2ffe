-- The schema of publications, which the first installation chooses for good: that of the setting
-- kanon.published_schema, if there is one. An existing one is taken only if it is empty, or ours.
DO $published$
DECLARE
    _schema    text := (SELECT s.value FROM kanon.setting AS s WHERE s.name = 'published_schema');
    _is_ours   CONSTANT boolean := _schema IS NOT NULL;
    _namespace pg_catalog.pg_namespace;
BEGIN
    IF NOT _is_ours THEN
        _schema := coalesce(
            nullif(pg_catalog.current_setting('kanon.published_schema', true), ''), 'published');
        IF _schema ~ '^(pg_.*|information_schema|public|kanon|kanon_queue)$'
           OR pg_catalog.octet_length(_schema) > 63 OR NOT kanon.is_plain(_schema) THEN
            RAISE EXCEPTION USING ERRCODE = 'invalid_name',
                MESSAGE = 'publications cannot have a schema of this name',
                DETAIL = pg_catalog.format('schema "%s"', _schema),
                HINT = 'choose one that neither the server, nor kanon_db, nor everybody uses, with at most'
                    ' 63 bytes, all of which show';
        END IF;
        INSERT INTO kanon.setting (name, value)
        VALUES ('published_schema', _schema), ('home', kanon.here()), ('numbers', kanon.here());
    END IF;
    SELECT n.* INTO _namespace FROM pg_catalog.pg_namespace AS n WHERE n.nspname = _schema;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM kanon.publication) THEN
            RAISE EXCEPTION USING ERRCODE = 'KN004',
                MESSAGE = 'the schema of the publications is missing',
                DETAIL = pg_catalog.format('schema "%s"', _schema),
                HINT = '`kanon doctor` looks for it; it may have been renamed';
        END IF;
        EXECUTE pg_catalog.format('CREATE SCHEMA %I', _schema);
    ELSIF NOT kanon.is_administrator(_namespace.nspowner) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'a schema of this name belongs to somebody else',
            DETAIL = pg_catalog.format('schema "%s" is owned by role "%s"', _schema,
                                       pg_catalog.pg_get_userbyid(_namespace.nspowner)),
            HINT = 'drop or rename it; kanon_db does not adopt foreign objects';
    ELSIF NOT _is_ours AND EXISTS (
        SELECT FROM pg_catalog.pg_depend AS d
        WHERE d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass
          AND d.refobjid = _namespace.oid
          AND d.classid <> 'pg_catalog.pg_extension'::pg_catalog.regclass
          -- What the extension leaves, once it is dropped, is the function that views called.
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_proc AS p
              WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND p.oid = d.objid
                AND pg_catalog.pg_get_userbyid(p.proowner) = 'kanon_owner'))
    THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'a schema of this name exists and is not empty',
            DETAIL = pg_catalog.format('schema "%s"', _schema),
            HINT = 'drop or rename it; kanon_db does not adopt foreign objects';
    END IF;
    EXECUTE pg_catalog.format('REVOKE ALL ON SCHEMA %I FROM PUBLIC', _schema);
    -- Among them is whom ALTER DEFAULT PRIVILEGES lets create.
    EXECUTE coalesce((
        SELECT pg_catalog.format('REVOKE CREATE ON SCHEMA %I FROM ', _schema)
            || pg_catalog.string_agg(pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)), ', ')
            || ' CASCADE'
        FROM pg_catalog.pg_namespace AS n CROSS JOIN LATERAL pg_catalog.aclexplode(n.nspacl) AS a
        WHERE n.nspname = _schema AND a.privilege_type = 'CREATE'
          AND a.grantee NOT IN (0, n.nspowner)), 'SELECT');
    EXECUTE pg_catalog.format('GRANT USAGE, CREATE ON SCHEMA %I TO kanon_owner', _schema);
    EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA %I TO %s', _schema,
                              pg_catalog.array_to_string('{everybody}'::text[], ', '));
    IF pg_catalog.current_setting('is_superuser') = 'on' OR NOT pg_catalog.has_database_privilege(
        'kanon_publisher', pg_catalog.current_database(), 'TEMPORARY')
    THEN
        EXECUTE pg_catalog.format(
            'GRANT TEMPORARY ON DATABASE %I TO kanon_publisher', pg_catalog.current_database());
    END IF;
END
$published$;
