"""Runs jobs: operations that roles submit on servers without PL/Python.

The worker fetches jobs from procrastinate's queue with a login that reads no data. Each is
performed by a process of its own, whose login is a member of the role that submitted the job, and
of nothing else. The transaction that performs a job also writes its end, of which there can be only
one: so it is done once, whichever worker dies when.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, Final, NamedTuple

import procrastinate
import procrastinate.manager
import procrastinate.worker
import psycopg
from procrastinate import exceptions as queue_errors
from procrastinate.job_context import AbortReason
from procrastinate.retry import BaseRetryStrategy, RetryDecision
from psycopg import sql

import kanon_db.interfaces.backend  # noqa: F401  # before what it prepares for
from kanon_db.algorithms.ground.computation import load_numba
from kanon_db.dataclasses import dataclass
from kanon_db.errors import DatabaseError, KanonError, ServerError
from kanon_db.installation.service import ACTING, QUEUE, WORKER, login_dsn, require_service
from kanon_db.interfaces.console import visible
from kanon_db.interfaces.plpython import defect, refusal, reply
from kanon_db.session import fetch_one
from kanon_db.session.progress import Progress
from kanon_db.session.psycopg_session import PsycopgSession, open_connection


class _Ended(NamedTuple):
    """How a process ended: its job is done, or why it is not."""

    how: str  # done, failed, lost (its connection), shut out (it got none) or stopped
    error: Mapping[str, str] = {}


_CARRIED: Final = ("kanon.estimator", "TimeZone", "lock_timeout")
"""Settings of the session that submitted a job, which hold for the job."""

_NOT_GIVEN: Final = (
    "role", "session_authorization", "application_name", "client_encoding",
    "idle_session_timeout", "idle_in_transaction_session_timeout",
)  # fmt: skip
"""Settings of a role that its jobs do not have: who they act for, what any client chooses, and how
long a session may idle, since a job that calculates does not."""

_SETTINGS: Final = """
SELECT split_part(e, '=', 1) AS name, substr(e, strpos(e, '=') + 1) AS value,
       CASE WHEN s.setdatabase = 0 THEN '' ELSE format(' IN DATABASE %I', current_database()) END
       AS place, EXISTS (SELECT FROM pg_db_role_setting AS l JOIN pg_roles AS u ON u.oid = l.setrole
               WHERE u.rolname = session_user AND l.setdatabase = s.setdatabase
                   AND e = ANY (l.setconfig)) AS is_given
FROM pg_db_role_setting AS s CROSS JOIN unnest(s.setconfig) AS e
WHERE s.setrole = $1::text::oid AND s.setdatabase IN (
    0, (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
ORDER BY s.setdatabase
"""
"""Settings of a role, as a session of its own begins with; those of the database follow."""

_GONE: Final = {
    "client_connection_check_interval": "2s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
"""By which the server notices that a process or its machine is gone, and undoes the job."""

_GIVEN_UP: Final = ("08", "57P")
"""How the SQLSTATEs begin of a connection that is gone, or of a server that stops."""
_TIMED_OUT: Final = "25P0"
"""How the SQLSTATEs begin of a connection that a timeout has ended, as it would again."""
_MOST_CHARACTERS: Final = 10_000
"""Of each field of an error: code of the role's may have written it."""


def perform_job(pipe: Connection, dsn: str, role: str, role_name: str, number: int) -> None:
    """Perform a job as its role, and say how it ended; the process ends with its worker.

    `dsn`: connection string of the login that acts for the role. `number`: the job.
    """
    # `pipe`: to the worker: how far the job is, and an :class:`_Ended` at last. A message from
    # there stops the job.
    # `role`, `role_name`: the role by its number and by its name.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_heed, args=(pipe,), daemon=True).start()
    try:
        pipe.send(_report_performed(pipe, dsn, role, role_name, number))
    except KeyboardInterrupt:
        pipe.send(_Ended("stopped"))


def _heed(pipe: Connection) -> None:
    """Stop the job when the worker says so; at once if there is no worker any more."""
    try:
        pipe.recv()
    except (EOFError, OSError):
        os._exit(1)
    os.kill(os.getpid(), signal.SIGINT)


def _report_performed(pipe: Connection, dsn: str, role: str, role_name: str, number: int) -> _Ended:
    try:
        connection = open_connection(dsn)
    except KanonError as error:
        return _Ended("shut out", _error(
            "the worker cannot log in for the role that submitted the job", error.detail,
            f"ask an administrator for: kanon service allow {role_name}",
        ))  # fmt: skip
    try:
        _perform_as(connection, pipe, role, number)
    except KanonError as error:
        sqlstate = error.sqlstate if isinstance(error, DatabaseError) else ""
        is_lost = connection.broken and not sqlstate.startswith(_TIMED_OUT)
        fields = {name: text[:_MOST_CHARACTERS] for name, text in refusal(error).items()}
        return _Ended("lost" if is_lost or sqlstate.startswith(_GIVEN_UP) else "failed", fields)
    except Exception as error:  # noqa: BLE001  # the outermost frame: a bug's text may quote data
        return _Ended("failed", refusal(defect(error)))
    finally:
        connection.close()
    return _Ended("done")


def _perform_as(connection: psycopg.Connection, pipe: Connection, role: str, number: int) -> None:
    said: list[tuple[str, str]] = []
    session = PsycopgSession(
        connection,
        on_progress=pipe.send,
        on_warning=lambda text: said.append(("warning", text)),
        on_notice=lambda text: said.append(("notice", text)),
    )
    with session.transaction():
        rows = session.fetch("SELECT rolname::text AS name FROM pg_roles WHERE oid = $1::oid", role)
    if not rows:
        raise ServerError("the role that submitted the job is gone", hint="submit it again")
    with session.translate_errors():
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(str(rows[0]["name"]))))
    _adopt_settings(session, role)
    for setting, text in _GONE.items():
        with contextlib.suppress(psycopg.Error):  # not on every system
            connection.execute(f"SET {setting} = '{text}'".encode())
    with session.transaction():
        found = fetch_one(
            session, "SELECT oid::text AS role FROM pg_roles WHERE rolname = current_user"
        )
        if found["role"] != role:
            raise ServerError("the role that submitted the job has changed", hint="submit it again")
        job = _job_task(session, "begin", {"job": number})
        if job is False:
            return
        for name in _CARRIED:
            if name in job["settings"]:
                session.fetch(
                    "SELECT set_config($1::text, $2::text, true)", name, job["settings"][name]
                )
        answer = reply(session, job["operation"], json.dumps(job["arguments"]), said)
        given = f'{{"job": {number}, "answer": {answer}}}'
        if _job_task(session, "finish", given) is not True:
            raise ServerError("the job was ended by somebody else", hint="submit it again")


def _adopt_settings(session: PsycopgSession, role: str) -> None:
    """Begin as a session of the role would; what only superusers may set, its login must have."""
    with session.transaction():
        settings = session.fetch(_SETTINGS, role)
    for row in settings:
        if row["name"].lower() in _NOT_GIVEN:
            continue
        try:
            with session.translate_errors():
                # Qualified, since a search path may be among them.
                session.connection.execute(
                    "SELECT pg_catalog.set_config(%s::pg_catalog.text, %s::pg_catalog.text, false)",
                    (row["name"], row["value"]),
                )
        except DatabaseError as error:
            # As at a login, what means nothing any more is left out.
            if error.sqlstate == _FORBIDDEN and not row["is_given"]:
                raise ServerError(
                    "a setting of the role, which only superusers set, does not hold for its jobs",
                    detail=str(row["name"]),
                    hint=f"ask a superuser for: ALTER ROLE {ACTING}{role}{row['place']}"
                    f" SET {row['name']} TO {session.literal(row['value'])}",
                ) from None


_FORBIDDEN: Final = "42501"


def _job_task(session: PsycopgSession, task: str, given: Mapping[str, Any] | str) -> Any:
    row = fetch_one(
        session,
        "INSERT INTO kanon.job_errand (task, given) VALUES ($1::text, $2::jsonb)"
        " RETURNING answer::text AS answer",
        task,
        given if isinstance(given, str) else json.dumps(given),
    )
    return json.loads(row["answer"], parse_float=str)


_PRELOADED: Final = (
    "kanon_db.operations",
    "kanon_db.answers.estimates",
    "kanon_db.publications.lifecycle",
    "kanon_db.publications.pipeline",
    "kanon_db.publications.releases.release_check",
    *(
        f"kanon_db.publications.{kind}.kind"
        for kind in ("buckets", "generalized", "freeform", "suppressed")
    ),
)
"""What most jobs need; what trains models is imported by those that do."""

load_numba()  # for which each job would wait, too

_log: Final = logging.getLogger("kanon_db.worker")

_MOST_ATTEMPTS: Final = 3
"""After so many workers that died of a job, it is given up."""
_STOPPING: Final = 10.0
"""Seconds that a process gets to undo its job, before it is killed."""
_KEPT_DAYS: Final = 30
"""How long ended jobs, with their answers, are kept."""


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker works.

    Parameters
    ----------
    concurrency : int
        Jobs at once.
    grace : float
        Seconds that running jobs get when the worker is to stop; what is left goes back into the
        queue.
    time_limit : float
        Seconds after which a job is canceled.
    question_limit : float
        Seconds after which a question is canceled.
    pace : float
        By which the seconds between two looks, or two signs of life, are multiplied.
    """

    concurrency: int = 3
    grace: float = 60.0
    time_limit: float = 21_600.0
    question_limit: float = 600.0
    pace: float = 1.0

    @property
    def poll(self) -> float:
        """Seconds between two looks into the queue."""
        return 0.2 * self.pace

    @property
    def heartbeat(self) -> float:
        """Seconds between two signs of life; without five, another worker takes jobs over."""
        return 4 * self.pace

    @property
    def watch(self) -> float:
        """Seconds between two looks for readers that publishers have granted themselves."""
        return 10 * self.pace


_AWAY: Final = (psycopg.Error, queue_errors.ProcrastinateException, OSError)
"""What the queue's connection raises: the server is away, its disk is full, a row is locked."""


class _LostError(Exception):
    """The connection is gone: nobody knows yet whether the job was done."""


class _AgainIfLost(BaseRetryStrategy):
    """Try again what was lost with a connection, was locked, or was stopped with its worker."""

    def get_retry_decision(
        self,
        *,
        exception: BaseException,
        job: procrastinate.jobs.Job,  # noqa: ARG002
    ) -> RetryDecision | None:
        """Decide; see procrastinate."""
        is_again = isinstance(exception, (_LostError, asyncio.CancelledError, *_AWAY))
        return RetryDecision(retry_in={"seconds": 1}) if is_again else None


_TAKE: Final = """
UPDATE kanon.job AS j SET attempts = j.attempts + 1,
    started_at = coalesce(j.started_at, pg_catalog.clock_timestamp())
WHERE j.job_id = %(number)s
  AND NOT EXISTS (SELECT FROM kanon.job_end AS e WHERE e.job_id = j.job_id)
RETURNING j.role::text AS role, j.operation, j.attempts, coalesce(
    -- It may have been renamed, or be gone.
    (SELECT r.rolname::text FROM pg_catalog.pg_roles AS r WHERE r.oid = j.role), j.role_name
) AS role_name
"""
_GIVE_BACK: Final = "UPDATE kanon.job SET attempts = attempts - 1 WHERE job_id = %(number)s"
_SHOW: Final = "UPDATE kanon.job SET progress = %(progress)s WHERE job_id = %(number)s"
_FAIL: Final = """
INSERT INTO kanon.job_end (job_id, answer) VALUES (%(number)s, %(answer)s) ON CONFLICT DO NOTHING
"""
_HELD: Final = """
SELECT id FROM procrastinate_jobs WHERE status = 'doing' AND worker_id = %(worker)s
"""
_UNTOLD: Final = """
INSERT INTO kanon.job_end (job_id, answer)
SELECT j.job_id, CASE WHEN q.abort_requested THEN %(canceled)s ELSE %(lost)s END::jsonb
FROM kanon.job AS j
JOIN procrastinate_jobs AS q ON q.id = j.queue_id AND q.status NOT IN ('todo', 'doing')
WHERE NOT EXISTS (SELECT FROM kanon.job_end AS e WHERE e.job_id = j.job_id)
ON CONFLICT DO NOTHING
"""
_FORGET: Final = """
DELETE FROM kanon.job AS j WHERE j.job_id IN (
    SELECT o.job_id FROM kanon.job AS o JOIN kanon.job_end AS e ON e.job_id = o.job_id
    WHERE e.ended_at < pg_catalog.clock_timestamp() - pg_catalog.make_interval(days => %(days)s)
    FOR UPDATE OF o SKIP LOCKED)
"""
_TURN: Final = """
SELECT id, status, task_name, priority, lock, queueing_lock, args, scheduled_at, queue_name,
       attempts, worker_id
FROM kanon.take_turn(%(worker)s, %(slots)s)
"""
_WATCH: Final = "SELECT name, outcome FROM kanon.watch_late()"


class _Turns(procrastinate.manager.JobManager):
    """Fetches jobs of all roles in turn, rather than in the order of their submission."""

    slots: int

    async def fetch_job(
        self,
        queues: Iterable[str] | None,  # noqa: ARG002
        worker_id: int,
    ) -> procrastinate.jobs.Job | None:
        """Return the next job, if there is any."""
        row = await self.connector.execute_query_one_async(
            _TURN, worker=worker_id, slots=self.slots
        )
        return None if row["id"] is None else procrastinate.jobs.Job.from_row(row)


class Worker:
    """Fetches jobs, and has each performed by a process that acts for its role.

    `dsn`: its user and password are not used; `key`: see :func:`.login_password`.
    """

    def __init__(self, dsn: str, key: bytes | None, options: WorkerOptions) -> None:
        self._dsn, self._key, self._options = dsn, key, options
        self._is_stopping = False
        self._performed: set[int | None] = set()
        self._strays: set[int] = set()
        self._told: dict[str, str] = {}
        # Processes are copies of one that has imported what they need, and has no secrets.
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([__name__, *_PRELOADED])
        self._app = self._new_app()

    def _new_app(self) -> procrastinate.App:
        connector = procrastinate.PsycopgConnector(
            conninfo=login_dsn(
                self._dsn, self._key, WORKER,
                # A submitter may lock what belongs to its jobs: that holds nobody up.
                options=f"-c search_path={QUEUE},pg_catalog,pg_temp -c lock_timeout=500ms",
                application_name="kanon worker",
            ),
            min_size=1, max_size=4, timeout=10,
        )  # fmt: skip
        app = procrastinate.App(connector=connector)
        app.job_manager = _Turns(connector)
        app.job_manager.slots = self._options.concurrency
        app.task(name="kanon.perform", queue="kanon", pass_context=True, retry=_AgainIfLost())(
            self._perform
        )
        return app

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT; wait for a server that is away."""
        loop = asyncio.get_running_loop()
        working: asyncio.Task[None] | None = None

        def stop() -> None:
            self._is_stopping = True
            if working is not None:
                working.cancel()

        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, stop)
        said = ""
        while not self._is_stopping:
            working = asyncio.create_task(self._work())
            try:
                await working
            except asyncio.CancelledError:
                break
            except KanonError as error:
                reason = f"{error.message} ({error.detail})"
                if reason != said:  # rather than every second, for as long as it is so
                    _log.warning("%s; trying again until it works", reason)
                said = reason
            except _AWAY as error:
                said = ""
                _log.warning("the server is away (%s)", type(error).__name__)
            if not self._is_stopping:
                await asyncio.sleep(1)
                self._app = self._new_app()
        _log.info("stopped")

    def _load(self) -> None:
        # Whoever starts the first process waits until what it is a copy of has imported everything,
        # and the loop of events, with its signs of life, would wait as well.
        process = self._processes.Process(target=int)
        process.start()
        process.join()

    async def _work(self) -> None:
        await asyncio.to_thread(self._look)
        await asyncio.to_thread(self._load)
        async with self._app.open_async():
            _log.info("looking for jobs")
            # Anybody may NOTIFY, also that a job is to be aborted: so nobody is listened to.
            fetching = procrastinate.worker.Worker(
                self._app,
                queues=["kanon"],
                concurrency=self._options.concurrency,
                listen_notify=False,
                install_signal_handlers=False,
                fetch_job_polling_interval=self._options.poll,
                abort_job_polling_interval=self._options.poll,
                shutdown_graceful_timeout=self._options.grace,
                update_heartbeat_interval=self._options.heartbeat,
                stalled_worker_timeout=5 * self._options.heartbeat,
            )
            beside = [
                asyncio.create_task(self._every(seconds, do, what))
                for seconds, do, what in (
                    (self._options.heartbeat, self._take_over, "taking jobs over"),
                    (self._options.heartbeat, lambda: self._mend(fetching.worker_id), "mending"),
                    (self._options.watch, self._watch, "watching readers"),
                    (3600.0, self._forget, "forgetting jobs"),
                )
            ]
            try:
                await fetching.run()  # type: ignore[no-untyped-call]
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)

    def _look(self) -> None:
        """Refuse what the pool would not say: why it gets no connection, or finds no queue."""
        dsn = login_dsn(self._dsn, self._key, WORKER)
        with contextlib.closing(open_connection(dsn)) as connection:
            session = PsycopgSession(connection)
            with session.transaction():
                require_service(session)

    async def _every(self, seconds: float, do: Callable[[], Awaitable[None]], what: str) -> None:
        while True:
            try:
                await do()
                self._tell(what, "")
            except _AWAY as error:
                self._tell(what, f"failed ({_reason(error)}); trying again")
            await asyncio.sleep(seconds)

    def _tell(self, what: str, outcome: str) -> None:
        """Log how something went that is done again and again, where that has changed."""
        if outcome and self._told.get(what) != outcome:
            _log.warning("%s: %s", what, outcome)
        self._told[what] = outcome

    async def _take_over(self) -> None:
        """Put jobs back into the queue whose worker gives no sign of life."""
        manager = self._app.job_manager
        for job in await manager.get_stalled_jobs(
            seconds_since_heartbeat=5 * self._options.heartbeat
        ):
            if job.id is not None:
                _log.warning("a worker is gone: its job is taken over")
                await manager.retry_job_by_id_async(job.id, retry_at=datetime.now(UTC))

    async def _mend(self, worker: int | None) -> None:
        """Put back what a failed statement left, and tell of jobs that the queue has given up."""
        # A job is left with this worker where the statement that fetched it, or the one that said
        # how it went, took effect but was not answered, or was not executed.
        rows = await self._app.connector.execute_query_all_async(_HELD, worker=worker)
        held = {int(row["id"]) for row in rows} - self._performed
        # Of those seen the first time, it may be about to say how they went.
        for stray in held & self._strays:
            await self._app.job_manager.retry_job_by_id_async(stray, retry_at=datetime.now(UTC))
        self._strays = held
        await self._execute(
            _UNTOLD,
            canceled=json.dumps({"error": _CANCELED}),
            lost=json.dumps(
                {"error": _error("the worker has lost this job", "", "submit it again")}
            ),
        )

    async def _watch(self) -> None:
        """Look for readers that publishers have granted themselves."""
        rows = await self._app.connector.execute_query_all_async(_WATCH)
        outcomes = {f"grants of publication {row['name']}": row["outcome"] for row in rows}
        for what in [what for what in self._told if what.startswith("grants of ")]:
            if what not in outcomes:
                del self._told[what]
        for what, outcome in outcomes.items():
            self._tell(what, {
                "taken": "taken back: who got them could set it against another release",
                "kept": "not taken back: who got them can set it against another release",
            }.get(outcome, f"not looked after (SQLSTATE {outcome}); trying again"))  # fmt: skip

    async def _forget(self) -> None:
        await self._execute(_FORGET, days=_KEPT_DAYS)
        await self._app.job_manager.delete_old_jobs(
            24 * _KEPT_DAYS, include_failed=True, include_cancelled=True, include_aborted=True
        )

    async def _execute(self, query: str, **values: Any) -> None:
        await self._app.connector.execute_query_async(query, **values)

    async def _perform(self, context: procrastinate.JobContext, number: int) -> None:
        """Have a job performed, unless it has ended."""
        self._performed.add(context.job.id)
        try:
            await self._perform_once(context, number)
        finally:
            self._performed.discard(context.job.id)

    async def _perform_once(self, context: procrastinate.JobContext, number: int) -> None:
        rows = await self._app.connector.execute_query_all_async(_TAKE, number=number)
        if not rows:
            return
        job = rows[0]
        if job["attempts"] > _MOST_ATTEMPTS:
            await self._fail(number, _error(
                "the worker has died of this job several times",
                f"{_MOST_ATTEMPTS} attempts", "see the worker's log, and how much memory it has",
            ))  # fmt: skip
            return
        is_question = str(context.job.lock).startswith("question ")
        limit = self._options.time_limit
        if is_question:
            limit = min(limit, self._options.question_limit)
        began = monotonic()
        _log.info("job %s: %s begins", number, job["operation"])
        process = _Process(self, number, job)
        try:
            async with asyncio.timeout(limit):
                ended = await process.ended()
        except TimeoutError:
            ended = await process.stop()
            if ended.how != "done":
                ended = _Ended("failed", _error(
                    "the job has taken longer than the worker allows",
                    f"{limit:g} seconds", "", sqlstate="57014",
                ))  # fmt: skip
        except asyncio.CancelledError:
            ended = await asyncio.shield(process.stop())
            if ended.how not in ("done", "failed"):
                if context.abort_reason() is not AbortReason.USER_REQUEST:
                    await self._execute(_GIVE_BACK, number=number)
                    raise
                ended = _Ended("failed", _CANCELED)
        if ended.how == "shut out" and job["attempts"] == _MOST_ATTEMPTS:
            ended = ended._replace(how="failed")
        if ended.how == "failed":
            await self._fail(number, ended.error)
        state = ended.error.get("sqlstate", "")
        _log.info("job %s: %s %s, %.1f s", number, ended.how, state, monotonic() - began)
        if ended.how not in ("done", "failed"):
            raise _LostError

    async def _fail(self, number: int, error: Mapping[str, str]) -> None:
        # A full disk or a lost connection that made it fail would keep the reason back, too.
        while True:
            try:
                await self._execute(_FAIL, number=number, answer=json.dumps({"error": error}))
            except _AWAY as away:
                if isinstance(away.__cause__, psycopg.errors.LockNotAvailable):
                    raise  # whoever holds it has time; others have jobs
                await asyncio.sleep(1)
            else:
                return

    def show(self, number: int, progress: Progress) -> asyncio.Task[None]:
        """Let the role that waits see how far its job is."""
        shown = progress._asdict() | {"remaining": progress.remaining}
        return asyncio.create_task(
            self._execute(_SHOW, number=number, progress=json.dumps(shown)), name="progress"
        )

    def start(self, number: int, job: Mapping[str, Any], pipe: Connection) -> Any:
        """Start the process of a job."""
        dsn = login_dsn(self._dsn, self._key, f"{ACTING}{job['role']}", application_name="kanon_db")
        process = self._processes.Process(
            target=perform_job, args=(pipe, dsn, job["role"], job["role_name"], number), daemon=True
        )
        process.start()
        return process


def _reason(error: BaseException) -> str:
    """Name an error; its text might have what somebody has written."""
    cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
    return getattr(cause, "sqlstate", None) or type(cause).__name__


def _error(message: str, detail: str, hint: str, sqlstate: str = ServerError.sqlstate) -> Any:
    fields = {"message": message, "detail": detail, "hint": hint, "sqlstate": sqlstate}
    return {name: text for name, text in fields.items() if text}


_CANCELED: Final = _error("the job was canceled", "", "", sqlstate="57014")


class _Process:
    """The process of a job, as the worker's loop of events sees it."""

    def __init__(self, worker: Worker, number: int, job: Mapping[str, Any]) -> None:
        self._worker, self._number = worker, number
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = worker.start(number, job, theirs)
        theirs.close()
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[_Ended] = loop.create_future()
        self._shown: asyncio.Task[None] | None = None
        loop.add_reader(self._pipe.fileno(), self._read)

    def _read(self) -> None:
        try:
            message = self._pipe.recv()
        except (EOFError, OSError):  # it was killed
            message = _Ended("lost")
        if isinstance(message, _Ended):
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            if not self._ended.done():
                self._ended.set_result(message)
        elif self._shown is None or self._shown.done():  # what comes meanwhile is soon outdated
            self._shown = self._worker.show(self._number, message)

    async def ended(self) -> _Ended:
        """Wait until it has ended."""
        outcome = await asyncio.shield(self._ended)
        await self._close()
        return outcome

    async def stop(self) -> _Ended:
        """Let it undo what it has done, or kill it."""
        with contextlib.suppress(OSError):
            self._pipe.send("stop")
        try:
            async with asyncio.timeout(_STOPPING):
                outcome = await asyncio.shield(self._ended)
        except TimeoutError:
            self._process.kill()
            outcome = await asyncio.shield(self._ended)
        await self._close()
        return outcome

    async def _close(self) -> None:
        if self._shown is not None:
            await asyncio.gather(self._shown, return_exceptions=True)
        # Its connection is closed before the queue says that the job is over.
        await asyncio.to_thread(self._process.join)
        self._pipe.close()


class _VisibleFormatter(logging.Formatter):
    """Writes each message as one line, and characters that act on a terminal so that they show."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # its name in logging
        """Return the line."""
        return visible(super().formatMessage(record))


def run_worker(dsn: str, key: bytes | None, options: WorkerOptions) -> None:
    """Run a worker until it is told to stop."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_VisibleFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    # What it says of jobs is said here; an error's text might have what somebody has written.
    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    asyncio.run(Worker(dsn, key, options).run())
