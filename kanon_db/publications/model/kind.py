"""Publishing a model: networks that vote on what readers ask, and that nobody may read [TH]."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kanon_db.algorithms.models import Encoding
from kanon_db.catalog.entries import Publication, Source
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.kind import AttackTarget, Job, Kind, MethodResult, Written, run_method
from kanon_db.publications.model import methods
from kanon_db.publications.model.attack import attack_model
from kanon_db.publications.model.budget import bounded, guarantee_of
from kanon_db.publications.model.examine import examine_model
from kanon_db.publications.model.features import (
    Labels,
    check_columns,
    chosen_columns,
    describe,
    read_inputs,
    read_labels,
)
from kanon_db.publications.model.layout import MEMBERS, SUFFIXES
from kanon_db.publications.model.members import digest_all
from kanon_db.publications.model.methods import Trained, Training, require_extra
from kanon_db.publications.model.notes import model_notes
from kanon_db.publications.model.reading import is_array
from kanon_db.publications.model.request import ModelRequest
from kanon_db.publications.relations import Note
from kanon_db.publications.results import Attack, Examination
from kanon_db.query.layout import Quotes
from kanon_db.session import Session
from kanon_db.transfer.allowance import Needs
from kanon_db.transfer.columns import ColumnType, Relation
from kanon_db.transfer.snapshot import Size


@dataclass(frozen=True, eq=False)
class _Model:
    """What was learned."""

    encoding: Encoding
    labels: Labels
    trained: Trained


class Model(Kind):
    """The kind ``model``.

    Notes
    -----
    **Source:** [TH] Section 4.2, with noise on votes as in N. Papernot et al., *Scalable private
    learning with PATE*, ICLR 2018. Where several records are about the same entity, all of them
    are in the same part.
    """

    suffixes = SUFFIXES
    closed = (MEMBERS,)
    counts_entities = True
    not_compared = "what a model tells comes on top of all else, and budgets add up"

    def digested(self, layout: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG002
        """Name both relations."""
        return SUFFIXES

    def prepare(self, request: ModelRequest, source: Source) -> None:
        """Refuse what would only fail after the training: packages, columns, and the budget."""
        require_extra(with_budget=request.budget is not None)
        check_columns(request, source)
        bounded(request.budget)

    def risks(self, request: ModelRequest) -> Sequence[str]:
        """Without a budget, nothing bounds what a model tells."""
        return ["model_without_budget"] if request.budget is None else []

    def columns(self, source: Source, types: Mapping[str, ColumnType]) -> list[str]:  # noqa: ARG002
        """Read all published columns, unless a request chooses among them."""
        return source.published

    def chosen(
        self, request: ModelRequest, source: Source, types: Mapping[str, ColumnType]
    ) -> list[str]:
        """Read the features and the label."""
        return chosen_columns(request, source, types)

    def comparable(self, source: Source) -> Sequence[str]:  # noqa: ARG002
        """Name none: that features have values to learn from is looked at when they are read."""
        return ()

    def needs(
        self,
        request: ModelRequest,
        source: Source,
        types: Mapping[str, ColumnType],
        size: Size,
    ) -> Needs:
        """See :meth:`Kind.needs`; JAX takes most of it, and images the outputs of their layers."""
        n, width = size.n_records, size.width
        columns = chosen_columns(request, source, types)
        of_layers = 600e6 if any(is_array(types[column]) for column in columns) else 0.0
        return Needs(
            480e6 + of_layers + (60 + 12 * width) * n, (60 + 2 * width) * n + 2e6 * request.members
        )

    def search(self, job: Job[ModelRequest]) -> MethodResult:
        """Train the members."""
        request = job.request
        inputs, encoding = read_inputs(job)
        labels, codes = read_labels(job)
        groups = None if job.entities is None else job.entities.codes
        job.session.step("training members")
        data = Training(inputs, codes, len(labels.texts), groups, job.random)
        found = run_method(methods, job, data, job.pulse(request.options.time_limit))
        return replace(found, result=_Model(encoding, labels, found.result))

    def write(self, job: Job[ModelRequest], found: MethodResult) -> Written:
        """Write the table of features, and the members."""
        request = job.request
        model: _Model = found.hand_over()
        trained = model.trained
        job.session.step("writing the members")
        describe(job, model.encoding, model.labels)
        _write_members(job, trained)
        budget = bounded(request.budget)
        layout = {
            "features": [feature.name for feature in model.encoding.features],
            "label": request.label,
            "labels": model.labels.texts,
            "encoding": json.loads(model.encoding.to_json()),
            "members": len(trained.networks),
            "digest": digest_all(trained.networks),
            "input_noise": float(request.input_noise),
            "logits": request.logits,
            "budget": None if budget is None else budget.plain,
        }
        return Written(
            guarantee_of(job, budget, model.encoding, model.labels),
            layout=layout,
            checks=trained.checks,
            metrics=trained.metrics,
        )

    def examine(
        self, session: Session, publication: Publication, *, is_new: bool = False
    ) -> Examination:
        """See :func:`examine_model`; only the publisher of a new one may read its members."""
        return examine_model(session, publication, is_new=is_new)

    def frozen(self, session: Session, publication: Publication, request: Any) -> Any:  # noqa: ARG002
        """Refuse a refresh: new people would need members of their own."""
        raise InvalidParameterError(
            "publications of this kind cannot be refreshed",
            detail=f'publication "{publication.name}"',
            hint="publish the model again with replace => true",
        )

    def notes(self, publication: Publication, quotes: Quotes) -> Mapping[str, Note]:
        """See :func:`model_notes`."""
        return model_notes(publication, quotes)

    def attack(self, target: AttackTarget) -> Sequence[Attack]:
        """See :func:`attack_model`."""
        return attack_model(target)


KIND: Final = Model()


def _write_members(job: Job[ModelRequest], trained: Trained) -> None:
    job.staging.create_table(
        MEMBERS,
        "SELECT NULL::int4 AS member, NULL::int8 AS records, NULL::float8 AS temperature,"
        " NULL::bytea AS network",
        uncompressed=["network"],
    )
    table = Relation(job.schema, job.staging.name + MEMBERS).quoted(job.session)
    for number, network in enumerate(trained.networks):
        job.session.fetch(
            f"INSERT INTO {table} VALUES ($1::int4, $2::int8, $3::float8, $4::bytea)",
            str(number),
            str(trained.records[number]),
            str(trained.temperatures[number]),
            network,
        )
