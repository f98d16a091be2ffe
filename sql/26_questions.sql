-- question: what readers ask a model.
--
-- Nobody but kanon_owner reads the members of a model, so only kanon_owner can let them vote:
--
--     INSERT INTO kanon.question (task, given, inputs) VALUES (...) RETURNING answer
--
-- As with kanon.errand, nothing is stored: a first trigger, with the rights of the caller, notes who
-- asks, and a second one, with those of kanon_owner, answers. It executes no text of the caller's.
--
-- Answers under a budget are counted by a sequence for each reader role, made at publishing. What a
-- reader undoes (ROLLBACK, a savepoint, an error) undoes no nextval(), and at its last value a
-- sequence gives no more.
CREATE OR REPLACE VIEW kanon.question AS
SELECT NULL::oid AS caller, NULL::text AS task, NULL::jsonb AS given, NULL::bytea AS inputs,
       NULL::jsonb AS answer
WHERE false;
COMMENT ON VIEW kanon.question IS 'used by kanon_db to ask models; always empty';

CREATE OR REPLACE FUNCTION kanon.counter_name(budget kanon.budget) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN (
        SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        JOIN kanon.setting AS s ON s.name = 'published_schema' AND s.value = n.nspname
        JOIN pg_roles AS u ON u.oid = c.relowner AND u.rolname = 'kanon_owner'
        JOIN pg_sequence AS q ON q.seqrelid = c.oid
        -- Whoever has changed it can have made it count again.
        WHERE c.relname = budget.counter AND q.seqmax = budget.answers AND q.seqstart = 1
          AND q.seqincrement = 1 AND q.seqcache = 1 AND NOT q.seqcycle);
END
$function$;
COMMENT ON FUNCTION kanon.counter_name IS
    'the sequence that counts the answers of a budget, quoted; NULL if it is not as it was made';

CREATE OR REPLACE FUNCTION kanon.counted(budget kanon.budget) RETURNS bigint
LANGUAGE plpgsql VOLATILE  -- a sequence has no older states
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _counter CONSTANT text := kanon.counter_name(budget);
    _given   bigint;
BEGIN
    IF budget.asked IS NOT NULL THEN
        RETURN budget.asked;
    ELSIF _counter IS NULL THEN
        RETURN NULL;
    END IF;
    EXECUTE format('SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM %s', _counter)
    INTO _given;
    RETURN _given;
END
$function$;
COMMENT ON FUNCTION kanon.counted IS 'how many answers of a budget were given; NULL if nobody knows';

CREATE OR REPLACE FUNCTION kanon.owner_open_budgets(publication kanon.publication) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _terms   CONSTANT jsonb := publication.layout -> 'budget';
    _schema  CONSTANT text := (SELECT value FROM kanon.setting WHERE setting.name = 'published_schema');
    _release CONSTANT bigint := (SELECT r.release_id FROM kanon.release AS r
        WHERE r.publication_id = publication.publication_id);
    _reader  record;
    _counter text;
BEGIN
    IF jsonb_typeof(_terms) IS DISTINCT FROM 'object' THEN
        RETURN;
    END IF;
    FOR _reader IN
        SELECT g.grantee AS role FROM kanon.granted(publication) AS g WHERE NOT g.is_publisher
          AND NOT EXISTS (SELECT FROM kanon.budget AS b
                          WHERE b.release_id = _release AND b.role = g.grantee)
        ORDER BY 1
    LOOP
        -- No publication can have this name.
        _counter := 'kanon_' || replace(gen_random_uuid()::text, '-', '') || '_votes';
        INSERT INTO kanon.budget (release_id, role, role_name, epsilon, delta, noise, answers,
            counter)
        VALUES (_release, _reader.role,
            CASE _reader.role WHEN 0 THEN 'public' ELSE pg_get_userbyid(_reader.role) END,
            (_terms ->> 'epsilon')::double precision, (_terms ->> 'delta')::double precision,
            (_terms ->> 'noise')::double precision, (_terms ->> 'answers')::bigint, _counter);
        EXECUTE format('CREATE SEQUENCE %I.%I MINVALUE 1 MAXVALUE %s NO CYCLE CACHE 1', _schema,
                       _counter, (_terms ->> 'answers')::bigint);
        PERFORM kanon.owner_close(format('%I.%I', _schema, _counter)::regclass);
    END LOOP;
END
$function$;
COMMENT ON FUNCTION kanon.owner_open_budgets IS
    'gives each reader role of a publication its budget, unless it has one';

CREATE OR REPLACE FUNCTION kanon.owner_close_budgets(release bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _budget  kanon.budget;
    _counter text;
BEGIN
    -- Whoever draws holds the row: from here on, nobody does.
    FOR _budget IN
        SELECT b.* FROM kanon.budget AS b WHERE b.release_id = release AND b.asked IS NULL
        ORDER BY b.budget_id FOR UPDATE
    LOOP
        -- All of it, where nobody knows.
        UPDATE kanon.budget AS b SET asked = coalesce(kanon.counted(_budget), b.answers)
        WHERE b.budget_id = _budget.budget_id;
        _counter := kanon.counter_name(_budget);
        IF _counter IS NOT NULL THEN
            PERFORM kanon.owner_drop_or_close(_counter::regclass);
        END IF;
    END LOOP;
END
$function$;
COMMENT ON FUNCTION kanon.owner_close_budgets IS
    'notes in the ledger how many answers a release has given, and drops what counted them';

CREATE OR REPLACE FUNCTION kanon.owner_budget(caller oid, publication kanon.publication, n bigint)
RETURNS kanon.budget
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _budget kanon.budget;
BEGIN
    -- The first role, in the order in which they were made readers, that has as many left.
    SELECT b.* INTO _budget FROM kanon.budget AS b
    JOIN kanon.release AS r ON r.release_id = b.release_id
    WHERE r.publication_id = publication.publication_id
      AND (b.role = 0 OR EXISTS (SELECT FROM pg_roles AS u WHERE u.oid = b.role
                                 AND pg_has_role(caller, b.role, 'USAGE')))
      -- A role that cannot read the publication any more has none.
      AND EXISTS (SELECT FROM kanon.granted(publication) AS g WHERE g.grantee = b.role)
    ORDER BY kanon.counted(b) + n <= b.answers DESC NULLS LAST, b.budget_id LIMIT 1;
    RETURN _budget;
END
$function$;
COMMENT ON FUNCTION kanon.owner_budget IS
    'the budget that a question of a role is paid from; NULL if none of its roles has one';

CREATE OR REPLACE FUNCTION kanon.owner_draw(budget bigint, n bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _budget  kanon.budget;
    _counter text;
    _left    bigint;
BEGIN
    IF n IS NULL OR n < 1 THEN
        RAISE EXCEPTION USING MESSAGE = 'a question has one row at least', ERRCODE = '22023';
    END IF;
    BEGIN
        -- One at a time, so that all are drawn or none. Undone below, the block gives the lock back
        -- at once, and nothing gives back what was drawn.
        SELECT b.* INTO _budget FROM kanon.budget AS b
        WHERE b.budget_id = owner_draw.budget AND b.asked IS NULL FOR UPDATE;
        _counter := kanon.counter_name(_budget);
        _left := _budget.answers - kanon.counted(_budget) - n;
        IF _left >= 0 THEN
            PERFORM nextval(_counter::regclass) FROM generate_series(1, n);
        END IF;
        RAISE EXCEPTION USING MESSAGE = 'drawn', ERRCODE = 'KN999';
    EXCEPTION
        WHEN SQLSTATE 'KN999' THEN
            NULL;
    END;
    RETURN _left;
END
$function$;
COMMENT ON FUNCTION kanon.owner_draw IS
    'counts answers for good, all or none; how many are left: below 0 for none, NULL without counter';

CREATE OR REPLACE FUNCTION kanon.asked(caller oid, given jsonb) RETURNS kanon.publication
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _publication kanon.publication;
BEGIN
    SELECT p.* INTO _publication FROM kanon.publication AS p
    WHERE p.name = given ->> 'name' AND p.kind = 'model' AND EXISTS (
        SELECT FROM kanon.owned(p) AS o JOIN pg_class AS c ON c.oid = o.relation
        WHERE c.relname = p.name AND has_table_privilege(caller, o.relation, 'SELECT'));
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42704',
            MESSAGE = 'there is no such model, or you may not read it';
    END IF;
    RETURN _publication;
END
$function$;
COMMENT ON FUNCTION kanon.asked IS 'the model that a reader asks';

CREATE OR REPLACE FUNCTION kanon.members_of(publication kanon.publication) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN (SELECT o.name FROM kanon.owned(publication) AS o
            JOIN pg_class AS c ON c.oid = o.relation
            WHERE c.relname = publication.name || '_net' AND c.relkind = 'r');
END
$function$;
COMMENT ON FUNCTION kanon.members_of IS 'the relation of a model''s members, quoted';

CREATE OR REPLACE FUNCTION kanon.owner_classify(caller oid, given jsonb, inputs bytea) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _publication CONSTANT kanon.publication := kanon.asked(caller, given);
    _members     CONSTANT text := kanon.members_of(_publication);
    -- Whoever published it may read the source.
    _is_counted  CONSTANT boolean := jsonb_typeof(_publication.layout -> 'budget') = 'object'
        AND NOT kanon.is_publisher(caller, _publication);
    _budget      kanon.budget;
BEGIN
    IF _is_counted THEN
        _budget := kanon.owner_budget(caller, _publication, (given ->> 'rows')::bigint);
    END IF;
    RETURN kanon.python_vote(jsonb_build_object(
        'name', _publication.name,
        'members', _members,
        'layout', _publication.layout::text,
        'is_counted', _is_counted,
        'budget', _budget.budget_id,
        'role', _budget.role_name,
        'rows', given -> 'rows'), inputs);
END
$function$;
COMMENT ON FUNCTION kanon.owner_classify IS 'lets the members of a model vote';

CREATE OR REPLACE FUNCTION kanon.owner_members(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _publication CONSTANT kanon.publication := kanon.asked(caller, given);
    _found       jsonb;
BEGIN
    EXECUTE format(
        'SELECT jsonb_build_object(''members'', count(*), ''records'', sum(m.records),'
        ' ''digest'', encode(sha256(string_agg(sha256(m.network), ''''::bytea ORDER BY m.member)),'
        ' ''hex'')) FROM %s AS m', kanon.members_of(_publication)) INTO _found;
    RETURN _found || jsonb_build_object('budgets', (
        SELECT coalesce(jsonb_agg(jsonb_build_object('role', b.role_name, 'answers', b.answers,
            'asked', kanon.counted(b)) ORDER BY b.budget_id), '[]')
        FROM kanon.budget AS b JOIN kanon.release AS r ON r.release_id = b.release_id
        WHERE r.publication_id = _publication.publication_id));
END
$function$;
COMMENT ON FUNCTION kanon.owner_members IS
    'how many members a model has, their digest, and what each reader role has asked';

CREATE OR REPLACE FUNCTION kanon.answer_question() RETURNS trigger
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER  -- as kanon_owner, see above
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    PERFORM kanon.come_home(false);
    NEW.answer := CASE NEW.task
        WHEN 'classify' THEN kanon.owner_classify(NEW.caller, NEW.given, NEW.inputs)
        WHEN 'members' THEN kanon.owner_members(NEW.caller, NEW.given)
    END;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION kanon.answer_question IS 'answers what a reader asks, with the rights of kanon_owner';
ALTER FUNCTION kanon.answer_question() OWNER TO kanon_owner;

-- Triggers fire in the order of their names.
CREATE OR REPLACE TRIGGER a_name_caller INSTEAD OF INSERT ON kanon.question
    FOR EACH ROW EXECUTE FUNCTION kanon.name_caller();
CREATE OR REPLACE TRIGGER b_answer_question INSTEAD OF INSERT ON kanon.question
    FOR EACH ROW EXECUTE FUNCTION kanon.answer_question();
