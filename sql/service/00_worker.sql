-- The login that fetches jobs. One that exists is taken only if nobody else can be it.
DO $worker$
DECLARE
    _role pg_catalog.pg_roles;
BEGIN
    SELECT r.* INTO _role FROM pg_catalog.pg_roles AS r WHERE r.rolname = 'kanon_worker';
    IF NOT FOUND THEN
        CREATE ROLE kanon_worker LOGIN NOINHERIT;
    ELSIF _role.rolsuper OR _role.rolcreaterole OR _role.rolcreatedb OR _role.rolreplication
        OR _role.rolbypassrls OR EXISTS (
            SELECT FROM pg_catalog.pg_auth_members AS m
            WHERE _role.oid = m.member OR _role.oid = m.roleid AND NOT {created})
    THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'the login that is to fetch jobs can do too much, or somebody can become it',
            DETAIL = 'role "kanon_worker" has an attribute, has a member or is one',
            HINT = 'rename it, or take the attributes from kanon_worker, and kanon_worker from its'
                ' members';
    ELSIF NOT EXISTS (SELECT FROM kanon.setting AS s WHERE s.name = 'queue')
        -- In another database, its rights show that kanon_db is installed there.
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_shdepend AS d
            WHERE d.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass
              AND d.refobjid = _role.oid AND d.deptype = 'a')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'the login that is to fetch jobs exists, and somebody may know its password',
            DETAIL = 'role "kanon_worker" fetches jobs in no database of this server',
            HINT = 'DROP ROLE kanon_worker, or rename it';
    END IF;
END
$worker$;
