"""What Spark needs here: pyspark, Java, and sessions that mean the same whatever their settings."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kanon_db.errors import InvalidParameterError, NotFoundError, ServerError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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

    Raises
    ------
    ServerError
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

    Parameters
    ----------
    master : str
        Such as ``spark://host:7077``, ``yarn`` or ``local[2]``.
    **settings : str
        More of Spark's settings, with two underscores instead of each dot.

    Raises
    ------
    ServerError
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
    with in_own_words("the session could not be opened"), quiet():
        session = builder.getOrCreate()
    try:
        yield session
    finally:
        if not is_another:
            session.stop()


def own_session(session: SparkSession) -> SparkSession:
    """Return another session of the same application, with settings of its own.

    Raises
    ------
    InvalidParameterError
        For a session of Spark Connect, which cannot reach the cluster's file systems.
    """
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


def through_arrow(frame: DataFrame, function: Callable[..., Any], schema: Any) -> DataFrame:
    """Pass the rows of each partition through a function of Arrow's batches."""
    with quiet():
        return frame.mapInArrow(function, schema)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore what pyspark warns of: that it does not know our pandas, which it never sees here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


@contextmanager
def in_own_words(message: str) -> Iterator[None]:
    """Raise an error of Spark as one of ours, without its text, which may quote data.

    Raises
    ------
    NotFoundError
        For a path that does not exist.
    ServerError
        For everything else.
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
        raise _failure(message, _root(getattr(error, "java_exception", None))) from None


def _failure(message: str, what: str) -> ServerError:
    return ServerError(
        f"Spark has failed: {message}",
        detail=what,
        hint="the logs of the Spark application say more; they may quote data",
    )


def _root(exception: Any) -> str:
    """Name the class of the first cause of a Java exception."""
    if exception is None:
        return "the connection to Java was lost"
    while exception.getCause() is not None:
        exception = exception.getCause()
    return str(exception.getClass().getName())
