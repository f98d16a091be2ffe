"""Answers a query with estimates, standard errors and certain bounds; draws whole records."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kanon_db.answers.scope import (
    BY_BITMAPS,
    OpenQuery,
    cell_layout,
    describe_estimator,
    open_query,
)
from kanon_db.catalog.entries import (
    Publication,
    find_publication,
    published_schema,
    require_whole,
)
from kanon_db.errors import InvalidParameterError, UnsupportedQueryError
from kanon_db.query.expressions import Column, Expression, Formula, Measure, Query, refusal
from kanon_db.query.formulas import Estimated, Group, in_doubles, in_order, within_limit
from kanon_db.query.layout import BucketLayout, BucketTables, CellDescription, parts_of, side_of
from kanon_db.session.protocol import Session, settings

if TYPE_CHECKING:  # what answers questions imports numpy only where it counts
    import numpy as np
    import numpy.typing as npt


def by_bitmaps(opened: OpenQuery) -> list[Group] | None:
    """Answer from the counts of buckets; None if that is not possible."""
    if not isinstance(opened.layout, BucketLayout):
        return None
    from kanon_db.answers._bitmap_counts import count_with_bitmaps

    return count_with_bitmaps(opened)


# Warning of an order by chance, where LIMIT or OFFSET makes a ranking of it.


_MOST_NAMED: Final = 5


def order_warning(
    groups: Sequence[Group], query: Query, heartbeat: Callable[[], None] = lambda: None
) -> str:
    """Name neighbouring groups whose order may be chance; empty if there are none.

    Parameters
    ----------
    groups : sequence of Group
        All groups in their order, with those that LIMIT and OFFSET leave out.
    query : Query
    heartbeat : callable, optional

    Notes
    -----
    Groups that are ordered by an estimate are read as a ranking only if LIMIT or OFFSET cuts them;
    others get no warning. The first and the last group shown are also compared with those cut off.
    """
    if not any(one.measure is not None for one in query.order):
        return ""
    if query.limit is None and not query.offset:
        return ""
    first = query.offset
    end = len(groups) if query.limit is None else min(first + query.limit, len(groups))
    found = []
    n_compared = 0
    for place in range(max(first, 1), min(end + 1, len(groups)) if first < end else 0):
        if place % 16 == 0:
            heartbeat()
        n_compared += 1
        if is_unsure(groups[place - 1], groups[place], query):
            found.append(place)
    if not found:
        return ""
    named = ", ".join(f"{place} and {place + 1}" for place in found[:_MOST_NAMED])
    more = ", ..." if len(found) > _MOST_NAMED else ""
    cut = f"; LIMIT leaves out those after place {end}" if end < len(groups) else ""
    return (
        f"the order of the groups is uncertain: {len(found)} of {n_compared} neighbours differ by"
        f" no more than their standard errors (places {named}{more}{cut})"
    )


def is_unsure(one: Group, other: Group, query: Query) -> bool:
    """Whether two groups differ by no more than the errors of the estimates they are ordered by.

    Examples
    --------
    >>> from kanon_db.query.expressions import Order
    >>> by_count = Query(None, (), (), order=(Order(None, 0, False, False),))
    >>> few, many = (Group("{}", (), (Estimated(n, 2, n - 5, n + 5),)) for n in (10, 12))
    >>> is_unsure(few, many, by_count)
    True
    """
    for order in query.order:
        if order.measure is None:
            place = order.key or 0
            if one.ranks[place] != other.ranks[place]:
                return False
            continue
        a, b = one.estimates[order.measure], other.estimates[order.measure]
        if a.estimate is None or b.estimate is None:
            return False  # these stand apart, at one end
        if _is_exact(a) and _is_exact(b):
            if a.estimate != b.estimate:
                return False
            continue
        if _below(a, b) or _below(b, a):
            return False
        if a.std_error is None or b.std_error is None:
            return True
        return abs(a.estimate - b.estimate) <= math.hypot(a.std_error, b.std_error)
    return False


def _is_exact(answer: Estimated) -> bool:
    return answer.lower_bound is not None and answer.lower_bound == answer.upper_bound


def _below(one: Estimated, other: Estimated) -> bool:
    if one.upper_bound is None or other.lower_bound is None:
        return False
    return one.upper_bound < other.lower_bound


# Answering queries from published relations, with the caller's own rights.
#
# The modules that answer are imported once query and publication are known, since a session's first
# estimate waits for every import.


@dataclass(frozen=True)
class AnswerRow:
    """One aggregate of one group; its key is a JSON object."""

    group_key: str
    aggregate: str
    estimate: float | None
    std_error: float | None
    lower_bound: float | None
    upper_bound: float | None
    likely_low: float | None
    likely_high: float | None


class QueryAnswer(NamedTuple):
    """The answer to a query."""

    query: Query
    groups: list[Group]  # The groups in the query's order; a query without GROUP BY has exactly one

    @classmethod
    def of(cls, opened: OpenQuery) -> Self:
        """Answer an opened query."""
        return cls(opened.query, answered(opened)[0])

    @property
    def shown(self) -> list[tuple[int, Measure | Formula]]:
        """The items of the select list, with their places in each group's estimates."""
        return self.query.shown

    @property
    def rows(self) -> list[AnswerRow]:
        """A row for each group and aggregate."""
        return [
            AnswerRow(group.key, measure.label, *astuple(group.estimates[place]))
            for group in self.groups
            for place, measure in self.shown
        ]


def estimate_count(session: Session, query: str) -> Estimated:
    """Answer a COUNT query without groups from a publication.

    Raises
    ------
    UnsupportedQueryError
        When the query is not answered; the error says why, and what to write instead.
    NotFoundError
        When there is no such publication, or the role may not read it.

    Notes
    -----
    Buckets count with bitmaps if every attribute of the query has them, which takes some
    milliseconds for a million records; joining QIT and SAT takes hundreds, for the same numbers.
    """
    return one_count(open_query(session, query))


def one_count(opened: OpenQuery) -> Estimated:
    """Answer an opened query as :func:`estimate_count`."""
    text = opened.text
    cut = text.having is not None or text.order or text.limit is not None or text.offset
    if opened.query.keys or cut:
        raise refusal(
            "kanon.estimate_count accepts no DISTINCT, GROUP BY, HAVING, ORDER BY or LIMIT",
            hint="use kanon.estimate_counts",
        )
    _require_one_count(opened.query, "kanon.estimate")
    ((group,), _) = answered(opened)
    return group.estimates[0]


def estimate_counts(session: Session, query: str) -> list[AnswerRow]:
    """Answer a COUNT query with GROUP BY.

    Returns
    -------
    list of AnswerRow
        A row for every group that can have records, unless HAVING or LIMIT leaves it out.

    Raises
    ------
    UnsupportedQueryError, NotFoundError
        As :func:`estimate_count`.
    """
    return counts(open_query(session, query))


def counts(opened: OpenQuery) -> list[AnswerRow]:
    """Answer an opened query as :func:`estimate_counts`."""
    _require_one_count(opened.query, "kanon.estimate")
    return QueryAnswer.of(opened).rows


def estimate(session: Session, query: str) -> list[AnswerRow]:
    """Answer a query with any aggregates, with a row for each group and aggregate.

    Raises
    ------
    UnsupportedQueryError, NotFoundError
        As :func:`estimate_count`.
    """
    return answer(session, query).rows


def answer(session: Session, query: str) -> QueryAnswer:
    """Answer a query with any aggregates, with or without groups.

    Raises
    ------
    UnsupportedQueryError, NotFoundError
        As :func:`estimate_count`.
    """
    return QueryAnswer.of(open_query(session, query))


def _require_one_count(query: Query, other: str) -> None:
    if not query.is_one_count:
        raise refusal(
            "the select list must be what GROUP BY names, followed by one COUNT",
            hint=f"for SUM, AVG or several aggregates, use {other}",
        )


def answered(opened: OpenQuery) -> tuple[list[Group], str]:
    """Return the groups after HAVING, ORDER BY and LIMIT, and the way they were counted."""
    groups, method = before_having(opened)
    groups = in_doubles(groups, [measure.aggregate for measure in opened.query.measures])
    if opened.query.formulas:
        from kanon_db.answers.measures import with_calculated

        groups = with_calculated(groups, opened.query, opened.session.heartbeat)
    groups = in_order(groups, opened.query, opened.session.heartbeat)
    if warning := order_warning(groups, opened.query, opened.session.heartbeat):
        opened.session.tell(warning)
    return within_limit(groups, opened.query), method


def before_having(opened: OpenQuery) -> tuple[list[Group], str]:
    """Return all groups, and the way they were counted."""
    groups = by_bitmaps(opened)
    if groups is not None:
        return groups, BY_BITMAPS
    from kanon_db.answers.measures import each_measure

    with opened.frugal():
        return each_measure(opened, before_having)


# Explaining answers, in words and as a statement.


def rewrite_count(session: Session, query: str) -> str:
    """Return one readable statement over the published view: the paper's estimate of a query.

    The statement gives the estimates of `kanon.estimator = 'paper'`, and runs wherever the view can
    be read.

    Raises
    ------
    UnsupportedQueryError
        When no single statement gives the answer, and as for :func:`estimate_count`.
    NotFoundError
        As for :func:`estimate_count`.
    """
    from kanon_db.answers.rewrite import rewritten

    return rewritten(open_query(session, query))


@dataclass(frozen=True)
class Explained:
    """A line of the result of `explain_count`."""

    # ``publication``, ``condition``, ``group``, ``aggregate``, ``method`` or ``statement``
    part: str
    description: str  # The part in words, or as SQL
    accuracy: str | None = None  # ``exact: …`` or ``estimated: …`` with the reason
    # Expected standard error of an aggregate, the largest of all groups
    std_error: float | None = None


def explain_count(session: Session, query: str) -> list[Explained]:
    """Say how a query is answered: which parts are exact, which are estimated, and how well.

    Raises
    ------
    UnsupportedQueryError, NotFoundError
        As for :func:`estimate_count`.
    """
    from kanon_db.query.sql import Constants, write

    opened = open_query(session, query)
    publication, checked = opened.publication, opened.query
    constants = Constants(session.literal)

    def line(part: str, expression: Expression) -> Explained:
        text = write(expression, _plain_name(opened), constants)
        return Explained(part, text, _accuracy(expression, opened))

    described = f"{publication.name}: {publication.kind}, {publication.records} records"
    if publication.left_out:
        described += f", {publication.left_out} of them left out"
    lines = [Explained("publication", described)]
    lines += [line("condition", part) for part in parts_of(checked.where)]
    lines += [line("group", key.expression) for key in checked.keys]
    groups, method = answered(opened)
    for place, measure in checked.shown:
        found = [group.estimates[place] for group in groups]
        expected = max((e.std_error for e in found if e.std_error is not None), default=0.0)
        is_exact = all(
            e.lower_bound == e.upper_bound and (e.estimate is None or e.lower_bound is not None)
            for e in found
        )
        accuracy = _EXACT if is_exact else _ESTIMATED[isinstance(opened.layout, BucketLayout)]
        if publication.left_out and not is_exact:
            accuracy += f"; {publication.left_out} records are left out"
        lines.append(Explained("aggregate", measure.label, accuracy, expected))
    lines.append(Explained("method", f"{method}; {describe_estimator(opened.layout)}"))
    return [*lines, Explained("statement", _statement(opened))]


def _statement(opened: OpenQuery) -> str:
    """Write the statement of the paper's estimate, or the reason why there is none."""
    from kanon_db.answers.rewrite import rewritten

    try:
        return rewritten(opened)
    except UnsupportedQueryError as refused:
        return f"none: {refused.message}"


_EXACT: Final = "exact"
_ESTIMATED: Final = {
    True: "estimated: a bucket hides which of its sensitive values a record has",
    False: "estimated: cells hide which of their values a record has",
}


def _accuracy(expression: Expression, opened: OpenQuery) -> str:
    """Say whether an expression is known exactly for each record."""
    layout = opened.layout
    if isinstance(layout, BucketLayout):
        side = side_of(expression, layout)
        if side is None:
            return "estimated: it combines quasi-identifiers with a sensitive attribute"
        if side == 1:
            return "exact: the sensitive values are published as they are"
        return "exact: the quasi-identifiers are published as they are"
    from kanon_db.query.likelihoods import accuracy_of

    return accuracy_of(expression, layout)


def _plain_name(opened: OpenQuery) -> Callable[[Column], str]:
    """Write columns without quotes, qualified if they are a lookup table's."""

    def spell(column: Column) -> str:
        if column.lookup is None:
            return column.sql
        relation = opened.text.lookups[column.lookup].relation
        return f"{opened.session.identifier(relation.alias or relation.name)}.{column.sql}"

    return spell


# Drawing whole records, from published relations alone.


DRAWS: Final = (
    "these records are draws, not people: they are made of the publication and of chance alone, and"
    " tell nothing that it does not tell"
)

_MOST_DRAWN: Final = 1_000_000
"""Records of which all are held in memory at once, as texts."""


class DrawnRecord(NamedTuple):
    """A record that was drawn, as a JSON object with its columns in their order."""

    record: str


def draw(session: Session, name: str, seed: int | None) -> list[DrawnRecord]:
    """Draw a record for each published one, in a random order.

    Raises
    ------
    InvalidParameterError
        For a kind whose values cannot be drawn, or more than 1,000,000 records.
    NotFoundError
        When there is no such publication, or the role may not read it.

    Notes
    -----
    In buckets, each record keeps its quasi-identifiers and gets one value of its bucket: by the
    published weights, as :func:`.draw_matchings` says, or all matchings alike where there are none.
    In generalized and freeform rows, each value of a set, or number of a range, is equally likely.
    """
    publication = find_publication(session, name)
    require_whole(publication)
    if publication.kind not in ("buckets", "generalized", "freeform"):
        raise InvalidParameterError(
            "records are drawn from buckets, and from generalized and freeform rows",
            detail=f'"{name}" is of the kind {publication.kind}',
            hint="publish buckets, or ask kanon.estimate",
        )
    if publication.records > _MOST_DRAWN:
        raise InvalidParameterError(
            "the publication is too large to draw all of its records",
            detail=f"{publication.records:,} records, limit {_MOST_DRAWN:,}",
            hint="publish a part of the source",
        )
    import numpy as np

    session.warn(DRAWS)
    random = np.random.default_rng(seed)
    schema = published_schema(session)
    # Texts of values must not depend on the caller's settings.
    with settings(session, {"intervalstyle": "iso_8601", "timezone": "UTC"}):
        if publication.kind == "buckets":
            tables = BucketTables.of(session, schema, name, publication.layout)
            texts = _drawn_from_buckets(session, tables, random)
        else:
            texts = _drawn_from_cells(session, schema, publication, random)
    return [DrawnRecord(texts[place]) for place in random.permutation(len(texts)).tolist()]


def _drawn_from_buckets(
    session: Session, tables: BucketTables, random: np.random.Generator
) -> list[str]:
    import numpy as np

    from kanon_db.algorithms.bucketization.bucket_assignment import draw_matchings
    from kanon_db.algorithms.bucketization.buckets import BucketSetting, in_slots
    from kanon_db.algorithms.ground.computation import Pulse

    session.step("reading the published relations")
    setting = BucketSetting.of(list(tables.sizes), tables.buckets_of_sizes)
    known = ", ".join(f"q.{one}" for one in tables.quasi_identifiers)
    # Without an order of slots, in that of the columns: the same seed must meet the same rows.
    order = tables.slot_order or known
    rows = session.stream(
        10_000,
        f"SELECT (SELECT row_to_json(r)::text FROM (SELECT {known}) AS r) AS record"
        f" FROM {tables.qit} AS q ORDER BY q.{tables.bucket_id}, {order}",
    )
    records = [row["record"] for row in rows]
    numbers: dict[str, int] = {}
    pairs = [
        (row["bucket"], numbers.setdefault(row["value"], len(numbers)), row["count"])
        for row in session.stream(
            10_000,
            f"SELECT s.{tables.bucket_id} AS bucket, s.{tables.count} AS count,"
            f" (SELECT row_to_json(r)::text FROM (SELECT {tables.values('s')}) AS r) AS value"
            f" FROM {tables.sat} AS s ORDER BY 1, 3",
        )
    ]
    buckets, values, counts = np.array(pairs, dtype=np.int64).reshape(-1, 3).T
    sizes = np.repeat(setting.sizes, setting.counts)
    starts = np.append(0, np.cumsum(sizes))
    n_values = np.bincount(buckets - 1, minlength=sizes.size)
    firsts = np.append(0, np.cumsum(n_values))
    offsets = np.append(0, np.cumsum(sizes * n_values))
    of_pair = sizes[buckets - 1]
    # By pair of a bucket and a value, the cells of its records in the table of weights.
    at = np.repeat(np.arange(buckets.size), of_pair)
    within = np.arange(at.size) - np.repeat(np.cumsum(of_pair) - of_pair, of_pair)
    row_of = starts[buckets - 1][at] + within
    column = np.arange(buckets.size) - firsts[buckets - 1]
    cell = offsets[buckets - 1][at] + within * n_values[buckets - 1][at] + column[at]
    weights = np.empty(int(offsets[-1]))
    weights[cell] = (counts / of_pair)[at]
    caps = np.ones(buckets.size)
    if tables.is_likely and tables.has_likely:
        bit_of = np.empty(len(records), dtype=np.int64)
        bit_of[in_slots(np.arange(len(records)), setting)] = np.arange(len(records))
        for number, levels, parts in _levels(session, tables, numbers):
            own = values[at] == number
            weights[cell[own]] = levels[bit_of[row_of[own]]] / parts
            caps[values == number] = int(levels.max(initial=0)) / parts
    session.step("drawing values")
    pulse = Pulse(heartbeat=session.heartbeat)
    drawn = values[draw_matchings(weights, starts, firsts, counts, caps, random, pulse)]
    texts = list(numbers)
    return [
        f"{record[:-1]},{texts[value][1:]}"
        for record, value in zip(records, drawn.tolist(), strict=True)
    ]


def _levels(
    session: Session, tables: BucketTables, numbers: Mapping[str, int]
) -> Iterator[tuple[int, npt.NDArray[np.int64], int]]:
    """Read the levels of each value's weights, by bit, and what they are parts of."""
    import numpy as np

    for row in session.stream(
        1,
        f"SELECT (SELECT row_to_json(r)::text FROM (SELECT {tables.values('w')}) AS r) AS value,"
        f" w.{tables.weights} AS weights, w.{tables.parts} AS parts FROM {tables.learned} AS w",
    ):
        length = (tables.n_records + 7) // 8
        planes = np.frombuffer(row["weights"], dtype=np.uint8).reshape(-1, length)
        levels = np.zeros(tables.n_records, dtype=np.int64)
        for digit, plane in enumerate(planes):
            bits = np.unpackbits(plane, bitorder="little", count=levels.size)
            levels += bits.astype(np.int64) << digit
        yield numbers[row["value"]], levels, row["parts"]


_WHOLE_TYPES: Final = ("smallint", "integer", "bigint")


def _drawn_from_cells(
    session: Session, schema: str, publication: Publication, random: np.random.Generator
) -> list[str]:
    layout = cell_layout(session, schema, publication)
    types = publication.layout["types"]
    cells = [layout.cells[name] for name in publication.layout["columns"]]
    shown = ", ".join(_cell_as_json(cell) for cell in cells)
    session.step("reading the published rows")
    rows = session.stream(
        10_000, f"SELECT json_build_array({shown})::text AS cells FROM {layout.view.view} AS v"
    )
    # The order of stored rows may differ after a restore; the same seed must meet the same rows.
    texts = sorted(row["cells"] for row in rows)
    session.step("drawing values")
    names = [cell.column.name for cell in cells]
    type_names = [str(types[name]["type"]) for name in names]
    drawn = []
    for done, text in enumerate(texts):
        if done % 10_000 == 0:
            session.heartbeat()
        found = [
            _drawn_value(cell, type_name, value, random)
            for cell, type_name, value in zip(cells, type_names, json.loads(text), strict=True)
        ]
        drawn.append(json.dumps(dict(zip(names, found, strict=True)), ensure_ascii=False))
    return drawn


def _cell_as_json(cell: CellDescription) -> str:
    """Write a cell for JSON: a range by its ends, and whether these belong to it."""
    name = f"v.{cell.column.sql}"
    if cell.kind != "range":
        return name
    ends = [f"{end}({name})" for end in ("lower", "upper")]
    return f"json_build_array({', '.join(ends)}, lower_inc({name}), upper_inc({name}))"


def _drawn_value(
    cell: CellDescription, type_name: str, found: Any, random: np.random.Generator
) -> Any:
    """Draw one of the values that a cell stands for; each is equally likely."""
    if found is None or cell.kind == "value" or cell.labels is not None:
        return found
    if cell.kind == "set":
        return found[int(random.integers(len(found)))]
    low, high, has_low, has_high = found
    if low is None or high is None:  # beyond one end nothing is known; without both, it is NULL
        return high if low is None else low
    if type_name == "date":
        first, last = (date.fromisoformat(end).toordinal() for end in (low, high))
        day = first + (not has_low) + int(random.integers(last - first + has_high - (not has_low)))
        return date.fromordinal(day).isoformat()
    if type_name.startswith("timestamp"):
        since, until = (datetime.fromisoformat(end) for end in (low, high))
        return (since + float(random.random()) * (until - since)).isoformat()
    if type_name in _WHOLE_TYPES:
        start, end = int(low) + (not has_low), int(high) + bool(has_high)
        return start + int(random.integers(end - start))
    return float(low) + float(random.random()) * (float(high) - float(low))
