"""Asking a publication and its source the same question."""

from __future__ import annotations

import json
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

import psycopg

from tests.integration.parties import Connection, fetch
from tests.meaning.questions import FROM
from tests.meaning.tables import EXACT

REFUSED = "0A000"
_CALCULATED = ("/ COUNT(", "/ NULLIF(COUNT(", "ROUND(")
_LISTED = "SELECT DISTINCT"
_SLACK = 1e-9


@dataclass(frozen=True)
class Verdict:
    """What came of one question.

    Attributes
    ----------
    question : str
    outcome : {"answered", "refused", "not SQL"}
        ``not SQL`` if the source refuses the question.
    faults : list of str
        Bounds that do not contain the truth, estimates outside of their bounds, missing groups.
    errors : list of (float, float, float)
        For each answer: truth, estimate, standard error.
    """

    question: str
    outcome: str
    faults: list[str]
    errors: list[tuple[float, float, float]]


def ask(
    analyst: Connection,
    admin: Connection,
    publication: str,
    source: str,
    question: str,
    *,
    lists_all: bool = True,
) -> Verdict:
    """Ask both.

    Parameters
    ----------
    lists_all : bool
        Whether the publication shows every value, so that no group may be missing.
    """
    fetch(admin, f"SET search_path = {EXACT}, pg_catalog, public")
    try:
        truths = dict(_groups(admin, question.replace(FROM, source)))
    except psycopg.Error:
        truths = None
    try:
        answers = fetch(
            analyst,
            "SELECT group_key::text, estimate, std_error, lower_bound, upper_bound, likely_low,"
            " likely_high FROM kanon.estimate($1)",
            question.replace(FROM, publication),
        )
    except psycopg.Error as error:
        if not error.diag.message_hint or (error.sqlstate or "").startswith("KN000"):
            told = f"{error.sqlstate} without a hint: {error} {error.diag.message_detail}"
            return Verdict(question, "refused", [told], [])
        if truths is not None and error.sqlstate != REFUSED:
            return Verdict(question, "refused", [f"SQLSTATE {error.sqlstate}: {error}"], [])
        return Verdict(question, "refused" if truths is not None else "not SQL", [], [])
    if truths is None:
        return Verdict(question, "not SQL", [], [])
    return _compared(question, truths, answers, lists_all=lists_all)


def _groups(admin: Connection, question: str) -> Iterator[tuple[str, float | None]]:
    if question.startswith(_LISTED):  # without an aggregate
        question = f"SELECT *, NULL FROM ({question}) AS listed"
    asked = f"SELECT q.*, row_to_json(q)::text FROM ({question}) AS q"
    cursor = admin.execute(asked.encode())
    types = [column.type_code for column in cursor.description or ()]
    is_single = types[-2] == psycopg.adapters.types["float4"].oid
    for *_, text in cursor:
        row: dict[str, Any] = json.loads(text)
        *keys, (_, last) = row.items()
        truth = None if last is None else float(last)
        if truth is not None and is_single:
            # Printed are the fewest digits that tell it from other numbers of single precision.
            (truth,) = struct.unpack("f", struct.pack("f", truth))
        yield _key(dict(keys)), truth


def _key(key: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        is_long = isinstance(value, int) and abs(value) > 2**63  # as jsonb writes 1e300
        return str(float(value) if is_long else value)

    return json.dumps(sorted((name, text(value)) for name, value in key.items()))


def _of_list(truths: Collection[str], found: dict[str, list[Any]], *, lists_all: bool) -> list[str]:
    """Compare a list of values with how many records have each of them."""
    faults = [f"{key} is missing" for key in truths if lists_all and key not in found]
    for key, (_, _, low, high, *_) in found.items():
        if key in truths and high < 1:
            faults.append(f"{key}: at most {high} records, but there is one")
        if key not in truths and low > 0:
            faults.append(f"{key}: at least {low} records, but there is none")
    return faults


def _compared(
    question: str,
    truths: dict[str, float | None],
    answers: list[tuple[Any, ...]],
    *,
    lists_all: bool,
) -> Verdict:
    faults: list[str] = []
    errors = []
    is_count = "COUNT(" in question and not any(word in question for word in _CALCULATED)
    found = {_key(json.loads(key) if key else {}): rest for key, *rest in answers}
    if question.startswith(_LISTED):
        return Verdict(question, "answered", _of_list(truths, found, lists_all=lists_all), [])
    for key, truth in truths.items():
        if key not in found:
            if is_count and truth and lists_all:
                faults.append(f"the group {key} of {truth} is missing")
            continue
        estimate, error, low, high, *_ = found[key]
        if truth is None:
            continue
        slack = _SLACK * max(1.0, abs(truth))
        if low is not None and low > truth + slack:
            faults.append(f"{key}: at least {low}, but {truth} is true")
        if high is not None and high < truth - slack:
            faults.append(f"{key}: at most {high}, but {truth} is true")
        if estimate is None:
            if is_count:
                faults.append(f"{key}: no estimate of a count")
            continue
        errors.append((truth, float(estimate), float("nan") if error is None else float(error)))
    for key, (estimate, error, low, high, *likely) in found.items():
        if key not in truths and is_count and low > 0:
            faults.append(f"{key}: at least {low}, but there is no such group")
        if (estimate is None or error is None) != (None in likely):
            faults.append(f"{key}: a likely range of {likely}")
        if estimate is None:
            continue
        slack = 1e-6 * max(1.0, abs(estimate))
        ends = [end for end in (low, likely[0], estimate, likely[1], high) if end is not None]
        if any(one > other + slack for one, other in pairwise(ends)):
            faults.append(f"{key}: {ends} are not in this order")
        if (low is not None and estimate < low - slack) or (
            high is not None and estimate > high + slack
        ):
            faults.append(f"{key}: estimate {estimate} outside of [{low}, {high}]")
        if error is not None and not (isfinite(error) and error >= 0):
            faults.append(f"{key}: a standard error of {error}")
    return Verdict(question, "answered", faults, errors)
