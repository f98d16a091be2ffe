-- Privileges of the queue and of jobs, last. The worker's login sees whose turn it is, and neither
-- what was asked nor what was answered; it belongs to no role.
GRANT USAGE ON SCHEMA kanon_queue TO kanon_owner, kanon_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kanon_queue TO kanon_worker;
GRANT SELECT, INSERT, UPDATE, DELETE
    ON kanon_queue.procrastinate_jobs, kanon_queue.procrastinate_events TO kanon_owner;
GRANT SELECT, UPDATE ON kanon_queue.procrastinate_periodic_defers TO kanon_owner;  -- by a trigger
GRANT USAGE ON ALL SEQUENCES IN SCHEMA kanon_queue TO kanon_owner, kanon_worker;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA kanon_queue TO kanon_owner, kanon_worker;

GRANT USAGE ON SCHEMA kanon TO kanon_worker;
GRANT SELECT (job_id, role, role_name, operation, queue_id, attempts, started_at),
    UPDATE (attempts, started_at, progress), DELETE ON kanon.job TO kanon_worker;
GRANT SELECT (job_id, ended_at), INSERT (job_id, answer) ON kanon.job_end TO kanon_worker;
GRANT EXECUTE ON FUNCTION kanon.watch_late(), kanon.take_turn(bigint, integer) TO kanon_worker;
GRANT SELECT ON kanon.workers, kanon.jobs TO kanon_publisher, kanon_analyst, kanon_user;
GRANT INSERT (task, given), SELECT (answer) ON kanon.job_errand TO kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.submit(text, jsonb), kanon.job_task(text, jsonb), kanon.raise(jsonb),
    kanon.cancel(bigint), kanon.wait(bigint, double precision)
TO kanon_publisher, kanon_analyst, kanon_user;
GRANT EXECUTE ON FUNCTION
    kanon.owner_queue(bigint, text, text), kanon.owner_stop(bigint),
    kanon.owner_submit(oid, jsonb), kanon.owner_cancel(oid, jsonb), kanon.owner_begin(oid, jsonb),
    kanon.owner_finish(oid, jsonb), kanon.owner_forget(oid), kanon.is_powerful(oid),
    kanon.owner_watch(kanon.publication), kanon.require_known(text)
TO kanon_owner;
