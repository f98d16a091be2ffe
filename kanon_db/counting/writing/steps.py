"""Statements as named steps, laid out for a person: one clause a line, each step with a comment.

Whatever is nested is written at its depth. Text is never indented afterwards: a name or a constant
in it may span lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_WIDTH = 88
"""The most characters of a list that stays on one line."""


@dataclass(frozen=True, slots=True)
class Nested:
    """A subquery in FROM: ``join (selects) AS alias``."""

    selects: Sequence[Select]
    alias: str
    join: str = ""

    def write(self, depth: int) -> str:
        """Write it, at a depth."""
        join = f"{self.join} " if self.join else ""
        inner = _union(self.selects, depth + 1)
        return f"{join}({_line(depth + 1)}{inner}{_line(depth)}) AS {self.alias}"


@dataclass(frozen=True, slots=True)
class Select:
    """One SELECT.

    Attributes
    ----------
    columns : mapping of str to str
        Their names, with SQL.
    source : sequence of str or Nested
        A relation and what is joined to it; nothing for a row of constants.
    where : sequence of str
        Conditions, joined by AND.
    group : sequence of str
    having : str
    limit : int, optional
        The most rows.
    """

    columns: Mapping[str, str]
    source: Sequence[str | Nested] = ()
    where: Sequence[str] = ()
    group: Sequence[str] = ()
    having: str = ""
    limit: int | None = None

    def write(self, depth: int = 0) -> str:
        """Write it, with what follows its first line at a depth."""
        line = _line(depth)
        columns = [sql if sql == name else f"{sql} AS {name}" for name, sql in self.columns.items()]
        text = f"SELECT{_listed(columns, depth)}"
        for number, item in enumerate(self.source):
            written = item if isinstance(item, str) else item.write(depth)
            text += f"{line}{written}" if number else f"{line}FROM {written}"
        if self.where:
            text += f"{line}WHERE {f'{_line(depth + 1)}AND '.join(self.where)}"
        if self.group:
            text += f"{line}GROUP BY {', '.join(self.group)}"
        if self.having:
            text += f"{line}HAVING {self.having}"
        if self.limit is not None:
            text += f"{line}LIMIT {self.limit}"
        return text


class Steps:
    """The steps of a statement, in their order; the last one gives its rows."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, str, Sequence[Select]]] = []

    @property
    def last(self) -> str:
        """The name of the last step."""
        return self._steps[-1][0]

    def has(self, name: str) -> bool:
        """Whether there is a step of this name."""
        return any(name == step for step, *_ in self._steps)

    def add(self, name: str, comment: str, *selects: Select) -> None:
        """Add a step: a SELECT, or several, joined by UNION ALL.

        Parameters
        ----------
        name : str
        comment : str
            What it does, in words of ours.
        *selects : Select
            They name the steps that they read in FROM.
        """
        self._steps.append((name, comment, selects))

    def write(self) -> str:
        """Write the statement."""
        *before, (_, comment, selects) = self._steps
        written = [
            f"-- {what}\n{name} AS ({_line(1)}{_union(inner, 1)}\n)" for name, what, inner in before
        ]
        beginning = "WITH\n" + ",\n".join(written) + "\n" if written else ""
        return f"{beginning}-- {comment}\n{_union(selects, 0)}"


def _union(selects: Sequence[Select], depth: int) -> str:
    line = _line(depth)
    return f"{line}UNION ALL{line}".join([select.write(depth) for select in selects])


def _listed(items: Sequence[str], depth: int) -> str:
    if sum(map(len, items)) + 2 * len(items) <= _WIDTH:
        return f" {', '.join(items)}"
    line = _line(depth + 1)
    return f"{line}{f',{line}'.join(items)}"


def _line(depth: int) -> str:
    return "\n" + "  " * depth
