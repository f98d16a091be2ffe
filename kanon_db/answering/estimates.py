"""Answering queries from published relations, with the caller's own rights.

What answers is imported when it is known what is asked, and of which publication: a session's first
estimate waits for it.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import NamedTuple, Self

from kanon_db.answering.opened import OpenQuery
from kanon_db.answering.scope import open_query
from kanon_db.answering.ways import BY_BITMAPS, by_bitmaps
from kanon_db.counting.answers import Estimated, Group, in_doubles, in_order, within_limit
from kanon_db.counting.checking import Formula, Measure, Query
from kanon_db.counting.ranking import order_warning
from kanon_db.counting.refusals import refusal
from kanon_db.session.protocol import Session


@dataclass(frozen=True)
class AnswerRow:
    """One aggregate of one group; its key is a JSON object."""

    group_key: str
    aggregate: str
    estimate: float | None
    std_error: float | None
    lower_bound: float | None
    upper_bound: float | None


class Answer(NamedTuple):
    """The answer to a query.

    Attributes
    ----------
    query : Query
    groups : list of Group
        The groups in the query's order; a query without GROUP BY has exactly one.
    """

    query: Query
    groups: list[Group]

    @classmethod
    def of(cls, opened: OpenQuery) -> Self:
        """Answer an opened query."""
        return cls(opened.query, answered(opened)[0])

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
    return Answer.of(opened).rows


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
    return Answer.of(open_query(session, query))


def _require_one_count(query: Query, other: str) -> None:
    if not query.is_one_count:
        raise refusal(
            "the select list must be what GROUP BY names, followed by one COUNT",
            hint=f"for SUM, AVG or several aggregates, use {other}",
        )


def answered(opened: OpenQuery) -> tuple[list[Group], str]:
    """Return the groups that HAVING and LIMIT leave, in order, and how they were counted."""
    groups, method = before_having(opened)
    groups = in_doubles(groups, [measure.aggregate for measure in opened.query.measures])
    if opened.query.formulas:
        from kanon_db.counting.calculated import with_calculated

        groups = with_calculated(groups, opened.query, opened.session.heartbeat)
    groups = in_order(groups, opened.query, opened.session.heartbeat)
    if warning := order_warning(groups, opened.query, opened.session.heartbeat):
        opened.session.tell(warning)
    return within_limit(groups, opened.query), method


def before_having(opened: OpenQuery) -> tuple[list[Group], str]:
    """Return all groups, and how they were counted."""
    groups = by_bitmaps(opened)
    if groups is not None:
        return groups, BY_BITMAPS
    from kanon_db.answering.measures import each_measure

    with opened.frugal():
        return each_measure(opened, before_having)
