"""Answering queries from published relations, with the caller's own rights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import Final

from kanon_db.answering.by_bitmaps import count_with_bitmaps
from kanon_db.answering.by_classes import Answers, count_with_classes
from kanon_db.answering.derived import counts_of, derived, is_derived
from kanon_db.answering.estimator import describe_estimator
from kanon_db.answering.scope import OpenQuery, open_query
from kanon_db.answering.wide import refuse_wide_groups
from kanon_db.counting.answers import NOTHING, Estimated, Group, in_order, known_as, within_limit
from kanon_db.counting.calculated import with_calculated
from kanon_db.counting.checking import Formula, Measure, Query
from kanon_db.counting.expressions import Aggregate, Column, Expression
from kanon_db.counting.layout import BucketLayout, CellLayout
from kanon_db.counting.ranking import order_warning
from kanon_db.counting.refusals import refusal
from kanon_db.counting.sides import parts_of, side_of
from kanon_db.counting.writing import Constants, Request, statement, write
from kanon_db.counting.writing.spread import accuracy_of
from kanon_db.session.protocol import Session
from kanon_db.session.settings import frugal


@dataclass(frozen=True)
class AnswerRow:
    """One aggregate of one group; its key is a JSON object."""

    group_key: str
    aggregate: str
    estimate: float | None
    std_error: float | None
    lower_bound: float | None
    upper_bound: float | None


@dataclass(frozen=True)
class Answer:
    """The answer to a query.

    Attributes
    ----------
    query : Query
    groups : list of Group
        The groups in the query's order; a query without GROUP BY has exactly one.
    """

    query: Query
    groups: list[Group]

    @property
    def shown(self) -> list[tuple[int, Measure | Formula]]:
        """What the select list shows, with its places in each group's estimates."""
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

    Returns
    -------
    Estimated

    Raises
    ------
    UnsupportedQueryError
        It gives the reason, and what is allowed.
    NotFoundError
        When there is no such publication, or the role may not read it.

    Notes
    -----
    If every attribute of the query has bitmaps, it counts with these, which takes some milliseconds
    for a million records; joining QIT and SAT takes hundreds. Both give the same numbers.
    """
    opened = open_query(session, query)
    text = opened.text
    cut = text.having is not None or text.order or text.limit is not None or text.offset
    if opened.query.keys or cut:
        raise refusal(
            "kanon.estimate_count accepts no DISTINCT, GROUP BY, HAVING, ORDER BY or LIMIT",
            hint="use kanon.estimate_counts",
        )
    _require_one_count(opened.query, "kanon.estimate")
    ((group,), _) = _answered(opened)
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
    opened = open_query(session, query)
    _require_one_count(opened.query, "kanon.estimate")
    return Answer(opened.query, _answered(opened)[0]).rows


def estimate(session: Session, query: str) -> list[AnswerRow]:
    """Answer a query with any aggregates, with a row for each group and aggregate.

    Raises
    ------
    UnsupportedQueryError, NotFoundError
        As :func:`estimate_count`.
    """
    return answer(session, query).rows


def answer(session: Session, query: str) -> Answer:
    """Answer a query with any aggregates, with or without groups.

    Raises
    ------
    UnsupportedQueryError, NotFoundError
        As :func:`estimate_count`.
    """
    opened = open_query(session, query)
    return Answer(opened.query, _answered(opened)[0])


def rewrite_count(session: Session, query: str) -> str:
    """Return the SQL over published tables that answers a query, including its constants.

    There is one statement for each aggregate. HAVING, ORDER BY and LIMIT are not part of it.

    Raises
    ------
    UnsupportedQueryError, NotFoundError
        As :func:`estimate_count`.
    """
    return ";\n".join(_statements(open_query(session, query)))


@dataclass(frozen=True)
class Explained:
    """A line of the result of `explain_count`.

    Attributes
    ----------
    part : str
        ``publication``, ``condition``, ``group``, ``aggregate``, ``method`` or ``statement``.
    description : str
        The part itself, as SQL if it is SQL.
    accuracy : str or None
        ``exact: …`` or ``estimated: …`` with the reason.
    std_error : float or None
        Expected standard error of an aggregate, the largest one of all groups.
    """

    part: str
    description: str
    accuracy: str | None = None
    std_error: float | None = None


def explain_count(session: Session, query: str) -> list[Explained]:
    """Say how a query is answered: which parts are exact, which are estimated, and how well.

    Raises
    ------
    UnsupportedQueryError, NotFoundError
        As :func:`estimate_count`.
    """
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
    groups, method = _answered(opened)
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
    return lines + [Explained("statement", text) for text in _statements(opened)]


_EXACT: Final = "exact"
_ESTIMATED: Final = {
    True: "estimated: a bucket hides which of its sensitive values a record has",
    False: "estimated: cells hide which of their values a record has",
}


def _accuracy(expression: Expression, opened: OpenQuery) -> str:
    """Say what is known about an expression, record by record."""
    layout = opened.layout
    if isinstance(layout, BucketLayout):
        side = side_of(expression, layout)
        if side is None:
            return "estimated: it combines quasi-identifiers with the sensitive attribute"
        if side == 1:
            return "exact: the sensitive values are published as they are"
        return "exact: the quasi-identifiers are published as they are"
    return accuracy_of(expression, layout)


def _plain_name(opened: OpenQuery) -> Callable[[Column], str]:
    """Name columns as a person would, and qualify those of lookup tables."""

    def spell(column: Column) -> str:
        if column.lookup is None:
            return column.sql
        relation = opened.text.lookups[column.lookup].relation
        return f"{opened.session.identifier(relation.alias or relation.name)}.{column.sql}"

    return spell


def _require_one_count(query: Query, other: str) -> None:
    if not query.is_one_count:
        raise refusal(
            "the select list must be what GROUP BY names, followed by one COUNT",
            hint=f"for SUM, AVG or several aggregates, use {other}",
        )


def _answered(opened: OpenQuery) -> tuple[list[Group], str]:
    """Return the groups that HAVING and LIMIT leave, in order, and how they were counted."""
    groups, method = _before_having(opened)
    groups = with_calculated(groups, opened.query, opened.session.heartbeat)
    groups = in_order(groups, opened.query, opened.session.heartbeat)
    if warning := order_warning(groups, opened.query, opened.session.heartbeat):
        opened.session.tell(warning)
    return within_limit(groups, opened.query), method


def _before_having(opened: OpenQuery) -> tuple[list[Group], str]:
    groups, method = count_with_bitmaps(opened), "bitmaps of each attribute's values"
    if groups is None:
        with frugal(opened.session, opened.limits.working):
            groups, method = _run(opened)
    return groups, method


BY_CLASSES: Final = "the numbers of published cells"
_BY_STATEMENT: Final = "the statement"


def _run(opened: OpenQuery) -> tuple[list[Group], str]:
    """Answer each measure, collect the answers for each group, and say how they were found."""
    methods = set()
    query = opened.query
    if isinstance(opened.layout, CellLayout):
        refuse_wide_groups(opened, opened.layout)
    aggregates = [measure.aggregate for measure in query.measures]
    everybody = Aggregate("count", None)
    # A group whose values are all NULL has no sum, but it is still a group.
    asked = aggregates if everybody in aggregates or not query.keys else [*aggregates, everybody]
    n_asked = len(asked) + len(query.formulas)

    def plain(aggregate: Aggregate) -> Answers:
        found, method = _rows(opened, aggregate, n_asked)
        methods.add(method)
        return found

    def ask(one: OpenQuery) -> list[Group]:
        found, method = _before_having(one)
        methods.add(method)
        return found

    listed: Answers = plain(everybody) if query.keys else {"{}": ((), NOTHING)}

    def rows(aggregate: Aggregate) -> Answers:
        if query.keys and aggregate == everybody:
            return listed
        if not is_derived(opened, aggregate):
            return plain(aggregate)
        of = derived(opened, aggregate, ask)
        return {key: ((), of[known_as(key)]) for key in listed if known_as(key) in of}

    found = [rows(aggregate) for aggregate in aggregates]
    empty = [
        Estimated(0.0, 0.0, 0, 0) if aggregate.function in ("count", "distinct") else NOTHING
        for aggregate in aggregates
    ]

    def estimates(key: str) -> tuple[Estimated, ...]:
        pairs = zip(found, empty, strict=True)
        return tuple(rows[key][1] if key in rows else nothing for rows, nothing in pairs)

    groups = [Group(key, ranks, estimates(key)) for key, (ranks, _) in listed.items()]
    return groups, BY_CLASSES if methods == {BY_CLASSES} else _BY_STATEMENT


def _rows(opened: OpenQuery, aggregate: Aggregate, n_asked: int) -> tuple[Answers, str]:
    """Return the ranks and the answer of each group to one aggregate, and how they were found.

    Raises
    ------
    UnsupportedQueryError
        When the answers to all `n_asked` aggregates would be too many, or their keys too long.
    """
    most = opened.limits.n_answers // n_asked
    request = Request(opened.query, aggregate, opened.lookups, most=most + 1)
    by_classes = count_with_classes(opened, request)
    if by_classes is not None:
        return by_classes, BY_CLASSES
    written = statement(request, opened.layout)
    names = [f"rank_{i}" for i in range(len(opened.query.keys))]
    text, limits = written.text, opened.limits
    if names:
        size = "sum(octet_length(a.group_key)) OVER (ROWS UNBOUNDED PRECEDING)"
        text = f"SELECT a.*, {size} <= {limits.text} AS fits FROM (\n{text}\n) AS a"
    found: Answers = {}
    for row in opened.fetch(text, *written.bound):
        if names and (len(found) == most or not row["fits"]):
            raise limits.too_many()
        answer = (row["estimate"], row["std_error"], row["lower_bound"], row["upper_bound"])
        ranks = tuple(row[name] for name in names)
        found[row["group_key"] if names else "{}"] = (ranks, Estimated(*answer))
    return found, _BY_STATEMENT


def _statements(opened: OpenQuery) -> list[str]:
    """Write the statement of each aggregate that is shown, including constants."""
    literal, limits = opened.session.literal, opened.limits
    written: list[str] = []
    for aggregate in opened.query.shown_aggregates:
        opened.session.heartbeat()
        queries = [replace(opened.query, measures=(Measure("", aggregate),))]
        if is_derived(opened, aggregate):
            queries = list(counts_of(opened, aggregate))
        for query in queries:
            request = Request(query, query.measures[0].aggregate, opened.lookups, literal)
            written.append(statement(request, opened.layout).text)
        if sum(map(len, written)) > limits.text:
            raise refusal(
                "the statements of the query are too long to show",
                hint="ask for fewer aggregates at a time, or use shorter lists",
                detail=f"{limits.text} characters are allowed",
            )
    return written
