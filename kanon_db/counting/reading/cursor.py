"""A place among a query's lexemes, from which a reader of its tree accounts for them in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from kanon_db.counting.reading.constructs import unexpected
from kanon_db.counting.reading.grammar import exp
from kanon_db.counting.reading.lexemes import Lexeme

Item = TypeVar("Item")


class Cursor:
    """Passes over lexemes from left to right; their parentheses are balanced."""

    def __init__(self, lexemes: Sequence[Lexeme]) -> None:
        self._lexemes = lexemes
        self._at = 0
        self._openings: dict[int, int] = {}  # of each closing parenthesis, the opening one
        opened = []
        for number, lexeme in enumerate(lexemes):
            if lexeme.is_symbol("("):
                opened.append(number)
            elif lexeme.is_symbol(")"):
                self._openings[number] = opened.pop()

    @property
    def here(self) -> Lexeme:
        """The lexeme that comes next."""
        return self.ahead(0)

    def ahead(self, offset: int) -> Lexeme:
        """Return the lexeme so far ahead, past the end one of the kind ``end``."""
        return self.lexeme(self._at + offset)

    def lexeme(self, index: int) -> Lexeme:
        """Return the lexeme of this number."""
        if index < len(self._lexemes):
            return self._lexemes[index]
        return Lexeme("end", "", self._lexemes[-1].position + 1)

    def step(self) -> Lexeme:
        """Pass over the lexeme that comes next."""
        lexeme = self.here
        self._at += 1
        return lexeme

    def takes(self, *texts: str) -> bool:
        """Pass over these words and symbols, if they come next."""
        if all(self.ahead(i).reads(text) for i, text in enumerate(texts)):
            self._at += len(texts)
            return True
        return False

    def require(self, *texts: str) -> None:
        """Pass over these words and symbols; refuse the query at the first that does not come."""
        for text in texts:
            if not self.takes(text):
                raise unexpected(self.here)

    def leaf(self, node: exp.Expr | None, *kinds: str) -> Lexeme:
        """Pass over the lexeme that a leaf of the tree stands for, by its number: the next one."""
        if node is None or self.here.kind not in kinds or node.name != str(self._at):
            raise unexpected(self.here)
        return self.step()

    def listed(
        self, nodes: Sequence[exp.Expr] | None, read: Callable[[exp.Expr], Item]
    ) -> tuple[Item, ...]:
        """Read one or more, separated by commas."""
        if not nodes:
            raise unexpected(self.here)
        found: list[Item] = []
        for node in nodes:
            if found:
                self.require(",")
            found.append(read(node))
        return tuple(found)

    def within(self, start: int) -> int:
        """Return the number of the first lexeme inside the parentheses that open at `start`."""
        while start < len(self._lexemes) and self._lexemes[start].is_symbol("("):
            start += 1
        return start

    def closes(self, start: int) -> bool:
        """Pass over the parentheses that close here and opened at `start`, if any."""
        inside = self.within(start)
        closed = False
        while self.here.is_symbol(")") and start <= self._openings[self._at] < inside:
            self._at += 1
            closed = True
        return closed
