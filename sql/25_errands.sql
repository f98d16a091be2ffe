-- errand: what publishers ask kanon_owner to do.
--
-- Published relations and the catalog belong to roles that nobody can log in as, so no publisher
-- can attach anything to them (an index on an expression, a trigger, a child table, ...) that would
-- run with the rights of whoever reads them. This is the only way to create or drop them:
--
--     INSERT INTO kanon.errand (task, given) VALUES (...) RETURNING answer
--
-- The view has no rows and nothing is stored. A first trigger, which has the rights of the caller,
-- notes who that is: a SECURITY DEFINER function alone could not tell. The second one has the rights
-- of kanon_owner. It executes no text of the caller's: names, types and roles only, and comments, as
-- literals.
CREATE OR REPLACE VIEW kanon.errand AS
SELECT NULL::oid AS caller, NULL::text AS task, NULL::jsonb AS given, NULL::jsonb AS answer
WHERE false;
COMMENT ON VIEW kanon.errand IS 'used by kanon_db to create and drop publications; always empty';

CREATE OR REPLACE FUNCTION kanon.name_caller() RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    NEW.caller := (SELECT oid FROM pg_roles WHERE rolname = current_user);
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION kanon.name_caller IS 'says whose errand it is, with the rights of the caller';

CREATE OR REPLACE FUNCTION kanon.run_errand() RETURNS trigger
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER  -- as kanon_owner, see above
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    PERFORM kanon.come_home(false);
    -- Before anything is locked: nobody waits for who may not do it.
    PERFORM kanon.require_told(NEW.caller, NEW.task, NEW.given);
    NEW.answer := CASE NEW.task
        WHEN 'create table' THEN kanon.owner_create_table(NEW.caller, NEW.given)
        WHEN 'create view' THEN kanon.owner_create_view(NEW.caller, NEW.given)
        WHEN 'analyze' THEN kanon.owner_analyze(NEW.caller, NEW.given)
        WHEN 'publish' THEN kanon.owner_publish(NEW.caller, NEW.given)
        WHEN 'drop' THEN kanon.owner_drop(NEW.caller, NEW.given)
        WHEN 'close' THEN kanon.owner_drop(NEW.caller, NEW.given || '{"close": true}')
        WHEN 'keep attacks' THEN kanon.owner_keep_attacks(NEW.caller, NEW.given)
        WHEN 'keep waits' THEN kanon.owner_keep_waits(NEW.caller, NEW.given)
        WHEN 'drop staged' THEN kanon.owner_drop_staged(NEW.caller, NEW.given)
        WHEN 'earlier releases' THEN kanon.owner_earlier(NEW.caller, NEW.given)
        WHEN 'batches' THEN kanon.owner_batches(NEW.caller, NEW.given)
        WHEN 'grant' THEN kanon.owner_grant(NEW.caller, NEW.given)
        WHEN 'unknown entities' THEN kanon.owner_unknown(NEW.caller, NEW.given)
        WHEN 'seed' THEN kanon.owner_seed(NEW.caller, NEW.given)
        WHEN 'register' THEN kanon.owner_register(NEW.caller, NEW.given)
    END;
    -- NULL would say that nobody did it: triggers can be switched off.
    NEW.answer := coalesce(NEW.answer, 'null');
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION kanon.run_errand IS 'does what a publisher asks for, with the rights of kanon_owner';
ALTER FUNCTION kanon.run_errand() OWNER TO kanon_owner;

-- Triggers fire in the order of their names.
CREATE OR REPLACE TRIGGER a_name_caller INSTEAD OF INSERT ON kanon.errand
    FOR EACH ROW EXECUTE FUNCTION kanon.name_caller();
CREATE OR REPLACE TRIGGER b_run_errand INSTEAD OF INSERT ON kanon.errand
    FOR EACH ROW EXECUTE FUNCTION kanon.run_errand();
