"""Attacks on a publication in files, and how well it answers counts: played on the driver.

Both need the source, which scores guesses and answers. Only codes of values are kept, and all of
them: what reads parts of the records would say nothing about the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kanon_db.catalog.entries import changed
from kanon_db.declaration import read_request
from kanon_db.operations import EvaluateRequest
from kanon_db.publications.kind import SELECTIVITY, Workload
from kanon_db.publications.results import Attack, CountAccuracy
from kanon_db.session.progress import Watcher
from kanon_db.spark.environment import own_session, require_spark
from kanon_db.spark.examination import check_files
from kanon_db.spark.files import Folder
from kanon_db.spark.kind import Opened, SparkKind
from kanon_db.spark.kinds import spark_kind
from kanon_db.spark.manifest import Manifest
from kanon_db.spark.reading import TableSession
from kanon_db.spark.source import open_frame
from kanon_db.spark.tables import opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def attack(
    session: SparkSession,
    target: str,
    source: Any,
    *,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> list[Attack]:
    """Play known attacks; see :func:`kanon_db.spark.attack`."""
    with _opened(session, target, source, on_progress, on_warning) as (kind, both):
        return kind.attack(both)


def evaluate_counts(
    session: SparkSession,
    target: str,
    source: Any,
    given: Mapping[str, Any],
    *,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> list[CountAccuracy]:
    """Compare random counts with the source; see :func:`kanon_db.spark.evaluate_counts`."""
    request = read_request(EvaluateRequest, {"name": "", **given})
    dimensionality = request.dimensionality
    workload = Workload(
        request.queries,
        None if dimensionality is None else tuple(dimensionality),
        SELECTIVITY if request.selectivity is None else tuple(map(float, request.selectivity)),
        request.seed,
    )
    with _opened(session, target, source, on_progress, on_warning) as (kind, both):
        return kind.evaluate(both, workload)


@contextmanager
def _opened(
    session: SparkSession,
    target: str,
    source: Any,
    on_progress: Watcher | None,
    on_warning: Callable[[str], None] | None,
) -> Iterator[tuple[SparkKind, Opened]]:
    """Verify a publication, and open it with its source."""
    require_spark()
    own = own_session(session)
    folder = Folder(own, str(target))
    manifest = Manifest.of(folder)
    publication = manifest.publication
    kind = spark_kind(publication.kind)
    whole = check_files(folder / manifest.release, manifest)
    if not whole.holds:
        raise changed(publication)
    with opened(own, folder, manifest) as tables:
        listener = TableSession(tables, on_progress, on_warning)
        listener.plan(["verifying", "reading the source", "playing"])
        listener.phase("verifying")
        examined = kind.examine(tables, publication, whole)
        if not all(check.holds for check in examined.checks):
            raise changed(publication)
        listener.phase("reading the source")
        yield kind, Opened(listener, publication, open_frame(own, source))
