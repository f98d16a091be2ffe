"""Aggregates of values that are published as they are: PostgreSQL's own, exact."""

from __future__ import annotations

from kanon_db.counting import expressions as ex
from kanon_db.counting.checking.query import Query
from kanon_db.counting.layout import BucketLayout, CellLayout
from kanon_db.counting.sides import chosen_by, parts_of, sides_of
from kanon_db.counting.writing.cell_values import is_vague
from kanon_db.counting.writing.joins import joined, speller
from kanon_db.counting.writing.sql import write
from kanon_db.counting.writing.steps import Select
from kanon_db.counting.writing.writer import ANSWER, Request, Writer, numbered


def is_plain(query: Query, aggregate: ex.Aggregate, layout: BucketLayout | CellLayout) -> bool:
    """Whether all that an aggregate depends on stands in one relation as it is."""
    if isinstance(layout, BucketLayout):
        sides = sides_of(query, aggregate, layout)
        return len(sides) < 2 and None not in sides
    parts = [query.where, aggregate.condition, aggregate.operand]
    parts += [key.expression for key in query.keys]
    names = {name for part in parts for name in ex.attributes(part)}
    return not layout.left_out and not any(is_vague(layout.cells[name]) for name in names)


class ExactWriter(Writer):
    """Writes an aggregate over one relation."""

    def __init__(self, request: Request, layout: BucketLayout | CellLayout) -> None:
        super().__init__(request)
        self._aggregate = request.aggregate
        self._chosen = chosen_by(request.query, request.aggregate)
        self._alias, self._more = "c", list[str]()
        if isinstance(layout, CellLayout):
            self._relation = layout.view.view
        elif 1 in sides_of(request.query, request.aggregate, layout):
            self._relation, self._alias = layout.tables.sat, "s"
            if request.aggregate.function in ("disc", "cont"):
                self._more = [f"CROSS JOIN generate_series(1, s.{layout.tables.count})"]
        else:
            self._relation, self._alias = layout.tables.qit, "q"

    def exact(self) -> None:
        """Aggregate the relation as it is."""
        parts = [self._chosen, self._aggregate.operand, *self.keys.values()]
        source = [*joined(self._relation, self._alias, parts, self.lookups), *self._more]
        keys = {name: self._write(key) for name, key in self.keys.items()}
        where = [self._write(part) for part in parts_of(self._chosen)]
        self.steps.add(
            "counted",
            "All of it is published as it is: the answer is exact.",
            Select({**keys, "n": self._value()}, source, where, numbered(len(keys))),
        )
        error = "CASE WHEN n IS NOT NULL THEN 0::float8 END"
        answer = dict(zip(ANSWER, ("n::float8", error, "n", "n"), strict=True))
        self.step("answers", "An exact number is its own bounds.", answer)

    def _write(self, expression: ex.Expression) -> str:
        return write(expression, speller(self._alias), self.constants)

    def _value(self) -> str:
        operand = self._aggregate.operand
        if operand is None:
            raise TypeError("these aggregates have an operand")
        x, share = self._write(operand), self._aggregate.share
        match self._aggregate.function:
            case "distinct":
                return f"count(DISTINCT {x})"
            case "min" | "max" as function:
                return f"{function}({x})::float8"
            case function:
                return f"(percentile_{function}({share!r}) WITHIN GROUP (ORDER BY {x}))::float8"
