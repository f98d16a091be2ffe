"""Starts Spark: pyspark, Java, sessions that mean the same whatever their settings, and a cluster.

A `StandaloneCluster` is a master with workers on this machine, for the demo and for tests.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError, NotFoundError, ServerError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def quote_column(name: str) -> str:
    """Quote a name, which may have dots and backticks.

    Examples
    --------
    >>> quote_column("a.b`c")
    '`a.b``c`'
    """
    return "`" + name.replace("`", "``") + "`"


POSTGRESQL_DRIVER: Final = Path("/usr/share/java/postgresql.jar")
"""Where Debian's package libpostgresql-jdbc-java has it."""

_SETTINGS: Final = {
    "spark.sql.ansi.enabled": "true",  # what overflows is an error, and not NULL
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.files.ignoreCorruptFiles": "false",  # which would lose rows
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32768",
    # A limit of bytes is compared with the size of a batch after each record, which takes longer
    # than to send it to Python.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
}
"""Of the session in which publications are made and read."""


def why_unavailable() -> str | None:
    """Say what is missing to run Spark here; None if nothing is."""
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} cannot be imported"
    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin", "java").exists()) and shutil.which("java") is None:
        return "there is no Java: neither java on the path nor JAVA_HOME"
    return None


def require_spark() -> None:
    """Refuse to go on without pyspark or Java.

    Raises ServerError.
    """
    reason = why_unavailable()
    if reason is not None:
        raise ServerError(
            "Spark cannot be run here",
            detail=reason,
            hint="install the extra: pip install 'kanon_db[spark]'; and Java 17, such as Debian's"
            " openjdk-17-jre-headless",
        )


@contextmanager
def spark_session(master: str, **settings: str) -> Iterator[SparkSession]:
    """Open a session on a cluster, and end it with the block; or take the one that is open.

    Raises ServerError.
    """
    require_spark()
    with quiet():
        from pyspark.sql import SparkSession

    # Workers on this machine take the same Python; elsewhere, Spark's own settings name it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("kanon_db")
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **({"spark.jars": str(POSTGRESQL_DRIVER)} if POSTGRESQL_DRIVER.exists() else {}),
    }
    if master.startswith(("local", "spark://127.0.0.1", "spark://localhost")):
        defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    given = {name.replace("__", "."): value for name, value in settings.items()}
    for name, value in {**defaults, **given}.items():
        builder = builder.config(name, value)
    is_another = SparkSession.getActiveSession() is not None  # whoever opened it ends it
    with failures_as_errors("the session could not be opened"), quiet():
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        if not is_another:
            session.stop()


def own_session(session: SparkSession) -> SparkSession:
    """Return another session of the same application, with settings of its own."""
    if not hasattr(session, "_jsc"):
        raise InvalidParameterError(
            "a session of Spark Connect cannot publish",
            detail="files are moved and permissions are set through the driver's own Java",
            hint="run it in the driver: SparkSession.builder.master(...).getOrCreate()",
        )
    own = session.newSession()
    for name, value in _SETTINGS.items():
        own.conf.set(name, value)
    return own


def through_arrow(
    frame: DataFrame, function: Callable[..., Any], schema: Any, known: Any = None
) -> DataFrame:
    """Pass the rows of each partition through a function of Arrow's batches.

    What is `known` goes to each machine once, and comes before the batches.
    """
    called = function
    if known is not None:
        context: Any = frame.sparkSession.sparkContext
        shared = context.broadcast(known)

        def called(batches: Any) -> Any:
            return function(shared.value, batches)

    with quiet():
        return frame.mapInArrow(called, schema)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore what pyspark warns of: that it does not know our pandas, which it never sees here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


@contextmanager
def failures_as_errors(message: str) -> Iterator[None]:
    """Raise an error of Spark as one of ours, without its text, which may quote data.

    Raises NotFoundError for a path that does not exist. Raises ServerError for everything else.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        condition = error.getCondition() or type(error).__name__
        if condition == "PATH_NOT_FOUND":
            raise NotFoundError(
                "there is nothing at a path", hint="check that the workers can reach it, too"
            ) from None
        raise _failure(message, condition) from None
    except Py4JError as error:
        raise _failure(message, _root_cause(getattr(error, "java_exception", None))) from None


def _failure(message: str, what: str) -> ServerError:
    return ServerError(
        f"Spark has failed: {message}",
        detail=what,
        hint="the logs of the Spark application say more; they may quote data",
    )


def _root_cause(exception: Any) -> str:
    """Name the class of the first cause of a Java exception."""
    if exception is None:
        return "the connection to Java was lost"
    while exception.getCause() is not None:
        exception = exception.getCause()
    return str(exception.getClass().getName())


@dataclass(frozen=True)
class PostgresTable:
    """A table or view of PostgreSQL, read over JDBC by one statement, which sees one state of it.

    Attributes
    ----------
    url : str
        Such as ``jdbc:postgresql://host/database?user=alice``. The password is best kept in
        ``~/.pgpass``, which the driver reads.
    table : str
        As SQL text, such as ``public.census``.
    """

    url: str
    table: str

    def __str__(self) -> str:
        """Write it for people and for the ledger, without what the URL may have of passwords."""
        return f"{self.url.partition('?')[0].rpartition('@')[2]} {self.table}"


_HOST: Final = "127.0.0.1"
_PATIENCE_SECONDS: Final = 90.0
_STARTED: Final = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")
_REGISTERED: Final = "Successfully registered with master"


class StandaloneCluster:
    """A master and workers on the loopback address, for the time of a ``with`` block.

    `cores` and `memory` are those of each worker, the latter as Spark writes it.
    """

    def __init__(self, workers: int = 2, *, cores: int = 1, memory: str = "2g") -> None:
        require_spark()
        self._n_workers = workers
        self._limits = ["--cores", str(cores), "--memory", memory]
        self.workers: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def __enter__(self) -> Self:
        self._temporary = tempfile.TemporaryDirectory(prefix="kanon-spark-")
        self.folder = Path(self._temporary.name)
        self._masters: list[subprocess.Popen[bytes]] = []
        try:
            process, log = self._start("master", "master.Master")
            self._masters.append(process)
            self.master = self._wait(process, log, _STARTED).group(1)
            for _ in range(self._n_workers):
                self.add_worker()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def add_worker(self) -> subprocess.Popen[bytes]:
        """Start another worker, and wait until the master knows it."""
        name = f"worker-{len(self.workers)}"
        work = ["--work-dir", str(self.folder / name), *self._limits, self.master]
        process, log = self._start(name, "worker.Worker", *work)
        self.workers.append(process)
        self._wait(process, log, re.compile(_REGISTERED))
        return process

    def stop(self) -> None:
        """End all processes, and remove what they have written."""
        for process in (*self.workers, *self._masters):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in (*self.workers, *self._masters):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._temporary.cleanup()

    def _start(self, name: str, role: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        import pyspark

        home = Path(pyspark.__file__).parent
        log = self.folder / f"{name}.log"
        local = self.folder / f"{name}-local"
        local.mkdir(mode=0o700)
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_LOCAL_DIRS": str(local),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [
            str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}",
            "--host", _HOST, "--port", "0", "--webui-port", "0", *arguments,
        ]  # fmt: skip
        with log.open("wb") as file:
            process = subprocess.Popen(  # noqa: S603  # our own pyspark
                command, stdout=file, stderr=file, env=environment, start_new_session=True
            )
        return process, log

    def _wait(
        self, process: subprocess.Popen[bytes], log: Path, wanted: re.Pattern[str]
    ) -> re.Match[str]:
        """Wait for a line in a log."""
        ends = time.monotonic() + _PATIENCE_SECONDS
        while process.poll() is None and time.monotonic() < ends:
            match = wanted.search(log.read_text(errors="replace"))
            if match:
                return match
            time.sleep(0.1)
        raise ServerError(
            "a process of the Spark cluster did not start",
            detail=log.stem,
            hint="is Java 17 or later there, and 1 GB of memory free?",
        )
