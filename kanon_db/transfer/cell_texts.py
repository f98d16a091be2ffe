"""Recognizes texts that are more than one value: free texts, and cells that list several codes.

A free text can name people, whatever its column is called. A bound on the values of a column is
about whole cells: of a cell that lists codes, it says nothing of a single code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

from kanon_db.dataclasses import dataclass
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.coded_columns import CodedRecords
from kanon_db.transfer.columns import ColumnType, label_of
from kanon_db.transfer.snapshot import Records, Snapshot

SENTENCE: Final = 5
"""Words from which on a text that no other record has is a free text."""

_BLANKS: Final = SENTENCE - 1
_FEWEST, _LEAST_SHARE = 3, 0.01
"""So many free texts make a column of them, and so many of its values: not a rare long label."""


def write_sentence_test(text: str) -> str:
    """Write whether a text, which is not padded with blanks, has at least as many words."""
    blanks = f"length({text}) - length(translate({text}, E' \\t\\n', ''))"
    # The regular expression is for texts that have the blanks, which few categories have.
    return f"({blanks} >= {_BLANKS} AND {text} COLLATE \"C\" ~ '(\\S+\\s+){{{_BLANKS}}}\\S')"


@dataclass(frozen=True)
class FreeTexts:
    """How many texts of a column are sentences that no other record has."""

    sentences: int
    filled: int

    @property
    def matter(self) -> bool:
        """Whether the column has free texts, rather than a few long labels."""
        return self.sentences >= max(_FEWEST, _LEAST_SHARE * self.filled)

    def __str__(self) -> str:
        """Say how many there are; no text is shown."""
        return (
            f"{self.sentences:,} of {self.filled:,} texts have {SENTENCE} words or more and occur"
            " once"
        )


def count_free_texts(
    session: Session, rows: str, columns: Sequence[ColumnType], whose: str | None = None
) -> dict[str, FreeTexts]:
    """Count the free texts of columns of texts, reading once what ``rows`` selects as ``s``.

    Records of the same person, by the expression `whose`, may repeat a text.
    """
    texts = [column for column in columns if column.type_category == "S"]
    if not texts:
        return {}
    values = ", ".join(
        f"{label_of(column, column.read(session))} AS t{i}" for i, column in enumerate(texts)
    )
    taken = "" if whose is None else f", {whose} AS whom"
    once = "count(*) = 1" if whose is None else "count(DISTINCT whom) <= 1"
    sentences = ", ".join(
        f"(SELECT count(*) FROM (SELECT FROM taken WHERE {write_sentence_test(f't{i}')}"
        f" GROUP BY t{i} HAVING {once}) AS one)"
        for i in range(len(texts))
    )
    filled = ", ".join(f"(SELECT count(t{i}) FROM taken)" for i in range(len(texts)))
    row = fetch_one(
        session,
        f"WITH taken AS MATERIALIZED (SELECT {values}{taken} {rows})"
        f" SELECT ARRAY[{sentences}]::int8[] AS sentences, ARRAY[{filled}]::int8[] AS filled",
    )
    counted = zip(texts, row["sentences"], row["filled"], strict=True)
    return {column.name: FreeTexts(n, of) for column, n, of in counted}


def count_read_texts(records: Records, columns: Sequence[ColumnType]) -> dict[str, FreeTexts]:
    """Count the free texts of columns that have been read."""
    if isinstance(records, Snapshot):
        return count_free_texts(records.session, f"FROM {records.table} AS s", columns)
    assert isinstance(records, CodedRecords)  # noqa: S101  # there is no third way to read
    counted = {}
    for column in columns:
        if column.type_category == "S":
            row = fetch_one(
                records.session,
                "SELECT count(*) FILTER (WHERE records = 1 AND"
                f" {write_sentence_test('label')}) AS sentences, coalesce(sum(records)"
                " FILTER (WHERE label IS NOT NULL), 0)::int8 AS filled"
                f" FROM {records.columns[column.name].values.table}",
            )
            counted[column.name] = FreeTexts(row["sentences"], row["filled"])
    return counted


SEPARATORS: Final = (";", "|", "\n", "\t", "^", "~", ",", "/", "+", " ")
"""What stands between the values of a cell, the surest first."""

_SURE: Final = (";", "|", "\n", "\t", "^", "~")
_WRAPPED: Final = re.compile(r"^\s*[\[({](.*)[\])}]\s*$", re.DOTALL)
_NO_LIST: Final = re.compile(r"[-+]?[\d.,/:\s%-]+|.*://.*", re.DOTALL)
"""Numbers, dates and times, and addresses of pages, which have separators of their own."""

_LONGEST_PART: Final = 40
_LEAST_LISTS: Final = 0.05
"""The share of the cells that have several parts in a column of lists."""

_FEWEST_LISTS: Final = 3
_TIMES_USED: Final = 1.5
"""In how many different lists a part occurs at least, on average: codes recur."""

_MIXED: Final = 0.6
"""Share of the recurring parts that must occur alone or in several places: not a town, its state"""


def split_cell(cell: str, separator: str) -> tuple[str, ...]:
    """Divide a cell at a separator, without the brackets and quotes around parts."""
    wrapped = _WRAPPED.match(cell)
    parts = (part.strip(" \t\"'") for part in (wrapped[1] if wrapped else cell).split(separator))
    return tuple(part for part in parts if part)


@dataclass(frozen=True)
class ListedParts:
    """The parts of a column's values that are lists, such as ``I10, E11.9``."""

    separator: str
    names: tuple[str, ...]
    of_value: tuple[tuple[int, ...], ...]  # The places of each value's parts among the names
    listed: int  # Records whose value has several parts
    filled: int

    @classmethod
    def of(cls, labels: Sequence[str | None], counts: Sequence[int]) -> Self | None:
        """Recognize values that are lists; None if they are not."""
        # One of twenty records has several parts, and parts recur in different values; where a
        # separator is not sure, most of these stand alone, or at different places: ``E11.9, I10``
        # beside ``B20, E11.9``, but not ``Boston, MA`` beside ``Salem, MA``.
        of_label = {label: n for label, n in zip(labels, counts, strict=True) if label is not None}
        for separator in SEPARATORS:
            lists = {
                label: parts
                for label in of_label
                if separator in label and not _NO_LIST.fullmatch(label)
                if len(parts := split_cell(label, separator)) > 1
            }
            if _are_lists(lists, of_label, separator):
                every = [split_cell(label or "", separator) for label in labels]
                names = sorted({part for parts in every for part in parts})
                places = {name: place for place, name in enumerate(names)}
                return cls(
                    separator,
                    tuple(names),
                    tuple(tuple(sorted({places[part] for part in parts})) for parts in every),
                    sum(of_label[label] for label in lists),
                    sum(of_label.values()),
                )
        return None

    def __str__(self) -> str:
        """Say how many there are; no value is shown."""
        said = {" ": "blanks", "\n": "line breaks"}.get(self.separator, f'"{self.separator}"')
        return (
            f"{self.listed:,} of {self.filled:,} cells list several values between {said}"
            f" ({len(self.names):,} different ones)"
        )


def _are_lists(
    lists: Mapping[str, tuple[str, ...]], counts: Mapping[str, int], separator: str
) -> bool:
    """Tell whether cells with several parts are lists, rather than names, places or sentences."""
    n = sum(counts[cell] for cell in lists)
    if len(lists) < _FEWEST_LISTS or n < _LEAST_LISTS * sum(counts.values()):
        return False
    used = Counter(part for parts in lists.values() for part in set(parts))
    if max(map(len, used)) > _LONGEST_PART or used.total() < _TIMES_USED * len(used):
        return False
    if separator in _SURE:
        return True
    if separator == " " and (len(lists) < len(used) or not _all_different(lists.values())):
        return False
    alone = {parts[0] for cell in counts if len(parts := split_cell(cell, separator)) == 1}
    recurring = [part for part, times in used.items() if times > 1]
    first = {parts[0] for parts in lists.values()}
    later = {part for parts in lists.values() for part in parts[1:]}
    mixed = [part for part in recurring if part in alone or (part in first and part in later)]
    return len(mixed) >= _MIXED * len(recurring) > 0


def _all_different(lists: Iterable[Sequence[str]]) -> bool:
    """Tell whether no list has a part twice, as sentences have."""
    return all(len(set(parts)) == len(parts) for parts in lists)


_MOST_CELLS: Final = 5_000
"""Different cells, the most frequent ones, among which lists are looked for."""

_LONGEST_CELL: Final = 500


def find_lists(session: Session, rows: str, column: ColumnType) -> ListedParts | None:
    """Look for lists in a column of what ``rows`` selects as ``s``; None if there are none."""
    is_array = column.type_category == "A"
    if not is_array and column.type_category != "S":
        return None
    text = label_of(column, column.read(session))
    cells = session.fetch(
        f"SELECT v AS cell, count(*) AS n FROM (SELECT {text} AS v {rows}) AS s WHERE"
        f" length(v) <= {_LONGEST_CELL} GROUP BY v ORDER BY n DESC, v LIMIT {_MOST_CELLS}"
    )
    return ListedParts.of([row["cell"] for row in cells], [row["n"] for row in cells])
