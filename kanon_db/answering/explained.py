"""How a query is answered, in words and as statements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kanon_db.answering.derived import counts_of, is_derived
from kanon_db.answering.estimates import answered
from kanon_db.answering.estimator import describe_estimator
from kanon_db.answering.opened import OpenQuery
from kanon_db.answering.scope import open_query
from kanon_db.counting.checking import Measure
from kanon_db.counting.expressions import Column, Expression
from kanon_db.counting.layout import BucketLayout
from kanon_db.counting.refusals import refusal
from kanon_db.counting.sides import parts_of, side_of
from kanon_db.counting.writing.spread import accuracy_of
from kanon_db.counting.writing.sql import Constants, write
from kanon_db.counting.writing.statements import statement
from kanon_db.counting.writing.writer import Request
from kanon_db.session.protocol import Session


def rewrite_count(session: Session, query: str) -> str:
    """Return the SQL over published tables that answers a query, including its constants.

    There is one statement for each aggregate. HAVING, ORDER BY and LIMIT are not part of it.

    Raises
    ------
    UnsupportedQueryError, NotFoundError
        As `kanon_db.answering.estimates.estimate_count`.
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
        As `kanon_db.answering.estimates.estimate_count`.
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


def _statements(opened: OpenQuery) -> list[str]:
    """Write the statement of each aggregate that is shown, including constants."""
    literal, limits = opened.session.literal, opened.limits
    written: list[str] = []
    for aggregate in opened.query.shown_aggregates:
        opened.session.heartbeat()
        queries = [opened.query._replace(measures=(Measure("", aggregate),))]
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
