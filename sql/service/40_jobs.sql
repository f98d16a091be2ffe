-- Jobs: operations that a worker performs, where the server has no PL/Python.
--
-- A function such as kanon.publish_buckets notes what its caller asks for, and a worker, which logs
-- in as a role that can only become this caller, does it in a transaction of its own. It can see the
-- job once the transaction that submitted it has ended, so nobody waits for it in the same one.
--
-- As with kanon.errand, a first trigger notes with the rights of the caller who that is, and a
-- second one, with those of kanon_owner, does what is asked for. It runs no text of the caller's.
CREATE OR REPLACE VIEW kanon.job_errand AS
SELECT NULL::oid AS caller, NULL::text AS task, NULL::jsonb AS given, NULL::jsonb AS answer
WHERE false;
COMMENT ON VIEW kanon.job_errand IS 'used by kanon_db to submit, cancel and end jobs; always empty';

-- jobs: of the current role; of all roles for administrators.
CREATE OR REPLACE VIEW kanon.jobs WITH (security_barrier) AS
SELECT j.job_id,
       j.operation,
       CASE WHEN e.answer -> 'error' ->> 'sqlstate' = '57014' THEN 'canceled'
            WHEN e.answer ? 'error' THEN 'failed'
            WHEN e.job_id IS NOT NULL THEN 'done'
            WHEN j.started_at IS NOT NULL THEN 'running'
            ELSE 'waiting' END AS state,
       coalesce(o.rolname::text, j.role_name) AS role,  -- it may have been renamed
       j.submitted_at,
       j.started_at,
       e.ended_at,
       j.attempts,
       (j.progress ->> 'phase')::integer AS phase,
       (j.progress ->> 'phases')::integer AS phases,
       j.progress ->> 'step' AS step,
       (j.progress ->> 'share')::double precision AS share,
       j.progress ->> 'remaining' AS remaining,
       coalesce(e.answer -> 'rows', e.answer -> 'value') AS result,
       e.answer -> 'error' ->> 'message' AS message,
       e.answer -> 'error' ->> 'detail' AS detail,
       e.answer -> 'error' ->> 'hint' AS hint,
       e.answer -> 'error' ->> 'sqlstate' AS sqlstate,
       e.answer -> 'said' AS said,
       j.arguments,
       j.settings,
       j.submitted_by
FROM kanon.job AS j
LEFT JOIN kanon.job_end AS e ON e.job_id = j.job_id
LEFT JOIN pg_catalog.pg_roles AS o ON o.oid = j.role
JOIN pg_catalog.pg_roles AS u ON u.rolname = current_user
WHERE j.role = u.oid OR kanon.is_administrator(u.oid);
COMMENT ON VIEW kanon.jobs IS 'what the current role has submitted, how far it is, and how it ended';

-- workers: that have been heard of lately, so that whoever waits knows whether somebody works.
CREATE OR REPLACE VIEW kanon.workers WITH (security_barrier) AS
SELECT w.id AS worker_id, w.last_heartbeat AS heard_at
FROM kanon_queue.procrastinate_workers AS w
WHERE w.last_heartbeat > pg_catalog.clock_timestamp() - '1 minute'::interval;
COMMENT ON VIEW kanon.workers IS 'the workers that have been heard of in the last minute';

CREATE OR REPLACE FUNCTION kanon.raise(error jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    -- RAISE does not accept NULL, so each combination of detail and hint has its own statement.
    IF error ? 'detail' AND error ? 'hint' THEN
        RAISE EXCEPTION USING MESSAGE = error ->> 'message', DETAIL = error ->> 'detail',
            HINT = error ->> 'hint', ERRCODE = error ->> 'sqlstate';
    ELSIF error ? 'detail' THEN
        RAISE EXCEPTION USING MESSAGE = error ->> 'message', DETAIL = error ->> 'detail',
            ERRCODE = error ->> 'sqlstate';
    ELSIF error ? 'hint' THEN
        RAISE EXCEPTION USING MESSAGE = error ->> 'message', HINT = error ->> 'hint',
            ERRCODE = error ->> 'sqlstate';
    END IF;
    RAISE EXCEPTION USING MESSAGE = error ->> 'message', ERRCODE = error ->> 'sqlstate';
END
$function$;
COMMENT ON FUNCTION kanon.raise IS 'raises an error of a job as one of PostgreSQL''s own';

CREATE OR REPLACE FUNCTION kanon.job_task(task text, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _answer jsonb;
BEGIN
    INSERT INTO kanon.job_errand (task, given) VALUES (job_task.task, job_task.given)
    RETURNING answer INTO _answer;
    IF _answer IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'nobody has noted what was asked for',
            HINT = 'triggers are switched off: SET session_replication_role = origin';
    END IF;
    RETURN _answer;
END
$function$;
COMMENT ON FUNCTION kanon.job_task IS 'asks kanon_owner to submit, cancel or end a job of the caller''s';

CREATE OR REPLACE FUNCTION kanon.submit(operation text, arguments jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _job CONSTANT jsonb := kanon.job_task('submit', jsonb_build_object(
        'operation', operation, 'arguments', arguments,
        -- What a session may set that an answer depends on.
        'settings', (SELECT coalesce(jsonb_object_agg(s.name, s.value), '{}') FROM (
            SELECT n.name, current_setting(n.name, true) AS value
            FROM unnest('{kanon.estimator,TimeZone,lock_timeout}'::text[]) AS n (name)) AS s
            WHERE s.value <> '')));
BEGIN
    RAISE NOTICE 'submitted as job %', _job USING
        HINT = format('once this transaction has ended: SELECT * FROM kanon.wait(%s)', _job);
    RETURN jsonb_build_object('job', _job, 'rows', '[]'::jsonb);
END
$function$;
COMMENT ON FUNCTION kanon.submit IS
    'submits an operation as a job, whose number it says; a worker sees it when the transaction ends';

CREATE OR REPLACE FUNCTION kanon.cancel(job bigint) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN kanon.job_task('cancel', jsonb_build_object('job', job)) #>> '{}';
END
$function$;
COMMENT ON FUNCTION kanon.cancel IS
    'cancels a job of the current role; returns canceled, stopping (it runs), or how it has ended';

CREATE OR REPLACE FUNCTION kanon.wait(job bigint DEFAULT NULL, seconds double precision DEFAULT NULL)
RETURNS SETOF jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _began   CONSTANT timestamptz := clock_timestamp();
    _until   CONSTANT timestamptz := clock_timestamp() + make_interval(secs => coalesce(seconds, 86400));
    _role    CONSTANT text := current_user;
    _number  bigint := job;
    _job     record;
    _end     jsonb;
    _said    record;
    _pause   double precision := 0.02;
    _is_told boolean := false;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION USING ERRCODE = '25001',
            MESSAGE = 'this transaction would not see how a job ends',
            HINT = 'wait in a transaction that is READ COMMITTED';
    END IF;
    IF _number IS NULL THEN
        SELECT max(j.job_id) INTO _number FROM kanon.jobs AS j WHERE j.role = _role;
    END IF;
    SELECT j.state, j.submitted_by INTO _job FROM kanon.jobs AS j WHERE j.job_id = _number;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = 'the current role has no such job',
            HINT = 'TABLE kanon.jobs lists those that it has';
    ELSIF _job.submitted_by = pg_current_xact_id_if_assigned() THEN
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = 'no worker can see a job before the transaction that submitted it has ended',
            DETAIL = format('job %s', _number), HINT = 'COMMIT, and wait then';
    END IF;
    LOOP
        SELECT j.state, j.result, j.said, CASE WHEN j.message IS NOT NULL THEN
            jsonb_strip_nulls(jsonb_build_object('message', j.message, 'detail', j.detail,
                'hint', j.hint, 'sqlstate', j.sqlstate)) END AS error
        INTO _job FROM kanon.jobs AS j WHERE j.job_id = _number;
        EXIT WHEN NOT FOUND OR _job.state NOT IN ('waiting', 'running');
        IF clock_timestamp() >= _until THEN
            RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'the job has not ended yet',
                DETAIL = format('job %s is %s', _number, _job.state),
                HINT = format('SELECT * FROM kanon.wait(%1$s) again, or kanon.cancel(%1$s)', _number);
        ELSIF _job.state = 'waiting' AND NOT _is_told AND _pause >= 0.1
              AND NOT EXISTS (SELECT FROM kanon.workers) THEN
            RAISE WARNING 'no worker has been heard of in the last minute'
                USING HINT = 'an administrator starts one with kanon worker';
            _is_told := true;
        END IF;
        PERFORM pg_sleep(least(_pause, greatest(extract(epoch FROM _until - clock_timestamp()), 0)));
        -- Nobody waits much longer than the job takes.
        _pause := least(0.02 + extract(epoch FROM clock_timestamp() - _began) / 20, 0.5);
    END LOOP;
    FOR _said IN
        SELECT s ->> 0 AS how, s ->> 1 AS what
        FROM jsonb_array_elements(coalesce(_job.said, '[]')) AS s
    LOOP
        IF _said.how = 'warning' THEN
            RAISE WARNING USING MESSAGE = _said.what;
        ELSE
            RAISE NOTICE USING MESSAGE = _said.what;
        END IF;
    END LOOP;
    IF _job.error IS NOT NULL THEN
        PERFORM kanon.raise(_job.error);
    END IF;
    RETURN QUERY SELECT r FROM jsonb_array_elements(
        CASE WHEN _job.result IS NULL THEN '[]' WHEN jsonb_typeof(_job.result) = 'array'
            THEN _job.result ELSE jsonb_build_array(_job.result) END) AS r;
END
$function$;
COMMENT ON FUNCTION kanon.wait IS
    'waits until a job has ended, the last one by default; returns its rows, or raises its error';

CREATE OR REPLACE FUNCTION kanon.is_powerful(role oid) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    RETURN EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = role AND (kanon.is_administrator(role)
        OR {powerful}));
END
$function$;
COMMENT ON FUNCTION kanon.is_powerful IS
    'whether no worker acts for a role, since code attached to what it reads could do so much';

-- Called by run_job_errand only, with the rights of whoever calls.
CREATE OR REPLACE FUNCTION kanon.owner_queue(job bigint, queue text, lock text) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, kanon_queue, pg_temp  -- procrastinate's functions name no schema
AS $function$
BEGIN
    RETURN (procrastinate_defer_jobs_v1(ARRAY[ROW(queue, 'kanon.perform', 0, lock, NULL,
        jsonb_build_object('number', job), NULL)]::procrastinate_job_to_defer_v1[]))[1];
END
$function$;
COMMENT ON FUNCTION kanon.owner_queue IS 'puts a job into the queue, from which workers fetch it';

CREATE OR REPLACE FUNCTION kanon.owner_stop(queue_id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, kanon_queue, pg_temp
AS $function$
BEGIN
    PERFORM procrastinate_cancel_job_v1(queue_id, true, false);
END
$function$;
COMMENT ON FUNCTION kanon.owner_stop IS 'takes a job out of the queue, or asks its worker to stop';

CREATE OR REPLACE FUNCTION kanon.require_known(operation text) RETURNS void
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    -- The installation puts the names of operations here.
    _known CONSTANT text[] := '{operations}';
    _word  CONSTANT text := left(coalesce(operation, ''), 63);
    _near  text;
BEGIN
    IF operation = ANY (_known) THEN
        RETURN;
    END IF;
    -- The most similar one has the most pairs of neighboring letters in common.
    SELECT k.name INTO _near FROM unnest(_known) AS k (name)
    CROSS JOIN LATERAL (
        SELECT 2.0 * count(*) / (length(_word) + length(k.name)) AS similarity
        FROM generate_series(1, length(_word) - 1) AS i
        WHERE strpos(k.name, substr(_word, i, 2)) > 0) AS p
    WHERE p.similarity > 0.5 ORDER BY p.similarity DESC, k.name LIMIT 1;
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the operation is not known',
        DETAIL = format('operation "%s"', regexp_replace(_word, '[^[:print:]]', '?', 'g')),
        HINT = concat('did you mean ' || _near || '? ',
                      'The operations here are ', array_to_string(_known, ', '));
END
$function$;
COMMENT ON FUNCTION kanon.require_known IS 'refuses what is not the name of an operation';

CREATE OR REPLACE FUNCTION kanon.owner_forget(submitter oid) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, kanon_queue, pg_temp  -- a trigger of procrastinate's names no schema
AS $function$
DECLARE
    _most       CONSTANT integer := 1000;
    _most_bytes CONSTANT bigint := 64 * 1024 ^ 2;
    _queued     bigint[];
BEGIN
    WITH forgotten AS (
        DELETE FROM kanon.job AS j WHERE j.job_id IN (
            SELECT o.job_id FROM kanon.job AS o
            JOIN (
                SELECT k.job_id, row_number() OVER newest AS place,
                       sum(pg_column_size(k.arguments) + pg_column_size(e.answer)) OVER newest AS bytes
                FROM kanon.job AS k JOIN kanon.job_end AS e ON e.job_id = k.job_id
                WHERE k.role = submitter WINDOW newest AS (ORDER BY k.job_id DESC)
            ) AS n ON n.job_id = o.job_id
            WHERE (n.place > _most OR n.bytes > _most_bytes)
              AND NOT EXISTS (SELECT FROM procrastinate_jobs AS q
                              WHERE q.id = o.queue_id AND q.status IN ('todo', 'doing'))
            FOR UPDATE OF o SKIP LOCKED)
        RETURNING j.queue_id
    ) SELECT array_agg(f.queue_id) INTO _queued FROM forgotten AS f;
    DELETE FROM procrastinate_jobs AS q WHERE q.id = ANY (_queued);
END
$function$;
COMMENT ON FUNCTION kanon.owner_forget IS
    'forgets the oldest jobs of a role that have ended, beyond 1000 or 64 MB';

CREATE OR REPLACE FUNCTION kanon.owner_submit(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    -- Neither may hold up the other: questions do not wait until something is published, and work
    -- is done in turn. The installation puts the names of operations here.
    _questions CONSTANT text[] := '{questions}';
    _role CONSTANT text := pg_get_userbyid(caller);
    _most_bytes CONSTANT bigint := 4 * 1024 ^ 2;
    _open record;
    _job  bigint;
BEGIN
    PERFORM kanon.require_known(given ->> 'operation');
    IF kanon.is_powerful(caller) THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = 'no worker acts for a role that can do so much',
            DETAIL = format('role %I is an administrator, or can become one', _role),
            HINT = 'submit as a role that can read its sources, and little else';
    ELSIF NOT EXISTS (SELECT FROM pg_auth_members AS m JOIN pg_roles AS l ON l.oid = m.member
                   WHERE m.roleid = caller AND l.rolname = 'kanon_as_' || caller AND l.rolcanlogin) THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'no worker may act for this role',
            DETAIL = format('role %I', _role),
            HINT = format('ask an administrator for: kanon service allow %s', _role);
    ELSIF octet_length(given::text) > _most_bytes THEN
        RAISE EXCEPTION USING ERRCODE = '54000', MESSAGE = 'the arguments of a job are too long',
            DETAIL = format('%s bytes of at most %s', octet_length(given::text), _most_bytes),
            HINT = 'use Python or the command line, which need no worker';
    END IF;
    -- Whoever submits as the same role waits, so that none counts without the other's jobs. It is a
    -- row that only kanon_owner can lock: anybody may take an advisory lock.
    INSERT INTO kanon.submitter (role) VALUES (caller) ON CONFLICT DO NOTHING;
    UPDATE kanon.submitter AS s SET submitted_at = clock_timestamp() WHERE s.role = caller;
    PERFORM kanon.owner_forget(caller);
    SELECT count(*) AS n, coalesce(sum(pg_column_size(j.arguments)), 0) AS bytes INTO _open
    FROM kanon.job AS j WHERE j.role = caller
      AND NOT EXISTS (SELECT FROM kanon.job_end AS e WHERE e.job_id = j.job_id);
    IF _open.n >= 100 OR _open.bytes > 16 * _most_bytes THEN
        RAISE EXCEPTION USING ERRCODE = '54000', MESSAGE = 'too many jobs of this role have not ended',
            DETAIL = '100 are allowed, with 64 MB', HINT = 'wait for them, or cancel some';
    END IF;
    INSERT INTO kanon.job (role, role_name, operation, arguments, settings)
    VALUES (caller, _role, given ->> 'operation', given -> 'arguments', given -> 'settings')
    RETURNING job_id INTO _job;
    UPDATE kanon.job AS j SET queue_id = kanon.owner_queue(_job, 'kanon',
        CASE WHEN given ->> 'operation' = ANY (_questions) THEN 'question ' ELSE 'work ' END || caller)
    WHERE j.job_id = _job;
    RETURN to_jsonb(_job);
END
$function$;
COMMENT ON FUNCTION kanon.owner_submit IS 'notes a job of a role for which a worker may act';

CREATE OR REPLACE FUNCTION kanon.owner_cancel(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _job kanon.job;
    _end kanon.job_end;
BEGIN
    SELECT j.* INTO _job FROM kanon.job AS j WHERE j.job_id = (given ->> 'job')::bigint
        AND (j.role = caller OR kanon.is_administrator(caller));
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = 'the current role has no such job';
    END IF;
    -- What has ended is not locked: it would not be forgotten for as long.
    IF NOT EXISTS (SELECT FROM kanon.job_end AS e WHERE e.job_id = _job.job_id) THEN
        -- A worker takes a job by changing its row; whoever ends it refers to it.
        SELECT j.* INTO _job FROM kanon.job AS j WHERE j.job_id = _job.job_id FOR NO KEY UPDATE;
    END IF;
    SELECT e.* INTO _end FROM kanon.job_end AS e WHERE e.job_id = _job.job_id;
    IF FOUND THEN
        RETURN to_jsonb(CASE WHEN _end.answer -> 'error' ->> 'sqlstate' = '57014' THEN 'canceled'
            WHEN _end.answer ? 'error' THEN 'failed' ELSE 'done' END::text);
    END IF;
    PERFORM kanon.owner_stop(_job.queue_id);
    IF _job.started_at IS NOT NULL THEN
        RETURN to_jsonb('stopping'::text);
    END IF;
    INSERT INTO kanon.job_end (job_id, answer) VALUES (_job.job_id, jsonb_build_object('error',
        jsonb_build_object('message', 'the job was canceled before it began', 'sqlstate', '57014')));
    RETURN to_jsonb('canceled'::text);
END
$function$;
COMMENT ON FUNCTION kanon.owner_cancel IS 'cancels a job of a role';

CREATE OR REPLACE FUNCTION kanon.owner_begin(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _job kanon.job;
BEGIN
    SELECT j.* INTO _job FROM kanon.job AS j
    WHERE j.job_id = (given ->> 'job')::bigint AND j.role = caller AND j.started_at IS NOT NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = 'the current role has no such job';
    END IF;
    -- Waits for another worker that is at it, or whose connection the server has not given up yet.
    INSERT INTO kanon.job_end (job_id, answer) VALUES (_job.job_id, '{}') ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN to_jsonb(false);
    END IF;
    RETURN jsonb_build_object('operation', _job.operation, 'arguments', _job.arguments,
                              'settings', _job.settings);
END
$function$;
COMMENT ON FUNCTION kanon.owner_begin IS
    'lets the transaction, and no other one, end a job; false if it has ended';

CREATE OR REPLACE FUNCTION kanon.owner_finish(caller oid, given jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _most_bytes CONSTANT bigint := 32 * 1024 ^ 2;
BEGIN
    IF octet_length((given -> 'answer')::text) > _most_bytes THEN
        RAISE EXCEPTION USING ERRCODE = '54000', MESSAGE = 'the answer is longer than the 32 MB that'
            ' are kept of a job: ask for less of it, or use Python or the command line';
    END IF;
    UPDATE kanon.job_end AS e SET answer = given -> 'answer', ended_at = clock_timestamp()
    FROM kanon.job AS j
    WHERE e.job_id = (given ->> 'job')::bigint AND j.job_id = e.job_id AND j.role = caller
      AND e.xmin = pg_current_xact_id()::xid;
    IF NOT FOUND THEN
        RETURN to_jsonb(false);
    END IF;
    PERFORM kanon.owner_forget(caller);
    RETURN to_jsonb(true);
END
$function$;
COMMENT ON FUNCTION kanon.owner_finish IS 'says how a job ended, in the transaction that performed it';

CREATE OR REPLACE FUNCTION kanon.run_job_errand() RETURNS trigger
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER  -- as kanon_owner, see above
SET search_path = pg_catalog, pg_temp
AS $function$
BEGIN
    NEW.answer := CASE NEW.task
        WHEN 'submit' THEN kanon.owner_submit(NEW.caller, NEW.given)
        WHEN 'cancel' THEN kanon.owner_cancel(NEW.caller, NEW.given)
        WHEN 'begin' THEN kanon.owner_begin(NEW.caller, NEW.given)
        WHEN 'finish' THEN kanon.owner_finish(NEW.caller, NEW.given)
    END;
    RETURN NEW;
END
$function$;
COMMENT ON FUNCTION kanon.run_job_errand IS
    'does what a role asks for about its jobs, with the rights of kanon_owner';
ALTER FUNCTION kanon.run_job_errand() OWNER TO kanon_owner;

-- Triggers fire in the order of their names.
CREATE OR REPLACE TRIGGER a_name_caller INSTEAD OF INSERT ON kanon.job_errand
    FOR EACH ROW EXECUTE FUNCTION kanon.name_caller();
CREATE OR REPLACE TRIGGER b_run_job_errand INSTEAD OF INSERT ON kanon.job_errand
    FOR EACH ROW EXECUTE FUNCTION kanon.run_job_errand();

-- Called by the worker: whose turn it is. Procrastinate would give all slots to whoever asks first.
CREATE OR REPLACE FUNCTION kanon.take_turn(worker bigint, slots integer)
RETURNS kanon_queue.procrastinate_jobs
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, kanon_queue, pg_temp
AS $function$
DECLARE
    _is_last boolean;
    _job     procrastinate_jobs;
BEGIN
    IF NOT EXISTS (SELECT FROM procrastinate_jobs AS q WHERE q.status = 'todo') THEN
        RETURN NULL;
    END IF;
    -- One worker at a time: two would give one role the last slots of both.
    PERFORM FROM procrastinate_workers AS w ORDER BY w.id LIMIT 1 FOR UPDATE;
    _is_last := slots <= 1 + (SELECT count(*) FROM procrastinate_jobs AS d
        WHERE d.status = 'doing' AND d.worker_id = worker);
    UPDATE procrastinate_jobs AS j SET status = 'doing', worker_id = worker
    WHERE j.id = (
        SELECT q.id
        FROM (
            -- A role's questions, and its work, are done in the order of their submission.
            SELECT DISTINCT ON (f.lock) f.id, f.lock, split_part(f.lock, ' ', 2)::oid AS role
            FROM procrastinate_jobs AS f WHERE f.status = 'todo' ORDER BY f.lock, f.id
        ) AS w
        CROSS JOIN LATERAL (
            SELECT count(*) AS n, bool_or(d.lock = w.lock) AS is_before FROM procrastinate_jobs AS d
            WHERE d.status = 'doing' AND d.lock IN ('question ' || w.role, 'work ' || w.role)
        ) AS doing
        JOIN procrastinate_jobs AS q ON q.id = w.id AND q.status = 'todo'
        WHERE (q.scheduled_at IS NULL OR q.scheduled_at <= clock_timestamp())
          AND (doing.n = 0 OR NOT doing.is_before AND NOT _is_last)
        -- Who has nothing at work is first, and who has waited longest for a turn.
        ORDER BY doing.n, (SELECT max(k.started_at) FROM kanon.job AS k WHERE k.role = w.role)
            NULLS FIRST, q.id
        LIMIT 1 FOR UPDATE OF q SKIP LOCKED)
    RETURNING j.* INTO _job;
    RETURN _job;
END
$function$;
COMMENT ON FUNCTION kanon.take_turn IS
    'gives a worker the next job: roles take turns, and none that has a job gets the last slot';

-- Called by the worker, in place of the event trigger that only a superuser can create: it finds
-- readers that a publisher's own GRANT has made since, and takes the right from those who could set
-- the publication against another release.
CREATE OR REPLACE FUNCTION kanon.owner_watch(publication kanon.publication) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $function$
DECLARE
    _release kanon.release;
    _now     CONSTANT timestamptz := clock_timestamp();
    _told    oid[];
BEGIN
    SELECT r.* INTO _release FROM kanon.release AS r
    WHERE r.publication_id = publication.publication_id;
    _told := ARRAY(
        SELECT n FROM unnest(kanon.newcomers(publication, NULL)) AS n
        WHERE EXISTS (SELECT FROM kanon.earlier_releases(
            _release.bases, ARRAY[n], publication.publication_id)));
    IF _told = '{}' OR EXISTS (SELECT FROM kanon.setting AS s
                               WHERE s.name = 'combined_releases' AND s.value = 'warn') THEN
        PERFORM kanon.owner_note_readers(publication);
        RETURN NULL;
    END IF;
    -- They could read it for a while, which the ledger keeps even if nothing can be taken. As long
    -- as they have the right, they stay newcomers.
    UPDATE kanon.release_reader AS d SET until = _now
    WHERE d.release_id = _release.release_id AND d.role = ANY (_told)
      AND d.until > _now - '1 minute'::interval;
    INSERT INTO kanon.release_reader (release_id, role, role_name, since, until)
    SELECT _release.release_id, n, pg_get_userbyid(n), _now, _now FROM unnest(_told) AS n
    WHERE NOT EXISTS (SELECT FROM kanon.release_reader AS d
        WHERE d.release_id = _release.release_id AND d.role = n AND d.until = _now);
    BEGIN
        PERFORM kanon.owner_take_back(o.relation::regclass) FROM kanon.owned(publication) AS o;
        IF EXISTS (SELECT FROM kanon.readers(publication) AS r WHERE r.role = ANY (_told)) THEN
            RETURN 'kept';
        END IF;
        PERFORM kanon.owner_note_readers(publication);
    EXCEPTION WHEN OTHERS THEN
        RETURN SQLSTATE;
    END;
    RETURN 'taken';
END
$function$;
COMMENT ON FUNCTION kanon.owner_watch IS
    'notes new readers of a publication, and takes the right from those who could set it against'
    ' another release; returns what became of it: taken, kept, an SQLSTATE, or nothing';

CREATE OR REPLACE FUNCTION kanon.watch_late() RETURNS TABLE (name text, outcome text)
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER  -- as kanon_owner, who alone writes the ledger; it runs nobody else's code
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'  -- somebody may hold up what is theirs, and nobody else's
AS $function$
DECLARE
    _until       CONSTANT timestamptz := clock_timestamp() + '3 s'::interval;
    _left        text[];
    _failed      jsonb;
    _publication kanon.publication;
BEGIN
    PERFORM kanon.come_home(false);
    _left := ARRAY(
        SELECT p.name FROM kanon.publication AS p
        JOIN kanon.release AS r ON r.publication_id = p.publication_id
        JOIN kanon.grants(NULL) AS g ON g.publication_id = p.publication_id
        -- PostgreSQL tells nobody that a role has a new member.
        WHERE r.grants IS DISTINCT FROM g.grants OR EXISTS (
            SELECT FROM kanon.readers(p) AS n WHERE NOT EXISTS (
                SELECT FROM kanon.release_reader AS d WHERE d.release_id = r.release_id
                    AND d.role = n.role AND d.until IS NULL)));
    LOOP
        _failed := '{}';
        FOR _publication IN SELECT p.* FROM kanon.publication AS p WHERE p.name = ANY (_left) LOOP
            name := _publication.name;
            BEGIN
                outcome := kanon.owner_watch(_publication);
            EXCEPTION WHEN OTHERS THEN
                outcome := SQLSTATE;
            END;
            IF outcome ~ '^[0-9A-Z]{5}$' THEN
                _failed := _failed || jsonb_build_object(name, outcome);
            ELSIF outcome IS NOT NULL THEN
                RETURN NEXT;
            END IF;
        END LOOP;
        -- Whoever grants and revokes all the time makes it fail now and then.
        _left := ARRAY(SELECT jsonb_object_keys(_failed));
        EXIT WHEN _left = '{}' OR clock_timestamp() > _until;
    END LOOP;
    RETURN QUERY SELECT f.key, f.value FROM jsonb_each_text(_failed) AS f;
END
$function$;
COMMENT ON FUNCTION kanon.watch_late IS
    'notes new readers of publications, and takes the right from those who could set it against'
    ' another release; returns the publications where there was something to take, or that failed';
ALTER FUNCTION kanon.watch_late() OWNER TO kanon_owner;
