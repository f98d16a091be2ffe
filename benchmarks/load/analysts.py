"""Analysts who ask until they are told to stop, and what they are told."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import psycopg

from benchmarks.load.questions import DIRECT, QUESTIONS, Question, Rows
from benchmarks.load.releases import Connection, Publisher

Truth = dict[str, dict[str, Rows]]

Mode = Literal["statements", "read committed", "repeatable read"]
MODES: tuple[Mode, ...] = ("statements", "read committed", "statements", "repeatable read")
"""What analysts do, in turn: single statements, or transactions of several."""

RETRYABLE = frozenset({"40001", "40P01", "55P03"})
RIGHT, WRONG, MIXED = "right", "wrong", "mixed"
"""`MIXED`: right by itself, but of another release than what the transaction has seen."""

_LONGEST_TRANSACTION = 4


@dataclass(frozen=True)
class Asked:
    """A statement: when it was asked, and what came of it.

    Attributes
    ----------
    outcome : str
        `RIGHT`, `WRONG`, `MIXED`, or the SQLSTATE of an error.
    answer : str
        The answer if it is wrong, or the error's message.
    """

    question: Question
    mode: Mode
    begin: float
    end: float
    outcome: str
    answer: str = ""


@dataclass
class Analyst:
    """One who asks random questions, with pauses.

    Attributes
    ----------
    pause : float
        Longest pause, in seconds.
    asked : list of Asked
    """

    connection: Connection
    mode: Mode
    random: np.random.Generator
    pause: float
    publisher: Publisher
    truth: Truth
    asked: list[Asked] = field(default_factory=list)

    def ask_everything(self) -> None:
        """Ask every question once, so that everything is imported that ever will be."""
        for question in QUESTIONS:
            self.connection.execute(question.text.encode()).fetchall()

    def ask_until(self, stop: threading.Event) -> None:
        """Ask random questions, in transactions where the mode says so."""
        while not stop.wait(self.random.random() * self.pause):
            if self.mode == "statements":
                self._ask(self._any_question(), time.monotonic(), {})
            else:
                self._ask_in_a_transaction()

    def _any_question(self) -> Question:
        # In a transaction that is repeatable read, PostgreSQL shows a table that was made after its
        # snapshot as an empty one; our functions notice, a SELECT of the relations cannot.
        is_fixed = self.mode == "repeatable read"
        questions = [q for q in QUESTIONS if not (is_fixed and q.asks == DIRECT)]
        return questions[int(self.random.integers(len(questions)))]

    def _ask_in_a_transaction(self) -> None:
        """Ask several questions of one snapshot, or each of a new one, until there is an error."""
        self.connection.execute(f"BEGIN ISOLATION LEVEL {self.mode}".encode())
        begin = time.monotonic()
        seen: dict[str, set[str]] = {}
        for _ in range(int(self.random.integers(2, _LONGEST_TRANSACTION + 1))):
            is_fixed = self.mode == "repeatable read"
            started = begin if is_fixed else time.monotonic()
            if not self._ask(self._any_question(), started, seen if is_fixed else {}):
                break
        self.connection.execute("ROLLBACK")

    def _ask(self, question: Question, snapshot_from: float, seen: dict[str, set[str]]) -> bool:
        """Ask, and judge the answer; returns whether there was one.

        Parameters
        ----------
        snapshot_from : float
            The earliest time whose state the answer may show.
        seen : dict of str to set of str
            Whose answers the transaction has seen of each publication; is changed.
        """
        begin = time.monotonic()
        try:
            answer = self.connection.execute(question.text.encode()).fetchall()
        except psycopg.Error as error:
            outcome, said = error.sqlstate or "connection lost", error.diag.message_primary
            end = time.monotonic()
            self.asked.append(Asked(question, self.mode, begin, end, outcome, said or ""))
            return False
        end = time.monotonic()
        sides = {
            side
            for side in self.publisher.sides(question.publication, snapshot_from, end)
            if question.fits(answer, self.truth[side][question.text])
        }
        before = seen.setdefault(question.publication, sides)
        if not sides:
            outcome = WRONG
        else:
            outcome = RIGHT if sides & before else MIXED
            seen[question.publication] = sides & before or sides
        wrong = "" if outcome == RIGHT else str(answer)[:200]
        self.asked.append(Asked(question, self.mode, begin, end, outcome, wrong))
        return True
