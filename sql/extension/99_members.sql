-- Everything in the schema kanon is the extension's, while publications are the user's.
DO $members$
DECLARE
    _object record;
BEGIN
    FOR _object IN
        SELECT a.type, a.identity, a.owner FROM (
            SELECT 'pg_catalog.pg_namespace'::pg_catalog.regclass AS class, n.oid, n.nspowner AS owner
            FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'kanon'
            UNION ALL
            SELECT 'pg_catalog.pg_class', c.oid, c.relowner FROM pg_catalog.pg_class AS c
            WHERE c.relnamespace = 'kanon'::pg_catalog.regnamespace
              AND c.relkind IN ('r', 'v', 'm', 'S')
            UNION ALL
            SELECT 'pg_catalog.pg_proc', p.oid, p.proowner FROM pg_catalog.pg_proc AS p
            WHERE p.pronamespace = 'kanon'::pg_catalog.regnamespace
            UNION ALL
            SELECT 'pg_catalog.pg_event_trigger', t.oid, t.evtowner
            FROM pg_catalog.pg_event_trigger AS t JOIN pg_catalog.pg_proc AS p ON p.oid = t.evtfoid
            WHERE p.pronamespace = 'kanon'::pg_catalog.regnamespace
        ) AS o CROSS JOIN LATERAL (
            SELECT i.type, i.identity, pg_catalog.pg_get_userbyid(o.owner) AS owner
            FROM pg_catalog.pg_identify_object(o.class, o.oid, 0) AS i
        ) AS a
        WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS d
            WHERE d.classid = o.class AND d.objid = o.oid AND d.deptype = 'e')
    LOOP
        IF _object.owner NOT IN (CURRENT_USER, 'kanon_owner') AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = _object.owner AND r.rolsuper)
        THEN
            RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
                MESSAGE = 'the schema kanon contains objects of somebody else',
                DETAIL = pg_catalog.format('%s is owned by role "%s"', _object.type, _object.owner),
                HINT = 'drop or rename it; kanon_db does not adopt foreign objects';
        END IF;
        EXECUTE pg_catalog.format('ALTER EXTENSION kanon ADD %s %s', _object.type, _object.identity);
    END LOOP;
    -- What a script grants counts as the extension's, and dumps leave it out; but the schema of
    -- publications is the user's. PostgreSQL forgets such a grant only where ALTER EXTENSION drops its
    -- object, and adds no schema that contains the extension. In any other, the extension would come
    -- first in dumps, which then could not create the schema.
    IF pg_catalog.current_setting('is_superuser') = 'on' THEN  -- nobody else may
        DELETE FROM pg_catalog.pg_init_privs AS i
        USING pg_catalog.pg_namespace AS n JOIN kanon.setting AS s
            ON s.name = 'published_schema' AND s.value = n.nspname
        WHERE i.classoid = 'pg_catalog.pg_namespace'::pg_catalog.regclass AND i.objoid = n.oid;
    END IF;
    -- What travels with a dump: all rows but secrets, and what follows from the package.
    FOR _object IN
        SELECT c.oid, CASE c.relname
            WHEN 'setting' THEN 'WHERE name NOT IN (''package'', ''queue'')' ELSE '' END AS rows
        FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'kanon'::pg_catalog.regnamespace AND c.relkind IN ('r', 'S')
          AND c.relname NOT IN ('alembic_version', 'draw_key')
    LOOP
        PERFORM pg_catalog.pg_extension_config_dump(_object.oid, _object.rows);
    END LOOP;
END
$members$;
