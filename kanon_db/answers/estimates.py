"""Answers a query with estimates, standard errors and certain bounds, and explains how."""

from __future__ import annotations

import json
import math
import operator as operators
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kanon_db.answers.scope import OpenQuery, describe_estimator, open_text, read_here
from kanon_db.catalog.entries import published_schema
from kanon_db.dataclasses import dataclass
from kanon_db.errors import UnsupportedQueryError
from kanon_db.figures import FigureRule, few_last, show, with_people
from kanon_db.publications.registry import kind_named
from kanon_db.query import expressions as ex
from kanon_db.query.expressions import (
    DERIVED,
    Column,
    Comparison,
    Constant,
    Distinct,
    Expression,
    Formula,
    Key,
    Literal,
    Measure,
    Membership,
    Order,
    Query,
    QueryText,
    Rounded,
    Values,
    WindowTotal,
    attributes,
    refusal,
    walk,
)
from kanon_db.query.formulas import (
    COMPARISONS,
    Estimated,
    Group,
    common_spelling,
    in_doubles,
    split_key,
    with_calculated,
    write_key,
)
from kanon_db.query.layout import BucketLayout, CellLayout, parts_of
from kanon_db.query.subqueries import settle
from kanon_db.session.protocol import Session

if TYPE_CHECKING:
    from kanon_db.publications.kind import AttackTarget, RandomQueries, Usefulness

_MOST_NAMED: Final = 5
_MOST_LISTED: Final = 1000
"""The most values that a subquery may put into a query."""

_LAST: Final = 2**62
"""The place of a column that a set of GROUP BY does not have: totals come last."""


def within_limit(groups: Sequence[Group], query: Query) -> list[Group]:
    """Apply OFFSET and LIMIT."""
    end = None if query.limit is None else query.offset + query.limit
    return list(groups[query.offset : end])


def in_order(
    groups: Sequence[Group], query: Query, heartbeat: Callable[[], None] = lambda: None
) -> list[Group]:
    """Apply HAVING and ORDER BY to the estimates."""
    # Without ORDER BY, groups come in the order of their values. The heartbeat is called every few
    # milliseconds, or for each item of ORDER BY.
    expressions = [measure.aggregate for measure in query.measures]
    formulas = [formula.expression for formula in query.formulas]
    places = {one: place for place, one in enumerate([*expressions, *formulas])}
    kept = sorted(groups, key=lambda group: group.ranks)
    if query.having is not None:
        kept_groups = []
        # A product of constants that are allowed may have more digits than Decimal's default.
        with localcontext(Emax=MAX_EMAX, Emin=MIN_EMIN):
            for number, group in enumerate(kept):
                if number % 16 == 0:
                    heartbeat()
                if _holds(query.having, group, places):
                    kept_groups.append(group)
        kept = kept_groups
    for order in reversed(query.order):
        heartbeat()
        kept = _order(kept, order, query)
    return kept


def _order(groups: list[Group], order: Order, query: Query) -> list[Group]:
    def value(group: Group) -> float | None:
        if order.measure is not None:
            return group.estimates[order.measure].estimate
        place = order.key or 0
        is_null = json.loads(group.key)[query.keys[place].name] is None
        return None if is_null else group.ranks[place]

    unknown = [group for group in groups if value(group) is None]
    known = [group for group in groups if value(group) is not None]
    known.sort(key=lambda group: value(group) or 0, reverse=order.is_descending)
    return unknown + known if order.nulls_first else known + unknown


_OPERATORS: Final[Mapping[str, Callable[[Decimal, Decimal], Decimal]]] = {
    "+": operators.add,
    "-": operators.sub,
    "*": operators.mul,
    "/": operators.truediv,
}


def _holds(
    condition: ex.Expression, group: Group, places: Mapping[ex.Expression, int]
) -> bool | None:
    """Evaluate a condition of HAVING in SQL's three-valued logic."""

    def number(expression: ex.Expression) -> Decimal | None:
        match expression:
            case ex.Aggregate() | ex.Statistic():
                estimate = group.estimates[places[expression]].estimate
                return None if estimate is None else Decimal(estimate)
            case ex.Literal(_, text):
                return Decimal(text)
            case ex.Negative(operand):
                inner = number(operand)
                return None if inner is None else -inner
            case ex.Cast(operand, _):
                return number(operand)
            case Rounded(operand):
                inner = number(operand)
                return None if inner is None else Decimal(expression.of(float(inner)))
            case ex.NullIf(left, right):
                one, other = number(left), number(right)
                return None if one == other else one
            case ex.Coalesce((operand, otherwise)):
                inner = number(operand)
                return number(otherwise) if inner is None else inner
            case ex.Case(branches, default):
                for when, then in branches:
                    if _holds(when, group, places):
                        return number(then)
                return None if default is None else number(default)
            case ex.Arithmetic(operator, left, right):
                one, other = number(left), number(right)
                # What is divided by an estimate of 0 is not known.
                if one is None or other is None or (operator == "/" and other == 0):
                    return None
                return _OPERATORS[operator](one, other)
        raise TypeError(f"{type(expression).__name__} is not checked")

    match condition:
        case ex.Comparison() | ex.NullTest() if group.hidden and any(
            places.get(part) in group.hidden for part in ex.walk(condition)
        ):
            return None  # A figure that is not shown is no NULL.
        case ex.And(parts) | ex.Or(parts):
            truths = [_holds(part, group, places) for part in parts]
            decisive = isinstance(condition, ex.Or)
            if decisive in truths:
                return decisive
            return None if None in truths else not decisive
        case ex.Not(part):
            inner = _holds(part, group, places)
            return None if inner is None else not inner
        case ex.NullTest(operand, negated):
            return (number(operand) is None) != negated
        case ex.Range():
            return _holds(ex.spell_out(condition), group, places)
        case ex.Comparison(operator, left, right):
            one, other = number(left), number(right)
            if one is None or other is None:
                return None
            return COMPARISONS[operator](one, other)
    raise TypeError(f"{type(condition).__name__} is not checked")


def order_warning(
    groups: Sequence[Group], query: Query, heartbeat: Callable[[], None] = lambda: None
) -> str:
    """Name neighbouring groups whose order may be chance; empty if there are none.

    `groups`: all groups in their order, with those that LIMIT and OFFSET leave out.
    """
    # Groups that are ordered by an estimate are read as a ranking only if LIMIT or OFFSET cuts
    # them; others get no warning. The first and the last group shown are also compared with those
    # cut off.
    if not any(one.measure is not None for one in query.order):
        return ""
    if query.limit is None and not query.offset:
        return ""
    first = query.offset
    end = len(groups) if query.limit is None else min(first + query.limit, len(groups))
    places = []
    n_compared = 0
    for place in range(max(first, 1), min(end + 1, len(groups)) if first < end else 0):
        if place % 16 == 0:
            heartbeat()
        n_compared += 1
        if is_unsure(groups[place - 1], groups[place], query):
            places.append(place)
    if not places:
        return ""
    named = ", ".join(f"{place} and {place + 1}" for place in places[:_MOST_NAMED])
    more = ", ..." if len(places) > _MOST_NAMED else ""
    cut = f"; LIMIT leaves out those after place {end}" if end < len(groups) else ""
    return (
        f"the order of the groups is uncertain: {len(places)} of {n_compared} neighbours differ by"
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
    # What the key names, in the query's order
    names: tuple[str, ...] = field(default=(), kw_only=True)


class QueryAnswer(NamedTuple):
    """The answer to a query."""

    query: Query
    groups: list[Group]  # The groups in the query's order; a query without GROUP BY has exactly one
    notes: Sequence[str] = ()  # What the numbers do not say
    figures: FigureRule | None = None  # The rule by which they are shown

    @classmethod
    def of(cls, opened: OpenQuery) -> Self:
        """Answer an opened query."""
        groups = answered(opened)
        query = opened.query.asked
        notes = [*notes_of(opened), *_notes_on_width(query, groups, opened.figures)]
        return cls(query, groups, notes, opened.figures)

    @classmethod
    def told(cls, opened: OpenQuery) -> Self:
        """Answer an opened query, and tell the caller the notes."""
        answer = cls.of(opened)
        for note in answer.notes:
            opened.session.tell(note)
        return answer

    @property
    def shown(self) -> list[tuple[int, Measure | Formula]]:
        """The items of the select list, with their places in each group's estimates."""
        return self.query.shown

    @property
    def rows(self) -> list[AnswerRow]:
        """A row for each group and aggregate."""
        return [
            AnswerRow(
                group.key, measure.label, *group.estimates[place].numbers, names=self.query.names
            )
            for group in self.groups
            for place, measure in self.shown
        ]


def estimate_count(
    session: Session,
    query: str,
    figures: FigureRule | None = None,
    params: Values | None = None,
    publication: str | None = None,
) -> Estimated:
    """Answer a COUNT query without groups from a publication.

    Raises NotFoundError when there is no such publication, or the role may not read it.
    """
    # Raises UnsupportedQueryError when the query is not answered; the error says why, and what to
    # write instead.
    return one_count(open_query(session, query, figures, params, publication))


def one_count(opened: OpenQuery) -> Estimated:
    """Answer an opened query as :func:`estimate_count`."""
    text = opened.text.outer or opened.text
    cut = text.having is not None or text.order or text.limit is not None or text.offset
    if opened.query.asked.keys or cut:
        raise refusal(
            "kanon.estimate_count accepts no DISTINCT, GROUP BY, HAVING, ORDER BY or LIMIT",
            hint="use kanon.estimate_counts",
        )
    _require_one_count(opened.query.asked)
    (group,) = QueryAnswer.told(opened).groups
    return group.estimates[0]


def estimate_counts(
    session: Session,
    query: str,
    figures: FigureRule | None = None,
    params: Values | None = None,
    publication: str | None = None,
) -> list[AnswerRow]:
    """Answer a COUNT query with GROUP BY.

    Returns a row for every group that can have records, unless HAVING or LIMIT leaves it out.
    """
    # Raises UnsupportedQueryError, NotFoundError as :func:`estimate_count`.
    return counts(open_query(session, query, figures, params, publication))


def counts(opened: OpenQuery) -> list[AnswerRow]:
    """Answer an opened query as :func:`estimate_counts`."""
    _require_one_count(opened.query.asked)
    return QueryAnswer.told(opened).rows


def estimate(
    session: Session,
    query: str,
    figures: FigureRule | None = None,
    params: Values | None = None,
    publication: str | None = None,
) -> list[AnswerRow]:
    """Answer a query with any aggregates, with a row for each group and aggregate.

    Raises UnsupportedQueryError, NotFoundError as :func:`estimate_count`.
    """
    return QueryAnswer.told(open_query(session, query, figures, params, publication)).rows


def answer(
    session: Session,
    query: str,
    figures: FigureRule | None = None,
    params: Values | None = None,
    publication: str | None = None,
) -> QueryAnswer:
    """Answer a query with any aggregates, with or without groups.

    Raises UnsupportedQueryError, NotFoundError as :func:`estimate_count`.
    """
    return QueryAnswer.of(open_query(session, query, figures, params, publication))


def open_query(
    session: Session,
    query: str,
    figures: FigureRule | None = None,
    params: Values | None = None,
    publication: str | None = None,
) -> OpenQuery:
    """Open a query; `publication` answers it where it names the source.

    Raises UnsupportedQueryError, NotFoundError as :func:`estimate_count`.
    """
    schema = published_schema(session)
    text = read_here(session, query, schema, params)
    return open_settled(text, lambda one: open_text(session, one, schema, figures, publication))


def open_settled(text: QueryText, opener: Callable[[QueryText], OpenQuery]) -> OpenQuery:
    """Open a query; what its conditions ask of subqueries is answered first."""
    text, n_listed = settle(text, lambda one: _list_rows(opener(one)))
    return replace(opener(text), n_listed=n_listed)


def _list_rows(opened: OpenQuery) -> list[tuple[Expression | None, ...]]:
    """Answer a question with constants, as it lists them; None for NULL."""
    names = [item.alias or "" for item in opened.text.items]
    groups = answered(opened)
    if len(groups) * len(names) > _MOST_LISTED:
        raise refusal(
            f"a subquery that is answered first lists more than {_MOST_LISTED:,} values",
            hint="ask for the first of them, with ORDER BY ... LIMIT",
        )
    types = {
        key.name: key.expression.type.name for key in opened.query.keys
        if isinstance(key.expression, Column)
    }  # fmt: skip
    if any(name.endswith("[]") or name == "jsonb" for name in types.values()):
        raise refusal(
            "a subquery that is answered first lists no arrays and no JSON",
            hint="ask the subquery by itself, and write its values as constants",
        )
    rows = []
    for group in groups:
        values = split_key(group.key)
        # A number of single precision equals none that its digits are, unless these are quoted.
        rows.append(tuple(_constant(values[name], types.get(name) == "real") for name in names))
    return rows


def _constant(text: str, is_quoted: bool) -> Expression | None:
    """Write a value of a key, as JSON, as a constant."""
    if text == "null":
        return None
    if text in ("true", "false"):
        return Literal("boolean", text)
    if text.startswith('"'):
        return Literal("string", json.loads(text))
    return Literal("string" if is_quoted else "number", text)


def _require_one_count(query: Query) -> None:
    if not query.is_one_count:
        raise refusal(
            "the select list must be what GROUP BY names, followed by one COUNT",
            hint="for SUM, AVG or several aggregates, use kanon.estimate",
        )


def answered(opened: OpenQuery) -> list[Group]:
    """Return the groups after HAVING, ORDER BY and LIMIT."""
    outer = opened.query.asked
    query = outer if opened.figures is None else few_last(outer)
    ask = _answer_groups if outer is opened.query else _answer_outer
    groups = _answer_sets(opened) if query.sets else ask(opened)
    groups = in_order(groups, query, opened.session.heartbeat)
    if warning := order_warning(groups, query, opened.session.heartbeat):
        opened.session.tell(warning)
    fixed = {name: json.loads(value) for name, value in query.fixed}
    groups = within_limit(groups, query)
    return [_with_values(group, fixed) for group in groups] if fixed else groups


def _answer_outer(opened: OpenQuery) -> list[Group]:
    """Answer a query over groups from the answer of these."""
    from kanon_db.answers._group_aggregates import aggregate_groups

    query, rule, heartbeat = opened.query, opened.figures, opened.session.heartbeat
    groups = _each_aggregate(opened)
    if query.offset or (query.limit is not None and query.limit < len(groups)):
        raise refusal(
            "a subquery with LIMIT is aggregated: which groups are left is not known",
            hint="leave LIMIT out, or ask the subquery itself",
        )
    if rule is not None:
        groups = show(groups, query, rule)
    n_missing = opened.publication.records if missing_groups(opened) else 0
    groups = aggregate_groups(groups, query, heartbeat, rule, n_missing)
    return with_calculated(groups, query.asked, heartbeat)


def _with_values(group: Group, values: Mapping[str, object]) -> Group:
    """Put more values behind those of a group's key, whose numbers keep all their digits."""
    written = split_key(group.key) | {name: json.dumps(value) for name, value in values.items()}
    return group._replace(key=write_key(written, written.values()))


def _answer_groups(opened: OpenQuery) -> list[Group]:
    """Answer what is asked of each group, calculations as well."""
    groups, rule, exact = _each_aggregate(opened), opened.figures, None
    if rule is not None:
        exact, groups = groups, show(groups, opened.query, rule)
    if opened.query.formulas:
        heartbeat = opened.session.heartbeat
        groups = with_calculated(groups, opened.query, heartbeat, _totals(opened), exact)
    return groups


def _answer_sets(opened: OpenQuery) -> list[Group]:
    """Answer each set of GROUP BY; columns that a set does not have are NULL, as in PostgreSQL."""
    query = opened.query
    ranks: defaultdict[Key, dict[str, int]] = defaultdict(dict)  # of values, as they are written
    groups = []
    for keys in query.sets:
        of_set = replace(opened, query=query._replace(keys=keys, sets=()))
        names: dict[str, object] = {key.name: None for key in query.keys if key not in keys}
        marks = {name: int(key not in keys) for name, key in query.marks}
        for group in _answer_groups(of_set):
            values = json.loads(group.key)
            own = dict(zip(keys, group.ranks, strict=True))
            places = [
                ranks[key].setdefault(json.dumps(values[key.name]), own[key])
                if key in own
                else _LAST
                for key in query.keys
            ]
            groups.append(_with_values(group._replace(ranks=tuple(places)), {**names, **marks}))
        if len(groups) * len(query.measures) > opened.limits.n_answers:
            raise opened.limits.too_many()
    return groups


def _each_aggregate(opened: OpenQuery) -> list[Group]:
    """Answer the aggregates; under a rule of figures, also how many people each is of."""
    if opened.figures is not None:
        opened = replace(opened, query=with_people(opened.query))
    aggregates = [measure.aggregate for measure in opened.query.measures]
    return in_doubles(_before_having(opened), aggregates)


def missing_groups(opened: OpenQuery) -> list[str]:
    """Say why there may be groups that are not listed."""
    layout, query = opened.layout, opened.query
    if not isinstance(layout, CellLayout) or not query.keys:
        return []
    names = {name for key in query.keys for name in attributes(key.expression)}
    reasons = [
        f'cells of column "{name}" are suppressed'
        for name in sorted(names)
        if opened.has_cells(layout.cells[name], hidden=True)
    ]
    if opened.publication.left_out:
        reasons.append(f"{opened.n_left_out} records are left out")
    return reasons


def notes_of(opened: OpenQuery) -> list[str]:
    """Say what the numbers of an answer do not: which records they are of, and what is missing."""
    publication, query = opened.publication, opened.query
    notes = [] if publication.kept_note is None else [publication.kept_note]
    if opened.figures is not None:
        notes.append(str(opened.figures))
    if reasons := missing_groups(opened):
        notes.append(f"there may be groups that are not listed: {', '.join(reasons)}")
    if opened.n_listed:
        notes.append(
            f"subqueries were answered first, and {opened.n_listed} of their rows stand in their"
            " places: bounds are those of the question with these rows, which were chosen by"
            " estimates"
        )
    notes += [
        f"{measure.label} is in seconds since 1970: to_timestamp(...) makes them a date"
        for measure in query.measures
        if measure.is_shown and measure.aggregate.is_moment
    ]
    for column, constants in _text_constants(query).items():
        n, n_absent = len(constants), opened.n_absent(column, constants)
        if n_absent:
            some = "the value" if n == 1 else f"{n_absent} of the {n} values"
            notes.append(
                f'no published record has {some} that column "{column.name}" is compared with'
            )
    return notes


def _notes_on_width(
    query: Query, groups: Sequence[Group], rule: FigureRule | None
) -> Iterator[str]:
    """Say which numbers an analyst learns nothing from; what a rule rounds is not untold."""
    finest = 0 if rule is None else rule.round
    for place, measure in query.shown:
        n_untold = sum(group.estimates[place].is_untold(finest) for group in groups)
        if n_untold:
            where = f" in {n_untold} of {len(groups)} groups" if query.keys else ""
            yield (
                f"this publication does not tell {measure.label}{where}: nearly all that is"
                " possible is likely"
            )


def _text_constants(query: Query) -> dict[Column, list[Constant]]:
    """Collect the constants that columns of texts, labels and the like are compared with."""
    constants: defaultdict[Column, dict[Constant, None]] = defaultdict(dict)
    for part in (inner for one in query.evaluated for inner in walk(one)):
        match part:
            case Comparison("=" | "<>", left, right) | Distinct(left, right):
                operands: tuple[Expression, ...] = (left, right)
            case Membership(operand, items):
                operands = (operand, *items)
            case _:
                continue
        columns = [one for one in operands if isinstance(one, Column) and one.lookup is None]
        if len(columns) == 1 and columns[0].type.category in ("text", "label", "other"):
            constants[columns[0]] |= {
                one: None for one in operands if isinstance(one, Constant) and one.text is not None
            }
    return {column: list(own) for column, own in constants.items() if own}


def _totals(opened: OpenQuery) -> dict[WindowTotal, dict[str, Estimated]]:
    """Answer the totals of groups that the query calculates with."""
    wanted = dict.fromkeys(
        part
        for formula in opened.query.formulas
        for part in walk(formula.expression)
        if isinstance(part, WindowTotal)
    )
    estimates: dict[WindowTotal, dict[str, Estimated]] = {}
    for total in wanted:
        where = opened.query.where if total.is_filtered else None
        keys = tuple(key for key in opened.query.keys if key.expression in total.by)
        query = Query(where, keys, (Measure("", total.aggregate),), listed=(0,))
        groups = _answer_groups(replace(opened, query=query))
        estimates[total] = {common_spelling(group.key): group.estimates[0] for group in groups}
    return estimates


def _before_having(opened: OpenQuery) -> list[Group]:
    """Return all groups."""
    measures = opened.query.measures
    is_one = len(measures) == 1 and measures[0].aggregate.function not in DERIVED
    if is_one and isinstance(opened.layout, BucketLayout):
        from kanon_db.answers.buckets.bucket_evidence import answer_in_buckets

        return answer_in_buckets(opened, [measures[0].aggregate])
    from kanon_db.answers.measures import each_measure

    with opened.frugal():
        return each_measure(opened)


def rewrite_count(
    session: Session,
    query: str,
    params: Values | None = None,
    publication: str | None = None,
) -> str:
    """Return one readable statement that gives the estimates of a query.

    Raises NotFoundError as for :func:`estimate_count`.
    """
    # Raises UnsupportedQueryError when no single statement gives the answer, and as for
    # :func:`estimate_count`.
    from kanon_db.answers.rewrite import rewritten

    return rewritten(open_query(session, query, None, params, publication))


@dataclass(frozen=True)
class Explained:
    """A line of the result of `explain_count`."""

    # ``publication``, ``note``, ``condition``, ``group``, ``aggregate``, ``plan``, ``estimator``,
    # ``statement``
    part: str
    description: str  # The part in words, or as SQL
    accuracy: str | None = None  # ``exact: …`` or ``estimated: …`` with the reason
    # Expected standard error of an aggregate, the largest of all groups
    std_error: float | None = None


def explain_count(
    session: Session,
    query: str,
    params: Values | None = None,
    publication: str | None = None,
) -> list[Explained]:
    """Say how a query is answered: which parts are exact, which are estimated, and how well.

    Raises UnsupportedQueryError, NotFoundError as for :func:`estimate_count`.
    """
    from kanon_db.query.sql import Constants, write

    opened = open_query(session, query, None, params, publication)
    entry, checked = opened.publication, opened.query
    constants = Constants(session.literal)

    def line(part: str, expression: Expression) -> Explained:
        text = write(expression, _plain_name(opened), constants)
        return Explained(part, text, _accuracy(expression, opened))

    described = f"{entry.name}: {entry.kind}, {entry.records} records"
    if entry.left_out:
        described += f", {opened.n_left_out} of them left out"
    lines = [Explained("publication", described)]
    lines += [Explained("note", note) for note in notes_of(opened)]
    lines += [line("condition", part) for part in parts_of(checked.where)]
    lines += [line("group", key.expression) for key in checked.keys]
    groups = answered(opened)
    for place, measure in checked.asked.shown:
        estimates = [group.estimates[place] for group in groups]
        expected = max((e.std_error for e in estimates if e.std_error is not None), default=0.0)
        is_exact = all(
            e.lower_bound == e.upper_bound and (e.estimate is None or e.lower_bound is not None)
            for e in estimates
        )
        accuracy = _EXACT if is_exact else _ESTIMATED[isinstance(opened.layout, BucketLayout)]
        if entry.left_out and not is_exact:
            accuracy += f"; {entry.left_out} records are left out"
        lines.append(Explained("aggregate", measure.label, accuracy, expected))
    lines += [Explained("plan", plan) for plan in _describe_plans(opened)]
    lines.append(Explained("estimator", describe_estimator(opened.layout)))
    return [*lines, Explained("statement", _statement(opened))]


def measure_usefulness(target: AttackTarget, asked: RandomQueries) -> Usefulness:
    """Answer many count queries from a publication, and say what each column loses."""
    if kind_named(target.publication.kind).shape == "rows":
        from kanon_db.answers.rows.stored_types import answer_from_rows

        return answer_from_rows(target, asked.columns, asked.sensitive, asked.queries)
    import numpy as np

    from kanon_db.publications.buckets.bucket_measurement import answer_from_buckets
    from kanon_db.publications.kind import Usefulness

    if asked.sensitive is None:
        raise TypeError("buckets have a sensitive attribute")
    answers = answer_from_buckets(target, asked.columns, asked.sensitive, asked.queries)
    return Usefulness(answers, np.zeros(len(asked.columns)))


def _describe_plans(opened: OpenQuery) -> list[str]:
    """Describe each plan once, with the aggregates that it is of if there are several plans."""
    query = opened.query
    labels: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for measure, plan in zip(query.measures, opened.plans, strict=True):
        # What is not listed is needed for something that is, or to choose and order groups.
        uses = [
            f"for {one.label}" for one in query.formulas
            if one.label and measure.aggregate in walk(one.expression)
        ] or ["for HAVING or ORDER BY"]  # fmt: skip
        own = [measure.label] if measure.label else uses
        labels[plan.describe()].update(dict.fromkeys(own))
    if len(labels) == 1:
        return list(labels)
    return [f"{', '.join(own)}: {described}" for described, own in labels.items()]


def _statement(opened: OpenQuery) -> str:
    """Write the statement of the estimates, or the reason why there is none."""
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
        side = opened.plans[0].side(expression)
        if side is None:
            return "estimated: it combines quasi-identifiers with a sensitive attribute"
        if side == 1:
            return "exact: the sensitive values are published as they are"
        return "exact: the quasi-identifiers are published as they are"
    from kanon_db.answers.likelihoods import accuracy_of

    return accuracy_of(expression, layout)


def _plain_name(opened: OpenQuery) -> Callable[[Column], str]:
    """Write columns without quotes, qualified if they are a lookup table's."""

    def spell(column: Column) -> str:
        if column.lookup is None:
            return column.sql
        relation = opened.text.lookups[column.lookup].relation
        return f"{opened.session.identifier(relation.alias or relation.name)}.{column.sql}"

    return spell
