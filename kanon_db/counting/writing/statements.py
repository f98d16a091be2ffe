"""The statement that estimates an aggregate, in the form that fits it.

Each aggregate of a query is a statement of its own. Over QIT and SAT it has one of three forms. On
one side only it is counted exactly. Where the condition is a conjunction of its two sides, each
bucket's answer follows from sums over its records and sums over its values (`factored`). Anything
else goes through the pairs of a record and a value of the same bucket (`pairs`). Over cells there
is one form (`cells`).
"""

from __future__ import annotations

from kanon_db.counting.checking.query import Query
from kanon_db.counting.expressions import DERIVED
from kanon_db.counting.layout import BucketLayout, CellLayout
from kanon_db.counting.refusals import refusal
from kanon_db.counting.sides import disjoint_sides, sides_of
from kanon_db.counting.writing.cells import CellWriter
from kanon_db.counting.writing.exact import ExactWriter
from kanon_db.counting.writing.factored import FactoredWriter
from kanon_db.counting.writing.pairs import PairWriter
from kanon_db.counting.writing.spread import grouped_ranges
from kanon_db.counting.writing.sql import Statement
from kanon_db.counting.writing.writer import Request


def statement(request: Request, layout: BucketLayout | CellLayout) -> Statement:
    """Write the statement that estimates one aggregate of a query.

    It returns ``estimate, std_error, lower_bound, upper_bound``; for a query with GROUP BY a row
    for each group that may have records, with ``group_key`` (JSON) and ``rank_0 …``, the places of
    the group's values in their order, before them.

    Raises
    ------
    UnsupportedQueryError
        When GROUP BY names a column of continuous ranges.
    """
    if request.aggregate.function in DERIVED:
        # Unless it is exact, it follows from several counts, which are asked for one by one.
        exact = ExactWriter(request, layout)
        exact.exact()
        return exact.statement()
    if isinstance(layout, BucketLayout):
        return _over_buckets(request, layout)
    refuse_continuous_groups(request.query, layout)
    writer = CellWriter(request, layout)
    writer.estimated()
    return writer.statement()


def refuse_continuous_groups(query: Query, layout: CellLayout) -> None:
    """Refuse to group by a column of continuous ranges, whose values cannot be listed.

    Raises
    ------
    UnsupportedQueryError
    """
    for cell in grouped_ranges(query, layout):
        if not cell.is_discrete:
            raise refusal(
                "GROUP BY does not accept a column of continuous ranges",
                hint="ask for each interval in a query of its own, with WHERE",
                detail=f'column "{cell.column.name}"',
            )


def _over_buckets(request: Request, layout: BucketLayout) -> Statement:
    query, aggregate = request.query, request.aggregate
    sides = sides_of(query, aggregate, layout)
    either = disjoint_sides(query, aggregate, layout)
    if None in sides and either is None:
        pairs = PairWriter(request, layout)
        pairs.paired()
        return pairs.statement()
    writer = FactoredWriter(request, layout)
    if None in sides and either is not None:
        writer.either(either)
    elif len(sides) < 2:
        writer.one_sided(1 if sides == {1} else 0)
    else:
        writer.factored()
    return writer.statement()
