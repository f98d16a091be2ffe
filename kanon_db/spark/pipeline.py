"""Publishing, in the same steps for all kinds, as :mod:`kanon_db.publications.pipeline`.

The request is validated, then the source is read once into a private folder, and published from
there into tables that nobody else can read. These are verified; then they are moved to the target,
and the manifest is written, last and in one step. If anything is refused or fails, no file remains.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kanon_db.catalog.entries import Publication
from kanon_db.declaration import parameters_of, read_request, unknown
from kanon_db.operations import RegisterRequest
from kanon_db.publications import KINDS
from kanon_db.publications.entities import entity_statement, require_one_record
from kanon_db.publications.guarantees import warn_of_gap, warn_of_unused_options
from kanon_db.publications.lifecycle import name_is_taken
from kanon_db.publications.publish_request import accepted_risks
from kanon_db.publications.registry import DeclaredKind
from kanon_db.publications.releases.release_check import RISK as COMBINED
from kanon_db.publications.results import Examination, Published, require_checks
from kanon_db.session.progress import Watcher
from kanon_db.spark.environment import own_session, require_spark
from kanon_db.spark.examination import check_files
from kanon_db.spark.files import Folder
from kanon_db.spark.kind import Made, SparkJob, SparkKind
from kanon_db.spark.kinds import spark_kind
from kanon_db.spark.ledger import Ledger, Release, digest, parameters_text
from kanon_db.spark.manifest import Manifest, Table, release_named
from kanon_db.spark.odd_roles import warn_of_roles
from kanon_db.spark.snapshot import Snapshot, take_snapshot
from kanon_db.spark.source import ROLES, Microdata, label_of, open_microdata, require_comparable
from kanon_db.spark.staging import Staging, staged
from kanon_db.spark.tables import Tables, fetch_one, folder_of, read_table
from kanon_db.spark.voice import Voice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PHASES: Final = ("reading the source", "searching", "verifying", "publishing")
_ELSEWHERE: Final = ("source", "publication", "readers")
"""Here the target names the publication, and the file system knows its readers."""


def publish(
    session: SparkSession,
    kind: str,
    source: Any,
    target: str,
    given: Mapping[str, Any],
    *,
    source_name: str | None = None,
    on_progress: Watcher | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> Published:
    """Publish a source, verified before anybody sees it; a dry run leaves nothing behind.

    Parameters
    ----------
    session : SparkSession
    kind : str
    source : str, PathLike, DataFrame or PostgresTable
    target : str
        A folder for this publication alone, which its last part names.
    given : mapping
        The roles of the source's columns, and the parameters of the kind.
    source_name : str, optional
        What the ledger calls the source; by default its path.
    on_progress, on_warning : callable, optional
        See :class:`Voice`.

    Raises
    ------
    KanonError
        As in PostgreSQL.
    """
    require_spark()
    started = time.perf_counter()
    run = _Run.of(session, kind, source, target, given, source_name, Voice(on_progress, on_warning))
    with staged(run.target) as staging:
        return run.publish(staging, started)


@dataclass(frozen=True, eq=False)
class _Run:
    """What was asked for, and where it goes."""

    session: SparkSession
    voice: Voice
    declared: DeclaredKind
    kind: SparkKind
    request: Any
    given: Any
    microdata: Microdata
    target: Folder
    ledger: Ledger

    @classmethod
    def of(
        cls,
        session: SparkSession,
        name: str,
        source: Any,
        target: str,
        given: Mapping[str, Any],
        source_name: str | None,
        voice: Voice,
    ) -> _Run:
        """Read the request, before anything else happens."""
        kind, declared, own = spark_kind(name), KINDS[name], own_session(session)
        folder = Folder(own, str(target))
        label = label_of(source, source_name)
        known = [p.name for p in parameters_of(declared.request) if p.name not in _ELSEWHERE]
        for item in given:
            if item not in (*known, *ROLES):
                raise unknown("parameter", item, sorted((*known, *ROLES)))
        described = {item: value for item, value in given.items() if item in ROLES}
        roles = read_request(RegisterRequest, {"source": label, **described})
        asked = {item: value for item, value in given.items() if item not in ROLES}
        request = read_request(
            declared.request, {"source": label, "publication": folder.name, **asked}
        )
        return cls(
            own, voice, declared, kind, request, source,
            open_microdata(own, source, label, roles), folder, Ledger.beside(own, folder),
        )  # fmt: skip

    def publish(self, staging: Staging, started: float) -> Published:
        """Read, make, verify and publish."""
        self.voice.plan(PHASES)
        self.voice.phase("reading the source")
        old = Manifest.find(self.target)
        if old is not None and not self.request.replace:
            raise name_is_taken(self.request.publication)
        if staging.left_by is not None and (
            old is None or old.release != release_named(staging.left_by)
        ):
            self.ledger.forget(staging.left_by)
        accepted = self._accepted()
        warn_of_unused_options(self.voice, self.request)
        columns = self._columns()
        snapshot = self._read(staging, columns)
        source = self.microdata.source
        shown = source.quasi_identifiers if self.kind.shows_values else ()
        warn_of_roles(self.voice, self.microdata, snapshot, shown)
        self.voice.phase("searching")
        job = SparkJob(
            self.session, self.voice, self.request, self.microdata.source, self.microdata.types,
            staging, snapshot,
        )  # fmt: skip
        made = self.kind.make(job)
        warn_of_gap(self.voice, self.request.method, made.found.proof)
        self.voice.phase("verifying")
        publication = self._described(made, snapshot, accepted, columns)
        tables = {
            suffix: _table(self.session, staging.tables / folder_of(suffix))
            for suffix in self.kind.suffixes
        }
        release = release_named(staging.token)
        manifest = Manifest(publication, release, tables, _now())
        examined, checksum = self._verified(staging, manifest)
        require_checks([*examined.checks, *made.written.checks])
        if not self.request.dry_run:
            self.voice.phase("publishing")
            self._enter(staging, manifest, checksum, columns, old)
        return Published(
            publication_id=None,
            name=publication.name,
            guarantee=publication.guarantee,
            records=publication.records,
            metrics={**examined.metrics, **publication.metrics},
            seconds=time.perf_counter() - started,
        )

    def _accepted(self) -> dict[str, str]:
        """Check the source's description, and return the reasons for known risks."""
        kind, source = self.declared.load(), self.microdata.source
        kind.require_shown(source)
        kind.prepare(self.request, source)
        self.kind.refuse(self.request, source)
        risks = list(kind.risks(self.request))
        if self.ledger.of_source(str(source.relation)):
            risks.append(COMBINED)
        return accepted_risks(self.request.accept, risks)

    def _columns(self) -> list[str]:
        microdata = self.microdata
        found = self.declared.load().chosen(self.request, microdata.source, microdata.types)
        require_comparable(microdata, found)
        return list(found)

    def _read(self, staging: Staging, columns: list[str]) -> Snapshot:
        source = self.microdata.source
        entity = [] if source.entity is None else [source.entity]
        snapshot = take_snapshot(
            self.session, self.given, self.microdata, [*columns, *entity], staging.snapshot
        )
        if source.entity is not None:
            self.voice.step("counting entities")
            tables = Tables(self.session, {"snapshot": snapshot.frame})
            name = tables.identifier(snapshot.column(source.entity))
            found = fetch_one(tables, entity_statement(name, tables.identifier("snapshot")))
            require_one_record(found, source)
            tables.drop()
        return snapshot

    def _described(
        self, made: Made, snapshot: Snapshot, accepted: Mapping[str, str], columns: list[str]
    ) -> Publication:
        found, written, types = made.found, made.written, self.microdata.types
        proof = {} if found.proof is None else found.proof.metrics
        return Publication(
            name=self.request.publication,
            kind=self.declared.name,
            method=found.method or self.request.method,
            source=str(self.microdata.source.relation),
            parameters={**self.request.recorded, **written.parameters, "accept": dict(accepted)},
            layout={
                **written.layout,
                "types": {name: {"type": types[name].type_name} for name in columns},
            },
            records=snapshot.n_records,
            guarantee=written.guarantee,
            metrics={**written.metrics, **proof},
        )

    def _verified(self, staging: Staging, manifest: Manifest) -> tuple[Examination, str]:
        """Examine what was written, from its files alone."""
        frames = {
            manifest.publication.name + suffix: read_table(
                self.session, staging.tables / folder_of(suffix), table
            )
            for suffix, table in manifest.tables.items()
        }
        tables = Tables(self.session, frames)
        try:
            whole = check_files(staging.tables, manifest)
            examined = self.kind.examine(tables, manifest.publication, whole)
            return examined, "" if self.request.dry_run else digest(list(frames.values()))
        finally:
            tables.drop()

    def _enter(
        self,
        staging: Staging,
        manifest: Manifest,
        checksum: str,
        columns: list[str],
        old: Manifest | None,
    ) -> None:
        """Move the tables to the target, enter the release, and write the manifest."""
        publication = manifest.publication
        published = self.target / manifest.release
        line = Release(
            staging.token, publication.name, publication.kind, publication.method,
            publication.source, columns, parameters_text(publication), publication.records,
            publication.guarantee, checksum, manifest.published_at,
            str(self.session.sparkContext.sparkUser()),
            None if old is None else old.release.removeprefix(release_named("")),
        )  # fmt: skip
        is_new = not self.target.exists()
        try:
            self.target.make()
            staging.tables.move(published)
            self.ledger.enter(line)
            manifest.write(self.target)
        except BaseException:
            published.remove()
            self.ledger.forget(staging.token)
            if is_new:
                self.target.remove()
            raise
        if old is not None:
            (self.target / old.release).remove()


def _table(session: SparkSession, folder: Folder) -> Table:
    """Describe a table that was written."""
    return Table(session.read.parquet(folder.path).schema.json(), tuple(folder.files()))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
