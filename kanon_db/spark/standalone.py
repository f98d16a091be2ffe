"""A small cluster of Spark on this machine: a master and workers, as they are elsewhere."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kanon_db.errors import ServerError
from kanon_db.spark.environment import require_spark

_HOST: Final = "127.0.0.1"
_PATIENCE_SECONDS: Final = 90.0
_STARTED: Final = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")
_REGISTERED: Final = "Successfully registered with master"


class StandaloneCluster:
    """A master and workers on the loopback address, for the time of a ``with`` block.

    Parameters
    ----------
    workers : int
    cores : int
        Of each worker.
    memory : str
        Of each worker, as Spark writes it.

    Attributes
    ----------
    master : str
        What sessions connect to, such as ``spark://127.0.0.1:35731``.
    workers : list of Popen
        The processes of the workers; killing the group of one ends its executors, too.
    folder : Path
        Where they write.
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
            found = wanted.search(log.read_text(errors="replace"))
            if found:
                return found
            time.sleep(0.1)
        raise ServerError(
            "a process of the Spark cluster did not start",
            detail=log.stem,
            hint="is Java 17 or later there, and 1 GB of memory free?",
        )
