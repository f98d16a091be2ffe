"""How much one query may need; see "What one query may need" in docs/operation.md."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from kanon_db.counting.refusals import refusal
from kanon_db.errors import UnsupportedQueryError
from kanon_db.session.protocol import Session
from kanon_db.transfer.room import QUERY_MEMORY, size_setting

_ANSWER_BYTES: Final = 4096
"""What an answer takes with its key, from the server's row to the caller's, rounded up."""


class Limits(NamedTuple):
    """What a query may need, in bytes.

    Attributes
    ----------
    memory : int
        In the backend, beside what it takes when idle. The parts below leave room for each other.
    """

    memory: int

    @classmethod
    def of(cls, session: Session) -> Self:
        """Read the setting ``query_memory``, which only an administrator can change."""
        return cls(size_setting(session, "query_memory", QUERY_MEMORY))

    @property
    def bitmaps(self) -> int:
        """Bitmaps, or counts of buckets, that are kept at a time."""
        return self.memory // 4

    @property
    def batch(self) -> int:
        """Bitmaps that are read at a time."""
        return self.memory // 64

    @property
    def working(self) -> int:
        """A sort or a hash table of a statement (`work_mem`)."""
        return self.memory // 16

    @property
    def text(self) -> int:
        """Statements that are shown, and the keys of all groups."""
        return self.memory // 16

    @property
    def n_answers(self) -> int:
        """The number of answers: groups times aggregates."""
        return self.memory // _ANSWER_BYTES

    def too_many(self) -> UnsupportedQueryError:
        """Make the refusal of a query with more, or longer, answers."""
        return refusal(
            "the query has more groups than one answer may have",
            hint="group by fewer columns, or ask for parts of them with WHERE, in several queries;"
            " HAVING and LIMIT are applied only after all groups are counted",
            detail=f"{self.n_answers} estimates are allowed, with keys of {self.text} bytes",
        )
