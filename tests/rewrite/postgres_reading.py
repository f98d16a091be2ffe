"""How PostgreSQL's own grammar reads a query: the oracle for differential tests.

Shares no code with the package beyond the typed structure that both return. Needs pglast, which
wraps the grammar of the server; tests skip without it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from itertools import chain, combinations, product
from typing import Any, NamedTuple

import pytest

from kanon_db.query.expressions import (
    Age,
    Aggregate,
    AggregateList,
    And,
    Arithmetic,
    Call,
    Case,
    Cast,
    Coalesce,
    Comparison,
    Contained,
    DatePart,
    Distinct,
    Expression,
    GroupAggregate,
    GroupMark,
    ItemText,
    Literal,
    LookupText,
    Membership,
    Name,
    Negative,
    Not,
    NullIf,
    NullTest,
    Or,
    OrderText,
    Pattern,
    QueryText,
    Range,
    RelationText,
    Rounded,
    Statistic,
    TruthTest,
    WindowTotal,
    joined,
    replace_parts,
    walk,
)

pglast = pytest.importorskip("pglast", reason="needs pglast, PostgreSQL's grammar")

from pglast import ast, enums  # noqa: E402

COMPARISONS = {"=", "<>", "<", "<=", ">", ">="}
CLAUSES = {
    "targetList", "fromClause", "whereClause", "groupClause", "havingClause", "sortClause",
    "limitCount", "limitOffset", "limitOption", "op",
}  # fmt: skip
KINDS = enums.A_Expr_Kind


class NotACountQueryError(Exception):
    """PostgreSQL reads it, but as something that is not answered."""


def require(holds: bool) -> None:
    if not holds:
        raise NotACountQueryError


def filled(node: Any) -> set[str]:
    return {
        name
        for name in node.__slots__
        if name != "location" and getattr(node, name) not in (None, False, 0, (), -1)
    }


def read(query: str) -> QueryText:
    """Read a query with PostgreSQL's grammar; ParseError when it does not."""
    statements = pglast.parse_sql(query)
    require(len(statements) == 1)
    select = statements[0].stmt
    require(isinstance(select, ast.SelectStmt))
    named: dict[str, Inner | QueryText] = {}
    note_with(select, named)
    text = select_of(select, named)
    require(not named)
    return text


def note_with(select: Any, named: dict[str, Inner | QueryText]) -> None:
    """Note the queries that WITH names; each is asked once."""
    if select.withClause is None:
        return
    require(not select.withClause.recursive)
    for one in select.withClause.ctes:
        require(filled(one) == {"ctename", "ctequery"})
        require(one.ctename not in named)
        named[one.ctename] = inner_of(one.ctequery, named)


def select_of(select: Any, named: dict[str, Inner | QueryText]) -> QueryText:
    require(filled(select) <= CLAUSES | {"withClause", "distinctClause"})
    require(not select.groupDistinct and select.distinctClause in (None, (None,)))  # no ON
    require(len(select.fromClause or ()) == 1)
    return written(select, inner_from(select.fromClause[0], named))


def written(select: Any, source: Inner | Groups | None) -> QueryText:
    """The clauses of a SELECT, over what its FROM means."""
    lookups: list[LookupText] = []
    is_whole = has_star(select)
    require(not is_whole or isinstance(source, Groups))
    if source is None:
        put_publication_first(select.fromClause[0])
        publication = from_(select.fromClause[0], lookups)
        publication = publication._replace(schema=publication.schema or "published")
    else:
        publication = source.text.publication if isinstance(source, Groups) else source[0]
    group, sets = groups_of(select)
    text = QueryText(
        () if is_whole else tuple(item(target) for target in select.targetList or ()),
        publication,
        tuple(lookups),
        optional(select.whereClause),
        tuple(group),
        optional(select.havingClause),
        tuple(order(key) for key in select.sortClause or ()),
        limit_of(select.limitCount),
        0 if select.limitOffset is None else whole(select.limitOffset),
        is_distinct=select.distinctClause is not None,
        sets=sets,
    )
    if isinstance(source, Groups):
        return source.asked(text, is_whole=is_whole)
    return text if source is None else put_in(text, *source)


def groups_of(select: Any) -> tuple[list[Expression], tuple[tuple[int, ...], ...]]:
    """The expressions of GROUP BY, and the places of each set's, if there are several sets."""
    choices = [sets_of(node) for node in select.groupClause or ()]
    sets = [tuple(chain.from_iterable(chosen)) for chosen in product(*choices)]
    group = list(dict.fromkeys(chain.from_iterable(sets)))
    if len(sets) == 1:
        return list(sets[0]), ()
    return group, tuple(tuple(sorted({group.index(part) for part in one})) for one in sets)


def sets_of(node: Any) -> list[tuple[Expression, ...]]:
    if isinstance(node, ast.RowExpr):
        require(node.row_format == enums.CoercionForm.COERCE_IMPLICIT_CAST)
        return [tuple(map(expression, node.args))]
    if not isinstance(node, ast.GroupingSet):
        return [(expression(node),)]
    kinds, inside = enums.GroupingSetKind, [sets_of(part) for part in node.content or ()]
    if node.kind == kinds.GROUPING_SET_EMPTY:
        return [()]
    if node.kind == kinds.GROUPING_SET_SETS:
        return [one for sets in inside for one in sets]
    parts = [one for (one,) in inside]
    numbers = range(len(parts), -1, -1)
    if node.kind == kinds.GROUPING_SET_ROLLUP:
        return [tuple(chain.from_iterable(parts[:n])) for n in numbers]
    return [tuple(chain.from_iterable(some)) for n in numbers for some in combinations(parts, n)]


def put_publication_first(node: Any) -> None:
    """Swap a lookup table that stands first in FROM with the publication that it is joined to."""
    joins = []
    while isinstance(node, ast.JoinExpr):
        joins.append(node)
        node = node.larg
    if not joins or not isinstance(node, ast.RangeVar) or node.schemaname in (None, "published"):
        return
    own = [
        join
        for join in joins
        if isinstance(join.rarg, ast.RangeVar) and join.rarg.schemaname in (None, "published")
    ]
    require(len(own) == 1)
    before = joins[joins.index(own[0]) :]
    kinds = [join.jointype for join in before]
    right = enums.JoinType.JOIN_RIGHT
    require(kinds == [right] or set(kinds) == {enums.JoinType.JOIN_INNER})
    joins[-1].larg, own[0].rarg = own[0].rarg, joins[-1].larg
    if kinds == [right]:
        own[0].jointype = enums.JoinType.JOIN_LEFT


def has_star(select: Any) -> bool:
    targets = select.targetList or ()
    fields = targets[0].val.fields if targets and isinstance(targets[0].val, ast.ColumnRef) else ()
    return len(targets) == 1 and len(fields) == 1 and isinstance(fields[0], ast.A_Star)


def has_aggregates(part: Expression | None) -> bool:
    return any(isinstance(inner, Aggregate) for inner in walk(part))


class Groups(NamedTuple):
    """A subquery with groups, whose columns are groups' values and aggregates."""

    alias: str
    text: QueryText

    def asked(self, outer: QueryText, *, is_whole: bool) -> QueryText:
        """The query that gives what another makes of the groups: HAVING is its WHERE."""
        columns = {}
        for one in (self.text.outer or self.text).items:
            match one.expression:
                case Name(parts=(*_, name)):
                    pass
                case Aggregate(function=name):
                    name = {"distinct": "count"}.get(name, name)
                    name = f"percentile_{name}" if name in ("cont", "disc") else name
                case Statistic(function=name):
                    pass
                case _:
                    name = None
            columns[one.alias or name] = one.expression

        def mean(name: Name) -> Expression:
            *qualifier, column = name.parts
            require(qualifier in ([], [self.alias]) and column in columns)
            return columns[column]

        parts = [*(one.expression for one in outer.items), outer.where, outer.having]
        parts += [one.expression for one in outer.order]
        if outer.group or any(map(has_aggregates, parts)):
            return self.aggregated(outer, mean, columns)
        if self.text.outer is not None:
            of_groups = Groups(self.alias, self.text.outer).asked(outer, is_whole=is_whole)
            before, after = sides(of_groups.where)
            where = together(self.text.where, before)
            return self.text._replace(where=where, outer=of_groups._replace(where=after))
        before, after = sides(None if outer.where is None else meant(outer.where, mean))
        shown = [ItemText(columns[name], name) for name in columns] if is_whole else [
            ItemText(
                meant(one.expression, mean),
                one.alias or (one.expression.parts[-1] if isinstance(one.expression, Name)
                              else None),
            )
            for one in outer.items
        ]  # fmt: skip
        named = {one.alias: one.expression for one in shown}

        def key(one: OrderText) -> OrderText:
            match one.expression:
                case Literal("number", place) if place.isdecimal() and int(place) <= len(shown):
                    return one._replace(expression=shown[int(place) - 1].expression)
                case Name((name,)) if name in named:
                    return one._replace(expression=named[name])
            return one._replace(expression=meant(one.expression, mean))

        own = self.text
        return own._replace(
            items=tuple(shown),
            grouped=own.grouped or own.items,
            where=together(own.where, before),
            having=together(own.having, [] if after is None else [after]),
            order=tuple(map(key, outer.order)) or own.order,
            limit=own.limit if outer.limit is None else outer.limit,
            offset=outer.offset or own.offset,
        )

    def aggregated(self, outer: QueryText, mean: Any, columns: dict[Any, Any]) -> QueryText:
        """The groups, and the query that aggregates what they are answered with."""

        def over(part: Expression) -> Expression:
            return meant(replace_parts(part, of_groups), mean)

        def key(part: Expression, *, of_order: bool) -> Expression:
            match part:
                case Literal("number"):
                    return part
                case Name((name,)) if name in named and (of_order or name not in columns):
                    return named[name]
            return over(part)

        shown = tuple(
            ItemText(
                over(one.expression),
                one.alias or (one.expression.parts[-1] if isinstance(one.expression, Name)
                              else None),
            )
            for one in outer.items
        )  # fmt: skip
        named = {one.alias: new.expression for one, new in zip(outer.items, shown, strict=True)}
        before, after = sides(None if outer.where is None else over(outer.where))
        own = self.text
        return own._replace(
            where=together(own.where, before),
            group=tuple(one.expression for one in own.items) if own.is_distinct else own.group,
            is_distinct=False,
            having=None,
            order=(),
            outer=outer._replace(
                items=shown,
                where=together(own.having, [] if after is None else [after]),
                group=tuple(key(one, of_order=False) for one in outer.group),
                having=None if outer.having is None else over(outer.having),
                order=tuple(
                    one._replace(expression=key(one.expression, of_order=True))
                    for one in outer.order
                ),
                selected=own.selected,
            ),
        )


def of_groups(part: Expression) -> Expression | None:
    """An aggregate of a query over groups is one of what they are answered with."""
    if type(part) is not Aggregate:
        return None
    return GroupAggregate(part.function, part.operand, part.condition, part.share)


def sides(where: Expression | None) -> tuple[list[Expression], Expression | None]:
    """The conditions on groups' own values, and that on what they are answered with."""
    parts = [] if where is None else flat(And, [where])
    after = [one for one in parts if has_aggregates(one)]
    return [one for one in parts if not has_aggregates(one)], together(None, after)


def together(one: Expression | None, more: list[Expression]) -> Expression | None:
    parts = [part for part in (one, *more) if part is not None]
    return And(flat(And, parts)) if len(parts) > 1 else (parts or [None])[0]


Inner = tuple[RelationText, Any, Any, tuple[Expression, ...]]
"""The publication, a function of names to what they mean, the condition, and all columns."""


def inner_from(node: Any, named: dict[str, Inner | QueryText]) -> Inner | Groups | None:
    """A subquery in FROM, or one of WITH, by its alias; None for anything else."""
    if isinstance(node, ast.RangeSubselect):
        require(not node.lateral and node.alias is not None and node.alias.colnames is None)
        found, alias = inner_of(node.subquery, named), node.alias.aliasname
    elif isinstance(node, ast.RangeVar) and not node.schemaname and node.relname in named:
        require(bool(node.inh) and (node.alias is None or node.alias.colnames is None))
        found = named.pop(node.relname)
        alias = node.relname if node.alias is None else node.alias.aliasname
    else:
        return None
    if isinstance(found, QueryText):
        return Groups(alias, found)

    def mean(name: Name) -> Expression:
        *qualifier, column = name.parts
        require(qualifier in ([], [alias]))
        return found[1](Name((column,)))

    return (found[0], mean, *found[2:])


def inner_of(select: Any, named: dict[str, Inner | QueryText]) -> Inner | QueryText:
    require(isinstance(select, ast.SelectStmt))
    note_with(select, named)
    require(len(select.fromClause or ()) == 1)
    source = inner_from(select.fromClause[0], named)
    plain = {"targetList", "fromClause", "whereClause", "limitOption", "op"}
    clauses = filled(select) - {"withClause"}
    is_plain = clauses <= plain and not isinstance(select.fromClause[0], ast.JoinExpr)
    if isinstance(source, Groups) or not is_plain or not (
        has_star(select) or not any(has_aggregates(item(t).expression) for t in select.targetList)
    ):  # fmt: skip
        require(clauses <= CLAUSES | {"distinctClause"})
        require(not select.groupDistinct and select.distinctClause in (None, (None,)))
        return written(select, source)
    if source is None:
        relation = from_(select.fromClause[0], [])
        relation = relation._replace(schema=relation.schema or "published")

        def own(name: Name) -> Expression:
            *qualifier, column = name.parts
            require(not qualifier or relation.answers_to(tuple(qualifier)))
            return Name((relation.alias or relation.name, column))

        source = (relation, own, None, ())
    publication, mean, condition, columns = source
    where = optional(select.whereClause)
    if where is not None:
        where = meant(where, mean)
        condition = where if condition is None else And(flat(And, [condition, where]))
    targets = select.targetList
    if has_star(select):
        return publication, mean, condition, columns
    listed: dict[str, Expression] = {}
    for target in map(item, targets):
        name = target.alias
        if isinstance(target.expression, Name):
            name = name or target.expression.parts[-1]
        require(name is not None and name not in listed)
        listed[name] = meant(target.expression, mean)

    def look_up(name: Name) -> Expression:
        require(name.parts[-1] in listed)
        return listed[name.parts[-1]]

    return publication, look_up, condition, (*columns, *listed.values())


def meant(part: Expression, mean: Any) -> Expression:
    return replace_parts(part, lambda inner: mean(inner) if isinstance(inner, Name) else None)


def put_in(
    text: QueryText, publication: RelationText, mean: Any, where: Any, columns: Any
) -> QueryText:
    def of(part: Any) -> Any:
        return None if part is None else meant(part, mean)

    def of_key(part: Expression, *, of_order: bool) -> Expression:
        match part:
            case Name((_,)) if not columns:
                return part  # behind SELECT *: the publication's, or an alias
            case Name((name,)) if name in aliases and (of_order or not is_column(part)):
                return of(aliases[name])
        return of(part)

    def is_column(name: Name) -> bool:
        try:
            return mean(name) is not None
        except NotACountQueryError:
            return False

    aliases = {one.alias: one.expression for one in text.items}

    conditions = [part for part in (where, of(text.where)) if part is not None]
    return text._replace(
        items=tuple(
            ItemText(
                of(one.expression),
                one.alias
                or (one.expression.parts[-1] if isinstance(one.expression, Name) else None),
            )
            for one in text.items
        ),
        publication=publication,
        where=And(flat(And, conditions)) if len(conditions) > 1 else (conditions or [None])[0],
        group=tuple(of_key(one, of_order=False) for one in text.group),
        having=of(text.having),
        order=tuple(
            one._replace(expression=of_key(one.expression, of_order=True)) for one in text.order
        ),
        selected=columns,
    )


def optional(node: Any) -> Expression | None:
    return None if node is None else expression(node)


def limit_of(node: Any) -> int | None:
    """A number of rows; the largest that may be named where it is ALL, or NULL."""
    if isinstance(node, ast.A_Const) and node.isnull:
        return 10**9
    return None if node is None else whole(node)


def whole(node: Any) -> int:
    require(isinstance(node, ast.A_Const) and isinstance(node.val, ast.Integer | ast.Float))
    return int(node.val.ival if isinstance(node.val, ast.Integer) else node.val.fval)


def item(target: Any) -> ItemText:
    require(not target.indirection)
    return ItemText(expression(target.val), target.name)


def from_(node: Any, lookups: list[LookupText]) -> RelationText:
    if isinstance(node, ast.RangeVar):
        require(bool(node.inh))
        require(node.alias is None or node.alias.colnames is None)
        alias = None if node.alias is None else node.alias.aliasname
        return RelationText(node.schemaname, node.relname, alias)
    require(isinstance(node, ast.JoinExpr) and not node.isNatural and node.alias is None)
    require(node.jointype in (enums.JoinType.JOIN_INNER, enums.JoinType.JOIN_LEFT))
    publication = from_(node.larg, lookups)
    require(isinstance(node.rarg, ast.RangeVar))
    relation = from_(node.rarg, lookups)
    is_outer = node.jointype == enums.JoinType.JOIN_LEFT
    if node.usingClause:
        require(len(node.usingClause) == 1 and node.join_using_alias is None)
        column = Name((node.usingClause[0].sval,))
        lookups.append(LookupText(relation, column, column, is_outer, is_using=True))
        return publication
    match expression(node.quals):
        case Comparison("=", Name() as left, Name() as right):
            lookups.append(LookupText(relation, left, right, is_outer))
            return publication
    raise NotACountQueryError


def order(node: Any) -> OrderText:
    require(isinstance(node, ast.SortBy) and not node.useOp)
    is_descending = node.sortby_dir == enums.SortByDir.SORTBY_DESC
    nulls = enums.SortByNulls
    nulls_first = {
        nulls.SORTBY_NULLS_FIRST: True,
        nulls.SORTBY_NULLS_LAST: False,
        nulls.SORTBY_NULLS_DEFAULT: is_descending,
    }[node.sortby_nulls]
    return OrderText(expression(node.node), is_descending, nulls_first)


def expression(node: Any) -> Expression:
    match node:
        case ast.BoolExpr():
            parts = [expression(part) for part in node.args]
            match node.boolop:
                case enums.BoolExprType.AND_EXPR:
                    return And(flat(And, parts))
                case enums.BoolExprType.OR_EXPR:
                    return Or(flat(Or, parts))
                case _:
                    return Not(parts[0])
        case ast.NullTest():
            return NullTest(
                expression(node.arg), node.nulltesttype == enums.NullTestType.IS_NOT_NULL
            )
        case ast.BooleanTest():
            test = enums.BoolTestType(node.booltesttype).name.removeprefix("IS_")
            return TruthTest(
                expression(node.arg), test.removeprefix("NOT_").lower(), test.startswith("NOT_")
            )
        case ast.CaseExpr():
            subject = optional(node.arg)
            return Case(
                tuple(
                    (
                        when if subject is None else Comparison("=", subject, when),
                        expression(branch.result),
                    )
                    for branch in node.args
                    for when in (expression(branch.expr),)
                ),
                optional(node.defresult),
            )
        case ast.SQLValueFunction():
            require(node.typmod == -1)
            kinds = enums.SQLValueFunctionOp
            return {
                kinds.SVFOP_CURRENT_DATE: Literal("date", "today"),
                kinds.SVFOP_CURRENT_TIMESTAMP: Literal("timestamptz", "now"),
                kinds.SVFOP_LOCALTIMESTAMP: Literal("timestamp", "now"),
            }[node.op]
        case ast.SubLink():
            require(node.subLinkType == enums.SubLinkType.EXPR_SUBLINK)
            inner = node.subselect
            require(filled(inner) <= {"targetList", "fromClause", "limitOption", "op"})
            (target,), (relation,) = inner.targetList, inner.fromClause
            require(expression(target.val) == Aggregate("count", None))
            require(from_(relation, []).name in ("t", "people"))
            return WindowTotal(Aggregate("count", None), is_filtered=False)
        case ast.GroupingFunc():
            (operand,) = node.args
            return GroupMark(expression(operand))
        case ast.MinMaxExpr():
            function = "greatest" if node.op == enums.MinMaxOp.IS_GREATEST else "least"
            return Call(function, tuple(map(expression, node.args)))
        case ast.CoalesceExpr():
            return Coalesce(tuple(map(expression, node.args)))
        case ast.ColumnRef():
            require(all(isinstance(field, ast.String) for field in node.fields))
            return Name(tuple(field.sval for field in node.fields))
        case ast.FuncCall():
            return call(node)
        case ast.TypeCast():
            return cast(node)
        case ast.A_Const():
            return constant(node)
        case ast.A_Expr():
            return operation(node)
    raise NotACountQueryError


def operation(node: Any) -> Expression:
    operator = node.name[-1].sval
    match node.kind:
        case KINDS.AEXPR_BETWEEN | KINDS.AEXPR_NOT_BETWEEN:
            low, high = map(expression, node.rexpr)
            negated = node.kind == KINDS.AEXPR_NOT_BETWEEN
            return Range(expression(node.lexpr), low, high, negated)
        case KINDS.AEXPR_IN if isinstance(node.lexpr, ast.RowExpr):
            left = [expression(part) for part in node.lexpr.args]
            rows = [[expression(part) for part in row.args] for row in node.rexpr]
            tests = [
                And(tuple(Comparison("=", *pair) for pair in zip(left, row, strict=True)))
                for row in rows
            ]
            among = Or(tuple(tests)) if len(tests) > 1 else tests[0]
            return Not(among) if operator == "<>" else among
        case KINDS.AEXPR_IN:
            items = tuple(map(expression, node.rexpr))
            if len(items) == 1:
                return Comparison(operator, expression(node.lexpr), items[0])
            return Membership(expression(node.lexpr), items, operator == "<>")
        case KINDS.AEXPR_LIKE | KINDS.AEXPR_ILIKE:
            pattern, escape = node.rexpr, None
            if isinstance(pattern, ast.FuncCall) and pattern.funcname[-1].sval == "like_escape":
                pattern, escape = pattern.args
            return Pattern(
                expression(node.lexpr),
                "LIKE" if node.kind == KINDS.AEXPR_LIKE else "ILIKE",
                expression(pattern),
                optional(escape),
                operator.startswith("!"),
            )
        case KINDS.AEXPR_DISTINCT | KINDS.AEXPR_NOT_DISTINCT:
            left, right = expression(node.lexpr), expression(node.rexpr)
            negated = node.kind == KINDS.AEXPR_NOT_DISTINCT
            if right == Literal("null", ""):
                return NullTest(left, not negated)
            return Distinct(left, right, negated)
        case KINDS.AEXPR_NULLIF:
            return NullIf(expression(node.lexpr), expression(node.rexpr))
        case KINDS.AEXPR_BETWEEN_SYM | KINDS.AEXPR_NOT_BETWEEN_SYM:
            low, high = sorted(map(expression, node.rexpr), key=lambda end: in_order(end.text))
            return Range(
                expression(node.lexpr), low, high, node.kind == KINDS.AEXPR_NOT_BETWEEN_SYM
            )
        case KINDS.AEXPR_OP_ANY | KINDS.AEXPR_OP_ALL if operator in LIKES:
            kind = Or if node.kind == KINDS.AEXPR_OP_ANY else And
            tests = [
                Pattern(
                    expression(node.lexpr), LIKES[operator], one, None, operator.startswith("!")
                )
                for one in elements(node.rexpr)
            ]
            return kind(flat(kind, tests)) if len(tests) > 1 else tests[0]
        case KINDS.AEXPR_OP_ANY | KINDS.AEXPR_OP_ALL:
            require(operator == ("=" if node.kind == KINDS.AEXPR_OP_ANY else "<>"))
            items = elements(node.rexpr)
            if len(items) == 1:
                return Comparison(operator, expression(node.lexpr), items[0])
            return Membership(expression(node.lexpr), items, operator == "<>")
        case KINDS.AEXPR_OP if operator == "<@" and node.lexpr is not None:
            range_, ends = node.rexpr, [expression(part) for part in node.rexpr.args]
            bounds = ends[2].text if len(ends) == 3 else "[)"
            (name,) = range_.funcname
            return Contained(expression(node.lexpr), name.sval, ends[0], ends[1], bounds)
        case KINDS.AEXPR_OP:
            require(len(node.name) == 1)
            right = expression(node.rexpr)
            if node.lexpr is None:
                if operator == "+":
                    require(isinstance(right, Literal) and right.kind == "number")
                    return right
                require(operator == "-")
                if isinstance(right, Literal) and right.kind == "number":
                    text = right.text
                    return Literal("number", text[1:] if text.startswith("-") else f"-{text}")
                return Negative(right)
            left = expression(node.lexpr)
            if operator in COMPARISONS:
                return Comparison(operator, left, right)
            if operator == "||":
                return Call("||", (left, right))
            if operator.removeprefix("!") in ("~", "~*"):
                return Pattern(
                    left, operator.removeprefix("!"), right, negated=operator.startswith("!")
                )
            require(operator in {"+", "-", "*", "/", "%"})
            return Arithmetic(operator, left, right)
    raise NotACountQueryError


LIKES = {"~~": "LIKE", "~~*": "ILIKE", "!~~": "LIKE", "!~~*": "ILIKE"}


def in_order(text: str) -> Decimal | str:
    """A number by its value, a date by its text."""
    return text if text.count("-") > 1 else Decimal(text)


def elements(node: Any) -> tuple[Expression, ...]:
    """The elements of an array, also of one that is written as a text."""
    to = None
    if isinstance(node, ast.TypeCast):
        require(len(node.typeName.arrayBounds) == 1 and not node.typeName.typmods)
        to, node = node.typeName.names[-1].sval, node.arg
    if isinstance(node, ast.A_ArrayExpr):
        items = tuple(map(expression, node.elements))
    else:
        items = tuple(map(element, re.findall(r'(?:"[^"]*"|[^",])+', node.val.sval[1:-1])))
    return items if to is None else tuple(cast_to(item, to) for item in items)


def element(text: str) -> Literal:
    """An element of an array that is a text: in quotes, spaces and NULL are ordinary."""
    text = text.strip()
    if text.startswith('"'):
        return Literal("string", text.strip('"'))
    return Literal("null", "") if text.lower() == "null" else Literal("string", text)


def call(node: Any) -> Expression:
    names = [part.sval for part in node.funcname]
    plain = {"funcname", "args", "funcformat", "agg_star", "agg_filter", "agg_distinct"}
    plain |= {"agg_order", "agg_within_group"}
    require(filled(node) <= plain | {"over"})
    if node.over is not None:
        require(filled(node.over) <= {"frameOptions", "partitionClause"})
        require(names == ["sum"] and len(node.args) == 1)
        total = expression(node.args[0])
        require(isinstance(total, Aggregate) and total.function in ("count", "sum"))
        return WindowTotal(total, by=tuple(map(expression, node.over.partitionClause or ())))
    if names[0] in ("percentile_cont", "percentile_disc") and isinstance(
        node.args[0], ast.A_ArrayExpr
    ):
        function, (by,) = names[0].removeprefix("percentile_"), node.agg_order
        shares = [expression(part) for part in node.args[0].elements]
        return AggregateList(
            tuple(
                Aggregate(function, expression(by.node), optional(node.agg_filter), float(s.text))
                for s in shares
            )
        )
    args = [expression(argument) for argument in node.args or ()]
    chosen = optional(node.agg_filter)
    match names:
        case ["count"] if node.agg_star:
            return Aggregate("count", None, chosen)
        case ["count"] if len(args) == 1 and node.agg_distinct:
            return Aggregate("distinct", args[0], chosen)
    require(not node.agg_distinct)
    match names:
        case ["percentile_cont" | "percentile_disc" as name] if node.agg_within_group:
            (by,), (share,) = node.agg_order, args
            require(by.sortby_dir != enums.SortByDir.SORTBY_DESC)
            function = name.removeprefix("percentile_")
            return Aggregate(function, expression(by.node), chosen, float(share.text))
    require(not node.agg_order)
    match names:
        case ["min" | "max" as name] if len(args) == 1:
            return Aggregate(name, args[0], chosen, float(name == "max"))
        case ["count" | "sum" | "avg" as name] if len(args) == 1:
            return Aggregate(name, args[0], chosen)
    match names:
        case [name] if name in SPREADS and len(args) == 1:
            x = Cast(args[0], "double precision")
            squares = Aggregate("sum", Arithmetic("*", x, x), chosen)
            total, number = Aggregate("sum", x, chosen), Aggregate("count", args[0], chosen)
            return Statistic(name, (args[0],), (number, total, squares))
        case ["corr"] if len(args) == 2:
            y, x = (Cast(one, "double precision") for one in args)
            with_x, with_y = (
                joined(And, [*([] if chosen is None else [chosen]), NullTest(one, negated=True)])
                for one in reversed(args)
            )
            number = Aggregate("count", args[0], with_x)
            totals = Aggregate("sum", y, with_x), Aggregate("sum", x, with_y)
            products = (
                Aggregate("sum", Arithmetic("*", y, y), with_x),
                Aggregate("sum", Arithmetic("*", x, x), with_y),
                Aggregate("sum", Arithmetic("*", y, x), chosen),
            )
            return Statistic("corr", tuple(args), (number, *totals, *products))
    require(chosen is None)
    match names:
        case ["age"] if len(args) == 2:
            return Age(*args)
        case ["round"] if len(args) < 3:
            return Rounded(args[0], int(args[1].text) if len(args) == 2 else None)
        case ["pg_catalog", "extract"]:
            return DatePart("extract", args[0].text.lower(), args[1])
        case ["date_part" | "date_trunc" as name]:
            require(isinstance(args[0], Literal) and args[0].kind == "string")
            return DatePart(name, args[0].text.lower(), args[1])
        case ["now"] if not args:
            return Literal("timestamptz", "now")
        case ["to_date"]:
            text, pattern = (part.text for part in args)
            require(pattern.upper() in ("YYYY-MM-DD", "YYYYMMDD"))
            return Literal("date", f"{text[:4]}-{text[-5:-3]}-{text[-2:]}")
        case ["to_timestamp"]:
            text, pattern = (part.text for part in args)
            require(pattern.upper() == "YYYY-MM-DD HH24:MI:SS.US")
            return Literal("timestamptz", datetime.fromisoformat(text).isoformat(" "))
        case ["date"]:
            return cast_to(args[0], "date")
        case ["mod"]:
            return Arithmetic("%", *args)
        case ["regexp_like"]:
            require(len(args) == 2 or args[2].text == "i")
            return Pattern(args[0], "~" if len(args) == 2 else "~*", args[1])
        case ["pg_catalog", "substring"]:
            *others, last = args  # FOR has a cast of its own
            last = last.operand if isinstance(last, Cast) else last
            return Call("substr", (*others, last))
        case ["pg_catalog", name] if name in FUNCTIONS:
            return Call(name, tuple(args))
        case [name] if SAME.get(name, name) in FUNCTIONS:
            return Call(SAME.get(name, name), tuple(args))
    raise NotACountQueryError


FUNCTIONS = {
    "abs", "btrim", "ceil", "concat", "floor", "initcap", "left", "length", "lower", "ltrim",
    "regexp_replace", "replace", "right", "rtrim", "sign", "split_part", "strpos", "substr",
    "timezone", "to_char", "trunc", "upper", "width_bucket",
}  # fmt: skip
SAME = {
    "ceiling": "ceil", "char_length": "length", "character_length": "length", "substring": "substr",
    "trim": "btrim",
}  # fmt: skip

SPREADS = {"stddev", "stddev_pop", "stddev_samp", "variance", "var_pop", "var_samp"}

TYPES = {
    "int2": "smallint", "int4": "integer", "int8": "bigint", "numeric": "numeric",
    "float4": "real", "float8": "double precision", "text": "text",
    "varchar": "character varying", "date": "date", "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone", "bool": "boolean",
}  # fmt: skip


MOMENTS = ("date", "timestamp", "timestamptz")


def cast(node: Any) -> Expression:
    (*schema, name) = (part.sval for part in node.typeName.names)
    if name == "interval":
        require(not node.typeName.typmods)
        match expression(node.arg):
            case Literal("string", text):
                return Literal("interval", text)
            case Call("||", (Literal("number", number), Literal("string", unit))):
                return Literal("interval", number + unit)
        raise NotACountQueryError
    require(schema in ([], ["pg_catalog"]) and name in TYPES)
    require(not node.typeName.arrayBounds)
    inner = cast_to(expression(node.arg), name)
    if node.typeName.typmods:
        require(name == "numeric")
        _, *scale = map(whole, node.typeName.typmods)
        return Rounded(inner, scale[0] if scale else 0)
    return inner


def cast_to(inner: Expression, name: str) -> Expression:
    if isinstance(inner, Literal) and inner.kind == "string" and name in MOMENTS:
        return Literal(name, inner.text)
    return Cast(inner, TYPES[name])


def constant(node: Any) -> Literal:
    if node.isnull:
        return Literal("null", "")
    match node.val:
        case ast.Integer(ival=value):
            return Literal("number", str(value or 0))
        case ast.Float(fval=text):
            return Literal("number", text)
        case ast.Boolean(boolval=value):
            return Literal("boolean", "true" if value else "false")
        case ast.String(sval=text):
            return Literal("string", text)
    raise NotACountQueryError


def flat(kind: type[And] | type[Or], parts: list[Expression]) -> tuple[Expression, ...]:
    return tuple(
        inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))
    )


def canonical(text: QueryText) -> QueryText:
    """Give equal readings one form: numbers by value, NOT as part of what can hold it."""

    def change(part: Expression) -> Expression | None:
        match part:
            case Literal("number", number):
                return Literal("number", str(Decimal(number).normalize() + 0))
            case Not(Not(inner)):
                return replace_parts(inner, change)
            case Not(Membership() | Range() | Pattern() | NullTest() as inner):
                return replace_parts(replace(inner, negated=not inner.negated), change)
        return None

    def tidy(part: Expression | None) -> Any:
        return None if part is None else replace_parts(part, change)

    return text._replace(
        items=tuple(item._replace(expression=tidy(item.expression)) for item in text.items),
        where=tidy(text.where),
        group=tuple(map(tidy, text.group)),
        having=tidy(text.having),
        order=tuple(order._replace(expression=tidy(order.expression)) for order in text.order),
        selected=tuple(map(tidy, text.selected)),
        grouped=tuple(one._replace(expression=tidy(one.expression)) for one in text.grouped),
        outer=None if text.outer is None else canonical(text.outer),
    )


__all__ = ["NotACountQueryError", "canonical", "pglast", "read"]
