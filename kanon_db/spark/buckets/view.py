"""A bucketization as one table, in which ``sum(weight)`` counts: QIT joined with SAT."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kanon_db.errors import InvalidParameterError
from kanon_db.query.layout import QIT, SAT, BucketTables
from kanon_db.spark.environment import own_session
from kanon_db.spark.files import Folder
from kanon_db.spark.manifest import Manifest
from kanon_db.spark.tables import SCHEMA, Tables, folder_of, read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def weighted_view(session: SparkSession, target: str) -> DataFrame:
    """Join QIT and SAT, as the view of this name does in PostgreSQL.

    Raises
    ------
    NotFoundError
        When there is no publication.
    InvalidParameterError
        When it is of another kind.
    """
    own = own_session(session)
    folder = Folder(own, target)
    manifest = Manifest.of(folder)
    publication = manifest.publication
    if publication.kind != "buckets":
        raise InvalidParameterError(
            "only buckets have a weighted view",
            detail=f"{folder} is of the kind {publication.kind}",
        )
    tables = Tables(
        own,
        {
            publication.name + suffix: read_table(
                own, folder / manifest.release / folder_of(suffix), manifest.tables[suffix]
            )
            for suffix in (QIT, SAT)
        },
    )
    names = BucketTables.of(tables, SCHEMA, publication.name, publication.layout)
    columns = ", ".join(f"q.{name}" for name in names.quasi_identifiers)
    found = tables.select(
        f"SELECT {columns}, s.{names.sensitive},"
        f" s.{names.count}::float8 / {names.size(f's.{names.bucket_id}')} AS {names.weight}"
        f" FROM {names.qit} AS q JOIN {names.sat} AS s ON q.{names.bucket_id} = s.{names.bucket_id}"
    )
    tables.drop()
    return found
