"""Asking a model, with the caller's rights: rows are encoded here, members vote in the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kanon_db.algorithms.models import Encoding
from kanon_db.catalog.entries import ask_model, find_publication, require_whole
from kanon_db.declaration.shown import ShownResult
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.model.layout import encoding_of
from kanon_db.session import Session
from kanon_db.transfer.allowance import QUERY_MEMORY, size_setting, size_text

_BYTES_OF_NUMBER: Final = 40
"""What Python takes for a number of a row, as it was given and encoded."""


@dataclass(frozen=True)
class Classified(ShownResult):
    """What a model tells of a row.

    Attributes
    ----------
    label : str
        What most members say.
    agreement : float
        The share of members that say so; with a budget, of noisy votes, an estimate.
    logits : dict of str to float, or None
        The mean of the members' outputs for each label, of noisy inputs; None if they are not told.
    answers_left : int or None
        How many more rows the reader role may have classified; None if nobody counts.
    """

    label: str
    agreement: float
    logits: dict[str, float] | None
    answers_left: int | None


@dataclass(frozen=True)
class ClassifiedRow(Classified):
    """What a model tells of one of several rows, by its position from 1."""

    position: int


def classify(session: Session, publication: str, features: Mapping[str, Any]) -> Classified:
    """Ask a model about a row.

    Parameters
    ----------
    session : Session
        Of a role that may read the publication.
    publication : str
    features : mapping
        The value of each feature, None where it is missing; other names are ignored.

    Raises
    ------
    NotFoundError
        When there is no such publication, or the role may not read it.
    InvalidParameterError
        When it is no model, or the row does not fit it.
    BudgetError
        When the budget of the reader role does not pay for the answer.
    """
    (row,) = classify_all(session, publication, [features])
    return Classified(row.label, row.agreement, row.logits, row.answers_left)


def classify_all(
    session: Session, publication: str, rows: Sequence[Mapping[str, Any]]
) -> list[ClassifiedRow]:
    """Ask a model about many rows: all are answered and paid for, or none.

    Raises
    ------
    KanonError
        As :func:`classify`.
    """
    found = find_publication(session, publication)
    if found.kind != "model":
        raise InvalidParameterError(
            "only models classify",
            detail=f'publication "{publication}" is of the kind {found.kind}',
            hint="ask other publications for counts: kanon.estimate_count",
        )
    require_whole(found)
    if not rows:
        return []
    layout = found.layout
    encoding = encoding_of(layout)
    inputs = encoding.encode(_columns(session, encoding, rows))
    answer = ask_model(
        session, "classify", inputs.astype("<f4").tobytes(), name=publication, rows=len(rows)
    )
    labels = layout["labels"]
    logits = answer["logits"]
    return [
        ClassifiedRow(
            labels[winner],
            share,
            None if logits is None else dict(zip(labels, logits[place], strict=True)),
            answer["left"],
            place + 1,
        )
        for place, (winner, share) in enumerate(
            zip(answer["winners"], answer["shares"], strict=True)
        )
    ]


def _columns(session: Session, encoding: Encoding, rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Take the features out of the rows.

    Raises
    ------
    InvalidParameterError
        Where a row is no object, or lacks a feature.
    """
    width = sum(feature.width for feature in encoding.features)
    most = size_setting(session, "query_memory", QUERY_MEMORY) // 2
    if len(rows) * width * _BYTES_OF_NUMBER > most:
        raise InvalidParameterError(
            "a question has too many rows",
            detail=f"{len(rows):,} rows of {width:,} inputs need more than {size_text(most)}",
            hint="ask about fewer rows at a time",
        )
    names = [feature.name for feature in encoding.features]
    for place, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise InvalidParameterError(
                "a row is a JSON object of features", detail=f"row {place} is none"
            )
        missing = [name for name in names if name not in row]
        if missing:
            raise InvalidParameterError(
                "a row lacks a feature",
                detail=f"row {place} has no {', '.join(missing)}",
                hint="give null where a value is not known",
            )
    return {name: [row[name] for row in rows] for name in names}
