"""Parses a query into its clauses, or refuses it with a reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, combinations
from typing import Final, NamedTuple

from kanon_db.query._lexemes import Lexeme, is_bare_alias, is_name, scan
from kanon_db.query._syntax import ExpressionParser
from kanon_db.query.expressions import (
    Aggregate,
    And,
    Answered,
    Case,
    Comparison,
    Contained,
    Distinct,
    Expression,
    ItemText,
    Literal,
    LookupText,
    Name,
    OrderText,
    Pattern,
    QueryText,
    Range,
    RelationText,
    TruthTest,
    Values,
    WindowTotal,
    beyond_publications,
    has_aggregate,
    joined,
    refusal,
    walk,
)
from kanon_db.query.subqueries import (
    COLUMNS,
    WHOLE_ROWS,
    AnsweredJoin,
    FilteredRelation,
    PartsBudget,
    flatten_query,
    flatten_subquery,
    group_relation,
    keys_of,
    own_name,
    split_join,
    with_answers,
)

MAX_ROWS: Final = 10**9
"""The most rows that LIMIT and OFFSET may name."""

MAX_ITEMS: Final = 100
"""The most items of a select list, of GROUP BY and of ORDER BY."""

MAX_NAMED: Final = 50
"""The most subqueries that WITH may name."""

MAX_SETS: Final = 64
"""The most sets of GROUP BY, each of which is answered by itself."""

MAX_QUESTIONS: Final = 8
"""The most subqueries that are answered before the query."""

MAX_HEIGHT: Final = 100
"""The greatest height of an expression's tree."""

MAX_OPERATORS: Final = 10_000
"""The most operators of a query, each of which a million records may need; IN counts as one."""

MAX_PATTERNS: Final = 10_000
"""The most characters of all patterns together: comparing them with one text of the greatest length
takes half a second, in which PostgreSQL hears no cancel."""

_PATTERN_COST: Final = 20
"""Cost of reading a text, and of lowering it for ILIKE, in characters of a pattern."""

_WRITTEN_TWICE: Final = (Contained, Distinct, Range, TruthTest)
"""Tests whose operands some statements repeat, which doubles them at each level of nesting."""

_TOTAL: Final = (
    "ask SELECT AVG(...) FROM <publication> first, and write its number; shares of the total are"
    " 100.0 * COUNT(*) / (SELECT COUNT(*) FROM <publication>)"
)


class LookupJoin(NamedTuple):
    """A lookup table with how it is joined."""

    lookup: LookupText
    side: str  # ``inner``, ``left`` or ``right``


_CLAUSES: Final = ("where", "group", "having", "order", "limit", "offset", "fetch")


class QueryParser(ExpressionParser):
    """Reads a query; each method reads one construct, from its first lexeme on."""

    def __init__(
        self, lexemes: Sequence[Lexeme], published_schema: str, *, any_relation: bool
    ) -> None:
        super().__init__(lexemes)
        self._published = published_schema
        self._any_relation = any_relation
        self._named: dict[str, FilteredRelation] = {}  # by WITH
        self._unused: set[str] = set()
        self._questions: list[QueryText] = []
        self._parts = PartsBudget()
        self._totals: list[RelationText] = []
        self._databases: set[str] = set()

    def read_query(self) -> QueryText:
        """Read the whole query."""
        if self.takes("with"):
            self.read_common_tables()
        self.require("select")
        text = self.read_select()
        if self.here.kind != "end":
            raise self.refuse_next()
        own = text.publication
        totals = [total._replace(schema=total.schema or self._published) for total in self._totals]
        if any((total.schema, total.name) != (own.schema, own.name) for total in totals):
            raise refusal(
                "a subselect asks another relation than the query",
                hint="write SUM(COUNT(*)) OVER () for the total of all groups",
            )
        if self._unused:
            raise refusal(
                "a common table expression is not used", hint="leave it out, or select from it"
            )
        questions = tuple(self._questions)
        return text._replace(databases=frozenset(self._databases), questions=questions)

    def read_select(self) -> QueryText:
        """Read what stands behind SELECT, as a query over the publication."""
        text, source, items = self.read_clauses()
        return flatten_query(text, source, items)

    def read_clauses(self) -> tuple[QueryText, FilteredRelation, tuple[ItemText, ...] | None]:
        """Read the clauses of a SELECT as written; the items are None for ``*``."""
        is_distinct = self.takes("distinct")
        if is_distinct and self.here.is_word("on"):
            hint = "write SELECT DISTINCT a, b, or GROUP BY a, b"
            raise self.refuse("SELECT DISTINCT ON is not supported", hint)
        if is_distinct and self.here.is_symbol("*"):
            raise self.refuse("DISTINCT is not supported with *", "name the columns")
        items = None if self.takes("*") else self.read_list(self.read_item)
        source = self.read_source()
        source, joins, answered = self.read_joins(source)
        if not source.alias:
            source = self.choose_publication(source, joins)
        lookups = tuple(join.lookup for join in joins)
        where = self.read_expression() if self.takes("where") else None
        group, sets = self.read_groups() if self.takes("group", "by") else ((), ())
        having = self.read_expression() if self.takes("having") else None
        order = self.read_list(self.read_order) if self.takes("order", "by") else ()
        limit, offset = self.read_rows()
        text = QueryText(
            items or (), source.publication, lookups, where, group, having, order, limit, offset,
            is_distinct=is_distinct, sets=sets,
        )  # fmt: skip
        text = with_answers(text, answered) if answered else text
        return text, source, None if items is None else text.items

    def read_common_tables(self) -> None:
        """Read what stands after WITH."""
        if self.here.is_word("recursive") and not self.ahead(1).is_word("as"):
            hint = "write WITH <name> AS (SELECT ...)"
            raise self.refuse("WITH RECURSIVE is not supported", hint)
        self.read_list(self.read_common_table)
        if len(self._named) > MAX_NAMED:
            raise refusal(f"WITH names more than {MAX_NAMED} subqueries", hint="use fewer")

    def read_common_table(self) -> None:
        """Read ``name AS (SELECT …)``."""
        at, name = self.here, self.read_alias()
        self.require("as")
        if self.here.is_word("materialized", "not"):
            raise self.refuse("MATERIALIZED is not supported", "leave it out")
        relation = self.read_subquery()
        if name in self._named:
            what = "two common table expressions have the same name"
            raise self.refuse(what, "rename one", at)
        self._named[name] = relation._replace(alias=(name,))
        self._unused.add(name)

    def read_subquery(self) -> FilteredRelation:
        """Read a SELECT in parentheses: one that names columns and filters, or one with groups."""
        self.open()
        named = dict(self._named)
        if self.takes("with"):
            self.read_common_tables()
        self.require("select")
        text, source, items = self.read_clauses()
        self.close()
        self._named = named
        is_plain = text == QueryText(
            text.items, text.publication, text.lookups, text.where, order=text.order
        )
        has_groups = source.groups or any(has_aggregate(item.expression) for item in text.items)
        if is_plain and not has_groups and not (source.alias and text.lookups):
            return flatten_subquery(source, text, items)
        return group_relation(flatten_query(text, source, items), self._parts)

    def read_item(self) -> ItemText:
        """Read an item of the select list."""
        if self.here.is_symbol("*"):
            raise self.refuse(WHOLE_ROWS, COLUMNS)
        expression = self.read_expression()
        if self.takes("as") or is_bare_alias(self.here):
            return ItemText(expression, self.read_name())
        return ItemText(expression)

    def read_source(self) -> FilteredRelation:
        """Read FROM, and the relation after it."""
        if not self.takes("from"):
            is_left_out = self.here.kind == "end" or self.here.is_word(*_CLAUSES)
            if is_left_out or (self.depth and self.here.is_symbol(")")):
                raise refusal("a query without FROM is not supported")
            raise self.refuse_next()
        return self.read_from()

    def read_from(self) -> FilteredRelation:
        """Read a relation, or a subquery with its name."""
        if self.here.is_symbol("("):
            subquery = self.read_subquery()
            if not self.takes("as") and not is_name(self.here):
                raise self.refuse("a subquery has no name", "name it with AS")
            return subquery._replace(alias=(self.read_alias(),))
        relation = self.read_relation()
        if relation.schema is None and relation.name in self._named:
            self._unused.discard(relation.name)
            alias = (relation.alias or relation.name,)
            return self._named[relation.name]._replace(alias=alias)
        return FilteredRelation(relation, self._parts)

    def choose_publication(
        self, source: FilteredRelation, joins: list[LookupJoin]
    ) -> FilteredRelation:
        """Tell the publication from the lookup tables, one of which may stand before it."""
        first = source.publication
        own = [place for place, join in enumerate(joins) if self.may_publish(join.lookup.relation)]
        if not self.may_publish(first) and len(own) == 1:
            (place,) = own
            sides = [join.side for join in joins[: place + 1]]
            if sides not in (["right"], ["inner"] * len(sides)):
                raise refusal(
                    "rows of a lookup table without a record would count",
                    hint="write FROM <publication> LEFT JOIN <lookup table> ON a = b",
                )
            lookup = joins[place].lookup
            joins[place] = LookupJoin(
                lookup._replace(relation=first, is_outer=sides == ["right"]), "left"
            )
            first = lookup.relation
        self.check_schema(first)
        if any(join.side == "right" for join in joins):
            raise refusal(
                "only JOIN and LEFT JOIN with a condition on one column each are supported",
                hint="write LEFT JOIN ... ON a = b, or USING (a)",
            )
        return source._replace(publication=first._replace(schema=first.schema or self._published))

    def may_publish(self, relation: RelationText) -> bool:
        """Whether a relation's name may be that of a publication."""
        return relation.schema in (None, self._published)

    def check_schema(self, relation: RelationText) -> None:
        """Refuse a relation of another schema than that of the publications."""
        if not self.may_publish(relation) and not self._any_relation:
            raise beyond_publications(self._published)

    def read_relation(self) -> RelationText:
        """Read a relation with its qualifiers and its alias."""
        first = self.here
        names = [self.read_name()]
        while self.takes("."):
            names.append(self.read_name())
        if len(names) > 3:
            raise self.refuse("a name has too many qualifiers", at=first)
        self._databases.update(names[:-2])
        schema = names[-2] if len(names) > 1 else None
        has_alias = self.takes("as") or is_name(self.here)
        return RelationText(schema, names[-1], self.read_alias() if has_alias else None)

    def read_alias(self) -> str:
        """Read the name that a relation has in this query."""
        if is_name(self.here) and self.ahead(1).is_symbol("("):
            hint = "name each column with AS in the subquery"
            raise self.refuse("a list of column aliases is not supported", hint)
        return self.read_name()

    def read_groups(self) -> tuple[tuple[Expression, ...], tuple[tuple[int, ...], ...]]:
        """Read the expressions of GROUP BY; of several sets of them, also the sets' places."""
        elements = self.read_list(self.read_group)
        sets: list[tuple[Expression, ...]] = [()]
        for element in elements:
            if len(sets) * len(element) > MAX_SETS:
                raise refusal(f"GROUP BY has more than {MAX_SETS} sets", hint="ask for fewer")
            sets = [(*one, *more) for one in sets for more in element]
        group = tuple(dict.fromkeys(part for one in sets for part in one))
        if len(sets) == 1:
            return sets[0], ()
        return group, tuple(tuple(sorted({group.index(part) for part in one})) for one in sets)

    def read_group(self) -> list[tuple[Expression, ...]]:
        """Read an element of GROUP BY: one expression, or sets of several."""
        kind = self.here
        is_sets = self.takes("grouping", "sets")
        if not is_sets and not (kind.is_word("rollup", "cube") and self.ahead(1).is_symbol("(")):
            return [(self.read_expression(),)]
        if not is_sets:
            self.step()
        self.open()
        if is_sets:
            sets = [one for element in self.read_list(self.read_set) for one in element]
            self.close()
            return sets
        elements = self.read_list(self.read_set)
        if any(len(element) > 1 or not element[0] for element in elements):
            what = "ROLLUP and CUBE are made of columns and expressions"
            raise self.refuse(what, "write GROUP BY ROLLUP (a, b)", kind)
        parts = [element[0] for element in elements]
        self.close()
        if kind.is_word("rollup"):
            chosen = [parts[:n] for n in range(len(parts), -1, -1)]
        elif 2 ** len(parts) > MAX_SETS:
            raise self.refuse(f"GROUP BY has more than {MAX_SETS} sets", "ask for fewer", kind)
        else:
            counts = range(len(parts), -1, -1)
            chosen = [list(some) for n in counts for some in combinations(parts, n)]
        return [tuple(chain.from_iterable(some)) for some in chosen]

    def read_set(self) -> list[tuple[Expression, ...]]:
        """Read ``(a, b)``, ``()``, or an element of GROUP BY."""
        if self.here.is_symbol("(") and self.ahead(1).is_symbol(")"):
            self.step()
            self.step()
            return [()]
        begun = self._at
        if self.here.is_symbol("("):
            self.open()
            parts = self.read_list(self.read_expression)
            self.close()
            if self.here.is_symbol(",", ")"):
                return [parts]
            self._at = begun  # parentheses of an expression
        return self.read_group()

    def read_joins(
        self, source: FilteredRelation
    ) -> tuple[FilteredRelation, list[LookupJoin], list[AnsweredJoin]]:
        """Read JOINs; return also what stands in FROM, unless that is a subquery to be answered."""
        joins, answered = [], []
        while self.here.is_word("join", "inner", "left", "right"):
            side = self.here.text.replace("join", "inner")
            if not self.here.is_word("join"):
                self.step()
            if side != "inner":
                self.takes("outer")
            self.require("join")
            at, relation = self.here, self.read_from()
            is_turned = source.groups is not None and not relation.alias and side != "left"
            if relation.alias or is_turned:
                own, groups = (relation, source) if is_turned else (source, relation)
                if side == "right" and not is_turned:
                    raise self.refuse("a subquery is joined by RIGHT JOIN", "write LEFT JOIN", at)
                answered.append(self.read_answered(groups, at, is_outer=side != "inner"))
                source = own
            else:
                lookup = self.read_lookup(relation.publication, at, is_outer=side == "left")
                joins.append(LookupJoin(lookup, side))
        at = self.here
        if self.takes(","):
            if self.here.is_word("lateral"):
                raise self.refuse_next()
            hint = "join a lookup table with JOIN ... ON ..."
            raise self.refuse("several relations in FROM are not supported", hint, at)
        return source, joins, answered

    def read_lookup(self, relation: RelationText, at: Lexeme, *, is_outer: bool) -> LookupText:
        """Read what a lookup table is joined on."""
        match self.read_join_condition():
            case [Name() as column]:
                return LookupText(relation, column, column, is_outer, is_using=True)
            case [_, *_]:
                raise self.refuse("a join on several columns is not supported")
            case Comparison("=", Name() as left, Name() as right):
                return LookupText(relation, left, right, is_outer)
        raise self.refuse(
            "a join on anything but the equality of two columns is not supported",
            "write JOIN <lookup table> ON <publication column> = <lookup column>",
            at,
        )

    def read_join_condition(self) -> Expression | list[Name]:
        """Read the condition after ON, or the columns after USING."""
        if self.takes("using"):
            self.open()
            names = self.read_list(self.read_name)
            self.close()
            return [Name((name,)) for name in names]
        self.require("on")
        return self.read_expression()

    def read_answered(
        self, groups: FilteredRelation, at: Lexeme, *, is_outer: bool
    ) -> AnsweredJoin:
        """Read what the groups of a subquery are joined on, which is answered first."""
        condition = self.read_join_condition()
        if isinstance(condition, list):
            pairs: list[tuple[Expression, str]] = [(name, name.parts[0]) for name in condition]
            is_distinct = False
        else:
            pairs, is_distinct = split_join(condition, groups)
        if not pairs or groups.groups is None:
            raise self.refuse(
                "a subquery is joined on something else than what it groups by",
                "write JOIN (SELECT a, COUNT(*) ... GROUP BY a ...) AS t ON <publication>.a = t.a",
                at,
            )
        text, columns = groups.groups, groups.columns or {}
        items = [ItemText(columns[name], name) for _, name in pairs if name in columns]
        if len(items) < len(pairs) or not keys_of(text) <= {item.expression for item in items}:
            raise self.refuse(
                "a subquery is joined on other columns than those of its GROUP BY",
                "compare each column that it groups by, with AND",
                at,
            )
        operands = tuple(operand for operand, _ in pairs)
        among = Answered(operands, self.ask_first(text, items, at), is_distinct)
        own: dict[str, Expression | None] = dict.fromkeys(columns)
        for operand, name in pairs:
            own[name] = Case(((among, operand),), None) if is_outer else operand
        return AnsweredJoin(groups.alias, own, among, is_outer)

    def read_among(self, operands: tuple[Expression, ...]) -> Expression:
        """Read ``(SELECT …)`` behind IN, which is answered first."""
        at = self.here
        self.open()
        self.require("select")
        text = self.read_select()
        self.close()
        if len((text.outer or text).items) != len(operands):
            what = "a subquery of IN lists more or fewer columns than are compared"
            raise self.refuse(what, "list one column", at)
        if not (text.group or any(has_aggregate(item.expression) for item in text.items)):
            if (text.limit is not None or text.offset) and not text.is_distinct:
                raise self.refuse("LIMIT cuts records that are in no order", "write GROUP BY", at)
            text = text._replace(is_distinct=True)
        own = [
            item._replace(alias=item.alias or own_name(item.expression) or f"value_{number}")
            for number, item in enumerate(text.items)
        ]
        return Answered(operands, self.ask_first(text, own, at))

    def ask_first(self, text: QueryText, items: Sequence[ItemText], at: Lexeme) -> int:
        """Note a question whose answer a condition needs; return its number."""
        if text.sets or text.outer or any(has_aggregate(item.expression) for item in items):
            raise self.refuse(
                "a condition compares with the estimates of a subquery",
                "ask it by itself first, and write its values, as in IN (1, 2, 3)",
                at,
            )
        group = tuple(item.expression for item in text.items) if text.is_distinct else text.group
        occurs = Comparison(">", Aggregate("count", None), Literal("number", "0"))
        having = [occurs] if text.having is None else [text.having, occurs]
        question = text._replace(
            items=tuple(items), grouped=text.grouped or text.items, group=group,
            having=joined(And, having), is_distinct=False,
        )  # fmt: skip
        if question not in self._questions:
            self._questions.append(question)
        if len(self._questions) > MAX_QUESTIONS:
            raise self.refuse(f"more than {MAX_QUESTIONS} subqueries are answered first", at=at)
        return self._questions.index(question)

    def read_order(self) -> OrderText:
        """Read an item of ORDER BY."""
        expression = self.read_expression()
        if self.here.is_word("using"):
            raise self.refuse("ORDER BY ... USING is not supported", "write ASC, or DESC")
        is_descending = self.takes("desc")
        if not is_descending:
            self.takes("asc")
        if self.takes("nulls", "last"):
            return OrderText(expression, is_descending)
        return OrderText(expression, is_descending, self.takes("nulls", "first") or is_descending)

    def read_rows(self) -> tuple[int | None, int]:
        """Read LIMIT, or FETCH, and OFFSET, in any order."""
        limit = offset = None
        while True:
            if limit is None and (self.takes("limit", "all") or self.takes("limit", "null")):
                limit = MAX_ROWS
            elif limit is None and self.takes("limit"):
                limit = self.read_number()
            elif limit is None and (self.takes("fetch", "first") or self.takes("fetch", "next")):
                limit = self.read_fetched()
            elif offset is None and self.takes("offset"):
                offset = self.read_number()
                if self.here.is_word("row", "rows"):
                    self.step()
            else:
                return limit, offset or 0

    def read_fetched(self) -> int:
        """Read ``[n] ROWS ONLY``."""
        at = self.here
        n_rows = self.read_number() if at.kind == "number" else 1
        if not ((self.takes("row") or self.takes("rows")) and self.takes("only")):
            raise self.refuse(
                "FETCH is only supported with a number of rows",
                "write FETCH FIRST 10 ROWS ONLY, or LIMIT 10",
                at,
            )
        return n_rows

    def read_number(self) -> int:
        """Read a number of rows."""
        kind, text, _ = self.here
        if not (kind == "number" and text.isdecimal() and len(text) <= 10):
            raise self.refuse("LIMIT and OFFSET need a whole number")
        if int(text) > MAX_ROWS:
            raise self.refuse(f"LIMIT and OFFSET go up to {MAX_ROWS}")
        self.step()
        return int(text)

    def read_total(self) -> WindowTotal:
        """Read ``(SELECT COUNT(*) FROM publication)``, a total of all records."""
        other = self.refuse("subqueries are not supported, but for totals", _TOTAL)
        self.open()
        if not self.takes("select", "count", "(", "*", ")"):
            raise other
        if self.takes("as") or is_bare_alias(self.here):
            self.read_name()
        if not (self.takes("from") and is_name(self.here)):
            raise other
        relation = self.read_relation()
        is_named = relation.schema is None and relation.name in self._named
        if is_named or not self.here.is_symbol(")"):
            raise other
        self.check_schema(relation)
        self.close()
        self._totals.append(relation)
        return WindowTotal(Aggregate("count", None), is_filtered=False)


def parse_query(
    query: str,
    published_schema: str = "published",
    heartbeat: Callable[[], None] = lambda: None,
    *,
    values: Values | None = None,
    any_relation: bool = False,
) -> QueryText:
    """Read a query on a publication in the schema `published_schema`; `values` of its parameters.

    Raises UnsupportedQueryError, which repeats no name and no value of the query.
    """
    # `heartbeat` is called between steps, each of which takes less than a second; `any_relation`:
    # FROM may name a relation of another schema, which the caller looks up.
    lexemes = scan(query, values)
    heartbeat()
    if lexemes and lexemes[-1].is_symbol(";"):
        lexemes.pop()
    if not lexemes:
        raise refusal("the query is empty")
    if not lexemes[0].is_word("select", "with"):
        raise refusal("the query is not a SELECT statement", lexemes[0].position)
    try:
        text = QueryParser(lexemes, published_schema, any_relation=any_relation).read_query()
    except RecursionError:
        raise refusal("the query nests too deeply", hint="use fewer parentheses") from None
    heartbeat()
    for one in (text, *text.questions):
        _check_lists(one)
    expressions = text.expressions
    for expression in expressions:
        _refuse_tall(expression)
    heartbeat()
    if sum(_count_repeated(part, _operators) for part in expressions) > MAX_OPERATORS:
        raise refusal(
            f"the query has more than {MAX_OPERATORS} operators",
            hint="use IN (...), which counts as one, or ranges; BETWEEN, IS DISTINCT FROM and IS"
            " TRUE count what they compare twice",
        )
    if sum(_count_repeated(part, _matching) for part in expressions) > MAX_PATTERNS:
        raise refusal(
            f"the patterns of LIKE have more than {MAX_PATTERNS:,} characters together",
            hint=f"each counts {_PATTERN_COST} more than it has; ask several queries",
        )
    heartbeat()
    return text


def _check_lists(text: QueryText) -> None:
    outer = [] if text.outer is None else [text.outer.items, text.outer.group, text.outer.order]
    for listed in (text.items, text.group, text.order, *outer):
        if len(listed) > MAX_ITEMS:
            raise refusal(
                f"a list has more than {MAX_ITEMS} items",
                hint="ask for fewer aggregates, or groups, at a time",
            )
    for expression in (text.where, *text.group):
        if any(isinstance(part, Aggregate) for part in walk(expression)):
            raise refusal(
                "WHERE or GROUP BY contains an aggregate",
                hint="put conditions on counts into HAVING",
            )


def _count_repeated(expression: Expression, cost: Callable[[Expression], int]) -> int:
    """Add up the costs of operators, each as often as statements may repeat it."""
    if not expression.children:
        return cost(expression)
    costs = sum(_count_repeated(part, cost) for part in expression.children)
    return cost(expression) + (2 * costs if isinstance(expression, _WRITTEN_TWICE) else costs)


def _operators(expression: Expression) -> int:
    return 1 if expression.children else 0


def _matching(expression: Expression) -> int:
    """Return the cost of a LIKE, in characters of its pattern."""
    match expression:
        case Pattern(pattern=pattern):
            texts = (part.text for part in walk(pattern) if isinstance(part, Literal))
            return sum(map(len, texts)) + _PATTERN_COST
    return 0


def _refuse_tall(expression: Expression) -> None:
    level, height = [expression], 0
    while level:
        height += 1
        if height > MAX_HEIGHT:
            raise refusal(f"an expression nests more than {MAX_HEIGHT} operators")
        level = [inner for part in level for inner in part.children]
