"""Answering one aggregate at a time: by numbers, bitmaps or the statement, and those derived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kanon_db.answering.by_classes import Answers, count_with_classes
from kanon_db.answering.derived import derived, is_derived
from kanon_db.answering.opened import OpenQuery
from kanon_db.answering.ways import BY_BITMAPS, BY_CLASSES, BY_STATEMENT, by_bitmaps
from kanon_db.answering.wide import refuse_wide_groups
from kanon_db.counting.answers import NOTHING, Estimated, Group, known_as
from kanon_db.counting.checking import Measure
from kanon_db.counting.expressions import DERIVED, Aggregate
from kanon_db.counting.layout import CellLayout
from kanon_db.counting.writing.statements import statement
from kanon_db.counting.writing.writer import Request


def each_measure(
    opened: OpenQuery, answered: Callable[[OpenQuery], tuple[list[Group], str]]
) -> tuple[list[Group], str]:
    """Answer each measure, collect the answers for each group, and say how they were found.

    Parameters
    ----------
    opened : OpenQuery
    answered : callable
        Answers the counts that an aggregate follows from, likewise.
    """
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
        found, method = answered(one)
        methods.add(method)
        return found

    listed: Answers = plain(everybody) if query.keys else {"{}": ((), NOTHING)}

    def rows(aggregate: Aggregate) -> Answers:
        if query.keys and aggregate == everybody:
            return listed
        if not is_derived(opened, aggregate):
            return _as_listed(plain(aggregate), listed) if query.keys else plain(aggregate)
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
    return groups, methods.pop() if len(methods) == 1 else BY_STATEMENT


def _as_listed(found: Answers, listed: Answers) -> Answers:
    """Name groups as they are listed: equal values may be written differently, as 1.0 and 1.00.

    No group is found that is not listed. So if they are as many, they are the same, and the places
    of their values are.
    """
    if len(found) != len(listed) or found.keys() == listed.keys():
        return found
    named = {ranks: key for key, (ranks, _) in listed.items()}
    return {named[ranks]: (ranks, answer) for ranks, answer in found.values()}


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
    alone = replace(opened, query=opened.query._replace(measures=(Measure("", aggregate),)))
    groups = by_bitmaps(alone)
    if groups is not None:
        if len(groups) > most:
            raise opened.limits.too_many()
        return {group.key: (group.ranks, group.estimates[0]) for group in groups}, BY_BITMAPS
    written = statement(request, opened.layout)
    names = [f"rank_{i}" for i in range(len(opened.query.keys))]
    text, limits = written.text, opened.limits
    if names:
        size = "sum(octet_length(a.group_key)) OVER (ROWS UNBOUNDED PRECEDING)"
        text = f"SELECT a.*, {size} <= {limits.text} AS fits FROM (\n{text}\n) AS a"
    # Of these, only what is published as it is has a statement.
    fetch = opened.fetch_plain if aggregate.function in DERIVED else opened.fetch
    found: Answers = {}
    for row in fetch(text, *written.bound):
        if names and (len(found) == most or not row["fits"]):
            raise limits.too_many()
        answer = (row["estimate"], row["std_error"], row["lower_bound"], row["upper_bound"])
        ranks = tuple(row[name] for name in names)
        found[row["group_key"] if names else "{}"] = (ranks, Estimated(*answer))
    return found, BY_STATEMENT
