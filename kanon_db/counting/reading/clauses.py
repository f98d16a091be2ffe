"""From sqlglot's tree of a query to the typed one: its clauses, in the order of their words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from kanon_db.counting.expressions import Comparison, Expression, Name
from kanon_db.counting.reading.allowlist import refuse_unlisted
from kanon_db.counting.reading.constructs import is_bare_alias, unexpected
from kanon_db.counting.reading.cursor import Item
from kanon_db.counting.reading.flatten import Filtered, Room, beyond, flattened, selected_from
from kanon_db.counting.reading.grammar import exp
from kanon_db.counting.reading.lexemes import Lexeme
from kanon_db.counting.reading.query import ItemText, LookupText, OrderText, QueryText, RelationText
from kanon_db.counting.reading.tree import ExpressionReader
from kanon_db.counting.refusals import refusal

MAX_NAMED: Final = 50
"""The most subqueries that WITH may name."""

MAX_ROWS: Final = 10**9
"""The most rows that LIMIT and OFFSET may name."""


def read_tree(tree: exp.Expr | None, lexemes: Sequence[Lexeme], published_schema: str) -> QueryText:
    """Read a parsed query.

    Parameters
    ----------
    tree : sqlglot's Expr or None
        The parsed query, with the number of its lexeme for each name and constant, and without the
        NOTs that negate a test.
    lexemes : sequence of Lexeme
        Those of the query; their parentheses are balanced.
    published_schema : str
        The only schema that the publication may be qualified with.

    Returns
    -------
    QueryText

    Raises
    ------
    UnsupportedQueryError
        When the tree holds what is not allowed, does not account for every lexeme, or groups
        operators otherwise than PostgreSQL.
    """
    if not isinstance(tree, exp.Select):
        raise unexpected(lexemes[0])
    refuse_unlisted(tree)
    return _QueryReader(lexemes).query(tree, published_schema)


class _QueryReader(ExpressionReader):
    """Walks a query along its lexemes, each method over one construct."""

    def __init__(self, lexemes: Sequence[Lexeme]) -> None:
        super().__init__(lexemes)
        self._published = ""
        self._named: dict[str, Filtered] = {}
        self._room = Room()

    def query(self, select: exp.Select, published_schema: str) -> QueryText:
        clauses = select.args
        self._published = published_schema
        if clauses.get("with_") is not None:
            self.named(clauses["with_"])
        self.require("select")
        is_distinct = clauses.get("distinct") is not None
        if is_distinct:
            self.require("distinct")
        items = self.listed(select.expressions, self.item)
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
            offset or 0, is_distinct=is_distinct,
        )  # fmt: skip
        if self._named:
            raise refusal(
                "a common table expression is not used", hint="leave it out, or select from it"
            )
        return flattened(text, source) if source.alias else text

    def named(self, node: exp.With) -> None:
        """Read the common table expressions."""
        self.require("with")

        def read(one: exp.Expr) -> None:
            alias = one.args.get("alias")
            at = self.here.position
            name = self.name(alias.this if isinstance(alias, exp.TableAlias) else None)
            self.require("as", "(")
            found = self.inner(one.this)
            self.require(")")
            if name in self._named:
                raise refusal("two common table expressions have the same name", at, "rename one")
            self._named[name] = replace(found, alias=(name,))

        if len(node.expressions) > MAX_NAMED:
            raise refusal(f"WITH names more than {MAX_NAMED} subqueries", hint="use fewer")
        self.listed(node.expressions, read)

    def inner(self, select: exp.Expr) -> Filtered:
        """Read a SELECT that only names columns and filters."""
        if not isinstance(select, exp.Select):
            raise unexpected(self.here)
        others = {name for name, value in select.args.items() if value}
        if not others <= {"expressions", "from_", "where"}:
            raise beyond(self.here.position)
        self.require("select")
        items = None
        if len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star):
            self.require("*")
        else:
            items = self.listed(select.expressions, self.item)
        source = self.source(select)
        where = self.clause(select.args.get("where"), "where", self.condition)
        return selected_from(source, items, where)

    def source(self, select: exp.Select) -> Filtered:
        """Read what a SELECT selects from."""
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
        return Filtered(publication, self._room)

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
        return self.listed(node.expressions, self.expression)

    def orders(self, node: exp.Expr) -> tuple[OrderText, ...]:
        return self.listed(node.expressions, self.order)

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
        if relation.schema is None:
            raise refusal(
                "a lookup table is named without its schema",
                at,
                "write it like public.regions: no search path is used",
            )
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
        """Read what follows USING."""
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

    def row_count(self, node: exp.Expr) -> int:
        lexeme = self.leaf(node, "number")
        if not lexeme.text.isdecimal() or len(lexeme.text) > 10:
            raise refusal("LIMIT and OFFSET need a whole number", lexeme.position)
        if int(lexeme.text) > MAX_ROWS:
            raise refusal(f"LIMIT and OFFSET go up to {MAX_ROWS}", lexeme.position)
        return int(lexeme.text)
