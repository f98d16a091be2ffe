"""Writes how likely conditions hold for records whose cells stand for several values, as SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import (
    MOST_VALUES,
    Likely,
    add_axis,
    add_matched,
    cumulate,
    is_endless,
    labels,
    members_of,
    of_cell,
    texts,
    values_of,
)
from kanon_db.query.expressions import TEXT, Query
from kanon_db.query.layout import (
    BucketLayout,
    CellDescription,
    CellLayout,
    Side,
    condition_of,
    is_vague,
    parts_of,
)
from kanon_db.query.sql import (
    COLUMNS,
    Constants,
    Nested,
    Request,
    Select,
    Statement,
    Steps,
    Writer,
    is_leaf,
    join_relations,
    leaves,
    number_columns,
    number_text,
    require_few,
    same,
    speller,
    write,
)

MOST_GROUPED: Final = 20_000
"""The most values of a range that GROUP BY spreads out."""

_MOST_SPREAD: Final = 100_000
"""Combinations of values of several ranges, of all rows."""

_FEWEST: Final = 2
"""The least number of values to list of a wide range, where several are spread."""


class JointCondition(ex.Expression):
    """A condition on columns that nothing else mentions: it has a list of values of its own."""

    condition: ex.Expression


@dataclass(frozen=True, slots=True)
class Arranged:
    """A request's condition, and the columns that need a row for each value of a cell."""

    condition: ex.Expression | None  # Parts of it that are :class:`JointCondition` count as leaves
    spread: list[str]  # What all other parts, groups and sums need
    apart: list[str]  # What the parts that are :class:`JointCondition` need


def arrange(query: Query, aggregate: ex.Aggregate, layout: CellLayout) -> Arranged:
    """Find which columns need a row for each value that a cell may stand for, and where."""
    # The combinations of the values of many columns are too many. So conditions that have no column
    # in common are listed apart: they are taken as independent within a record anyway.
    condition = condition_of(query, aggregate)
    expressions = [key.expression for key in query.keys]
    is_summed = aggregate.operand is not None and aggregate.function not in ("count", "distinct")
    if is_summed and find_summed_column(query, aggregate, layout) is None:
        expressions += [aggregate.operand] if aggregate.operand is not None else []
    names = {name for expression in expressions for name in ex.attributes(expression)}
    names |= {
        column.attribute
        for expression in (*expressions, condition)
        for column in ex.columns(expression)
        if column.lookup is not None
    }
    apart = leaves(condition)
    require_few(len(set(apart)))
    if condition is None:
        return Arranged(None, _in_order(names, layout), [])
    put = _together(condition, frozenset(names), _linking(apart, layout), layout)
    rest = [leaf for leaf in leaves(put) if not isinstance(leaf, JointCondition)]
    names |= _find_listed(rest, layout)
    inner = [leaf.condition for leaf in leaves(put) if isinstance(leaf, JointCondition)]
    listed = {name for one in inner for name in _find_listed(leaves(one), layout)}
    return Arranged(put, _in_order(names, layout), _in_order(listed, layout))


def columns_to_list(condition: ex.Expression, layout: CellLayout) -> list[str]:
    """Return the columns of a condition that need a row for each value, taken by itself."""
    return _in_order(_find_listed(leaves(condition), layout), layout)


def _in_order(names: Collection[str], layout: CellLayout) -> list[str]:
    return [name for name, cell in layout.cells.items() if name in names and is_vague(cell)]


def _find_listed(apart: Sequence[ex.Expression], layout: CellLayout) -> set[str]:
    """Find the columns that a leaf compares with others, and those of several leaves."""
    names = {name for leaf in apart if len(ex.attributes(leaf)) > 1 for name in ex.attributes(leaf)}
    # A continuous range has points only, which leave its bounds open: better apart.
    n_leaves = Counter(name for leaf in apart for name in ex.attributes(leaf))
    names |= {name for name, n in n_leaves.items() if n > 1 and not _is_continuous(name, layout)}
    return {name for name in names if is_vague(layout.cells[name])}


def _is_continuous(name: str, layout: CellLayout) -> bool:
    cell = layout.cells[name]
    return cell.kind == "range" and not cell.is_discrete


def _linking(apart: Sequence[ex.Expression], layout: CellLayout) -> frozenset[str]:
    """Find the columns whose conditions belong together."""
    compared = {n for leaf in apart if len(ex.attributes(leaf)) > 1 for n in ex.attributes(leaf)}
    return frozenset(
        name
        for leaf in apart
        for name in ex.attributes(leaf)
        if is_vague(layout.cells[name]) and (name in compared or not _is_continuous(name, layout))
    )


def _together(
    condition: ex.Expression, whole: frozenset[str], linking: frozenset[str], layout: CellLayout
) -> ex.Expression:
    """Mark the parts that have no column in common with others, or with what all need."""

    def marked(part: ex.Expression) -> ex.Expression:
        is_own = not ex.attributes(part) & whole and _find_listed(leaves(part), layout)
        return JointCondition(part) if is_own else part

    def put(part: ex.Expression) -> ex.Expression:
        return _together(part, whole, linking, layout)

    if is_leaf(condition):
        return marked(condition)
    if not isinstance(condition, ex.And | ex.Or):
        return ex.rebuilt(condition, put)
    kind = type(condition)
    parts: list[ex.Expression] = []
    for group in _link(condition.parts, linking):
        joined = ex.joined(kind, group)
        if len(group) == 1:
            parts.append(put(group[0]))
        elif joined is not None and isinstance(both := marked(joined), JointCondition):
            parts.append(both)
        else:
            parts += group
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _link(parts: Sequence[ex.Expression], linking: frozenset[str]) -> list[list[ex.Expression]]:
    """Group parts that have such a column in common, directly or through others."""
    groups: list[tuple[frozenset[str], list[ex.Expression]]] = []
    for part in parts:
        names, members = ex.attributes(part) & linking, [part]
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, members = names | group[0], group[1] + members
        groups.append((names, members))
    return [members for _, members in groups]


def find_summed_column(query: Query, aggregate: ex.Aggregate, layout: CellLayout) -> str | None:
    """Return the column that is summed, if its cells alone decide on what it adds.

    That is so unless it is part of a condition or a group, too, or what is summed has others.
    """
    operand = aggregate.operand
    if operand is None or aggregate.function in ("count", "distinct"):
        return None
    names = ex.attributes(operand)
    if len(names) != 1 or any(column.lookup is not None for column in ex.columns(operand)):
        return None
    (name,) = names
    keys = [key.expression for key in query.keys]
    not_null = ex.NullTest(operand, negated=True)
    apart = [leaf for leaf in leaves(condition_of(query, aggregate)) if leaf != not_null]
    if not is_vague(layout.cells[name]):
        return None
    return name if all(name not in ex.attributes(part) for part in (*keys, *apart)) else None


def find_grouped_ranges(query: Query, layout: CellLayout) -> list[CellDescription]:
    """Return the columns of ranges that GROUP BY names; they must not be too wide."""
    names = {name for key in query.keys for name in ex.attributes(key.expression)}
    return [layout.cells[name] for name in sorted(names) if layout.cells[name].kind == "range"]


def most_listed(cells: Iterable[CellDescription], n_rows: int = 0) -> int:
    """Return how many values of a wide range are listed, so that combinations are not more.

    `n_rows`: of several ranges, the combinations of this many rows shall not be too many.
    """
    n_ranges = sum(cell.kind == "range" for cell in cells)
    if n_ranges <= 1:
        return MOST_VALUES
    of_row = min(MOST_VALUES, _MOST_SPREAD // max(n_rows, 1))
    return max(_FEWEST, int(of_row ** (1 / n_ranges)))


def accuracy_of(expression: ex.Expression, layout: CellLayout) -> str:
    """Say what is known of an expression, record by record."""
    cells = [layout.cells[name] for name in ex.attributes(expression)]
    if not any(map(is_vague, cells)):
        return "exact: the values are published as they are"
    if any(cell.mark is not None for cell in cells):
        return "estimated: a suppressed cell could be anything, likelier what is rare"
    kind = "range" if any(cell.kind == "range" for cell in cells) else "set"
    if all(cell.shares for cell in cells if is_vague(cell)):
        return f"estimated: each value of a {kind} is as likely as all cells together imply"
    return f"estimated: each value of a {kind} is as likely as the others"


OTHERWISE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "<>", "<>": "="}


def compares_ranges(leaf: ex.Expression, cells: Mapping[str, CellDescription]) -> bool:
    """Whether a condition compares two columns of ranges that stand on one axis."""
    match leaf:
        case ex.Comparison(_, ex.Column(lookup=None) as a, ex.Column(lookup=None) as b):
            left, right = cells[a.name], cells[b.name]
        case _:
            return False
    if any(cell.kind != "range" or cell.mark is not None for cell in (left, right)):
        return False
    types = left.column.type, right.column.type
    if any(type_.category == "moment" for type_ in types):
        return types[0].name == types[1].name
    is_float = [type_.category == "float" for type_ in types]
    # A number is rounded to compare it with one of floating point.
    return is_float[0] == is_float[1]


# Types of records with the same cells, and the distinct cells of each column.
#
# What depends on one cell is found once for each distinct cell, of which there are far fewer.


class TypeWriter(Writer):
    """Writes the steps ``types`` and ``cells…``, and what cells tell of conditions and sums.

    ``c0 …`` are cells, ``m0 …`` say of them whether they are suppressed, and ``i0 …`` number the
    distinct ones of a column, from 0.

    Parameters
    ----------
    request : Request
    layout : CellLayout
    also : iterable of str
        Columns to tell types apart by, beside those that the request mentions.
    required : sequence of Expression
        What all rows must meet; see :func:`apart_from_required`.
    """

    def __init__(
        self,
        request: Request,
        layout: CellLayout,
        also: Iterable[str] = (),
        required: Sequence[ex.Expression] = (),
    ) -> None:
        super().__init__(request)
        self.request, self.layout, self.required = request, layout, required
        needed = [self.condition, *self.keys.values(), self.weighed]
        self._also = {*also}
        names = self._also | {name for part in needed for name in ex.attributes(part)}
        self._places = {
            name: place for place, name in enumerate(name for name in layout.cells if name in names)
        }
        self._arranged = arrange(request.query, request.aggregate, layout)
        self._spread = self._arranged.spread
        summed = find_summed_column(request.query, request.aggregate, layout)
        self._summed = None if summed in self._spread else summed

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that types are told apart by, in the order of their numbers."""
        return tuple(self._places)

    def _cell(self, name: str) -> CellDescription:
        return self.layout.cells[name]

    def shares(self, name: str, alias: str) -> Likely | None:
        """Name what the table of shares tells of a cell of the rows with an alias."""
        return None if self._cell(name).shares is None else Likely.of(alias, self._places[name])

    def types(self) -> None:
        """Count the records of each type, and number the distinct cells of each column."""
        selected = {}
        for name, place in self._places.items():
            cell = self._cell(name)
            shown = f"c.{cell.column.sql}"
            is_grouped = cell.column.type.is_grouped
            selected[f"c{place}"] = shown if is_grouped else f"NULLIF({shown} IS NOT NULL, false)"
            if cell.mark is not None:
                mark = f"substr(c.{self.layout.view.pattern}, {cell.mark}, 1)"
                selected[f"m{place}"] = f"{mark} = '*'"
        with_labels = [name for name in self._places if self._cell(name).labels is not None]
        self.steps.add(
            "labelled" if with_labels else "alike",
            "Records with the same cells are one type.",
            Select(
                {**selected, "n": "count(*)::float8"},
                [f"{self.layout.view.view} AS c"],
                [write(part, speller("c"), self.constants) for part in self.required],
                number_columns(len(selected)),
            ),
        )
        if with_labels:
            self._put_members([*selected, "n"], with_labels)
        ranked = {
            f"i{place}": f"dense_rank() OVER (ORDER BY a.c{place}) - 1"
            for name, place in self._places.items()
            if self._is_ordered(name)
        }
        columns, source = {"n": "a.n"}, ["alike AS a"]
        if ranked:
            source = ["ranked AS a"]
            all_ = Select({"a.*": "a.*", **ranked}, ["alike AS a"])
            self.steps.add("ranked", "With the places of values in their order.", all_)
        for name, place in self._places.items():
            self._distinct_cells(name)
            own, other = f"a.c{place}", f"d{place}.c{place}"
            columns[f"i{place}"] = f"{'a' if self._is_ordered(name) else f'd{place}'}.i{place}"
            if self._is_ordered(name):
                continue
            if self._has_equality(name):
                null = f"SELECT i{place} FROM cells{place} WHERE num_nulls(c{place}) = 1"
                columns[f"i{place}"] = f"coalesce(d{place}.i{place}, ({null}))"
                source.append(f"LEFT JOIN cells{place} AS d{place} ON {other} = {own}")
                continue
            same_mark = f" AND d{place}.m{place} = a.m{place}" if self._is_marked(name) else ""
            source.append(
                f"JOIN cells{place} AS d{place} ON d{place}.k{place} = {key_of(own)}{same_mark}"
            )
        comment = "The numbers of the cells of each type, with its records."
        self.steps.add("types", comment, Select(columns, source))

    def _is_ordered(self, name: str) -> bool:
        """Whether cells are values that are put in order faster than their texts."""
        cell = self._cell(name)
        return not is_vague(cell) and cell.column.type.category in (*ex.NUMBERS, "moment")

    def _has_equality(self, name: str) -> bool:
        """Whether cells are ranges or sets, which the server compares faster than their texts."""
        return self._cell(name).kind != "value" and not self._is_marked(name)

    def _is_marked(self, name: str) -> bool:
        return self._cell(name).mark is not None

    def _put_members(self, columns: Sequence[str], with_labels: Sequence[str]) -> None:
        """Put the sets of values in the place of the labels that stand for them."""
        members, source = {column: f"t.{column}" for column in columns}, ["labelled AS t"]
        for name in with_labels:
            place = self._places[name]
            members[f"c{place}"], join = self._members(name, f"t.c{place}")
            source.append(join)
        self.steps.add("alike", "Labels stand for sets of values.", Select(members, source))

    def _members(self, name: str, label: str) -> tuple[str, str]:
        """List what the labels of a column stand for, and write a label's set with its join."""
        place, described = self._places[name], self._cell(name).labels or ""
        json = f"{self._text(described)}::jsonb"
        self.steps.add(f"texts{place}", "The values of a hierarchy, in its order.", texts(json))
        self.steps.add(
            f"labels{place}",
            f"The first and the last value that the labels c{place} stand for.",
            labels(json),
        )
        return (
            members_of(label, f"l{place}", f"SELECT texts FROM texts{place}"),
            f"LEFT JOIN labels{place} AS l{place} ON l{place}.label = {label}",
        )

    def _distinct_cells(self, name: str) -> None:
        """Give the distinct cells of a column numbers, the same ones where they are asked for."""
        if self._is_ordered(name):
            place = self._places[name]
            kept = {f"i{place}": f"a.i{place}", f"c{place}": f"a.c{place}"}
            cells = Select(
                {**kept, f"n{place}": "sum(a.n)"}, ["ranked AS a"], group=number_columns(2)
            )
            self.steps.add(f"cells{place}", f"The distinct cells c{place}.", cells)
            return
        # By their texts: joins need keys that are not NULL, and types may have no equality here.
        place, is_marked = self._places[name], self._is_marked(name)
        kept = {} if self._has_equality(name) else {f"k{place}": key_of(f"a.c{place}")}
        kept |= {f"c{place}": f"a.c{place}"}
        kept |= {f"m{place}": f"a.m{place}"} if is_marked else {}
        self.steps.add(
            f"apart{place}",
            f"The distinct cells c{place}.",
            Select(
                {**kept, f"n{place}": "sum(a.n)"}, ["alike AS a"], group=number_columns(len(kept))
            ),
        )
        mark = f"a.m{place}, " if is_marked else ""
        order = f'ORDER BY {mark}{key_of(f"a.c{place}")} COLLATE "C"'
        number = f"row_number() OVER ({order if name in self._also else ''}) - 1"
        self._share_cells(name, {f"i{place}": number})

    def _share_cells(self, name: str, number: Mapping[str, str]) -> None:
        """Add what the table of shares tells of the distinct cells."""
        place, cell = self._places[name], self._cell(name)
        numbers = {"a.*": "a.*", **number, f"u{place}": "1::float8"}
        source = [f"apart{place} AS a"]
        if cell.shares is not None:
            table, attribute = self.layout.view.shares, self._text(name)
            names = ["shares"] if cell.kind == "set" else ["first", "last", "own"]
            numbers |= {f"{column}{place}": f"s.{column}" for column in names}
            numbers[f"u{place}"] = "1 - coalesce(s.known, 0)"
            source.append(
                f"LEFT JOIN {table} AS s ON s.attribute = {attribute} AND s.cell = a.c{place}::text"
            )
            if cell.kind == "range":
                add_axis(self.steps, table, attribute, place, cell.column.type.name)
        comment = "Each of them has a number, and the shares of its values."
        self.steps.add(f"cells{place}", comment, Select(numbers, source))

    def _text(self, text: str) -> str:
        return self.constants.write(ex.Constant(text, TEXT))

    # -- what cells tell ----------------------------------------------------------------------
    #
    # Where a condition is on one column, its likelihood follows from the cell. A column that is
    # grouped by, summed, joined with a lookup table, compared with another one or part of two
    # conditions is *spread*: a type then has a row for each value that its cell may stand for, so
    # that what depends on one value stays together. Conditions that have no such column in common
    # with anything else are listed apart, for each combination of their own cells.

    def _vague(self, leaf: ex.Expression) -> list[str]:
        """Return the columns of a leaf whose values are not known."""
        return [
            name
            for name in ex.attributes(leaf)
            if is_vague(self._cell(name)) and name not in self._spread
        ]

    def _leaf(self, leaf: ex.Expression, alias: str) -> None:
        """Find the likelihood of a leaf for each distinct cell."""
        (name,) = self._vague(leaf)
        place, cell = self._places[name], self._cell(name)
        matched = ("", "")
        if cell.shares is not None and cell.kind == "range":
            truth = write(leaf, lambda _column: "p.v", self.constants)
            matched = add_matched(self.steps, truth, alias, place)
        likely = self.shares(name, "d")
        table = cumulate(self.steps, leaf, self.constants, alias, place, cell)
        own = of_cell(leaf, cell, f"d.c{place}", self.constants, likely, matched, table)
        columns = {"i": f"d.i{place}", **{column: f"x.{column}" for column in COLUMNS}}
        source: list[str | Nested] = [f"cells{place} AS d", Nested(own, "x", _EACH)]
        comment = f"The likelihood of condition {alias} for each of the cells c{place}."
        if cell.mark is None:
            self.steps.add(f"leaf_{alias}", comment, Select(columns, source))
            return
        self.steps.add(f"own_{alias}", comment, Select(columns, source, [f"NOT d.m{place}"]))
        likelihoods = {t: f"coalesce(sum(k.n * u.{t}) / sum(k.n), 0)" for t in ("t", "f")}
        numbers = {"i": f"c.i{place}", "n": self._rarer(f"c.n{place}")}
        kept_cells = Nested([Select(numbers, [f"cells{place} AS c"])], "k")
        self.steps.add(
            f"kept_{alias}",
            "The same among the cells that are not suppressed, which are rarer where they are.",
            Select(likelihoods, [kept_cells, f"JOIN own_{alias} AS u ON u.i = k.i"]),
        )
        kept = [f"(SELECT {truth} FROM kept_{alias})" for truth in ("t", "f")]
        of_kept = dict(zip(COLUMNS, [*kept, "false", "true", "false", "true"], strict=True))
        self.steps.add(
            f"leaf_{alias}",
            "A suppressed cell meets the condition as these do.",
            Select(same("i", *COLUMNS), [f"own_{alias}"]),
            Select({"i": f"d.i{place}", **of_kept}, [f"cells{place} AS d"], [f"d.m{place}"]),
        )

    def _rarer(self, number: str) -> str:
        """Write what a number of kept cells weighs among the values of suppressed ones."""
        rarity = self.layout.rarity
        return number if rarity == 1 else f"power({number}, {rarity})"

    def _share_values(self, name: str) -> None:
        """Share out the values of a column among its cells that are not suppressed."""
        place = self._places[name]
        if self.steps.has(f"kept{place}"):  # of another part of the condition, or of a sum
            return
        values = Nested(values_of(self._cell(name), f"d.c{place}"), "x", _EACH)
        weight = self._rarer(f"sum(d.n{place} * x.w)")
        self.steps.add(
            f"kept{place}",
            f"The values of the cells c{place} that are not suppressed, and the shares of these in"
            " those that are.",
            Select(
                {"v": "x.v", "w": f"{weight} / sum({weight}) OVER ()"},
                [f"cells{place} AS d", values],
                [f"NOT d.m{place}"],
                ["x.v"],
            ),
        )

    def _moments(self, name: str) -> None:
        """Sum over the values of each distinct cell of the column that is summed."""
        if self.weighed is None:
            raise TypeError("nothing is summed")
        place, cell = self._places[name], self._cell(name)
        x = f"({write(self.weighed, lambda _column: 'v.v', self.constants)})::float8"
        is_column = isinstance(self.weighed, ex.Column)
        is_wild = "bool_or(v.is_open)"
        if is_column:
            is_wild = is_endless(f"d.c{place}") if cell.kind == "range" else "false"
        likely = self.shares(name, "d")
        values = values_of(cell, f"d.c{place}", most_listed([cell]), likely)
        least, most = ("v.least::float8", "v.most::float8") if is_column else (x, x)
        per = f"nullif(sum(v.w) FILTER (WHERE {x} IS NOT NULL), 0)"
        hidden = ""
        if cell.kind == "range":
            # Of what lies beyond a coded end nothing is published: half of the ranges' width.
            beyond = f"((max(max({x})) OVER () - min(min({x})) OVER ()) / 2) ^ 2"
            hidden = f" + CASE WHEN {is_endless(f'd.c{place}')} THEN {beyond} ELSE 0 END"
        own = {
            "i": f"d.i{place}",
            "x": f"sum(v.w * {x}) / {per}", "xx": f"sum(v.w * ({x}) ^ 2) / {per}{hidden}",
            "least_x": f"min({least}) FILTER (WHERE {x} IS NOT NULL)",
            "most_x": f"max({most}) FILTER (WHERE {x} IS NOT NULL)", "is_wild": is_wild,
        }  # fmt: skip
        group = [f"d.i{place}", f"d.c{place}"]
        cells = f"cells{place} AS d"
        if cell.mark is None:
            self.steps.add(
                "moments",
                "What the values of each cell sum up to, on average.",
                Select(own, [cells, Nested(values, "v", _EACH)], group=group),
            )
        else:
            kept = {**own, "is_wild": "true"}
            self.steps.add(
                "moments",
                "What the values of each cell sum up to, on average; of suppressed ones, the kept.",
                Select(own, [cells, Nested(values, "v", _EACH)], [f"NOT d.m{place}"], group),
                Select(
                    {**kept, "least_x": f"min({x})", "most_x": f"max({x})"},
                    [cells, f"CROSS JOIN kept{place} AS v"], [f"d.m{place}"], group,
                ),
            )  # fmt: skip

    def _is_closed(self, leaf: ex.Expression) -> bool:
        """Whether what is certain of a condition does not depend on the values that are listed."""
        match leaf:
            case ex.NullTest(ex.Column(lookup=None, name=name)):
                return self._cell(name).mark is None
            case _:
                return compares_ranges(leaf, self.layout.cells)


def together(cells: Iterable[CellDescription]) -> float:
    """Return which part of the records' standard deviations adds up."""
    vague = [cell for cell in cells if is_vague(cell)]
    if any(cell.mark is not None for cell in vague):
        return SUPPRESSED
    return TOGETHER if all(cell.shares for cell in vague) else TOGETHER_EVENLY


_EACH: Final = "CROSS JOIN LATERAL"


def apart_from_required(
    request: Request, layout: CellLayout
) -> tuple[Request, list[ex.Expression]]:
    """Take from a request what rows must meet whatever their cells stand for.

    Nothing where cells are suppressed, or records left out, which are like all the others.
    """
    query, aggregate = request.query, request.aggregate
    names = {
        name
        for part in (*query.evaluated, aggregate.operand, aggregate.condition)
        for name in ex.attributes(part)
    }
    if layout.left_out or any(layout.cells[name].mark is not None for name in names):
        return request, []

    def is_required(part: ex.Expression) -> bool:
        return all(column.lookup is None for column in ex.columns(part)) and not any(
            is_vague(layout.cells[name]) for name in ex.attributes(part)
        )

    required, rests = [], []
    for condition in (query.where, aggregate.condition):
        parts = parts_of(condition)
        required += [part for part in parts if is_required(part)]
        rests.append(ex.joined(ex.And, [part for part in parts if not is_required(part)]))
    where, condition = rests
    return (
        replace(
            request,
            query=query._replace(where=where),
            aggregate=replace(aggregate, condition=condition),
        ),
        required,
    )


def key_of(sql: str) -> str:
    """Tell a cell from others, whatever its type, also where it is NULL."""
    return f"quote_nullable({sql}::text)"


# Which part of the records' errors adds up, where likelihoods of types of records make an answer.
#
# A record of a type is counted with a probability m. Were the errors of records independent, the
# variance of a count would be the sum of m (1 - m). But where a distribution is a little off, it is
# so for many records in the same direction: a part of their standard deviations adds up. The same
# model, with x in place of 1, gives the errors of sums and averages, so that one quantity has one
# error, however it is asked for. ``python -m benchmarks calibration`` measures how often the truth
# lies within the errors; docs/understand/estimation.md has the figures.


TOGETHER: Final = 0.18
"""Which part of the records' standard deviations adds up, of those whose values are not known."""

TOGETHER_EVENLY: Final = 0.5
"""The same, where all values of a cell are taken as equally likely."""

SUPPRESSED: Final = 0.2
"""The same, where cells are suppressed."""


MOST_RUNGS: Final = 4096
"""The most values that one statement returns: of more, some at equal distances."""


def rungs(
    request: Request,
    layout: BucketLayout | CellLayout,
    side: Side | None,
    above: str | None = None,
    below: str | None = None,
) -> Statement:
    """Write the values that an aggregate's operand may have.

    Of a column of ranges, these are their ends; of an expression on ranges, some of its values.

    Parameters
    ----------
    request : Request
    layout : BucketLayout or CellLayout
    side : int or None
        The operand's side of buckets; None for both.
    above, below : str, optional
        Only values between these, both included.

    Returns
    -------
    Statement
        Rows of ``rung`` (text) and ``place`` (double precision), ascending, and ``n``, how many
        there are in all.
    """
    operand, type_ = request.aggregate.operand, request.aggregate.type
    if operand is None or type_ is None:
        raise TypeError("the values of an operand are asked for")
    steps, constants = Steps(), Constants(request.literal)
    if isinstance(layout, BucketLayout):
        selects = [_values_in_buckets(operand, request, layout, side, constants)]
    else:
        selects = _values_in_cells(operand, request, layout, constants)
    steps.add("possible", "The values that there may be.", *selects)
    limits = ["p.v IS NOT NULL"]
    for sign, end in ((">=", above), ("<=", below)):
        if end is not None:
            limits.append(f"p.v {sign} {constants.write(ex.Constant(end, type_))}")
    steps.add(
        "numbered",
        "Each of them once, in their order.",
        Select(
            {
                "v": "d.v",
                "i": "row_number() OVER (ORDER BY d.v)",
                "n": "count(*) OVER ()",
            },
            [Nested([Select({"v": "p.v"}, ["possible AS p"], limits, ["1"])], "d")],
        ),
    )
    step = f"((n - 2) / {MOST_RUNGS} + 1)"
    steps.add(
        "rungs",
        f"No more than about {MOST_RUNGS}, with the first and the last.",
        Select(
            {"rung": number_text("v", type_.name), "place": "v::float8", "n": "n", "i": "i"},
            ["numbered"],
            [f"((i - 1) % {step} = 0 OR i = n)"],
        ),
    )
    return Statement(f"{steps.write()}\nORDER BY i", constants.bound)


def _values_in_buckets(
    operand: ex.Expression,
    request: Request,
    layout: BucketLayout,
    side: Side | None,
    constants: Constants,
) -> Select:
    tables = layout.tables
    if side is not None:
        alias, relation = "qs"[side], tables.sat if side else tables.qit
        source = join_relations(relation, alias, [operand], request.lookups)
        return Select({"v": write(operand, speller(alias), constants)}, source)

    def spell(column: ex.Column) -> str:
        return speller("s" if column.name in layout.sensitive else "q")(column)

    own = {name: f"s.{column.sql}" for name, column in layout.sensitive.items()}
    relation, *lookups = join_relations(tables.qit, "q", [operand], request.lookups, own)
    bucket = tables.bucket_id
    pairs = f"JOIN {tables.sat} AS s ON s.{bucket} = q.{bucket}"
    return Select({"v": write(operand, spell, constants)}, [relation, pairs, *lookups])


def _values_in_cells(
    operand: ex.Expression, request: Request, layout: CellLayout, constants: Constants
) -> list[Select]:
    names = sorted(ex.attributes(operand))
    view, only = _distinct(layout, names[0], constants) if len(names) == 1 else (None, [])
    view = view or f"{layout.view.view} AS c"
    match operand:
        case ex.Column(lookup=None, name=name) if layout.cells[name].kind == "range":
            return _ends(layout.cells[name], view, only or _list_kept(layout, layout.cells[name]))
    vague = [name for name in names if is_vague(layout.cells[name])]
    listed = most_listed(layout.cells[name] for name in vague)
    values = {name: f"c.{layout.cells[name].column.sql}" for name in names}
    source: list[str | Nested] = [view]
    where = [*only]
    for place, name in enumerate(vague):
        cell = layout.cells[name]
        shown = f"c.{cell.column.sql}"
        if cell.labels is not None:
            json = f"{constants.write(ex.Constant(cell.labels, TEXT))}::jsonb"
            its = labels(json).write()
            source.append(f"LEFT JOIN ({its}) AS l{place} ON l{place}.label = {shown}")
            shown = members_of(shown, f"l{place}", texts(json).write())
        inner = values_of(cell, shown, listed)
        source.append(Nested(inner, f"x{place}", "CROSS JOIN LATERAL"))
        values[name] = f"x{place}.v"
        where += [] if only else _list_kept(layout, cell)

    def spell(column: ex.Column) -> str:
        return values[column.name] if column.lookup is None else speller("c")(column)

    _, *lookups = join_relations(view, "c", [operand], request.lookups, values)
    return [Select({"v": write(operand, spell, constants)}, [*source, *lookups], where)]


def _distinct(layout: CellLayout, name: str, constants: Constants) -> tuple[str | None, list[str]]:
    """Read each cell of a column once, if its cells have numbers."""
    own, cell = layout.classes, layout.cells[name]
    if own is None or name not in own.columns:
        return None, []
    of_column = f"c.{own.attribute} = {constants.write(ex.Constant(name, TEXT))}"
    kept = [] if cell.mark is None else [f"NOT c.{own.hidden}"]
    return f"{own.table} AS c", [of_column, f"c.{own.codes} IS NULL", *kept]


def _list_kept(layout: CellLayout, cell: CellDescription) -> list[str]:
    if cell.mark is None:
        return []
    return [f"substr(c.{layout.view.pattern}, {cell.mark}, 1) <> '*'"]


def _ends(cell: CellDescription, view: str, where: list[str]) -> list[Select]:
    sql, type_ = f"c.{cell.column.sql}", cell.column.type.name
    upper = f"upper({sql}) - 1" if cell.is_discrete else f"upper({sql})"
    return [
        Select({"v": f"({end})::{type_}"}, [view], [*where, f"NOT {side}_inf({sql})"])
        for side, end in (("lower", f"lower({sql})"), ("upper", upper))
    ]
