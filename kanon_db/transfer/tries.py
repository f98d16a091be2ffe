"""Asks the server for which values a condition is true, and which number or key each gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple, Protocol
from typing import Literal as OneOf

import numpy as np
from numpy.typing import NDArray

from kanon_db.algorithms.ground.arrays import FloatArray, IntArray
from kanon_db.dataclasses import dataclass
from kanon_db.errors import VerificationError
from kanon_db.query import expressions as ex
from kanon_db.query.layout import Lookup
from kanon_db.query.ranges import multirange_of, place_of, value_at
from kanon_db.query.sql import Constants, join_relations, write
from kanon_db.session.protocol import Row, Value

FALSE: Final = 0
UNKNOWN: Final = 1
TRUE: Final = 2
"""A condition's truth for a value."""

MOST_TEXT: Final = 8_000_000
"""Bytes of the values of a key."""

_NULL: Final = 0x7FF8000000000001
"""The bits that stand for NULL among numbers: another NaN than PostgreSQL's."""


class Domain(Protocol):
    """Values of a column, with their numbers from 0 on."""

    @property
    def n(self) -> int:
        """How many there are."""

    def write(self, constants: Constants) -> str:
        """Write a query of the columns ``i`` and ``v``, which binds its constants."""


class ColumnValues(NamedTuple):
    """The values that a relation has of a column."""

    write: Callable[[Constants], str]
    n: int


@dataclass(frozen=True, eq=False)
class ContinuousValues:
    """The ends of ranges, the values nearest to some places on their axis, then NULL."""

    type: ex.Type
    ends: Domain | None
    places: Sequence[float]

    @property
    def n_ends(self) -> int:
        """How many ends there are."""
        return 0 if self.ends is None else self.ends.n

    @property
    def n(self) -> int:
        """How many there are."""
        return self.n_ends + len(self.places) + 1

    def write(self, constants: Constants) -> str:
        """Write them as a query."""
        places = constants.texts(tuple(map(repr, self.places)))
        ends = ""
        if self.ends is not None:
            ends = f"SELECT e.i::int8 AS i, e.v FROM ({self.ends.write(constants)}) AS e UNION ALL "
        return (
            f"{ends}SELECT {self.n_ends} + u.o - 1 AS i, {value_at(self.type, 'u.p')} AS v"
            f" FROM unnest({places}::float8[]) WITH ORDINALITY AS u (p, o)"
            f" UNION ALL SELECT {self.n - 1}, NULL::{self.type.name}"
        )


@dataclass(frozen=True, eq=False)
class WholeValues:
    """The values at whole numbers of an axis, ascending, and NULL with the last number."""

    type: ex.Type
    numbers: IntArray

    @property
    def n(self) -> int:
        """How many there are."""
        return self.numbers.size + 1

    def write(self, constants: Constants) -> str:
        """Write them as a query."""
        value, numbers = value_at(self.type, "u.p"), self.numbers
        if numbers.size and int(numbers[-1]) - int(numbers[0]) == numbers.size - 1:
            first = int(numbers[0])
            source = f"generate_series({first}::int8, {int(numbers[-1])}::int8) AS u (p)"
            place = f"u.p - ({first})"
        else:
            texts = constants.texts(tuple(map(str, numbers.tolist())))
            source, place = f"unnest({texts}::int8[]) WITH ORDINALITY AS u (p, o)", "u.o - 1"
        return (
            f"SELECT {place} AS i, {value} AS v FROM {source}"
            f" UNION ALL SELECT {numbers.size}, NULL::{self.type.name}"
        )


@dataclass(frozen=True, eq=False)
class Combinations:
    """Values of several columns that are tried together."""

    domains: Mapping[str, Domain]  # By the columns' names; the number of the last changes first
    # (n, n_columns): of each combination, the numbers of the values; None for all that there are
    numbers: IntArray | None = None

    @property
    def n(self) -> int:
        """How many there are."""
        if self.numbers is not None:
            return len(self.numbers)
        return prod(domain.n for domain in self.domains.values())

    def source(self, constants: Constants, names: Mapping[Domain, str]) -> list[str]:
        """Write them as relations ``d0 …``, from those with the values of each domain."""
        written = [names[domain] for domain in self.domains.values()]
        if self.numbers is None:
            return [f"{'CROSS JOIN ' if k else ''}{sql} AS d{k}" for k, sql in enumerate(written)]
        columns = [constants.texts(tuple(map(str, own.tolist()))) for own in self.numbers.T]
        places = ", ".join(f"j{k}" for k in range(len(written)))
        arrays = ", ".join(f"{column}::int4[]" for column in columns)
        met = f"unnest({arrays}) WITH ORDINALITY AS met ({places}, o)"
        return [met, *(f"JOIN {sql} AS d{k} ON d{k}.i = met.j{k}" for k, sql in enumerate(written))]

    @property
    def number(self) -> str:
        """Write the number of each."""
        if self.numbers is not None:
            return "met.o"
        number = "0::int8"
        for k, domain in enumerate(self.domains.values()):
            number = f"d{k}.i::int8" if k == 0 else f"({number} * {domain.n} + d{k}.i)"
        return number


class Ranked(NamedTuple):
    """The values of an expression in their order."""

    ranks: IntArray  # (n,): of each combination; NULL is last
    texts: Sequence[str] | None  # By rank; None if they are too long


class AxisCut(NamedTuple):
    """The pieces of an axis where a condition on one column is true, ascending."""

    # Whole numbers, both of which belong to a piece; or the coordinates of its ends
    first: NDArray[Any]
    last: NDArray[Any]
    from_all: bool  # Whether the first begins nowhere, and the last ends nowhere
    to_all: bool
    null: int  # The truth of NULL
    # Of continuous values: how many pieces lie below each, and whether it is in one
    n_below: IntArray
    is_inside: NDArray[np.bool_]


@dataclass(eq=False)
class Probe:
    """What is asked, and then the answer."""

    what: OneOf["truth", "number", "rank", "key", "cut"]
    expression: ex.Expression
    of: Combinations
    text: str = ""  # Of a key: SQL of the text of a value ``k.v``
    column: ex.Column | None = None  # Of a cut
    answer: Any = None


class Fetcher(Protocol):
    """Runs the statements of a query."""

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run a statement."""

    def changed(self) -> VerificationError:
        """Make the error for relations that are not those that were published."""


class Tries(ABC):
    """Collects what a question asks of values, and asks it at once."""

    def __init__(self) -> None:
        self._wanted: list[Probe] = []
        self.with_nan: set[ex.Expression] = set()  # Of which some number is NaN

    def want_truth(self, condition: ex.Expression, of: Combinations) -> Callable[[], Truth]:
        """Ask where a condition is true, false, or unknown."""
        return self._want(Probe("truth", condition, of))

    def want_number(self, expression: ex.Expression, of: Combinations) -> Callable[[], FloatArray]:
        """Ask for the number of each; NaN for NULL, and infinite for what is not finite."""
        return self._want(Probe("number", expression, of))

    def want_rank(self, expression: ex.Expression, of: Combinations) -> Callable[[], FloatArray]:
        """Ask for the place of each value in their order; NaN for NULL."""
        return self._want(Probe("rank", expression, of))

    def want_key(
        self, expression: ex.Expression, of: Combinations, text: str = "to_jsonb(k.v)::text"
    ) -> Callable[[], Ranked]:
        """Ask for the values in their order, and a text of each."""
        return self._want(Probe("key", expression, of, text))

    def want_cut(
        self, condition: ex.Expression, column: ex.Column, of: Domain | None
    ) -> Callable[[], AxisCut]:
        """Ask where a condition that :func:`can_cover` accepts cuts the axis of a column.

        `of`: the continuous values whose places are wanted, the last of which is NULL.
        """
        domains = {} if of is None else {column.name: of}
        return self._want(Probe("cut", condition, Combinations(domains), column=column))

    def ask(self) -> None:
        """Ask; errors are those of the question's arithmetic."""
        if self._wanted:
            self.answer(self._wanted)
        self._wanted = []

    @abstractmethod
    def answer(self, wanted: Sequence[Probe]) -> None:
        """Answer each."""

    def read_numbers(
        self, probe: Probe, numbers: FloatArray, is_null: NDArray[np.bool_]
    ) -> FloatArray:
        """Take NaN for infinite, since it is greater than all others, and NULL for NaN."""
        is_nan = np.isnan(numbers) & ~is_null
        if is_nan.any():
            self.with_nan.add(probe.expression)
        return np.where(is_null, np.nan, np.where(is_nan, np.inf, numbers))

    def _want(self, probe: Probe) -> Callable[[], Any]:
        self._wanted.append(probe)
        return lambda: probe.answer


class StatementTries(Tries):
    """Asks PostgreSQL in one statement."""

    def __init__(self, fetcher: Fetcher, lookups: Sequence[Lookup]) -> None:
        super().__init__()
        self._fetcher, self._lookups = fetcher, lookups
        self._numbers: dict[int, int] = {}  # Of what is asked
        self._names: dict[Domain, str] = {}  # Of the relations with their values

    def answer(self, wanted: Sequence[Probe]) -> None:
        """Run the statement."""
        constants = Constants()
        domains = dict.fromkeys(one for probe in wanted for one in probe.of.domains.values())
        self._names = {domain: f"v{number}" for number, domain in enumerate(domains)}
        self._numbers = {id(probe): number for number, probe in enumerate(wanted)}
        values = [f"{name} AS ({one.write(constants)})" for one, name in self._names.items()]
        groups: dict[int, list[Probe]] = {}
        for probe in wanted:
            is_alone = probe.what in ("rank", "key", "cut")
            groups.setdefault(id(probe if is_alone else probe.of), []).append(probe)
        relations = [
            f"(\n{self._write(own, constants)}\n) AS a{number}"
            for number, own in enumerate(groups.values())
        ]
        given = f"WITH {', '.join(values)} " if values else ""
        (row,) = self._fetcher.fetch(
            f"{given}SELECT * FROM {' CROSS JOIN '.join(relations)}", *constants.bound
        )
        for probe in wanted:
            probe.answer = self._read(probe, row, self._numbers[id(probe)])

    def _write(self, group: Sequence[Probe], constants: Constants) -> str:
        """Write what is asked of the same combinations: one row."""
        of = group[0].of
        if group[0].what == "cut":
            names = [self._names[domain] for domain in of.domains.values()]
            return _write_cut(self._numbers[id(group[0])], group[0], constants, names)
        place = {name: f"d{k}.v" for k, name in enumerate(of.domains)}

        def spell(column: ex.Column) -> str:
            return place[column.name] if column.lookup is None else f"l{column.lookup}.{column.sql}"

        numbered = [(self._numbers[id(probe)], probe) for probe in group]
        expressions = [probe.expression for probe in group]
        _, *lookups = join_relations("", "", expressions, self._lookups, place)
        source = " ".join([*(of.source(constants, self._names) or [_ONE]), *lookups])
        columns = ", ".join(
            f"({write(probe.expression, spell, constants)}) AS x{n}" for n, probe in numbered
        )
        each = f"SELECT {columns}, {of.number} AS o FROM {source}"
        if group[0].what == "rank":
            return _write_rank(numbered[0][0], each)
        if group[0].what == "key":
            return _write_key(*numbered[0], each)
        shown = ", ".join(
            f"{_WRITTEN[probe.what].format(f'd.x{n}')} AS a{n}" for n, probe in numbered
        )
        return f"SELECT {shown} FROM ({each} OFFSET 0) AS d"

    def _read(self, probe: Probe, row: Row, n: int) -> Any:
        if probe.what == "cut":
            return _read_cut(probe, row, n)
        packed = row[f"a{n}"] or b""
        if len(packed) != probe.of.n * _BYTES.get(probe.what, 4):
            raise self._fetcher.changed()
        match probe.what:
            case "truth":
                digits = packed.encode() if isinstance(packed, str) else packed
                return np.frombuffer(digits, np.uint8) - np.uint8(ord("0"))
            case "number":
                numbers = np.frombuffer(packed, ">f8").astype(np.float64)
                is_null = np.frombuffer(packed, ">u8") == _NULL
                return self.read_numbers(probe, numbers, is_null)
        ranks = np.frombuffer(packed, ">i4").astype(np.int64)
        if probe.what == "rank":
            return np.where(ranks < 0, np.nan, ranks)
        return Ranked(ranks, row[f"t{n}"] if ranks.size else [])


Truth = NDArray[np.uint8]

_ONE: Final = "(VALUES (1)) AS one"

_WRITTEN: Final = {
    "truth": "string_agg(CASE {0} WHEN true THEN '2' WHEN false THEN '0' ELSE '1' END, ''"
    " ORDER BY d.o)",
    "number": f"string_agg(coalesce(float8send({{0}}::float8), int8send({_NULL})), ''::bytea"
    " ORDER BY d.o)",
}
"""How the answers are packed."""

_BYTES: Final = {"truth": 1, "number": 8}
"""What the answer for one value takes; others take 4."""


def _write_rank(n: int, each: str) -> str:
    place = f"CASE WHEN num_nulls(e.x{n}) = 0 THEN dense_rank() OVER (ORDER BY e.x{n}) - 1 END"
    return (
        f"SELECT string_agg(int4send(coalesce(k.r, -1)::int4), ''::bytea ORDER BY k.o) AS a{n}"
        f" FROM (SELECT e.o, {place} AS r FROM ({each}) AS e) AS k"
    )


def _write_key(n: int, probe: Probe, each: str) -> str:
    ranked = (
        f"SELECT e.o, e.x{n} AS v, dense_rank() OVER (ORDER BY e.x{n}) - 1 AS r FROM ({each}) AS e"
    )
    text = (
        f"SELECT k.r, coalesce(min(({probe.text}) COLLATE \"C\"), 'null') AS t FROM k GROUP BY k.r"
    )
    return (
        f"WITH k AS MATERIALIZED ({ranked}) SELECT"
        f" (SELECT string_agg(int4send(k.r::int4), ''::bytea ORDER BY k.o) FROM k) AS a{n},"
        f" (SELECT CASE WHEN sum(octet_length(u.t)) <= {MOST_TEXT}"
        f" THEN array_agg(u.t ORDER BY u.r) END FROM ({text}) AS u) AS t{n}"
    )


def _write_cut(n: int, probe: Probe, constants: Constants, names: Sequence[str]) -> str:
    column = probe.column
    if column is None:
        raise TypeError("an axis is that of a column")
    type_ = column.type
    pieces = multirange_of(probe.expression, type_, constants)
    null = write(probe.expression, lambda _: f"NULL::{type_.name}", constants)
    ends = ("lower(p.p)::float8", "upper(p.p)::float8", "float8send", "'-Infinity'", "'Infinity'")
    first, last, send, least, most = ends
    shown = "true"
    if not probe.of.domains:
        first = "CASE WHEN lower_inc(p.p) THEN ceil(lower(p.p)) ELSE floor(lower(p.p)) + 1 END"
        last = "CASE WHEN upper_inc(p.p) THEN floor(upper(p.p)) ELSE ceil(upper(p.p)) - 1 END"
        first, last = (
            f"greatest(least(coalesce({end}, {far}), {_FAR}), -{_FAR})::int8"
            for end, far in ((first, -_FAR), (last, _FAR))
        )
        send, least, most, shown = "int8send", f"-{_FAR}", str(_FAR), "c.first <= c.last"
    cut = (
        f"SELECT coalesce({first}, {least}) AS first, coalesce({last}, {most}) AS last,"
        " lower_inf(p.p) AS from_all, upper_inf(p.p) AS to_all"
        " FROM (SELECT unnest(m.m) AS p) AS p"
    )
    listed = (
        f"SELECT string_agg({send}(c.first) || {send}(c.last), ''::bytea ORDER BY c.first, c.last)"
        f" || boolsend(coalesce(bool_or(c.from_all), false))"
        f" || boolsend(coalesce(bool_or(c.to_all), false)) FROM ({cut}) AS c WHERE {shown}"
    )
    outcome = f"(CASE {null} WHEN true THEN 2 WHEN false THEN 0 ELSE 1 END)"
    columns = f"({listed}) AS a{n}, {outcome} AS t{n}"
    for name in names:
        place = place_of(type_, "d.v")
        columns += (
            ", (SELECT string_agg(int4send((SELECT count(*)::int4 FROM unnest(m.m) AS p (p)"
            " WHERE p.p << numrange(e.e, e.e, '[]'))) || boolsend(m.m @> e.e), ''::bytea"
            f" ORDER BY e.i) FROM (SELECT d.i, {place} AS e FROM {name} AS d"
            f" WHERE num_nulls(d.v) = 0 OFFSET 0) AS e) AS r{n}"
        )
    return f"SELECT {columns} FROM (SELECT {pieces} AS m OFFSET 0) AS m"


_FAR: Final = 1 << 61
"""Beyond all whole numbers of an axis."""


def _read_cut(probe: Probe, row: Row, n: int) -> AxisCut:
    packed = row[f"a{n}"]
    pieces, (from_all, to_all) = (b"", b"\0\0") if packed is None else (packed[:-2], packed[-2:])
    type_ = ">f8" if probe.of.domains else ">i8"
    ends = np.frombuffer(pieces, type_).astype(type_[1:]).reshape(-1, 2)
    regions = np.frombuffer(row.get(f"r{n}") or b"", [("n", ">i4"), ("is_in", "?")])
    return AxisCut(
        ends[:, 0], ends[:, 1], bool(from_all), bool(to_all), row[f"t{n}"],
        regions["n"].astype(np.int64), regions["is_in"],
    )  # fmt: skip
