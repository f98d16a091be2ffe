"""Writes how likely conditions hold for records whose cells stand for several values, as SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final, Self

from kanon_db.query import expressions as ex
from kanon_db.query.cell_conditions import (
    MOST_VALUES,
    Likely,
    add_axis,
    add_matched,
    holds_anything,
    is_endless,
    is_vague,
    labels,
    members_of,
    of_cell,
    on_axis,
    tabled,
    texts,
    values_of,
)
from kanon_db.query.expressions import TEXT, Query
from kanon_db.query.formulas import EXTREMES
from kanon_db.query.layout import (
    BucketLayout,
    CellDescription,
    CellLayout,
    chosen_by,
    condition_of,
    parts_of,
    sides_of,
)
from kanon_db.query.sql import (
    ANSWER,
    COLUMNS,
    Likelihood,
    Nested,
    Request,
    Select,
    Writer,
    is_leaf,
    joined_relations,
    leaves,
    likelihood,
    numbered,
    of_known,
    of_subquery,
    over,
    require_few,
    same,
    speller,
    write,
)

# Columns of cells that need a row for each value that a cell may stand for, and how many rows.


MOST_GROUPED: Final = 20_000
"""The most values of a range that GROUP BY spreads out."""

_MOST_SPREAD: Final = 100_000
"""Combinations of values of several ranges, of all rows."""

_FEWEST: Final = 2
"""The least number of values to list of a wide range, where several are spread."""


class Together(ex.Expression):
    """A condition on columns that nothing else mentions: it has a list of values of its own."""

    condition: ex.Expression


@dataclass(frozen=True, slots=True)
class Arranged:
    """A request's condition, and the columns that need a row for each value of a cell.

    Attributes
    ----------
    condition : Expression or None
        Parts of it that are :class:`Together` count as leaves.
    spread : list of str
        What all other parts, groups and sums need.
    apart : list of str
        What the parts that are :class:`Together` need.
    """

    condition: ex.Expression | None
    spread: list[str]
    apart: list[str]


def arranged(query: Query, aggregate: ex.Aggregate, layout: CellLayout) -> Arranged:
    """Find which columns need a row for each value that a cell may stand for, and where.

    The combinations of the values of many columns are too many. So conditions that have no column
    in common are listed apart: they are taken as independent within a record anyway.
    """
    condition = condition_of(query, aggregate)
    whole = [key.expression for key in query.keys]
    is_summed = aggregate.operand is not None and aggregate.function not in ("count", "distinct")
    if is_summed and summed_attribute(query, aggregate, layout) is None:
        whole += [aggregate.operand] if aggregate.operand is not None else []
    found = {name for expression in whole for name in ex.attributes(expression)}
    found |= {
        column.attribute
        for expression in (*whole, condition)
        for column in ex.columns(expression)
        if column.lookup is not None
    }
    apart = leaves(condition)
    require_few(len(set(apart)))
    if condition is None:
        return Arranged(None, _in_order(found, layout), [])
    put = _together(condition, frozenset(found), _linking(apart, layout), layout)
    rest = [leaf for leaf in leaves(put) if not isinstance(leaf, Together)]
    found |= _listed(rest, layout)
    inner = [leaf.condition for leaf in leaves(put) if isinstance(leaf, Together)]
    listed = {name for one in inner for name in _listed(leaves(one), layout)}
    return Arranged(put, _in_order(found, layout), _in_order(listed, layout))


def listed_within(condition: ex.Expression, layout: CellLayout) -> list[str]:
    """Return the columns of a condition that need a row for each value, taken by itself."""
    return _in_order(_listed(leaves(condition), layout), layout)


def _in_order(names: Collection[str], layout: CellLayout) -> list[str]:
    return [name for name, cell in layout.cells.items() if name in names and is_vague(cell)]


def _listed(apart: Sequence[ex.Expression], layout: CellLayout) -> set[str]:
    """Find the columns that a leaf compares with others, and those of several leaves."""
    found = {name for leaf in apart if len(ex.attributes(leaf)) > 1 for name in ex.attributes(leaf)}
    # A continuous range has points only, which leave its bounds open: better apart.
    n_leaves = Counter(name for leaf in apart for name in ex.attributes(leaf))
    found |= {name for name, n in n_leaves.items() if n > 1 and not _is_continuous(name, layout)}
    return {name for name in found if is_vague(layout.cells[name])}


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
        is_own = not ex.attributes(part) & whole and _listed(leaves(part), layout)
        return Together(part) if is_own else part

    def put(part: ex.Expression) -> ex.Expression:
        return _together(part, whole, linking, layout)

    if is_leaf(condition):
        return marked(condition)
    if not isinstance(condition, ex.And | ex.Or):
        return ex.rebuilt(condition, put)
    kind = type(condition)
    parts: list[ex.Expression] = []
    for group in _linked(condition.parts, linking):
        joined = ex.joined(kind, group)
        if len(group) == 1:
            parts.append(put(group[0]))
        elif joined is not None and isinstance(both := marked(joined), Together):
            parts.append(both)
        else:
            parts += group
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _linked(parts: Sequence[ex.Expression], linking: frozenset[str]) -> list[list[ex.Expression]]:
    """Group parts that have such a column in common, directly or through others."""
    groups: list[tuple[frozenset[str], list[ex.Expression]]] = []
    for part in parts:
        names, members = ex.attributes(part) & linking, [part]
        for group in [group for group in groups if group[0] & names]:
            groups.remove(group)
            names, members = names | group[0], group[1] + members
        groups.append((names, members))
    return [members for _, members in groups]


def summed_attribute(query: Query, aggregate: ex.Aggregate, layout: CellLayout) -> str | None:
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
    others = [key.expression for key in query.keys]
    not_null = ex.NullTest(operand, negated=True)
    apart = [leaf for leaf in leaves(condition_of(query, aggregate)) if leaf != not_null]
    if not is_vague(layout.cells[name]):
        return None
    return name if all(name not in ex.attributes(part) for part in (*others, *apart)) else None


def grouped_ranges(query: Query, layout: CellLayout) -> list[CellDescription]:
    """Return the columns of ranges that GROUP BY names; they must not be too wide."""
    names = {name for key in query.keys for name in ex.attributes(key.expression)}
    return [layout.cells[name] for name in sorted(names) if layout.cells[name].kind == "range"]


def most_listed(cells: Iterable[CellDescription], n_rows: int = 0) -> int:
    """Return how many values of a wide range are listed, so that combinations are not more.

    Parameters
    ----------
    cells : iterable of CellDescription
    n_rows : int
        Of several ranges, the combinations of this many rows shall not be too many.
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


# Comparisons of two columns of ranges: what is certain follows from the ends alone.


_POSSIBLE = {
    "<": "{a}.low < {b}.high", "<=": "{a}.low <= {b}.high",
    ">": "{a}.high > {b}.low", ">=": "{a}.high >= {b}.low",
    "=": "{a}.low <= {b}.high AND {b}.low <= {a}.high",
    "<>": "NOT ({a}.low = {b}.high AND {b}.low = {a}.high)",
}  # fmt: skip
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


def of_ranges(
    leaf: ex.Expression, cells: Mapping[str, CellDescription], sql: Mapping[str, str], truth: str
) -> Likelihood:
    """Write how likely such a comparison holds.

    Parameters
    ----------
    leaf : Expression
        For which :func:`compares_ranges` holds.
    cells : mapping of str to CellDescription
    sql : mapping of str to str
        The cells of columns.
    truth : str
        Whether it is true for the values of a row.
    """
    if not (
        isinstance(leaf, ex.Comparison)
        and isinstance(leaf.left, ex.Column)
        and isinstance(leaf.right, ex.Column)
    ):
        raise TypeError("two columns are compared")
    names = leaf.left.name, leaf.right.name
    sqls = [sql[name] for name in names]
    ends = [on_axis(cells[name], one) for name, one in zip(names, sqls, strict=True)]
    anything = " OR ".join(map(is_endless, sqls))
    known = " AND ".join(f"{one} IS NOT NULL" for one in sqls)

    def possibly(operator: str) -> str:
        compared = _POSSIBLE[operator].format(a="{0}", b="{1}")
        for alias, range_ in zip(("{0}", "{1}"), ends, strict=True):
            compared = compared.replace(f"{alias}.low", f"lower({range_})")
            compared = compared.replace(f"{alias}.high", f"upper({range_})")
        return f"({known} AND ({anything} OR coalesce({compared}, false)))"

    possible, otherwise = possibly(leaf.operator), possibly(OTHERWISE[leaf.operator])
    likely = of_known(truth)
    return Likelihood(
        likely.true, likely.false,
        f"({known} AND NOT {otherwise})", possible, f"({known} AND NOT {possible})", otherwise,
    )  # fmt: skip


# Types of records with the same cells, and the distinct cells of each column.
#
# What depends on one cell is found once for each distinct cell, of which there are far fewer.


class TypeWriter(Writer):
    """Writes the steps ``cells…`` and ``types``.

    ``c0 …`` are cells, ``m0 …`` say of them whether they are suppressed, and ``i0 …`` number the
    distinct ones of a column whose values are not known.

    Parameters
    ----------
    request : Request
    layout : CellLayout
    also : iterable of str
        Columns to tell types apart by, beside those that the request mentions.
    """

    def __init__(self, request: Request, layout: CellLayout, also: Iterable[str] = ()) -> None:
        super().__init__(request)
        self._layout = layout
        needed = [self.condition, *self.keys.values(), self.weighed]
        names = {*also, *(name for part in needed for name in ex.attributes(part))}
        self._places = {
            name: place for place, name in enumerate(name for name in layout.cells if name in names)
        }
        self._arranged = arranged(request.query, request.aggregate, layout)
        self._spread = self._arranged.spread
        summed = summed_attribute(request.query, request.aggregate, layout)
        self._summed = None if summed in self._spread else summed

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that types are told apart by, in the order of their numbers."""
        return tuple(self._places)

    def _cell(self, name: str) -> CellDescription:
        return self._layout.cells[name]

    def shares(self, name: str, alias: str) -> Likely | None:
        """Name what the table of shares tells of a cell of the rows with an alias."""
        return None if self._cell(name).shares is None else Likely.of(alias, self._places[name])

    def types(self, where: Sequence[str] = ()) -> None:
        """Count the records of each type.

        Parameters
        ----------
        where : sequence of str
            Conditions on the rows ``c``.
        """
        selected = {}
        for name, place in self._places.items():
            cell = self._cell(name)
            selected[f"c{place}"] = f"c.{cell.column.sql}"
            if cell.mark is not None:
                mark = f"substr(c.{self._layout.view.pattern}, {cell.mark}, 1)"
                selected[f"m{place}"] = f"{mark} = '*'"
        with_labels = [name for name in self._places if self._cell(name).labels is not None]
        self.steps.add(
            "labelled" if with_labels else "alike",
            "Records with the same cells are one type.",
            Select(
                {**selected, "n": "count(*)::float8"},
                [f"{self._layout.view.view} AS c"],
                where,
                numbered(len(selected)),
            ),
        )
        if with_labels:
            self._put_members([*selected, "n"], with_labels)
        columns, source, unknown = {"a.*": "a.*", "id": "row_number() OVER ()"}, ["alike AS a"], []
        for name, place in self._places.items():
            cell = self._cell(name)
            if not is_vague(cell):
                continue
            names = self._distinct_cells(cell, name, place)
            columns[f"i{place}"] = f"d{place}.i{place}"
            if name in self._spread or name in self._arranged.apart:
                columns |= {column: f"d{place}.{column}" for column in names}
            unknown.append(f"d{place}.u{place}")
            same_mark = f" AND d{place}.m{place} = a.m{place}" if cell.mark is not None else ""
            source.append(
                f"JOIN cells{place} AS d{place}"
                f" ON d{place}.k{place} = {key_of(f'a.c{place}')}{same_mark}"
            )
        # Where the values of some records are known, others cannot be off in the same direction.
        columns["u"] = f"greatest({', '.join(unknown)})" if unknown else "0::float8"
        comment = "Each type has a number, and its cells the numbers of their own."
        self.steps.add("types", comment, Select(columns, source))

    def _put_members(self, columns: Sequence[str], with_labels: Sequence[str]) -> None:
        """Put the sets of values in the place of the labels that stand for them."""
        found, source = {column: f"t.{column}" for column in columns}, ["labelled AS t"]
        for name in with_labels:
            place = self._places[name]
            found[f"c{place}"], join = self._members(name, f"t.c{place}")
            source.append(join)
        self.steps.add("alike", "Labels stand for sets of values.", Select(found, source))

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

    def _distinct_cells(self, cell: CellDescription, name: str, place: int) -> list[str]:
        """Give the distinct cells of a column numbers, and return the columns of their shares."""
        # By their texts: joins need keys that are not NULL, and types may have no equality here.
        kept = {f"k{place}": key_of(f"a.c{place}"), f"c{place}": f"a.c{place}"}
        kept |= {f"m{place}": f"a.m{place}"} if cell.mark is not None else {}
        self.steps.add(
            f"apart{place}",
            f"The distinct cells c{place}.",
            Select({**kept, f"n{place}": "sum(a.n)"}, ["alike AS a"], group=numbered(len(kept))),
        )
        return self._share_cells(cell, name, place, {f"i{place}": "row_number() OVER ()"})

    def _share_cells(
        self, cell: CellDescription, name: str, place: int, number: Mapping[str, str]
    ) -> list[str]:
        """Add what the table of shares tells of the distinct cells, and return its columns."""
        numbers = {"a.*": "a.*", **number, f"u{place}": "1::float8"}
        source, names = [f"apart{place} AS a"], []
        if cell.shares is not None:
            table, attribute = self._layout.view.shares, self._text(name)
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
        return [f"{column}{place}" for column in names]

    def _text(self, text: str) -> str:
        return self.constants.write(ex.Constant(text, TEXT))


def key_of(sql: str) -> str:
    """Tell a cell from others, whatever its type, also where it is NULL."""
    return f"quote_nullable({sql}::text)"


# How likely a condition holds for records whose cells stand for several values.
#
# Records with the same cells are one type. Where a condition is on one column, its likelihood
# follows from the cell. A column that is grouped by, summed, joined with a lookup table, compared
# with another one or part of two conditions is *spread*: a type then has a row for each value that
# its cell may stand for, so that what depends on one value stays together. Conditions that have no
# such column in common with anything else are listed apart, for each combination of their own
# cells.


class LikelihoodWriter(TypeWriter):
    """Writes over the cells of types of records.

    ``c0 …`` are cells, ``m0 …`` say of them whether they are suppressed, ``v0 …`` are the values
    of the columns that are spread.
    """

    _prefix = ""
    """What the names of steps begin with, where a part of the condition has steps of its own."""

    # -- names --------------------------------------------------------------------------------

    def _value(self, name: str) -> str:
        """Name a column's value in the rows ``e``, where it is known."""
        return f"e.{'v' if name in self._spread else 'c'}{self._places[name]}"

    def _spell(self, column: ex.Column) -> str:
        return self._value(column.name) if column.lookup is None else speller("e")(column)

    def _write(self, expression: ex.Expression) -> str:
        return write(expression, self._spell, self.constants)

    def _open(self, *expressions: ex.Expression | None) -> str:
        """Write whether the values that are listed for these columns are not all."""
        names = {name for expression in expressions for name in ex.attributes(expression)}
        flags = [f"e.is_open{self._places[name]}" for name in self._spread if name in names]
        return f"({' OR '.join(flags)})" if flags else "false"

    def _rarer(self, number: str) -> str:
        """Write what a number of kept cells weighs among the values of suppressed ones."""
        rarity = self._layout.rarity
        return number if rarity == 1 else f"power({number}, {rarity})"

    # -- steps --------------------------------------------------------------------------------

    def _kept_values(self, name: str) -> None:
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

    def _list_values(self, *source: str) -> None:
        """Give a type a row for each combination of values of the columns that are spread.

        Parameters
        ----------
        *source : str
            The types ``t``; by default, all.
        """
        for name in self._spread:
            if self._cell(name).mark is not None:
                self._kept_values(name)
        grouped = {name for key in self.keys.values() for name in ex.attributes(key)}
        found: list[str | Nested] = list(source or ["types AS t"])
        values: dict[str, str] = {}
        for name in self._spread:
            place, cell = self._places[name], self._cell(name)
            most = MOST_GROUPED
            if name not in grouped:
                most = most_listed(map(self._cell, self._spread), self._layout.n_rows)
            inner = values_of(cell, f"t.c{place}", most, self.shares(name, "t"))
            if cell.mark is not None:
                value = {"v": "v", "w": "w"}
                kept = {**value, "is_open": "true", "least": "v", "most": "v"}
                own = {**kept, "is_open": "is_open"}
                inner = [
                    Select(own, [Nested(inner, "own")], [f"NOT t.m{place}"]),
                    Select(kept, [f"kept{place}"], [f"t.m{place}"]),
                ]
            found.append(Nested(inner, f"x{place}", _EACH))
            values |= {
                f"{column}{place}": f"x{place}.{column}"
                for column in ("v", "is_open", "least", "most")
            }
        weights = " * ".join(f"x{self._places[name]}.w" for name in self._spread)
        comment = "No column needs a row for each value that its cells may stand for."
        if self._spread:
            comment = "A row for each combination of values that a type's cells may stand for."
        columns = {"t.*": "t.*", **values, "w": weights or "1::float8"}
        self.steps.add(f"{self._prefix}spread", comment, Select(columns, found))

    def _find_likelihoods(
        self, kept: Sequence[str], measured: Mapping[str, str], *source: str, is_part: bool = False
    ) -> None:
        """Find the likelihood of each row, and its group.

        Parameters
        ----------
        kept : sequence of str
            Columns of the rows to keep.
        measured : mapping of str to str
            What to add to them.
        *source : str
            What this is read from, beside the rows ``e``.
        is_part : bool
            Whether to find how likely the condition is false, too.
        """
        condition = self._arranged.condition
        found = dict.fromkeys(leaves(condition))
        units = {leaf: f"{self._prefix}u{i}" for i, leaf in enumerate(found)
                 if isinstance(leaf, Together)}  # fmt: skip
        vague = {leaf: f"{self._prefix}u{i}" for i, leaf in enumerate(found)
                 if leaf not in units and self._vague(leaf)}  # fmt: skip
        known = {leaf: f"x{i}" for i, leaf in enumerate(found)
                 if leaf not in units and leaf not in vague}  # fmt: skip
        require_few(len(found), len(vague))
        read: list[str | Nested] = list(
            joined_relations(
                f"{self._prefix}spread", "e", [*known, *self.keys.values(), self.weighed],
                self.lookups, {name: self._value(name) for name in self._places},
            )
        )  # fmt: skip
        read += [self._part(leaf.condition, alias) for leaf, alias in units.items()]
        read += [self._leaf(leaf, alias) for leaf, alias in vague.items()]
        read += source
        if known:
            # In one subquery: for each of them, the planner copies the whole condition.
            truths = {name: self._write(leaf) for leaf, name in known.items()}
            read.append(Nested([Select(truths)], "known", _EACH))
        likelihoods = {leaf: of_subquery(alias) for leaf, alias in (units | vague).items()}
        likelihoods |= {leaf: self._of_known(leaf, f"known.{name}") for leaf, name in known.items()}
        whole = likelihood(condition, likelihoods.__getitem__)
        # Whether a range holds a NULL is known, however many of its values are listed, unless it
        # holds anything; and so are comparisons of ranges, from their ends.
        opened = [leaf for leaf in found if not self._is_closed(leaf)]
        tests = [leaf for leaf in found if isinstance(leaf, ex.NullTest) and leaf not in opened]
        tested = {name for leaf in tests for name in ex.attributes(leaf)}
        anything = [
            holds_anything(f"e.c{self._places[name]}")
            for name in self._spread
            if name in tested and self._cell(name).kind == "range"
        ]
        is_open = " OR ".join([self._open(*opened), *anything])
        closed = f"NOT ({' OR '.join([self._open(*opened, *self.keys.values()), *anything])})"
        truths = {
            "t": f"({whole.true})::float8",
            "st": f"{whole.surely} AND {closed}",
            "pt": f"{whole.possibly} OR {is_open}",
        }
        if is_part:
            truths |= {
                "f": f"({whole.false})::float8",
                "sf": f"{whole.surely_false} AND {closed}",
                "pf": f"{whole.possibly_false} OR {is_open}",
            }
        self.step(
            f"{self._prefix}likelihoods",
            "The likelihood t of the condition; whether it holds surely (st) or possibly (pt).",
            {
                **{name: f"e.{name}" for name in kept},
                **{name: self._write(key) for name, key in self.keys.items()},
                **truths,
                **measured,
            },
            *read,
        )

    def _part(self, condition: ex.Expression, alias: str) -> str:
        """Find the likelihood of a part that is listed apart, and write how to join it."""
        part = self._of_part(condition, alias)
        names = [name for name in self._places if name in ex.attributes(condition)]
        by, source = ["id"], ["types AS t"]
        if all(is_vague(self._cell(name)) for name in names):
            by = [f"i{self._places[name]}" for name in names]
            first = f"{alias}_first"
            self.steps.add(
                first,
                "A type for each combination of their cells.",
                Select({"first": "min(id)"}, ["types"], group=by),
            )
            source = [f"{first} AS f", "JOIN types AS t ON t.id = f.first"]
        part._list_values(*source)
        part._find_likelihoods([*by, "w"], {}, is_part=True)
        found = {"t": "sum(w * t)", "f": "sum(w * f)"}
        found |= {truth: f"bool_and({truth})" for truth in ("st", "sf")}
        found |= {truth: f"bool_or({truth})" for truth in ("pt", "pf")}
        self.steps.add(
            f"leaf_{alias}",
            f"The likelihood of condition {alias}, all values together.",
            Select({**same(*by), **found}, [f"{alias}_likelihoods"], group=by),
        )
        joined_by = " AND ".join(f"{alias}.{column} = e.{column}" for column in by)
        return f"JOIN leaf_{alias} AS {alias} ON {joined_by}"

    def _of_part(self, condition: ex.Expression, alias: str) -> Self:
        """Make a writer of more steps of this statement, for a part of its condition only."""
        part = copy(self)
        part._prefix = f"{alias}_"
        part._spread = listed_within(condition, self._layout)
        part._arranged = Arranged(condition, part._spread, [])
        part.keys, part.weighed = {}, None
        return part

    def _vague(self, leaf: ex.Expression) -> list[str]:
        """Return the columns of a leaf whose values are not known."""
        return [
            name
            for name in ex.attributes(leaf)
            if is_vague(self._cell(name)) and name not in self._spread
        ]

    def _leaf(self, leaf: ex.Expression, alias: str) -> str:
        """Find the likelihood of a leaf for each distinct cell, and write how to join it."""
        (name,) = self._vague(leaf)
        place, cell = self._places[name], self._cell(name)
        matched = ("", "")
        if cell.shares is not None and cell.kind == "range":
            truth = write(leaf, lambda _column: "p.v", self.constants)
            matched = add_matched(self.steps, truth, alias, place)
        likely = self.shares(name, "d")
        tried = tabled(self.steps, leaf, self.constants, alias, place, cell)
        own = of_cell(leaf, cell, f"d.c{place}", self.constants, likely, matched, tried)
        found = {"i": f"d.i{place}", **{column: f"x.{column}" for column in COLUMNS}}
        source: list[str | Nested] = [f"cells{place} AS d", Nested(own, "x", _EACH)]
        comment = f"The likelihood of condition {alias} for each of the cells c{place}."
        joined_by = f"JOIN leaf_{alias} AS {alias} ON {alias}.i = e.i{place}"
        if cell.mark is None:
            self.steps.add(f"leaf_{alias}", comment, Select(found, source))
            return joined_by
        self.steps.add(f"own_{alias}", comment, Select(found, source, [f"NOT d.m{place}"]))
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
        return joined_by

    def _of_known(self, leaf: ex.Expression, truth: str) -> Likelihood:
        if not compares_ranges(leaf, self._layout.cells):
            return of_known(truth)
        cells = {name: f"e.c{place}" for name, place in self._places.items()}
        return of_ranges(leaf, self._layout.cells, cells, truth)

    def _is_closed(self, leaf: ex.Expression) -> bool:
        """Whether what is certain of a condition does not depend on the values that are listed."""
        match leaf:
            case ex.NullTest(ex.Column(lookup=None, name=name)):
                return self._cell(name).mark is None
            case _:
                return compares_ranges(leaf, self._layout.cells)


_EACH: Final = "CROSS JOIN LATERAL"


# Aggregates of values that are published as they are: PostgreSQL's own, exact.


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
        source = [*joined_relations(self._relation, self._alias, parts, self.lookups), *self._more]
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


# From the likelihoods of all types of records to an answer with its standard error, as SQL.
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

_MOST_POSSIBLE: Final = "coalesce(sum(n) FILTER (WHERE pt), 0)"
_SURE: Final = "coalesce(sum(n) FILTER (WHERE st), 0)"


def count_answer(together: float, is_unknown: str) -> dict[str, str]:
    """Count all types together; the error is at most half the distance between the bounds.

    Parameters
    ----------
    together : float
    is_unknown : str
        Whether so little is known of a column that the error is just that.
    """
    error, widest = _error("m * (1 - m)", together), f"(({_MOST_POSSIBLE} - {_SURE}) / 2)"
    if is_unknown:
        error = f"CASE WHEN {is_unknown} THEN {widest} ELSE {error} END"
    return {
        "estimate": "coalesce(sum(n * m), 0)::float8",
        "std_error": f"least({error}, {widest})::float8",
        "lower_bound": f"{_SURE}::int8",
        "upper_bound": f"{_MOST_POSSIBLE}::int8",
    }


def left_out(number: int, *, is_sure: bool, is_summed: bool) -> dict[str, str]:
    """Write the type of the records that are left out: as likely as all others together."""
    share = "coalesce(sum(n * {}), 0) / (SELECT sum(n) FROM types)"
    found = {
        "n": f"{number}::float8", "u": "1::float8", "m": share.format("m"),
        "st": str(is_sure).lower(), "pt": "true",
    }  # fmt: skip
    if is_summed:
        found |= {"mx": share.format("mx"), "mxx": share.format("mxx"), "is_wild": "true"}
        found |= {"least_x": "min(least_x)", "most_x": "max(most_x)"}
    return found


def average_of_types(keys: Iterable[str]) -> str:
    """Write the average of x in each group."""
    window = over(keys)
    return f"sum(n * mx) {window} / nullif(sum(n * m) {window}, 0)"


def sum_totals(together: float, is_unknown: str) -> dict[str, str]:
    """Add up the sums and counts of types, with the error of the sum of x - a, if it is known."""
    error = _error("mxx - 2 * a * mx + a * a * m - (mx - a * m) ^ 2", together)
    return {
        "t": "sum(n * mx)",
        "c": "sum(n * m)",
        "error": f"CASE WHEN NOT ({is_unknown}) THEN {error} END" if is_unknown else error,
        "is_wild": "bool_or(is_wild)",
        "t_high": "sum(n * CASE WHEN st THEN most_x ELSE greatest(most_x, 0) END)",
        "t_low": "sum(n * CASE WHEN st THEN least_x ELSE least(least_x, 0) END)",
        "c_low": _SURE,
        "c_high": "sum(n)",
        **EXTREMES,
    }


def _error(variance: str, together: float) -> str:
    """Write the standard error of a total over types from the variance of one record."""
    squares = f"coalesce(sum(n * greatest({variance}, 0)), 0)"
    deviations = f"coalesce(sum(n * u * sqrt(greatest({variance}, 0))), 0)"
    return f"sqrt({squares} + ({together} * {deviations}) ^ 2)"
