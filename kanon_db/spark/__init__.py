"""Makes the same publications on Spark: from Parquet, or PostgreSQL, to Parquet with a manifest.

It needs the extra ``spark`` and Java; nothing of these is imported before it is used.
``publishing`` runs the steps of publishing and loads publications into PostgreSQL, ``estimates``
answers queries from files, and ``kinds`` has the kinds. Whatever needs no cluster is the code of
PostgreSQL's publications, which reads files through ``_tables``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kanon_db.spark.environment import PostgresTable
from kanon_db.wording import explained

if TYPE_CHECKING:
    import os

    import psycopg
    from pyspark.sql import DataFrame, SparkSession

    from kanon_db.answers.estimates import AnswerRow
    from kanon_db.publications.results import Attack, Check, CountAccuracy, Metric, Published
    from kanon_db.query.formulas import Estimated
    from kanon_db.session.progress import Watcher

__all__ = [
    "PostgresTable",
    "attack",
    "estimate",
    "estimate_count",
    "estimate_counts",
    "evaluate_counts",
    "load",
    "metrics",
    "publish_buckets",
    "publish_freeform",
    "publish_generalized",
    "publish_suppressed",
    "releases",
    "rewrite_count",
    "verify",
    "weighted_view",
]


@explained()
def publish_buckets(
    session: SparkSession,
    source: str | os.PathLike[str] | DataFrame | PostgresTable,
    target: str,
    *,
    source_name: str | None = None,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
    **given: Any,
) -> Published:
    """Publish microdata as buckets under F'-privacy.

    Parameters
    ----------
    session : SparkSession
    source : str, PathLike, DataFrame or PostgresTable
        A path of Parquet, whatever else Spark can read, or a table over JDBC.
    target : str
        A folder for this publication alone; its last part is the publication's name.
    source_name : str, optional
        What the ledger calls the source, which a data frame needs: the same for all that is
        about the same people. By default its path.
    on_progress : callable, optional
        Called with a :class:`~kanon_db.session.progress.Progress` for each step.
    on_warning : callable, optional
        Called with the text of each warning, in place of Python's own warnings.
    **given
        The roles of columns, as of `register_source` (``quasi_identifiers``, ``sensitive``,
        ``identifiers``, ``attributes``, ``insensitive``, ``entity``), and the parameters of
        `publish_buckets` (``privacy``, ``method``, ``max_bucket_size``, ``assignment``,
        ``options``, ``accept``, ``replace``, ``dry_run``).

    Raises
    ------
    KanonError
        As in PostgreSQL, and `ServerError` where Spark or Java is missing, or Spark fails.
    """
    from kanon_db.spark.publishing import publish

    return publish(
        session, "buckets", source, target, given, source_name=source_name,
        on_progress=on_progress, on_warning=on_warning,
    )  # fmt: skip


@explained()
def publish_generalized(
    session: SparkSession,
    source: str | os.PathLike[str] | DataFrame | PostgresTable,
    target: str,
    *,
    source_name: str | None = None,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
    **given: Any,
) -> Published:
    """Publish microdata as rows with ranges and sets that at least k rows share.

    Parameters
    ----------
    session, source, target, source_name, on_progress, on_warning
        As of :func:`publish_buckets`.
    **given
        The roles of columns, and the parameters of `publish_generalized`
        (``k``, ``method``, ``weights``, ``options``, ``constraints``, ``max_suppressed``,
        ``refine``, ``accept``, ``replace``, ``dry_run``).

    Raises
    ------
    KanonError
        As :func:`publish_buckets`.
    """
    from kanon_db.spark.publishing import publish

    return publish(
        session, "generalized", source, target, given, source_name=source_name,
        on_progress=on_progress, on_warning=on_warning,
    )  # fmt: skip


@explained()
def publish_suppressed(
    session: SparkSession,
    source: str | os.PathLike[str] | DataFrame | PostgresTable,
    target: str,
    *,
    source_name: str | None = None,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
    **given: Any,
) -> Published:
    """Publish microdata with suppressed cells: at least k rows share what they keep.

    Parameters
    ----------
    session, source, target, source_name, on_progress, on_warning
        As of :func:`publish_buckets`.
    **given
        The roles of columns, and the parameters of `publish_suppressed`
        (``k``, ``patterns``, ``method``, ``rules``, ``weights``, ``options``, ``accept``,
        ``replace``, ``dry_run``).

    Raises
    ------
    KanonError
        As :func:`publish_buckets`.
    """
    from kanon_db.spark.publishing import publish

    return publish(
        session, "suppressed", source, target, given, source_name=source_name,
        on_progress=on_progress, on_warning=on_warning,
    )  # fmt: skip


@explained()
def publish_freeform(
    session: SparkSession,
    source: str | os.PathLike[str] | DataFrame | PostgresTable,
    target: str,
    *,
    source_name: str | None = None,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
    **given: Any,
) -> Published:
    """Publish microdata as rows of which each matches k originals, and each original k rows.

    Parameters
    ----------
    session, source, target, source_name, on_progress, on_warning
        As of :func:`publish_buckets`.
    **given
        The roles of columns, and the parameters of `publish_freeform`
        (``k``, ``method``, ``weights``, ``options``, ``accept``, ``replace``, ``dry_run``).

    Raises
    ------
    KanonError
        As :func:`publish_buckets`.
    """
    from kanon_db.spark.publishing import publish

    return publish(
        session, "freeform", source, target, given, source_name=source_name,
        on_progress=on_progress, on_warning=on_warning,
    )  # fmt: skip


@explained()
def load(
    session: SparkSession,
    target: str,
    connection: str | psycopg.Connection,
    *,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
    **given: Any,
) -> Published:
    """Load a publication into PostgreSQL, where SQL answers from it.

    Workers write the rows, and this machine passes them on to COPY, a block at a time. What follows
    from them is written there, by the code that publishing uses, and all is verified there before
    anybody sees it, in one transaction: of a load that fails, nothing is left.

    Parameters
    ----------
    session : SparkSession
    target : str
        The folder of the publication.
    connection : str or psycopg.Connection
        A connection string, or a connection in autocommit mode, of a role that may publish in a
        database with kanon_db.
    on_progress, on_warning : callable, optional
        As of :func:`publish_buckets`.
    **given
        ``publication``, ``source_name``, ``readers``, ``accept`` and ``replace``; see
        :class:`~kanon_db.publications.publish_request.LoadRequest`.

    Raises
    ------
    VerificationError
        When the files, or the loaded relations, are not those that were published.
    RiskError
        When the readers could set it against another publication with the same label of its
        source, which needs ``accept => {"combined_releases": "..."}``.
    KanonError
        For everything else that publishing there would refuse.
    """
    from kanon_db.spark.publishing import load

    return load(session, target, connection, given, on_progress=on_progress, on_warning=on_warning)


@explained()
def verify(session: SparkSession, target: str) -> list[Check]:
    """Check a publication, using only its published files; see :mod:`.examination`."""
    from kanon_db.spark._spark_kind import verify

    return verify(session, target)


@explained()
def metrics(session: SparkSession, target: str) -> list[Metric]:
    """Measure a publication from its published files; see :mod:`.examination`."""
    from kanon_db.spark._spark_kind import metrics

    return metrics(session, target)


@explained()
def releases(session: SparkSession, folder: str) -> list[Mapping[str, Any]]:
    """Return the ledger of a folder of publications; see :mod:`.ledger`."""
    from kanon_db.spark._publication_folder import Folder, FolderLedger
    from kanon_db.spark.environment import own_session

    own = own_session(session)
    return FolderLedger(own, Folder(own, folder)).releases()


@explained()
def estimate(
    session: SparkSession,
    target: str,
    query: str,
    *,
    estimator: str = "published",
    on_warning: Callable[[str], None] | None = None,
) -> list[AnswerRow]:
    """Answer a query with any aggregates from a publication, with errors and bounds.

    Parameters
    ----------
    session : SparkSession
    target : str
        The folder of the publication.
    query : str
        As of `kanon.estimate`: ``SELECT ... FROM people_b WHERE ...``, by the publication's name.
    estimator : {"published", "paper"}
        As the setting ``kanon.estimator`` in PostgreSQL.
    on_warning : callable, optional
        As of :func:`publish_buckets`.

    Returns
    -------
    list of AnswerRow
        One for each group and aggregate.

    Raises
    ------
    UnsupportedQueryError
        As in PostgreSQL; and, with the hint to load the publication there, for what is calculated
        otherwise or too large on Spark (docs/howto/spark.md).
    NotFoundError, VerificationError
        When there is no such publication, or its files are not those that were published.
    """
    from kanon_db.spark.estimates_from_files import estimate

    return estimate(session, target, query, estimator=estimator, on_warning=on_warning)


@explained()
def estimate_count(session: SparkSession, target: str, query: str, **given: Any) -> Estimated:
    """Answer a COUNT query without groups; see :func:`estimate`."""
    from kanon_db.spark.estimates_from_files import estimate_count

    return estimate_count(session, target, query, **given)


@explained()
def estimate_counts(
    session: SparkSession, target: str, query: str, **given: Any
) -> list[AnswerRow]:
    """Answer a COUNT query with GROUP BY; see :func:`estimate`."""
    from kanon_db.spark.estimates_from_files import estimate_counts

    return estimate_counts(session, target, query, **given)


def rewrite_count(session: SparkSession, target: str, query: str) -> str:
    """Return the paper's estimate of a query of buckets as one readable statement of Spark.

    Parameters
    ----------
    session : SparkSession
    target : str
        The publication's folder.
    query : str
        As of :func:`estimate`.

    Returns
    -------
    str
        It reads a view of the publication's name. With ``view``, what :func:`weighted_view`
        returns, ``view.createOrReplaceTempView(name)`` makes it, and ``view.sparkSession.sql``
        runs the statement: the view belongs to a session of its own, whose settings do not change
        what values mean.

    Raises
    ------
    UnsupportedQueryError
        Where no single statement gives the answer, as from rows with ranges or sets.
    """
    from kanon_db.spark.estimates_from_files import rewrite_count

    return rewrite_count(session, target, query)


@explained()
def attack(
    session: SparkSession,
    target: str,
    source: str | os.PathLike[str] | DataFrame | PostgresTable,
    *,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> list[Attack]:
    """Play known attacks against a publication; the source scores the guesses.

    They are played on the driver, with codes of all records: of more than five million, they are
    refused. As in PostgreSQL, learners learn from a random sample of large buckets, and a random
    sample of people is looked up in rows, which ``on_warning`` hears.

    Parameters
    ----------
    session : SparkSession
    target : str
        The folder of the publication.
    source : str, PathLike, DataFrame or PostgresTable
        What it was made from.
    on_progress, on_warning : callable, optional
        As of :func:`publish_buckets`.

    Raises
    ------
    NotFoundError, SchemaMismatchError
        When the source has no such columns any more.
    VerificationError
        When the files are not those that were published.
    InfeasibleError
        When there are too many records.
    """
    from kanon_db.spark._spark_kind import attack

    return attack(session, target, source, on_progress=on_progress, on_warning=on_warning)


@explained()
def evaluate_counts(
    session: SparkSession,
    target: str,
    source: str | os.PathLike[str] | DataFrame | PostgresTable,
    *,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
    **given: Any,
) -> list[CountAccuracy]:
    """Compare a publication's answers to random count queries with the source, on the driver.

    Parameters
    ----------
    session, target, source, on_progress, on_warning
        As of :func:`attack`.
    **given
        ``queries``, ``dimensionality``, ``selectivity`` and ``seed`` of `evaluate_counts`.

    Raises
    ------
    KanonError
        As :func:`attack`.
    """
    from kanon_db.spark._spark_kind import evaluate_counts

    return evaluate_counts(
        session, target, source, given, on_progress=on_progress, on_warning=on_warning
    )


@explained()
def weighted_view(session: SparkSession, target: str) -> DataFrame:
    """Return a bucketization as one table, in which ``sum(weight)`` counts; see :mod:`.buckets`."""
    from kanon_db.spark.kinds.bucket_kind import weighted_view

    return weighted_view(session, target)
