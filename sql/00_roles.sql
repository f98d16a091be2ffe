-- Roles that are missing. One that exists is taken only if it can do no more than ours.
DO $roles$
DECLARE
    _role name;
BEGIN
    FOREACH _role IN ARRAY '{everybody}'::pg_catalog.name[] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = _role) THEN
            EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', _role);
        ELSIF EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = _role
                      AND (r.rolsuper OR r.rolbypassrls OR r.rolcreaterole)) THEN
            RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
                MESSAGE = 'a role of this name exists and is too powerful',
                DETAIL = pg_catalog.format(
                    'role "%s" is superuser, bypasses row security or creates roles', _role),
                HINT = pg_catalog.format(
                    'ALTER ROLE %I NOSUPERUSER NOBYPASSRLS NOCREATEROLE, or rename it', _role);
        END IF;
    END LOOP;
    -- It owns publications, and nobody may become it.
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = 'kanon_owner') THEN
        CREATE ROLE kanon_owner NOLOGIN;
    ELSIF EXISTS (
        SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = 'kanon_owner' AND (
            r.rolsuper OR r.rolbypassrls OR r.rolcreaterole OR r.rolcreatedb OR r.rolcanlogin
            OR r.rolreplication OR EXISTS (
                SELECT FROM pg_catalog.pg_auth_members AS m
                JOIN pg_catalog.pg_roles AS u ON u.oid = m.member
                -- Who has created a role, and is no superuser, keeps the right to grant it.
                WHERE r.oid IN (m.roleid, m.member)
                  AND (u.rolname <> CURRENT_USER OR u.rolsuper))))
    THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'the role that is to own publications can do too much, or somebody can become it',
            DETAIL = 'role "kanon_owner" may log in, has an attribute, has a member or is one',
            HINT = 'rename it, or ALTER ROLE kanon_owner NOLOGIN and revoke it from its members; if an'
                ' administrator has installed kanon_db in another database of this server, which is'
                ' one of PostgreSQL 16 or later, connect as this one';
    END IF;
END
$roles$;
