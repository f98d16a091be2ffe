"""Verifying and measuring a publication of any kind, from its files alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kanon_db.publications.examination import accepted_checks
from kanon_db.publications.results import Check, Examination, Metric
from kanon_db.spark.environment import own_session, require_spark
from kanon_db.spark.files import Folder
from kanon_db.spark.kinds import spark_kind
from kanon_db.spark.manifest import Manifest
from kanon_db.spark.tables import folder_of, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify(session: SparkSession, target: str) -> list[Check]:
    """Check a publication, using only its published files, and all of them.

    Raises
    ------
    NotFoundError
        When there is no publication.
    """
    manifest, examined = _examined(session, target)
    return examined.checks + accepted_checks(manifest.publication)


def metrics(session: SparkSession, target: str) -> list[Metric]:
    """Measure a publication from its published files.

    Raises
    ------
    NotFoundError
        When there is no publication.
    VerificationError
        When its files are gone, or have been replaced by others.
    """
    from kanon_db.catalog.entries import changed

    manifest, examined = _examined(session, target)
    if not examined.metrics:
        raise changed(manifest.publication)
    measured = examined.metrics
    found = {**measured, **manifest.publication.metrics, **measured}
    return [Metric(name, value) for name, value in found.items()]


def _examined(session: SparkSession, target: str) -> tuple[Manifest, Examination]:
    require_spark()
    own = own_session(session)
    folder = Folder(own, str(target))
    manifest = Manifest.of(folder)
    whole = check_files(folder / manifest.release, manifest)
    if not whole.holds:
        return manifest, Examination([whole], {})
    with opened(own, folder, manifest) as tables:
        kind = spark_kind(manifest.publication.kind)
        return manifest, kind.examine(tables, manifest.publication, whole)


def check_files(release: Folder, manifest: Manifest) -> Check:
    """Check that the files of a release are those that its manifest names, by name and size."""
    differing = 0
    for suffix, table in manifest.tables.items():
        differing += len(set(table.files) ^ set((release / folder_of(suffix)).files()))
    n_files = sum(len(table.files) for table in manifest.tables.values())
    return Check(
        "the files are those that were published, and no others",
        f"{n_files} files, 0 differ",
        f"{differing} differ",
        holds=differing == 0,
    )
