"""Answers questions to a model: rows are encoded with the caller's rights, votes need the owner's.

`classify` runs in the caller's session and inserts encoded rows into `kanon.question`. A trigger of
that view (``sql/26_questions.sql``) calls `answer_question` as the owner of publications.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.catalog.entries import ask_model, find_publication, require_whole
from kanon_db.dataclasses import dataclass
from kanon_db.declaration.shown import ShownResult
from kanon_db.errors import BudgetError, InvalidParameterError, ReplacedError, ServerError
from kanon_db.models._network import Encoding, Float32Array, Member, logits
from kanon_db.models._votes import Votes, noisy_inputs, noisy_vote, vote
from kanon_db.randomness import SecureRandom
from kanon_db.session import Session, fetch_one
from kanon_db.session.plpy_session import flush
from kanon_db.transfer.allowance import QUERY_MEMORY, size_setting, size_text

FEATURE_TABLE: Final = ""
MEMBER_TABLE: Final = "_net"
MODEL_SUFFIXES: Final = (FEATURE_TABLE, MEMBER_TABLE)


def encoding_of(layout: Mapping[str, Any]) -> Encoding:
    """Read the encoding from a model's layout."""
    return Encoding.from_json(json.dumps(layout["encoding"]))


def digest_of_members(networks: Sequence[bytes]) -> str:
    """Return one digest of all members, in their order; `kanon.owner_members` has the same."""
    parts = b"".join(hashlib.sha256(network).digest() for network in networks)
    return hashlib.sha256(parts).hexdigest()


def read_members(session: Session, relation: str, number: int) -> Iterator[Member]:
    """Read the members of a model, one at a time.

    `relation` is quoted. Raises ReplacedError if the snapshot is older than the members.
    """
    n_read = 0
    for row in session.stream(1, f"SELECT network FROM {relation} ORDER BY member"):
        n_read += 1
        yield Member.from_bytes(row["network"])
    if n_read != number:
        raise ReplacedError(
            "the publication was replaced just now",
            detail="this transaction still sees its old state",
            hint="ask again, in a new transaction",
        )


_BYTES_OF_NUMBER: Final = 40
"""Bytes that Python takes for a number of a row, both as given and as encoded."""


@dataclass(frozen=True)
class Classified(ShownResult):
    """A model's answer about a row."""

    label: str  # The label that most members say
    # The share of members that say this label; with a budget, an estimate from noisy votes
    agreement: float
    # The mean of the members' outputs for each label, from noisy inputs; None if not allowed
    logits: dict[str, float] | None
    # Rows that the reader role may still have classified; None without a budget
    answers_left: int | None


@dataclass(frozen=True)
class ClassifiedRow(Classified):
    """A model's answer about one of several rows, with its position from 1."""

    position: int


def classify(session: Session, publication: str, features: Mapping[str, Any]) -> Classified:
    """Ask a model about a row.

    Raises NotFoundError, InvalidParameterError (no model, or an unfit row), or BudgetError.
    """
    (row,) = classify_all(session, publication, [features])
    return Classified(row.label, row.agreement, row.logits, row.answers_left)


def classify_all(
    session: Session, publication: str, rows: Sequence[Mapping[str, Any]]
) -> list[ClassifiedRow]:
    """Ask a model about many rows: all are answered and paid for, or none.

    Raises KanonError as :func:`classify`.
    """
    model = find_publication(session, publication)
    if model.kind != "model":
        raise InvalidParameterError(
            "only models classify",
            detail=f'publication "{publication}" is of the kind {model.kind}',
            hint="ask other publications for counts: kanon.estimate_count",
        )
    require_whole(model)
    if not rows:
        return []
    layout = model.layout
    encoding = encoding_of(layout)
    inputs = encoding.encode(_feature_columns(session, encoding, rows))
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


def _feature_columns(
    session: Session, encoding: Encoding, rows: Sequence[Any]
) -> dict[str, list[Any]]:
    """Take the features out of the rows.

    Raises InvalidParameterError where a row is no object, or lacks a feature.
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


# Voting in the server, with the rights of the members' owner.
#
# Readers reach this only by inserting into `kanon.question` (`sql/26_questions.sql`).


_SHARE_OF_MEMORY: Final = 8
"""Part of a query's memory for inputs, which also exist with noise and as outputs of layers."""

_WORK_AT_ONCE: Final = 1_000_000_000
"""Multiplications between two heartbeats: a few tenths of a second at the most."""


@dataclass(frozen=True)
class _Question:
    """A question with its model and its budget, from `kanon.owner_classify`."""

    members: str | None  # The quoted name of the members' table; None if it is gone
    layout: Mapping[str, Any]
    is_counted: bool  # Whether answers are paid from a budget
    budget: int | None  # The number of the budget; None if none of the caller's roles has one
    role: str | None  # The role that has the budget


def answer_question(session: Session, given: Mapping[str, Any], inputs: bytes | None) -> Any:
    """Let the members vote, and pay for the answers, with the rights of the publications' owner.

    `given`: of `kanon.owner_classify`; `inputs`: encoded rows, float32 in the machine's order.
    """
    # Whatever can be refused is refused before it is paid for, and the payment is on disk before
    # anything is answered, so that a crash does not undo it.
    request = _Question(
        given["members"],
        json.loads(given["layout"]),
        given["is_counted"],
        given["budget"],
        given["role"],
    )
    layout = request.layout
    if request.is_counted and request.budget is None:
        raise BudgetError(
            "none of your roles has a budget for this model",
            detail=f'publication "{given["name"]}"',
            hint="its publisher gives one with kanon.grant_publication; GRANT SELECT gives none",
        )
    if request.members is None:
        raise ServerError(
            "the members of the model are gone",
            detail=f'publication "{given["name"]}"',
            hint="publish it again",
        )
    rows = _read_encoded_rows(session, encoding_of(layout), inputs)
    labels, outputs = _ask_members(session, request.members, layout, rows)
    left = _pay(session, request, given["name"], len(rows)) if request.is_counted else None
    n_labels = len(layout["labels"])
    votes: Votes
    if layout["budget"] is None:
        votes = vote(labels, n_labels)
    else:
        votes = noisy_vote(labels, n_labels, int(layout["budget"]["noise"]), SecureRandom())
    return {
        "winners": votes.winner.tolist(),
        "shares": [round(share, 6) for share in votes.share.tolist()],
        "logits": None if outputs is None else np.round(outputs, 4).tolist(),
        "left": left,
    }


def _read_encoded_rows(session: Session, encoding: Encoding, inputs: bytes | None) -> Float32Array:
    """Read the encoded rows, and check them, since any caller may have written them."""
    most = size_setting(session, "query_memory", QUERY_MEMORY) // _SHARE_OF_MEMORY
    if inputs is None or len(inputs) > most:
        raise InvalidParameterError(
            "a question has too many rows",
            detail=f"encoded, they may take {size_text(most)}",
            hint="ask about fewer rows at a time",
        )
    width = 4 * sum(feature.width for feature in encoding.features)
    if not inputs or len(inputs) % width:
        raise InvalidParameterError(
            "a question has no rows, or not those that the model knows",
            hint="ask with kanon.classify or kanon.classify_all",
        )
    rows = np.frombuffer(inputs, dtype="<f4").reshape(-1, *encoding.shape)
    if not np.isfinite(rows).all() or np.abs(rows).max() > 1:
        raise InvalidParameterError(
            "inputs of a model are numbers between -1 and 1",
            hint="ask with kanon.classify or kanon.classify_all",
        )
    return rows


def _ask_members(
    session: Session, members: str, layout: Mapping[str, Any], rows: Float32Array
) -> tuple[IntArray, Float32Array | None]:
    """Ask each member about all rows, with separate noise on its inputs.

    Returns labels (n_members, n_rows), and mean logits (n_rows, n_labels), None if not allowed.
    """
    random = SecureRandom()
    chosen: list[IntArray] = []
    total = np.zeros((len(rows), len(layout["labels"])), dtype=np.float32)
    for member in read_members(session, members, int(layout["members"])):
        outputs = np.concatenate(
            [
                logits(member, noisy_inputs(part, float(layout["input_noise"]), random))
                for part in _rows_at_once(session, member, rows)
            ]
        )
        chosen.append(outputs.argmax(axis=1))
        total += outputs
    # With a budget, only noisy votes leave.
    is_told = layout["logits"] and layout["input_noise"] > 0 and layout["budget"] is None
    return np.stack(chosen), total / np.float32(len(chosen)) if is_told else None


def _rows_at_once(session: Session, member: Member, rows: Float32Array) -> Iterator[Float32Array]:
    """Yield a few rows at a time, so that a cancel is heard between them."""
    step = max(1, _WORK_AT_ONCE // member.architecture.multiplications())
    for start in range(0, len(rows), step):
        session.heartbeat()
        yield rows[start : start + step]


def _pay(session: Session, request: _Question, name: str, n: int) -> int:
    """Take answers from a budget for good; return the number left.

    Raises BudgetError if fewer are left, and takes none; ServerError if they cannot be counted.
    """
    left = fetch_one(
        session, "SELECT kanon.owner_draw($1::int8, $2::int8) AS n", str(request.budget), str(n)
    )["n"]
    if left is None:
        raise ServerError(
            "the answers of the model cannot be counted",
            detail=f'publication "{name}": what counts them for the role "{request.role}" is gone,'
            " or was changed",
            hint="publish the model again",
        )
    if left < 0:
        raise BudgetError(
            "the budget is spent",
            detail=f'publication "{name}": the role "{request.role}" may get {left + n:,} more'
            f" answers, and this question asks for {n:,}; nothing was answered or counted",
            hint="ask about fewer rows"
            if left + n
            else "no reader of this role gets more answers about the people in the source",
        )
    # A crash undoes what is not on disk yet, and readers may be able to cause one.
    flush(session)
    return int(left)
