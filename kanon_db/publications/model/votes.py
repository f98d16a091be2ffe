"""Votes of a model's members, counted in the server with the rights of their owner.

Readers get here by inserting into `kanon.question` only; `sql/26_questions.sql` says how.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kanon_db.algorithms.ground.arrays import IntArray
from kanon_db.algorithms.models import (
    Encoding,
    Member,
    Votes,
    logits,
    noisy,
    noisy_vote,
    vote,
)
from kanon_db.algorithms.models.networks import Float32Array
from kanon_db.errors import BudgetError, InvalidParameterError, ServerError
from kanon_db.publications.model.layout import encoding_of
from kanon_db.publications.model.members import read_members
from kanon_db.randomness import SecureRandom
from kanon_db.session import Session, fetch_one
from kanon_db.session.plpy_session import flush
from kanon_db.transfer.allowance import QUERY_MEMORY, size_setting, size_text

_SHARE_OF_MEMORY: Final = 8
"""Inputs may take this part of a query's memory: they are there again with noise, and as layers."""

_WORK_AT_ONCE: Final = 1_000_000_000
"""Multiplications between two heartbeats: a few tenths of a second at the most."""


@dataclass(frozen=True)
class _Asked:
    """What `kanon.owner_classify` found out about a question.

    Attributes
    ----------
    members : str or None
        The relation of the members, quoted; None if it is gone.
    layout : dict
    is_counted : bool
        Whether answers are paid from a budget.
    budget : int or None
        Which one; None if none of the caller's roles has one.
    role : str or None
        Whose budget it is.
    """

    members: str | None
    layout: Mapping[str, Any]
    is_counted: bool
    budget: int | None
    role: str | None


def answer_question(session: Session, given: Mapping[str, Any], inputs: bytes | None) -> Any:
    """Let the members vote, and pay for it.

    Everything that can be refused is refused before it is paid for, and what was paid survives a
    crash before anything is answered.

    Parameters
    ----------
    session : Session
        In the server, with the rights of the owner of publications.
    given : mapping
        From `kanon.owner_classify`.
    inputs : bytes
        Rows, encoded: float32 in the machine's order.

    Returns
    -------
    dict
        ``winners`` (numbers of labels), ``shares``, ``logits`` or None, and ``left``: how many
        answers the role has left, or None if they are not counted.

    Raises
    ------
    KanonError
    """
    asked = _Asked(
        given["members"],
        json.loads(given["layout"]),
        given["is_counted"],
        given["budget"],
        given["role"],
    )
    layout = asked.layout
    if asked.is_counted and asked.budget is None:
        raise BudgetError(
            "none of your roles has a budget for this model",
            detail=f'publication "{given["name"]}"',
            hint="its publisher gives one with kanon.grant_publication; GRANT SELECT gives none",
        )
    if asked.members is None:
        raise ServerError(
            "the members of the model are gone",
            detail=f'publication "{given["name"]}"',
            hint="publish it again",
        )
    rows = _rows(session, encoding_of(layout), inputs)
    labels, outputs = _ask(session, asked.members, layout, rows)
    left = _pay(session, asked, given["name"], len(rows)) if asked.is_counted else None
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


def _rows(session: Session, encoding: Encoding, inputs: bytes | None) -> Float32Array:
    """Read the encoded rows, which a caller may have written otherwise than we do."""
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


def _ask(
    session: Session, members: str, layout: Mapping[str, Any], rows: Float32Array
) -> tuple[IntArray, Float32Array | None]:
    """Ask each member about all rows, with noise of its own on the inputs.

    Returns
    -------
    labels : ndarray of int64, shape (n_members, n_rows)
    outputs : ndarray of float32, shape (n_rows, n_labels), or None
        The mean of the members' logits, if the publisher allows to tell them.
    """
    random = SecureRandom()
    chosen: list[IntArray] = []
    total = np.zeros((len(rows), len(layout["labels"])), dtype=np.float32)
    for member in read_members(session, members, int(layout["members"])):
        outputs = np.concatenate(
            [
                logits(member, noisy(part, float(layout["input_noise"]), random))
                for part in _parts(session, member, rows)
            ]
        )
        chosen.append(outputs.argmax(axis=1))
        total += outputs
    # With a budget, only noisy votes leave.
    is_told = layout["logits"] and layout["input_noise"] > 0 and layout["budget"] is None
    return np.stack(chosen), total / np.float32(len(chosen)) if is_told else None


def _parts(session: Session, member: Member, rows: Float32Array) -> Iterator[Float32Array]:
    """Yield a few rows at a time, so that a cancel is heard between them."""
    step = max(1, _WORK_AT_ONCE // member.architecture.multiplications())
    for start in range(0, len(rows), step):
        session.heartbeat()
        yield rows[start : start + step]


def _pay(session: Session, asked: _Asked, name: str, n: int) -> int:
    """Take answers from a budget for good; return how many are left.

    Raises
    ------
    BudgetError
        When there are fewer; then nothing is taken.
    ServerError
        When nobody can count.
    """
    left = fetch_one(
        session, "SELECT kanon.owner_draw($1::int8, $2::int8) AS n", str(asked.budget), str(n)
    )["n"]
    if left is None:
        raise ServerError(
            "the answers of the model cannot be counted",
            detail=f'publication "{name}": what counts them for the role "{asked.role}" is gone, or'
            " was changed",
            hint="publish the model again",
        )
    if left < 0:
        raise BudgetError(
            "the budget is spent",
            detail=f'publication "{name}": the role "{asked.role}" may get {left + n:,} more'
            f" answers, and this question asks for {n:,}; nothing was answered or counted",
            hint="ask about fewer rows"
            if left + n
            else "no reader of this role gets more answers about the people in the source",
        )
    # A crash undoes what is not on disk yet, and readers may be able to cause one.
    flush(session)
    return int(left)
