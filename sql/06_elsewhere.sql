-- here(), come_home(), is_lost(): a catalog that was restored in another database than its own.
CREATE OR REPLACE FUNCTION kanon.here() RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- A copy of a database, or of a server, has the same numbers of everything.
    RETURN (SELECT format('%s/%s', c.system_identifier, 'kanon.setting'::regclass::oid)
            FROM pg_control_system() AS c);
END
$function$;
COMMENT ON FUNCTION kanon.here IS 'what a dump that is restored elsewhere does not have';

-- Roles and relations are looked up by their names, since their numbers are those of anybody here:
-- so first, each role gets one of nobody's, from the end, which no two rows have. The numbers of an
-- earlier try are there already.
CREATE OR REPLACE FUNCTION kanon.come_home(again boolean) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _here  CONSTANT text := kanon.here();
    _table text;
BEGIN
    IF NOT again AND EXISTS (
        SELECT FROM kanon.setting AS s WHERE s.name = 'numbers' AND s.value = _here)
    THEN
        RETURN;
    END IF;
    FOREACH _table IN ARRAY ARRAY['release_reader', 'budget', 'job'] LOOP
        EXECUTE format(
            'UPDATE kanon.%1$I AS t SET role = n.role::oid FROM ('
            ' SELECT o.ctid, (SELECT coalesce(min(l.role::int8), 4294967295) FROM kanon.%1$I AS l'
            ' WHERE l.role::int8 > 4200000000) - row_number() OVER () AS role FROM kanon.%1$I AS o'
            ') AS n WHERE n.ctid = t.ctid', _table);
        EXECUTE format(
            'UPDATE kanon.%I AS t SET role = u.oid FROM pg_roles AS u WHERE u.rolname = t.role_name',
            _table);
    END LOOP;
    -- The label of a source elsewhere is no name, whatever it looks like.
    UPDATE kanon.release AS r SET
        publisher = (SELECT u.oid FROM pg_roles AS u WHERE u.rolname = r.released_by),
        source_oid = (SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
            WHERE format('%I.%I', n.nspname, c.relname) = r.source
              AND kanon.name_elsewhere(r.source) <> ALL (r.base_names)),
        bases = ARRAY(SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
            WHERE format('%I.%I', n.nspname, c.relname) = ANY (r.base_names) ORDER BY c.oid);
    -- What has these numbers here is another relation; names and columns' names are left.
    UPDATE kanon.source SET relation_oid = NULL, numbers = '{}';
    INSERT INTO kanon.setting (name, value) VALUES ('numbers', _here)
    ON CONFLICT ON CONSTRAINT setting_pkey DO UPDATE SET value = excluded.value;
    PERFORM kanon.owner_note_readers(p) FROM kanon.publication AS p;
    -- From then on, a role that is made anew under a name is a stranger.
    IF NOT EXISTS (SELECT FROM kanon.publication AS p WHERE kanon.is_lost(p)) THEN
        UPDATE kanon.setting SET value = _here WHERE name = 'home';
    END IF;
END
$function$;
COMMENT ON FUNCTION kanon.come_home IS
    'finds roles and relations of a restored catalog again, by their names';

CREATE OR REPLACE FUNCTION kanon.is_lost(publication kanon.publication) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM kanon.owned(publication) AS o JOIN pg_class AS c ON c.oid = o.relation
        CROSS JOIN aclexplode(c.relacl) AS a WHERE a.is_grantable AND a.grantee <> c.relowner);
END
$function$;
COMMENT ON FUNCTION kanon.is_lost IS
    'whether nobody may replace or drop a publication any more: the dump''s grants were lost';

-- A dump has settings; what an installation has chosen before it is restored gives way to them.
CREATE OR REPLACE FUNCTION kanon.replace_setting() RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    DELETE FROM kanon.setting AS s WHERE s.name = NEW.name;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION kanon.replace_setting IS 'lets a setting take the place of its namesake';
CREATE OR REPLACE TRIGGER replace_setting BEFORE INSERT ON kanon.setting
    FOR EACH ROW EXECUTE FUNCTION kanon.replace_setting();

-- PostgreSQL says what it drops only when that is gone, and this function with it. But it drops no
-- table that its session reads: from a cursor that shows nothing.
CREATE OR REPLACE FUNCTION kanon.keep_publications() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER  -- as kanon_owner, since anybody may drop an extension of theirs
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _held refcursor;
BEGIN
    IF EXISTS (SELECT FROM pg_extension AS e WHERE e.extname = 'kanon')
        AND EXISTS (SELECT FROM kanon.publication)
    THEN
        IF TG_TAG = 'DROP EXTENSION' THEN
            RAISE NOTICE USING
                MESSAGE = 'while there are publications, the extension kanon is not dropped along',
                HINT = 'first SELECT kanon.drop_publication(name) FROM kanon.publications';
        END IF;
        OPEN _held FOR SELECT FROM kanon.publication LIMIT 0;
    END IF;
END
$function$;
COMMENT ON FUNCTION kanon.keep_publications IS 'keeps DROP EXTENSION from taking publications along';
ALTER FUNCTION kanon.keep_publications() OWNER TO kanon_owner;
