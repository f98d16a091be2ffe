"""Publishes, verifies and attacks models that vote on what readers ask [TH].

Features and the label are read from the snapshot. The trained members go to a table that no reader
may read; a table of the features tells readers what they may ask.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kanon_db.algorithms.ground.arrays import AnyIntArray, FloatArray
from kanon_db.catalog.entries import Publication, Source, ask_model, published_schema
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InfeasibleError, InvalidParameterError, SchemaMismatchError
from kanon_db.models import methods
from kanon_db.models._network import Encoding, Feature, FeatureKind, Float32Array, logits
from kanon_db.models._votes import (
    PaidAnswers,
    answers_of_budget,
    count_votes,
    epsilon_of_answers,
    highest_rate,
)
from kanon_db.models.asking import (
    FEATURE_TABLE,
    MEMBER_TABLE,
    MODEL_SUFFIXES,
    digest_of_members,
    encoding_of,
    read_members,
)
from kanon_db.models.methods import (
    MOST_MEASURED,
    TrainedMembers,
    TrainingData,
    require_training_packages,
)
from kanon_db.models.request import ModelRequest
from kanon_db.publications.guarantees import Guarantee
from kanon_db.publications.kind import AttackTarget, Job, Kind, MethodResult, Written, run_method
from kanon_db.publications.relations import Note
from kanon_db.publications.results import Attack, Check, Examination
from kanon_db.query.layout import Quotes
from kanon_db.randomness import SecureRandom
from kanon_db.session import Session
from kanon_db.session.protocol import fetch_one
from kanon_db.transfer.allowance import Needs
from kanon_db.transfer.columns import ColumnType, Relation
from kanon_db.transfer.snapshot import Size, Snapshot, take_snapshot
from kanon_db.transfer.values import distinct_values, read_codes

_ARRAYS: Final = tuple(
    f"{element}[]"
    for element in ("smallint", "integer", "bigint", "numeric", "real", "double precision")
)
_MOST_BYTES: Final = 1 << 26
"""The most that is fetched at once."""


def is_array(column: ColumnType) -> bool:
    """Whether a column has arrays of numbers."""
    return column.type_name in _ARRAYS


def read_floats(snapshot: Snapshot, column: ColumnType) -> FloatArray:
    """Return the number of each record, shape (n_records,); NaN for NULL.

    Raises SchemaMismatchError when a value is infinite.
    """
    number = column.number(f"s.{snapshot.session.identifier(column.name)}")
    row = fetch_one(
        snapshot.session,
        f"SELECT string_agg(float8send(coalesce({number}, 'NaN')), ''::bytea"
        f" ORDER BY s.{snapshot.record}) AS numbers FROM {snapshot.table} AS s",
    )
    numbers = np.frombuffer(row["numbers"], dtype=">f8").astype(np.float64)
    if np.isinf(numbers).any():
        raise _refuse_column(column, "a value is infinite")
    return numbers


def read_arrays(snapshot: Snapshot, column: ColumnType) -> npt.NDArray[np.float32]:
    """Return the numbers of each record's array, shape (n_records, length).

    Raises SchemaMismatchError if lengths or dimensions differ, or on NULL, NaN or infinity.
    """
    session, name = snapshot.session, snapshot.session.identifier(column.name)
    extremes = fetch_one(
        session,
        f"SELECT min(coalesce(cardinality({name}), 0)) AS least, max(cardinality({name})) AS most,"
        f" min(array_ndims({name})) AS few, max(array_ndims({name})) AS many,"
        f" bool_or(num_nulls({name}) > 0) AS has_null FROM {snapshot.table}",
    )
    if extremes["has_null"]:
        raise _refuse_column(column, "an array is NULL")
    if extremes["least"] != extremes["most"] or extremes["few"] != extremes["many"]:
        raise _refuse_column(column, "arrays differ in their length")
    length, header = int(extremes["most"]), 12 + 8 * int(extremes["many"] or 0)
    if length == 0:
        raise _refuse_column(column, "arrays are empty")
    # As the server sends arrays: the number of dimensions, flags and type, the dimensions, and
    # each element with its length before it.
    shape = np.dtype(
        [("header", f"V{header}"), ("elements", [("bytes", ">i4"), ("value", ">f4")], (length,))]
    )
    numbers = np.empty((snapshot.n_records, length), dtype=np.float32)
    step = max(1, _MOST_BYTES // shape.itemsize)
    for start in range(0, snapshot.n_records, step):
        row = fetch_one(
            session,
            f"SELECT string_agg(array_send({name}::float4[]), ''::bytea ORDER BY {snapshot.record})"
            f" AS arrays FROM {snapshot.table}"
            f" WHERE {snapshot.record} >= $1::int4 AND {snapshot.record} < $2::int4",
            str(start),
            str(start + step),
        )
        part = numbers[start : start + step]
        if len(row["arrays"]) != len(part) * shape.itemsize:  # a NULL has no bytes
            raise _refuse_column(column, "an element of an array is NULL")
        part[:] = np.frombuffer(row["arrays"], dtype=shape)["elements"]["value"]
        session.heartbeat()
    if not np.isfinite(numbers).all():
        raise _refuse_column(column, "an element of an array is no finite number")
    return numbers


def _refuse_column(column: ColumnType, what: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        "a feature's values cannot be learned from",
        detail=f'column "{column.name}": {what}',
        hint="publish a model of a view that leaves such records out",
    )


_MOST_LABELS: Final = 1000
_ROWS_AT_ONCE: Final = 10_000
_CATEGORICAL: Final = "SBE"
"""`pg_type.typcategory` of texts, booleans and enumerations."""

_BOOLEANS: Final = {"t": "true", "f": "false"}
"""JSON's texts of booleans, by the server's."""


@dataclass(frozen=True)
class LabelValues:
    """The values of the label."""

    texts: list[str]  # Values in the order of the classes
    is_declared: bool  # Whether the publisher listed the values


def choose_columns(
    request: ModelRequest, source: Source, types: Mapping[str, ColumnType]
) -> list[str]:
    """Return the names of the features, then that of the label.

    Raises SchemaMismatchError when nothing can be learned from a column's type.
    """
    features = request.features
    if features is None:
        names = _default_features(request, source)
    else:
        names = [name for name in source.published if name in features]  # in any order
    for name in [*names, request.label]:
        if _feature_kind(types[name], source, {}) == "array" and name == request.label:
            raise SchemaMismatchError("arrays are no labels", detail=f'column "{name}"')
    return [*names, request.label]


def _default_features(request: ModelRequest, source: Source) -> list[str]:
    return [name for name in source.published if name != request.label]


def check_columns(request: ModelRequest, source: Source) -> None:
    """Refuse columns that are not published, and a model without features.

    Raises InvalidParameterError.
    """
    names = (
        _default_features(request, source) if request.features is None else list(request.features)
    )
    for name in [*names, request.label]:
        if name not in source.published:
            raise InvalidParameterError(
                "a model is made of columns that may be published",
                detail=f'"{name}" is no quasi-identifier, sensitive or insensitive column of'
                f" {source.relation}",
                hint=f"choose from {', '.join(source.published)}, or register the source with it",
            )
    if not names:
        raise InvalidParameterError(
            "a model needs a feature", detail=f"{source.relation} publishes the label only"
        )


def _feature_kind(column: ColumnType, source: Source, described: Mapping[str, Any]) -> FeatureKind:
    if is_array(column):
        return "array"
    numbers = column.type_category == "N" and column.number("") is not None
    if numbers and "values" not in described and not source.is_categorical(column.name):
        return "numeric"
    if numbers or column.type_category in _CATEGORICAL:
        return "categorical"
    raise SchemaMismatchError(
        "a model learns from numbers, texts, booleans, enumerations and arrays of numbers",
        detail=f'column "{column.name}" is {column.type_name}',
        hint="publish a model of a view that turns it into one of these",
    )


_DESCRIBED_BY: Final[Mapping[FeatureKind, tuple[str, ...]]] = {
    "numeric": ("lower", "upper"),
    "categorical": ("values",),
    "array": ("lower", "upper", "shape"),
}
"""The keys of a feature's description."""


@dataclass(frozen=True)
class _DeclaredFeatures:
    """The publisher's descriptions of features, as arguments of `Encoding.fit`."""

    kinds: dict[str, FeatureKind]
    ranges: dict[str, tuple[float, float]]
    categories: dict[str, Sequence[str]]
    shapes: dict[str, Sequence[int]]


def _read_declarations(job: Job[ModelRequest], names: Sequence[str]) -> _DeclaredFeatures:
    features = _DeclaredFeatures({}, {}, {}, {})
    for name in names:
        described = (job.request.features or {}).get(name, {})
        kind = features.kinds[name] = _feature_kind(job.types[name], job.source, described)
        unknown = [part for part in described if part not in _DESCRIBED_BY[kind]]
        if unknown:
            raise InvalidParameterError(
                f"a feature is described by {', '.join(_DESCRIBED_BY[kind])}",
                detail=f'column "{name}" is {kind}',
            )
        if "lower" in described or "upper" in described:
            features.ranges[name] = _range(name, described)
        if "values" in described:
            features.categories[name] = _values(name, described["values"])
        if "shape" in described:
            features.shapes[name] = _shape(name, described["shape"])
    return features


def _range(name: str, described: Mapping[str, Any]) -> tuple[float, float]:
    bounds = [described.get(part) for part in ("lower", "upper")]
    if not all(isinstance(b, int | float) and not isinstance(b, bool) for b in bounds):
        raise InvalidParameterError(
            "a range has the numbers lower and upper", detail=f'column "{name}"'
        )
    lower, upper = float(bounds[0] or 0), float(bounds[1] or 0)
    if not lower < upper:
        raise InvalidParameterError(
            "the lower end of a range must be below the upper", detail=f'column "{name}"'
        )
    return lower, upper


def _values(name: str, given: Any) -> list[str]:
    allowed = str | int | bool | float
    if not isinstance(given, list) or not given or not all(isinstance(v, allowed) for v in given):
        raise InvalidParameterError(
            "values of a feature are a JSON list of texts, numbers or truth values",
            detail=f'column "{name}"',
        )
    texts = [str(v).lower() if isinstance(v, bool) else str(v) for v in given]
    if len(set(texts)) < len(texts):
        raise InvalidParameterError("a value is listed twice", detail=f'column "{name}"')
    return texts


def _shape(name: str, given: Any) -> list[int]:
    is_list = isinstance(given, list) and len(given) in (1, 2, 3)
    if not is_list or not all(isinstance(n, int) and 0 < n <= 10_000 for n in given):
        raise InvalidParameterError(
            "a shape is a JSON list of a length, or of height and width, and channels if several",
            detail=f'column "{name}"',
        )
    return [*given, 1] if len(given) == 2 else given


def read_inputs(job: Job[ModelRequest]) -> tuple[Float32Array, Encoding]:
    """Read the features, and make their encoding.

    Raises SchemaMismatchError, InvalidParameterError, or InfeasibleError for lack of memory.
    """
    *names, _ = choose_columns(job.request, job.source, job.types)
    declared = _read_declarations(job, names)
    columns = {
        name: read_column(job.snapshot, job.types[name], kind)
        for name, kind in declared.kinds.items()
    }
    job.session.step("encoding values")
    encoding = Encoding.fit(
        columns,
        declared.kinds,
        ranges=declared.ranges,
        categories=declared.categories,
        shapes=declared.shapes,
    )
    n = job.snapshot.n_records
    width = sum(feature.width for feature in encoding.features)
    job.snapshot.hold(4.0 * width * n, "inputs")
    inputs = np.empty((n, *encoding.shape), dtype=np.float32)
    for start in range(0, n, _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        inputs[part] = encoding.encode({name: values[part] for name, values in columns.items()})
        job.session.heartbeat()
    return inputs, encoding


def read_column(snapshot: Snapshot, column: ColumnType, kind: FeatureKind) -> Any:
    """Return the value of each record, as encodings expect it."""
    if kind == "array":
        return read_arrays(snapshot, column)
    if kind == "numeric":
        return read_floats(snapshot, column)
    return read_texts(snapshot, column)


def read_texts(snapshot: Snapshot, column: ColumnType) -> npt.NDArray[Any]:
    """Return JSON's text of each record's value; None for NULL."""
    values = distinct_values(snapshot, column)
    codes = read_codes(snapshot, [values])[:, 0]
    texts = np.array([_text(column, label) for label in values.labels], dtype=object)
    values.drop()
    return texts[codes]


def _text(column: ColumnType, label: str | None) -> str | None:
    """Return JSON's text of a value."""
    if column.type_name == "boolean" and label is not None:
        return _BOOLEANS[label]
    return label


def read_labels(job: Job[ModelRequest]) -> tuple[LabelValues, AnyIntArray]:
    """Read the label of each record, as the number of its class.

    Raises InvalidParameterError on unlisted or missing labels, InfeasibleError on one or too many.
    """
    column = job.types[job.request.label]
    values = distinct_values(job.snapshot, column)
    if None in values.labels:
        raise InvalidParameterError(
            "some records have no label",
            detail=f'column "{column.name}" is NULL in {values.counts[-1]:,} records',
            hint="publish a model of a view that leaves them out",
        )
    texts = [str(_text(column, label)) for label in values.labels]
    listed = list(job.request.labels or texts)
    if not 2 <= len(listed) <= _MOST_LABELS:
        raise InfeasibleError(
            f"a model tells between 2 and {_MOST_LABELS:,} labels apart",
            detail=f'column "{column.name}": {len(listed):,}',
        )
    if len(set(listed)) < len(listed) or not set(texts) <= set(listed):
        raise InvalidParameterError(
            "labels must list every value of the label once",
            detail=f'column "{column.name}": {len(set(texts) - set(listed))} of {len(texts)} values'
            " are not listed",
        )
    places = {text: place for place, text in enumerate(listed)}
    place_of = np.array([places[text] for text in texts], dtype=np.int32)
    codes = place_of[read_codes(job.snapshot, [values])[:, 0]]
    values.drop()
    return LabelValues(listed, is_declared=job.request.labels is not None), codes


def write_features(job: Job[ModelRequest], encoding: Encoding, labels: LabelValues) -> None:
    """Write the table that tells readers the features and the labels."""
    rows = [_describe(feature) for feature in encoding.features]
    rows.append((job.request.label, "label", "categorical", None, None, None, labels.texts))
    columns = ("column_name text", "role text", "kind text", "lower float8", "upper float8",
               "length int4", "labels text[]")  # fmt: skip
    select = " UNION ALL ".join(
        "SELECT "
        + ", ".join(
            f"${len(columns) * place + number}::{type_} AS {name}"
            for number, (name, type_) in enumerate((column.split() for column in columns), start=1)
        )
        + f", {place} AS place"
        for place in range(len(rows))
    )
    job.staging.fill_table(
        FEATURE_TABLE,
        f"SELECT column_name, role, kind, lower, upper, length, labels FROM ({select}) AS described"
        " ORDER BY place",
        *(value for row in rows for value in row),
    )


def _describe(feature: Feature) -> tuple[Any, ...]:
    is_number = feature.kind != "categorical"
    return (
        feature.name,
        "feature",
        feature.kind,
        repr(feature.low) if is_number else None,
        repr(feature.high) if is_number else None,
        str(feature.width) if feature.kind == "array" else None,
        None if is_number else list(feature.categories),
    )


def read_sample(target: AttackTarget, encoding: Encoding) -> tuple[Float32Array, AnyIntArray]:
    """Read records of the source, drawn at random, with their labels.

    Records with labels that are new since are left out. Raises InfeasibleError if none remains.
    """
    layout = target.publication.layout
    names = [feature.name for feature in encoding.features]
    snapshot = take_snapshot(
        target.session, target.source.relation, [*names, layout["label"]], target.room
    )
    places = SecureRandom().permutation(snapshot.n_records).astype(np.int32)
    snapshot = snapshot.keeping(np.where(places < MOST_MEASURED, places, -1).astype(np.int32))
    columns = {
        feature.name: read_column(snapshot, target.types[feature.name], feature.kind)
        for feature in encoding.features
    }
    class_of = {text: place for place, text in enumerate(layout["labels"])}
    texts = read_texts(snapshot, target.types[layout["label"]])
    snapshot.drop()
    labels = np.array([class_of.get(text, -1) for text in texts], dtype=np.int64)
    if not (labels >= 0).any():
        raise InfeasibleError(
            "the source has no record left whose label the model knows",
            detail=f"relation {target.source.relation}",
        )
    return encoding.encode(columns)[labels >= 0], labels[labels >= 0]


@dataclass(frozen=True, kw_only=True)
class ModelGuarantee(Guarantee):
    """Differential privacy of what a reader role is told; without a budget, nothing."""

    budget: Mapping[str, Any] | None  # Epsilon, delta, and the number of answers
    of_people: bool = False  # Whether it is known whom each record is about
    learned: tuple[str, ...] = ()  # The columns whose values were read from the source

    @classmethod
    def of(
        cls,
        job: Job[ModelRequest],
        budget: PaidAnswers | None,
        encoding: Encoding,
        labels: LabelValues,
    ) -> ModelGuarantee:
        """Say what is promised, and what is not covered."""
        learned = [feature.name for feature in encoding.features if not feature.is_declared]
        learned += [] if labels.is_declared else [job.request.label]
        given = None
        if budget is not None:
            given = {"epsilon": budget.epsilon, "delta": budget.delta, "answers": budget.answers}
        return cls(budget=given, of_people=job.source.entity is not None, learned=tuple(learned))

    @property
    def short(self) -> str:
        """See :attr:`.Guarantee.short`."""
        if self.budget is None:
            return "nothing is promised"
        return f"({self.budget['epsilon']:g}, {self.budget['delta']:g})-differential privacy"

    @property
    def promise(self) -> str:
        """See :attr:`.Guarantee.promise`."""
        if self.budget is None:
            return (
                "nothing is promised about the people in the source: there is no limit on"
                " questions, and answers may tell who was in it, and their values"
            )
        epsilon, delta = self.budget["epsilon"], self.budget["delta"]
        whose = "one person" if self.of_people else "one record"
        return (
            f"({epsilon:g}, {delta:g})-differential privacy of {whose} for each reader"
            f" role: if {whose} had been another, all {self.budget['answers']:,} answers that the"
            f" role may get would be as likely, up to a factor of e^{epsilon:g} and a difference of"
            f" {delta:g}"
        )

    @property
    def conditions(self) -> Sequence[str]:
        """See :attr:`.Guarantee.conditions`."""
        if self.budget is None:
            return ()
        said = ["what several roles are told adds up"]
        if self.learned:
            said.append(
                f"the ranges and values of {_list_columns(self.learned)} were read from the"
                " source, and what these tell is not covered"
            )
        return said


_MOST_NAMED: Final = 5


def _list_columns(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    listed = ", ".join(names[:_MOST_NAMED])
    return listed if more <= 0 else f"{listed} and {more} more columns"


def model_notes(publication: Publication, quotes: Quotes) -> Mapping[str, Note]:
    """Return the notes on the table of features, by its suffix."""
    name = publication.name.replace("'", "''")
    label = quotes.identifier(publication.layout["label"])
    return {
        FEATURE_TABLE: Note(
            f"How to use: SELECT * FROM kanon.classify('{name}', '{{\"feature\": value, ...}}')"
            f" tells {label}, with the share of members that agree; kanon.classify_all('{name}',"
            " rows) does for many rows at once. There is a row for each feature, and one for the"
            " label: what may be asked, and what is answered.",
            {
                "column_name": "the feature, or the label",
                "role": "feature or label",
                "kind": "numeric, categorical or array",
                "lower": "numbers below are taken for this one",
                "upper": "numbers above are taken for this one",
                "length": "how many numbers an array has",
                "labels": "the values that there are; any other one is taken for none of them",
            },
        ),
    }


_ROUNDING: Final = 1e-5
"""Tolerance of the cost, since only some orders of the divergence are tried."""


def examine_model(session: Session, publication: Publication, *, is_new: bool) -> Examination:
    """Check what a model promises, and measure it.

    `is_new`: whether the role may read the members; otherwise it asks their owner about them.
    """
    layout = publication.layout
    stored = (
        _read_staged(session, publication)
        if is_new
        else ask_model(session, "members", name=publication.name)
    )
    budget = layout["budget"]
    checks = [*_check_members(publication, stored), *_check_noise(layout)]
    if budget is not None:
        checks += [_check_cost(budget), *_check_spent(stored["budgets"])]
    metrics: dict[str, float] = {
        "records": publication.records,
        "members": int(stored["members"]),
        "labels": len(layout["labels"]),
        "features": len(layout["features"]),
    }
    if budget is not None:
        metrics["answers"] = int(budget["answers"])
    return Examination(checks, metrics)


def _read_staged(session: Session, publication: Publication) -> Mapping[str, Any]:
    """Read counts and digest of the members, without the owner's function."""
    relation = session.identifier(published_schema(session), publication.name + MEMBER_TABLE)
    digest, members, records = hashlib.sha256(), 0, 0
    rows = session.stream(1, f"SELECT network, records FROM {relation} ORDER BY member")
    for row in rows:
        digest.update(hashlib.sha256(row["network"]).digest())
        members, records = members + 1, records + int(row["records"])
    return {
        "members": members, "records": records, "digest": digest.hexdigest(), "budgets": [],
    }  # fmt: skip


def _check_members(publication: Publication, stored: Mapping[str, Any]) -> list[Check]:
    layout, parameters = publication.layout, publication.parameters
    same = stored["digest"] == layout["digest"]
    checks = [
        Check(
            "every member is there, as it was trained",
            f"{parameters['members']} members, the same digest",
            f"{stored['members']} members, {'the same' if same else 'another'} digest",
            holds=same and stored["members"] == layout["members"] == parameters["members"],
        )
    ]
    if publication.method == "disjoint":
        checks.append(
            Check(
                "members were trained on different records, which are all records together",
                f"{publication.records} records",
                f"{stored['records']} records of all members",
                holds=stored["records"] == publication.records,
            )
        )
    return checks


def _check_noise(layout: Mapping[str, Any]) -> list[Check]:
    scale, budget = layout["input_noise"], layout["budget"]
    checks = []
    if layout["logits"]:
        checks.append(
            Check(
                "logits are told of noisy inputs only, and without a budget",
                "a scale above 0",
                f"{scale:g}",
                holds=scale > 0 and budget is None,
            )
        )
    return checks


def _check_cost(budget: Mapping[str, Any]) -> Check:
    """Check the number of answers by a formula that shares nothing with dp-accounting."""
    cost = epsilon_of_answers(budget["answers"], budget["delta"], budget["noise"])
    return Check(
        "the answers that a reader role may get, with the noise on votes, keep its budget",
        f"epsilon {budget['epsilon']:g}, delta {budget['delta']:g}",
        f"epsilon {cost:.4g} for {budget['answers']:,} answers with noise {budget['noise']}",
        holds=cost <= budget["epsilon"] * (1 + _ROUNDING),
    )


def _check_spent(budgets: list[Mapping[str, Any]]) -> list[Check]:
    return [
        Check(
            f"answers to the role {budget['role']} are counted",
            f"at most {budget['answers']:,}",
            "nobody knows: its counter is gone, or was changed"
            if budget["asked"] is None
            else f"{budget['asked']:,}",
            holds=budget["asked"] is not None and budget["asked"] <= budget["answers"],
        )
        for budget in budgets
    ]


def attack_model(target: AttackTarget) -> Sequence[Attack]:
    """Guess labels of people in the source, by asking for its records as they are today."""
    # Guesses of presence can only be scored while it is known which member was trained on whom:
    # they were measured during the training (`measure_members`), and are repeated here.
    publication = target.publication
    layout, metrics = publication.layout, publication.metrics
    inputs, labels = read_sample(target, encoding_of(layout))
    relation = target.session.identifier(target.schema, publication.name + MEMBER_TABLE)
    chosen = []
    for member in read_members(target.session, relation, int(layout["members"])):
        target.session.heartbeat()
        chosen.append(logits(member, inputs).argmax(axis=1))
    counts = count_votes(np.stack(chosen), len(layout["labels"]))
    n = len(labels)
    attacks = [
        Attack(
            "asking for a value",
            None,
            float(np.bincount(labels).max()) / n,
            float((counts.argmax(axis=1) == labels).mean()),
            n,
        )
    ]
    budget = layout["budget"]
    bound = None if budget is None else highest_rate(budget["epsilon"], budget["delta"])
    for attack, metric, limit in (
        ("membership: votes", "membership_rate_of_votes", bound),
        ("membership: a member that was taken", "membership_rate_of_a_member", None),
    ):
        rate = metrics.get(metric)
        people = 0 if rate is None else int(metrics["membership_people"])
        attacks.append(Attack(attack, limit, None if rate is None else 0.5, rate, people))
    return attacks


@dataclass(frozen=True, eq=False)
class _TrainedModel:
    """A trained model: its members, with encoding and labels."""

    encoding: Encoding
    labels: LabelValues
    trained: TrainedMembers


class Model(Kind):
    """The kind ``model``.

    **Source:** [TH] Section 4.2; noise: Papernot et al., ICLR 2018. One part has all of an entity.
    """

    suffixes = MODEL_SUFFIXES
    # Budgets bound what is told of all columns alike.
    protects_several = True
    closed = (MEMBER_TABLE,)
    counts_entities = True
    not_compared = "what a model tells comes on top of all else, and budgets add up"

    def promise_in_words(self, target: AttackTarget, linked: str) -> str:  # noqa: ARG002
        """Say that a budget bounds it, or nothing."""
        return (
            "nobody but the publisher sees rows; how much answers tell of the people in the source"
            " is bounded by a budget, or by nothing, as the exact guarantee says"
        )

    def digested(self, layout: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG002
        """Return both relations."""
        return MODEL_SUFFIXES

    def prepare(self, request: ModelRequest, source: Source) -> None:
        """Check packages, columns and budget, which would otherwise fail after the training."""
        require_training_packages(with_budget=request.budget is not None)
        check_columns(request, source)
        answers_of_budget(request.budget)

    def risks(self, request: ModelRequest) -> Sequence[str]:
        """Return the risk of a model without a budget."""
        return ["model_without_budget"] if request.budget is None else []

    def columns(self, source: Source, types: Mapping[str, ColumnType]) -> list[str]:  # noqa: ARG002
        """Return all published columns; a request may choose among them."""
        return source.published

    def chosen(
        self, request: ModelRequest, source: Source, types: Mapping[str, ColumnType]
    ) -> list[str]:
        """Return the features and the label."""
        return choose_columns(request, source, types)

    def comparable(self, source: Source) -> Sequence[str]:  # noqa: ARG002
        """Return none: features are checked when they are read."""
        return ()

    def needs(
        self,
        request: ModelRequest,
        source: Source,
        types: Mapping[str, ColumnType],
        size: Size,
    ) -> Needs:
        """See :meth:`Kind.needs`; JAX takes most memory, for images the outputs of layers."""
        n, width = size.n_records, size.width
        columns = choose_columns(request, source, types)
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
        data = TrainingData(inputs, codes, len(labels.texts), groups, job.random)
        trained = run_method(methods, job, data, job.pulse(request.options.time_limit))
        return replace(trained, result=_TrainedModel(encoding, labels, trained.result))

    def write(self, job: Job[ModelRequest], found: MethodResult) -> Written:
        """Write the table of features, and the members."""
        request = job.request
        model: _TrainedModel = found.hand_over()
        trained = model.trained
        job.session.step("writing the members")
        write_features(job, model.encoding, model.labels)
        _write_members(job, trained)
        budget = answers_of_budget(request.budget)
        layout = {
            "features": [feature.name for feature in model.encoding.features],
            "label": request.label,
            "labels": model.labels.texts,
            "encoding": json.loads(model.encoding.to_json()),
            "members": len(trained.networks),
            "digest": digest_of_members(trained.networks),
            "input_noise": float(request.input_noise),
            "logits": request.logits,
            "budget": None if budget is None else budget.plain,
        }
        return Written(
            ModelGuarantee.of(job, budget, model.encoding, model.labels),
            layout=layout,
            checks=trained.checks,
            metrics=trained.metrics,
        )

    def examine(
        self, session: Session, publication: Publication, *, is_new: bool = False
    ) -> Examination:
        """See :func:`examine_model`; only the publisher may read members, while they are new."""
        return examine_model(session, publication, is_new=is_new)

    def frozen(self, session: Session, publication: Publication, request: Any) -> Any:  # noqa: ARG002
        """Refuse a refresh, since new people would need new members."""
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


def _write_members(job: Job[ModelRequest], trained: TrainedMembers) -> None:
    job.staging.create_table(
        MEMBER_TABLE,
        "SELECT NULL::int4 AS member, NULL::int8 AS records, NULL::float8 AS temperature,"
        " NULL::bytea AS network",
        uncompressed=["network"],
    )
    table = Relation(job.schema, job.staging.name + MEMBER_TABLE).quoted(job.session)
    for number, network in enumerate(trained.networks):
        job.session.fetch(
            f"INSERT INTO {table} VALUES ($1::int4, $2::int8, $3::float8, $4::bytea)",
            str(number),
            str(trained.records[number]),
            str(trained.temperatures[number]),
            network,
        )
