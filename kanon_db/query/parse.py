"""Parses a query into its clauses, or refuses it with a reason."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from kanon_db.errors import UnsupportedQueryError
from kanon_db.query._constructs import (
    MOMENTS,
    VALUE_FUNCTIONS,
    LexemePlace,
    is_bare_alias,
    refuse_constructs,
)
from kanon_db.query._lexer import Item, Lexeme, merge_words, scan, unexpected, with_types
from kanon_db.query._syntax import ExpressionReader, refuse_unlisted
from kanon_db.query.expressions import (
    Aggregate,
    And,
    Comparison,
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
    WindowTotal,
    children,
    joined,
    refusal,
    replace_parts,
    walk,
)

import sqlglot  # isort: skip
from sqlglot import exp  # isort: skip
from sqlglot.errors import ParseError, SqlglotError  # isort: skip

# Flattening subqueries in FROM, which only name columns and filter records.
#
# A column of such a subquery stands for an expression over the publication, which replaces each of
# its mentions. Columns of the publication are qualified then, so that none is taken for an alias.


MAX_PARTS: Final = 50_000
"""The most parts of all expressions that replace the columns of subqueries."""

ONLY: Final = "a subquery in FROM can only name columns and filter with WHERE"
_HINT: Final = (
    "write SELECT <columns> FROM <publication> WHERE ... there, and all else outside; the groups of"
    " a column are counted by COUNT(DISTINCT <column>)"
)


class PartsBudget:
    """Counts down from :data:`MAX_PARTS` while columns of subqueries are replaced."""

    def __init__(self) -> None:
        self._left = MAX_PARTS

    def take(self, n: int) -> None:
        """Spend parts before they are made; refuse the query when too few are left."""
        self._left -= n
        if self._left < 0:
            raise refusal(
                "the columns of a subquery become too long", hint="repeat their names less often"
            )


@dataclass(frozen=True, slots=True)
class FilteredRelation:
    """A relation in FROM, as expressions and a condition over the publication."""

    publication: RelationText
    budget: PartsBudget  # For the expressions that replace its columns
    # The qualifiers of its columns in the outer query; empty for the publication itself
    alias: tuple[str, ...] = ()
    # The expression that each column stands for; None for columns of the publication
    columns: dict[str, Expression] | None = None
    where: Expression | None = None  # The condition on the publication's records
    # All columns that subqueries select, whether the query mentions them or not
    selected: tuple[Expression, ...] = ()

    def over_publication(self, expression: Expression) -> Expression:
        """Rewrite an expression on these columns as one on the publication's columns."""
        # Raises UnsupportedQueryError when a name is none of these columns, or the result would be
        # too long.
        sizes: dict[Name, int] = {}
        for name in (part for part in walk(expression) if isinstance(part, Name)):
            if name not in sizes:
                sizes[name] = sum(1 for _ in walk(self._look_up(name)))
            self.budget.take(sizes[name])
        return replace_parts(
            expression, lambda part: self._look_up(part) if isinstance(part, Name) else None
        )

    def has(self, name: str) -> bool:
        """Whether the relation may have a column of this name."""
        return self.columns is None or name in self.columns

    def _look_up(self, name: Name) -> Expression:
        *qualifier, column = name.parts
        if qualifier and not (
            tuple(qualifier) == self.alias
            if self.alias
            else self.publication.answers_to(tuple(qualifier))
        ):
            raise refusal(
                "a column is qualified with a name that FROM does not have",
                hint="write only the column's name",
            )
        if self.columns is None:
            own = self.publication.alias or self.publication.name
            return Name((own, column), position=name.position)
        if column not in self.columns:
            raise refusal(
                "the query names a column that its subquery does not have",
                hint="list the column in the subquery; strings need single quotes, not double"
                " quotes",
            )
        return self.columns[column]


def read_subquery(
    source: FilteredRelation, items: Sequence[ItemText] | None, where: Expression | None
) -> FilteredRelation:
    """Return a subquery as expressions over the publication; `items` is None for ``*``."""
    condition = None if where is None else source.over_publication(_plain(where))
    parts = [part for part in (source.where, condition) if part is not None]
    columns = source.columns
    if items is not None:
        columns = {}
        for item in items:
            name = _name_of(item)
            if name in columns:
                raise refusal("two columns of a subquery have the same name", hint="use AS")
            columns[name] = source.over_publication(_plain(item.expression))
    selected = source.selected if items is None else (*source.selected, *(columns or {}).values())
    return replace(source, columns=columns, where=joined(And, parts), selected=selected)


def beyond(position: int | None = None) -> UnsupportedQueryError:
    """Make the error for a clause that only the outer query may have."""
    return refusal(ONLY, position, _HINT)


def flatten_query(text: QueryText, source: FilteredRelation) -> QueryText:
    """Replace a query's relation by the publication, and its columns by expressions on that."""
    if text.lookups:
        raise refusal(
            "a subquery cannot be joined", hint="join the lookup table to the publication itself"
        )
    over = source.over_publication
    items = tuple(
        ItemText(over(item.expression), item.alias or _own_name(item.expression))
        for item in text.items
    )
    named = {item.alias: new.expression for item, new in zip(text.items, items, strict=True)}

    def key(expression: Expression, *, by_alias: bool) -> Expression:
        """Resolve a name as GROUP BY does or, by alias first, as ORDER BY does."""
        replacement = expression
        match expression:
            case Name((name,)) if source.columns is None:
                return expression  # the publication's columns come first, or last: known later
            case Name((name,)) if name in named and (by_alias or not source.has(name)):
                if any(
                    item.alias == name and new.expression != named[name]
                    for item, new in zip(text.items, items, strict=True)
                ):
                    raise refusal("two items of the select list have the same name")
                replacement = named[name]
            case Literal("number"):
                return expression
            case _:
                replacement = over(expression)
        if isinstance(replacement, Literal):
            raise refusal("GROUP BY or ORDER BY contains a constant", hint="name columns")
        return replacement

    where = None if text.where is None else over(text.where)
    conditions = [part for part in (source.where, where) if part is not None]
    return text._replace(
        items=items,
        publication=source.publication,
        where=joined(And, conditions),
        group=tuple(key(expression, by_alias=False) for expression in text.group),
        having=None if text.having is None else over(text.having),
        order=tuple(
            OrderText(key(one.expression, by_alias=True), one.is_descending, one.nulls_first)
            for one in text.order
        ),
        selected=source.selected,
    )


def _own_name(expression: Expression) -> str | None:
    return expression.parts[-1] if isinstance(expression, Name) else None


def _name_of(item: ItemText) -> str:
    if isinstance(item.expression, Literal):
        raise refusal("a column of a subquery is a constant", hint="write the constant outside")
    name = item.alias or _own_name(item.expression)
    if name is None:
        raise refusal("a column of a subquery has no name", hint="name it with AS")
    return name


def _plain(expression: Expression) -> Expression:
    if any(isinstance(part, Aggregate) for part in walk(expression)):
        raise beyond()
    return expression


_TOTAL: Final = (
    "ask SELECT AVG(...) FROM <publication> first, and write its number; shares of the total are"
    " 100.0 * COUNT(*) / (SELECT COUNT(*) FROM <publication>)"
)

MAX_NAMED: Final = 50
"""The most subqueries that WITH may name."""

MAX_ROWS: Final = 10**9
"""The most rows that LIMIT and OFFSET may name."""


def read_tree(tree: exp.Expr | None, lexemes: Sequence[Lexeme], published_schema: str) -> QueryText:
    """Read a parsed query.

    Parameters
    ----------
    tree : sqlglot's Expr or None
        The parsed query: each name and constant is the number of its lexeme, and the NOTs that
        negate a test are left out.
    lexemes : sequence of Lexeme
        The query's lexemes, with balanced parentheses.
    published_schema : str
        The only schema that the publication may be qualified with.

    Raises
    ------
    UnsupportedQueryError
        When the tree has a construct that is not allowed, does not account for every lexeme, or
        groups operators otherwise than PostgreSQL.
    """
    if not isinstance(tree, exp.Select):
        raise unexpected(lexemes[0])
    refuse_unlisted(tree)
    return _QueryReader(lexemes).query(tree, published_schema)


class _QueryReader(ExpressionReader):
    """Reads a query along its lexemes; each method reads one construct."""

    def __init__(self, lexemes: Sequence[Lexeme]) -> None:
        super().__init__(lexemes)
        self._published = ""
        self._named: dict[str, FilteredRelation] = {}
        self._parts = PartsBudget()
        self.totals: list[RelationText] = []
        self.databases: set[str] = set()

    def query(self, select: exp.Select, published_schema: str) -> QueryText:
        clauses = select.args
        self._published = published_schema
        if clauses.get("with_") is not None:
            self.named(clauses["with_"])
        self.require("select")
        is_distinct = clauses.get("distinct") is not None
        if is_distinct:
            self.require("distinct")
        items = self.read_list(select.expressions, self.item)
        source = self.source(select)
        lookups = tuple(map(self.lookup, clauses.get("joins") or ()))
        where = self.clause(clauses.get("where"), "where", self.condition)
        group = self.clause(clauses.get("group"), "group by", self.group)
        having = self.clause(clauses.get("having"), "having", self.condition)
        order = self.clause(clauses.get("order"), "order by", self.orders)
        limit, offset = (
            self.clause(clauses.get(word), word, lambda node: self.row_count(node.expression))
            for word in ("limit", "offset")
        )
        if self.here.kind != "end":
            raise unexpected(self.here)
        text = QueryText(
            items, source.publication, lookups, where, group or (), having, order or (), limit,
            offset or 0, is_distinct=is_distinct, databases=frozenset(self.databases),
        )  # fmt: skip
        for total in self.totals:
            if total.name != source.publication.name:
                raise refusal(
                    "a subselect asks another relation than the query",
                    hint="write SUM(COUNT(*)) OVER () for the total of all groups",
                )
        if self._named:
            raise refusal(
                "a common table expression is not used", hint="leave it out, or select from it"
            )
        return flatten_query(text, source) if source.alias else text

    def named(self, node: exp.With) -> None:
        """Read the common table expressions."""
        self.require("with")

        def read(one: exp.Expr) -> None:
            alias = one.args.get("alias")
            at = self.here.position
            name = self.name(alias.this if isinstance(alias, exp.TableAlias) else None)
            self.require("as", "(")
            relation = self.inner(one.this)
            self.require(")")
            if name in self._named:
                raise refusal("two common table expressions have the same name", at, "rename one")
            self._named[name] = replace(relation, alias=(name,))

        if len(node.expressions) > MAX_NAMED:
            raise refusal(f"WITH names more than {MAX_NAMED} subqueries", hint="use fewer")
        self.read_list(node.expressions, read)

    def inner(self, select: exp.Expr) -> FilteredRelation:
        """Read a SELECT that only names columns and filters."""
        if not isinstance(select, exp.Select):
            raise unexpected(self.here)
        clauses = {name for name, value in select.args.items() if value}
        if not clauses <= {"expressions", "from_", "where"}:
            raise beyond(self.here.position)
        self.require("select")
        items = None
        if len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star):
            self.require("*")
        else:
            items = self.read_list(select.expressions, self.item)
        source = self.source(select)
        where = self.clause(select.args.get("where"), "where", self.condition)
        return read_subquery(source, items, where)

    def source(self, select: exp.Select) -> FilteredRelation:
        """Read the relation in FROM."""
        if select.args.get("from_") is None:
            raise refusal("a query without FROM is not supported")
        self.require("from")
        node = select.args["from_"].this
        if isinstance(node, exp.Subquery):
            self.require("(")
            found = self.inner(node.this)
            self.require(")")
            alias = node.args.get("alias")
            if alias is None:
                raise refusal("a subquery has no name", self.here.position, "name it with AS")
            self.takes("as")
            return replace(found, alias=(self.name(alias.this),))
        relation = self.relation(node)
        if relation.schema is None and relation.name in self._named:
            found = self._named.pop(relation.name)
            return replace(found, alias=(relation.alias or relation.name,))
        if relation.schema not in (None, self._published):
            raise refusal(
                "only publications can be queried",
                hint="write only the publication's name, or put the schema"
                f" {self._published} before it",
            )
        publication = RelationText(self._published, relation.name, relation.alias)
        return FilteredRelation(publication, self._parts)

    def clause(
        self, node: exp.Expr | None, words: str, read: Callable[[exp.Expr], Item]
    ) -> Item | None:
        """Read a clause after its words, if the query has it."""
        if node is None:
            return None
        self.require(*words.split())
        return read(node)

    def condition(self, node: exp.Expr) -> Expression:
        return self.expression(node.this)

    def group(self, node: exp.Expr) -> tuple[Expression, ...]:
        return self.read_list(node.expressions, self.expression)

    def orders(self, node: exp.Expr) -> tuple[OrderText, ...]:
        return self.read_list(node.expressions, self.order)

    def item(self, node: exp.Expr) -> ItemText:
        if not isinstance(node, exp.Alias):
            return ItemText(self.expression(node))
        expression = self.expression(node.this)
        if not self.takes("as") and not is_bare_alias(self.here):
            raise unexpected(self.here)
        return ItemText(expression, self.name(node.args.get("alias")))

    def relation(self, node: exp.Expr) -> RelationText:
        if not isinstance(node, exp.Table):
            raise unexpected(self.here)
        if node.args.get("catalog"):
            self.databases.add(self.name(node.args["catalog"]))
            self.require(".")
        schema = self.name(node.args["db"]) if node.args.get("db") else None
        if schema is not None:
            self.require(".")
        name = self.name(node.this)
        alias = node.args.get("alias")
        if alias is None:
            return RelationText(schema, name)
        self.takes("as")
        return RelationText(schema, name, self.name(alias.this))

    def lookup(self, node: exp.Join) -> LookupText:
        if self.here.is_symbol(","):
            raise refusal(
                "several relations in FROM are not supported",
                self.here.position,
                "join a lookup table with JOIN ... ON ...",
            )
        side, kind = str(node.args.get("side") or ""), str(node.args.get("kind") or "")
        is_outer = side == "LEFT"
        if kind not in ("", "OUTER" if is_outer else "INNER"):  # sqlglot reads other pairs too
            raise unexpected(self.here)
        self.require(*side.lower().split(), *kind.lower().split(), "join")
        at = self.here.position
        relation = self.relation(node.this)
        if node.args.get("using"):
            return self.merging(relation, node.args["using"], is_outer=is_outer)
        self.require("on")
        match self.expression(node.args.get("on")):
            case Comparison("=", Name() as left, Name() as right):
                return LookupText(relation, left, right, is_outer)
        raise refusal(
            "a join on anything but the equality of two columns is not supported",
            at,
            "write JOIN <lookup table> ON <publication column> = <lookup column>",
        )

    def merging(
        self, relation: RelationText, columns: Sequence[exp.Expr], *, is_outer: bool
    ) -> LookupText:
        """Read the column in USING."""
        self.require("using", "(")
        if len(columns) > 1:
            raise refusal("a join on several columns is not supported", self.here.position)
        column = Name((self.name(columns[0]),))
        self.require(")")
        return LookupText(relation, column, column, is_outer, is_using=True)

    def order(self, node: exp.Expr) -> OrderText:
        if not isinstance(node, exp.Ordered):
            raise unexpected(self.here)
        expression = self.expression(node.this)
        is_descending = bool(node.args.get("desc"))
        if is_descending:
            self.require("desc")
        else:
            self.takes("asc")
        nulls_last = self.takes("nulls", "last")
        nulls_first = not nulls_last and (self.takes("nulls", "first") or is_descending)
        return OrderText(expression, is_descending, nulls_first)

    def total(self, node: exp.Subquery) -> WindowTotal:
        """Read ``(SELECT COUNT(*) FROM publication)``, a total of all records."""
        at, select = self.here.position, node.this
        given = {name for name, value in select.args.items() if value}
        if not isinstance(select, exp.Select) or given != {"expressions", "from_"}:
            raise refusal("subqueries are not supported, but for totals", at, _TOTAL)
        self.require("select")
        items = self.read_list(select.expressions, self.item)
        self.require("from")
        self.totals.append(self.relation(select.args["from_"].this))
        if [item.expression for item in items] != [Aggregate("count", None)]:
            raise refusal("subqueries are not supported, but for totals", at, _TOTAL)
        return WindowTotal(Aggregate("count", None), is_filtered=False)

    def row_count(self, node: exp.Expr) -> int:
        lexeme = self.leaf(node, "number")
        if not lexeme.text.isdecimal() or len(lexeme.text) > 10:
            raise refusal("LIMIT and OFFSET need a whole number", lexeme.position)
        if int(lexeme.text) > MAX_ROWS:
            raise refusal(f"LIMIT and OFFSET go up to {MAX_ROWS}", lexeme.position)
        return int(lexeme.text)


# Reading a query from its text, or refusing it with a reason.
#
# Before sqlglot parses, `_lexer` refuses what dialects read differently, and what a count query
# cannot have. Afterwards, the tree is checked against an allow-list and read along the lexemes,
# each of which must be accounted for (`_syntax`, and above).


MAX_HEIGHT: Final = 100
"""The greatest height of an expression's tree."""

MAX_OPERATORS: Final = 10_000
"""The most operators of a query, each of which a million records may need; IN counts as one."""

MAX_PATTERNS: Final = 10_000
"""The most characters of all patterns together: comparing them with one text of the greatest length
takes half a second, in which PostgreSQL hears no cancel."""

_PATTERN_COST: Final = 20
"""Cost of reading a text, and of lowering it for ILIKE, in characters of a pattern."""

UNKNOWN_FUNCTIONS: Final = VALUE_FUNCTIONS | MOMENTS | {"now", "to_date"}

MAX_ITEMS: Final = 100
"""The most items of a select list, of GROUP BY and of ORDER BY."""

_WRITTEN_TWICE: Final = (Distinct, Range, TruthTest)
"""Tests whose operands some statements repeat, which doubles them at each level of nesting."""


def parse_query(
    query: str,
    published_schema: str = "published",
    heartbeat: Callable[[], None] = lambda: None,
) -> QueryText:
    """Read a query on a publication.

    Parameters
    ----------
    query : str
        SQL as the analyst wrote it.
    published_schema : str
        The only schema that the publication may be qualified with.
    heartbeat : callable, optional
        Called between steps, each of which takes less than a second.

    Raises
    ------
    UnsupportedQueryError
        When the query is not answered. The message names the construct; no name and no value of the
        query is repeated.

    Notes
    -----
    Where sqlglot and PostgreSQL could differ, the query is read as PostgreSQL reads it, or refused;
    chains of operators that do not associate are refused, too. Tests compare accepted queries with
    the server's own grammar.

    Examples
    --------
    >>> parse_query("SELECT COUNT(*) FROM census_b WHERE age >= 18").where
    Comparison(operator='>=', left=Name(parts=('age',)), right=Literal(kind='number', text='18'))
    """
    lexemes = scan(query)
    if lexemes and lexemes[-1].is_symbol(";"):
        lexemes.pop()
    lexemes = merge_words(with_types(lexemes))
    heartbeat()
    refuse_constructs(lexemes)
    written = _number_lexemes(lexemes)
    heartbeat()
    try:
        (tree,) = sqlglot.parse(" ".join(written), dialect="postgres")
        heartbeat()
        text = read_tree(tree, lexemes, published_schema)
    except SqlglotError as error:
        raise unexpected(lexemes[_locate_stop(error, written)]) from None
    except RecursionError:
        raise refusal("the query nests too deeply", hint="use fewer parentheses") from None
    heartbeat()
    for listed in (text.items, text.group, text.order):
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
    expressions = (
        *(item.expression for item in text.items), text.where, *text.group, text.having,
        *(item.expression for item in text.order), *text.selected,
    )  # fmt: skip
    for expression in expressions:
        _refuse_tall(expression)
    written_out = [part for part in expressions if part is not None]
    if sum(_count_repeated(part, _operators) for part in written_out) > MAX_OPERATORS:
        raise refusal(
            f"the query has more than {MAX_OPERATORS} operators",
            hint="use IN (...), which counts as one, or ranges; BETWEEN, IS DISTINCT FROM and IS"
            " TRUE count what they compare twice",
        )
    if sum(_count_repeated(part, _matching) for part in written_out) > MAX_PATTERNS:
        raise refusal(
            f"the patterns of LIKE have more than {MAX_PATTERNS:,} characters together",
            hint=f"each counts {_PATTERN_COST} more than it has; ask several queries",
        )
    return text


def _number_lexemes(lexemes: Sequence[Lexeme]) -> list[str]:
    """Write the lexemes for the parser, with a number for each name and constant."""
    # So the parser can neither misread nor repeat one, and each leaf of its tree names its lexeme.
    # A NOT that negates a test, as in IS NOT NULL, is left out, and read from the lexemes.
    written = []
    for number, lexeme in enumerate(lexemes):
        place = LexemePlace(lexemes, number)
        match lexeme.kind:
            case "number":
                written.append(f"{number}")
            case "string":
                of_type = number > 0 and LexemePlace(lexemes, number - 1).is_type
                written.append(f"'{number}' )" if of_type else f"'{number}'")
            case "word" | "name" if not place.is_keyword:
                written.append(f'"{number}"')
            case "word" if place.is_type:  # in parentheses, or it would bind less than "::"
                written.append("( date" if lexeme.text == "interval" else f"( {lexeme.text}")
            case "word" if lexeme.text == "cast":
                written.append("TRY_CAST")  # which leaves another node than "::" does
            case "word" if lexeme.text in UNKNOWN_FUNCTIONS and (
                place.is_called or place.is_moment
            ):  # to sqlglot: it keeps their arguments
                written.append(f"f_{lexeme.text}{'()' if place.is_moment else ''}")
            case "symbol" if lexeme.text.startswith(("= any", "<> all", "<@ ")):
                written.append("IN")
            case "symbol" if lexeme.text == "over ()":
                written.append("OVER ( )")
            case _:
                written.append("" if place.is_negation else lexeme.text)
    return written


def _locate_stop(error: SqlglotError, written: Sequence[str]) -> int:
    """Return the number of the lexeme where sqlglot stopped, from the column in its error."""
    column = error.errors[0].get("col") if isinstance(error, ParseError) and error.errors else None
    if not isinstance(column, int):
        return 0
    ends = list(accumulate(len(piece) + 1 for piece in written))
    return min(bisect_left(ends, column), len(written) - 1)


def _count_repeated(expression: Expression, cost: Callable[[Expression], int]) -> int:
    """Add up the costs of operators, each as often as statements may repeat it."""
    costs = sum(_count_repeated(part, cost) for part in children(expression))
    return cost(expression) + (2 * costs if isinstance(expression, _WRITTEN_TWICE) else costs)


def _operators(expression: Expression) -> int:
    return 1 if children(expression) else 0


def _matching(expression: Expression) -> int:
    """Return the cost of a LIKE, in characters of its pattern."""
    match expression:
        case Pattern(pattern=pattern):
            texts = (part.text for part in walk(pattern) if isinstance(part, Literal))
            return sum(map(len, texts)) + _PATTERN_COST
    return 0


def _refuse_tall(expression: Expression | None) -> None:
    level = [] if expression is None else [expression]
    height = 0
    while level:
        height += 1
        if height > MAX_HEIGHT:
            raise refusal(f"an expression nests more than {MAX_HEIGHT} operators")
        level = [inner for part in level for inner in children(part)]
