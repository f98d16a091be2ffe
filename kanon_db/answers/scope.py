"""Opens a query: finds its publication and lookup tables, with their columns and types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

from kanon_db.answers.plan import Plan
from kanon_db.catalog.entries import (
    Publication,
    changed,
    find_asked,
    require_codes,
    require_harmless,
    require_whole,
)
from kanon_db.catalog.published_types import (
    Estimator,
    PublishedTypes,
    cell_layout,
    plain_column,
    read_estimator,
    types_of_view,
)
from kanon_db.dataclasses import dataclass
from kanon_db.errors import (
    DatabaseError,
    NotFoundError,
    PermissionDeniedError,
    UnsupportedQueryError,
    VerificationError,
)
from kanon_db.figures import FigureRule, stricter
from kanon_db.publications.registry import kind_named
from kanon_db.query.check import LookupTable, check, check_relations, join
from kanon_db.query.expressions import (
    CATEGORIES,
    Call,
    Column,
    Comparison,
    Constant,
    Expression,
    Pattern,
    Query,
    QueryText,
    RelationText,
    attributes,
    columns,
    refusal,
    walk,
)
from kanon_db.query.layout import (
    BucketLayout,
    BucketTables,
    CellDescription,
    CellLayout,
    Lookup,
    is_drawn_from_all,
)
from kanon_db.query.parse import parse_query
from kanon_db.session.protocol import (
    DATA_EXCEPTION_CLASS,
    INSUFFICIENT_PRIVILEGE,
    UNDEFINED_FUNCTION,
    Row,
    Session,
    Value,
    frugal,
    withheld,
)
from kanon_db.transfer.allowance import QUERY_MEMORY, size_setting
from kanon_db.transfer.columns import Relation, column_types

if TYPE_CHECKING:
    from kanon_db.algorithms.ground.arrays import BoolArray
    from kanon_db.answers.rows.cell_evidence import KnownTypes
    from kanon_db.publications.buckets.learned_weights import WeighedRecords
    from kanon_db.publications.codes import Store
    from kanon_db.publications.rows.cell_columns import KnownCells
    from kanon_db.query.expressions import Aggregate, Values
    from kanon_db.query.sql import Request
    from kanon_db.transfer.tries import Tries


_ANSWER_BYTES: Final = 4096
"""Memory of an answer and its key, from the server's row to the caller's, rounded up."""


class Limits(NamedTuple):
    """The memory that a query may need, in bytes."""

    # Memory of the backend, beside what it takes when idle; the parts below fit into it together
    memory: int
    lists_values: bool = False  # Whether its groups are the values of COUNT(DISTINCT ...)

    @classmethod
    def of(cls, session: Session) -> Self:
        """Read the setting ``query_memory``, which only an administrator can change."""
        return cls(size_setting(session, "query_memory", QUERY_MEMORY))

    @property
    def kept(self) -> int:
        """What is listed of values, cells and pairs of slots at a time."""
        return self.memory // 4

    @property
    def working(self) -> int:
        """A sort or a hash table of a statement (`work_mem`)."""
        return self.memory // 16

    @property
    def text(self) -> int:
        """Statements that are shown, and the keys of all groups."""
        return self.memory // 16

    @property
    def n_answers(self) -> int:
        """The number of answers: groups times aggregates."""
        return self.memory // _ANSWER_BYTES

    def too_many(self) -> UnsupportedQueryError:
        """Make the error for a query with more answers, or longer ones."""
        detail = f"{self.n_answers} estimates are allowed, with keys of {self.text} bytes"
        if self.lists_values:
            return refusal(
                "COUNT(DISTINCT ...) would count too many values",
                hint="ask for parts of them with WHERE, or for fewer, as in"
                " COUNT(DISTINCT x::integer)",
                detail=detail,
            )
        return refusal(
            "the query has more groups than one answer may have",
            hint="group by fewer columns, or ask for parts of them with WHERE, in several queries;"
            " HAVING and LIMIT are applied only after all groups are counted",
            detail=detail,
        )


def describe_estimator(layout: BucketLayout | CellLayout) -> str:
    """Describe the estimator of a publication, for answers that are not exact."""
    if isinstance(layout, CellLayout):
        vague = [cell for cell in layout.cells.values() if cell.kind != "value"]
        is_paper = vague and not any(cell.shares for cell in vague)
        own = "as often as all cells together imply"
        return f"values of a cell {'equally often' if is_paper else own}"
    if layout.is_paper or not layout.tables.weighted:
        return "the paper's estimator: every matching inside a bucket is equally likely"
    return "how likely each value of a bucket is for each record, as learned from QIT and SAT"


@dataclass(frozen=True)
class OpenQuery:
    """A query that can be answered, with its publication and lookup tables."""

    session: Session
    text: QueryText
    query: Query
    publication: Publication
    layout: BucketLayout | CellLayout
    lookups: tuple[Lookup, ...]
    limits: Limits
    schema: str  # That of all published relations
    # The caller's rule of figures, beside the publication's
    asked_figures: FigureRule | None = field(default=None, kw_only=True)
    # How many rows of subqueries, which were answered first, stand in it as constants
    n_listed: int = field(default=0, kw_only=True)
    # What was read of the stored cells of columns, of which one answer asks several times
    known_cells: dict[str, KnownCells] = field(default_factory=dict, kw_only=True, repr=False)

    @cached_property
    def figures(self) -> FigureRule | None:
        """The rule by which figures are shown."""
        return stricter(self.publication.figures, self.asked_figures)

    @property
    def n_left_out(self) -> str:
        """How many records are left out, as it is shown."""
        n = self.publication.left_out
        return f"{n:,}" if self.figures is None else self.figures.words(n)

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """How each measure is answered."""
        return tuple(self.plan(measure.aggregate) for measure in self.query.measures)

    def plan(self, measure: Aggregate) -> Plan:
        """Plan how an aggregate is answered, by the conditions and groups of this query."""
        return Plan.of(self.query, measure, self.layout)

    @cached_property
    def store(self) -> Store:
        """The codes of the publication's slots."""
        from kanon_db.publications.codes import CodeTables, Store

        name, described = self.publication.name, self.publication.layout
        return Store(self.session, CodeTables.of(self.session, self.schema, name, described))

    def weights(
        self, attribute: str, needed: BoolArray, n_groups: int, *, is_summed: bool
    ) -> WeighedRecords:
        """Return where the weights of some sensitive values are added up, by group of records."""
        from kanon_db.publications.buckets.learned_weights import StoredWeights

        if not isinstance(self.layout, BucketLayout):
            raise TypeError("these are no buckets")
        return StoredWeights(
            self.stream, self.store, self.layout.tables, attribute, needed, n_groups,
            is_summed=is_summed,
        )  # fmt: skip

    def tries(self) -> Tries:
        """Return what asks the server of distinct values."""
        from kanon_db.transfer.tries import StatementTries

        return StatementTries(self, self.lookups)

    def fetch(self, statement: str, *values: Value) -> list[Row]:
        """Run a statement of this query; errors that depend on the data do not quote it."""
        # Raises UnsupportedQueryError when its arithmetic fails on a value, or an operator does not
        # exist for its types.
        # Raises DatabaseError for anything else. If there is a lookup table, without the server's
        # message, since the table's owner decides what its policies raise.
        with self._own_words():
            return self.session.fetch(statement, *values)

    def stream(self, n: int, statement: str, *values: Value) -> Iterator[Row]:
        """Run a statement as :meth:`fetch`, and keep only `n` of its rows at a time."""
        with self._own_words():
            yield from self.session.stream(n, statement, *values)

    def changed(self) -> VerificationError:
        """Make the error for relations that are not those that were published."""
        return changed(self.publication)

    def frugal(self) -> AbstractContextManager[None]:
        """Keep what the statements of the block need within the limits."""
        return frugal(self.session, self.limits.working)

    def known_types(
        self, request: Request, layout: CellLayout, also: Sequence[str], *, lists_values: bool
    ) -> KnownTypes:
        """Read the codes of cells that are published."""
        from kanon_db.answers.rows.stored_types import StoredTypes

        room = self.limits.kept
        return StoredTypes(self, request, layout, also, room, lists_values=lists_values)

    def too_much(self) -> UnsupportedQueryError:
        """Make the refusal of what would list or try more than memory holds."""
        return refusal(
            "the query compares more values than one answer may",
            hint="compare fewer columns with each other, group by fewer values, or ask for parts"
            " of the records in several queries",
        )

    def has_cells(self, cell: CellDescription, *, hidden: bool) -> bool:
        """Whether some cells of a column are suppressed, or some are not."""
        layout, name = self.layout, cell.column.name
        if not isinstance(layout, CellLayout) or cell.mark is None:
            return not hidden
        column = self.store.columns[name]
        return column.has_hidden if hidden else column.n_shown > 0

    def n_absent(self, column: Column, constants: Sequence[Constant]) -> int:
        """Count the constants that no published record has in a column."""
        from kanon_db.query.sql import Constants, write

        # This is about the constants: no record is counted, and no cell is said to tell anything.
        layout, stored, bound = self.layout, self.store.columns[column.name], Constants()
        value, element = "t.v", ""
        if isinstance(layout, CellLayout):
            cell = layout.cells[column.name]
            if cell.labels is not None or cell.kind == "range":
                return 0  # it stands for values that nobody need have
            if cell.kind == "set":
                value, element = f"e.v{cell.element}", ", unnest(t.v) AS e (v)"
        values = f"({self.store.values(column.name)}) AS t{element} WHERE t.i < {stored.n_shown}"
        tests = [write(Comparison("=", column, one), lambda _: value, bound) for one in constants]
        counted = " + ".join(
            f"(NOT EXISTS (SELECT FROM {values} AND {test}))::int" for test in tests
        )
        (row,) = self.fetch(f"SELECT {counted} AS n", *bound.bound)
        return int(row["n"])

    @contextmanager
    def _own_words(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            is_of_value = error.sqlstate.startswith(DATA_EXCEPTION_CLASS)
            if is_of_value or error.sqlstate == _NOT_CONVERTED:
                raise refusal(
                    "the query's arithmetic fails on some value",
                    hint="exclude such values with CASE or another condition",
                    detail=f"SQLSTATE {error.sqlstate}, as for a division by zero",
                ) from None
            if error.sqlstate == UNDEFINED_FUNCTION:
                raise refusal(
                    "the query compares values whose types cannot be compared",
                    hint="compare values of the same kind",
                ) from None
            if self.lookups:
                raise withheld(error.sqlstate) from None
            raise


_NOT_CONVERTED: Final = "0A000"
"""What a cast of NaN or infinity to a whole number fails with."""

_LOOKUP = """
SELECT c.oid::text AS oid, c.relkind::text AS kind
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text AND c.relname = $2::text
  AND has_schema_privilege(n.oid, 'USAGE')
  AND (has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT'))
"""


def read_here(session: Session, query: str, schema: str, params: Values | None = None) -> QueryText:
    """Read a query of this database; `params` are the values of its parameters.

    Raises UnsupportedQueryError.
    """
    if "\\" in query:
        _require_plain_backslashes(session)
    text = read_query(query, schema, session.heartbeat, values=params, any_relation=True)
    if text.databases:
        _require_this_database(session, text.databases)
    return text


def open_text(
    session: Session, text: QueryText, schema: str, figures: FigureRule | None, name: str | None
) -> OpenQuery:
    """Look up the names of a query, and check it; `name` answers it where it names the source.

    Raises UnsupportedQueryError; NotFoundError when there is no such publication or lookup table,
    or the role may not read it.
    """
    entry = find_asked(session, schema, text.publication, name, _answers)
    require_whole(entry)
    if not _answers(entry.kind):
        raise refusal(
            "publications of this kind answer no counts",
            detail=f'publication "{entry.name}" is of the kind {entry.kind}',
            hint="ask a model with kanon.classify",
        )
    layout = _LAYOUTS[kind_named(entry.kind).shape](session, schema, entry, read_estimator(session))
    tables = [_lookup_table(session, written.relation, schema) for written in text.lookups]
    checked, lookups = check_query(text, layout, tables)
    require_codes(entry, (name for part in checked.evaluated for name in attributes(part)))
    opened = OpenQuery(
        session, text, checked, entry, layout, lookups, Limits.of(session), schema,
        asked_figures=figures,
    )  # fmt: skip
    _require_readable_constants(opened)
    _require_readable_patterns(opened)
    with opened.frugal():
        require_kept_cells(opened)
        for number, lookup in enumerate(lookups):
            _require_unique(opened, lookup)
            _require_short(opened, number, lookup)
    return opened


def _answers(kind: str) -> bool:
    """Whether publications of a kind answer counts."""
    return kind_named(kind).shape in _LAYOUTS


def _require_this_database(session: Session, named: frozenset[str]) -> None:
    (row,) = session.fetch("SELECT current_database()::text AS found")
    if named != {row["found"]}:
        raise refusal(
            "a relation of another database is not supported",
            hint="leave the database's name out, as in published.<publication>",
        )


def _require_plain_backslashes(session: Session) -> None:
    """Refuse backslashes in quoted constants if the session does not take them literally."""
    (row,) = session.fetch("SELECT current_setting('standard_conforming_strings') AS found")
    if row["found"] != "on":
        raise refusal(
            "a backslash means something else while standard_conforming_strings is off",
            hint="SET standard_conforming_strings = on, and ask again",
        )


def read_query(query: str, schema: str, heartbeat: Callable[[], None], **how: Any) -> QueryText:
    """Read a query, and check that it asks about one publication.

    Raises UnsupportedQueryError.
    """
    text = parse_query(query, schema, heartbeat, **how)
    check_relations(text)
    return text


def check_query(
    text: QueryText, layout: BucketLayout | CellLayout, tables: Sequence[LookupTable]
) -> tuple[Query, tuple[Lookup, ...]]:
    """Check a query against its publication and its lookup tables.

    Raises UnsupportedQueryError.
    """
    joined = join(text, layout.columns, tables)
    return check(text, joined.scopes, joined.matches), joined.lookups


def _bucket_layout(
    session: Session, schema: str, publication: Publication, estimator: Estimator
) -> BucketLayout:
    tables = BucketTables.of(session, schema, publication.name, publication.layout)
    types = types_of_view(session, publication, tables.view)
    described, published = publication.layout, PublishedTypes(session, publication)
    return BucketLayout(
        tables,
        {
            name: published.column(column)
            for name, column in types.items()
            if name in described["quasi_identifiers"]
        },
        {name: published.column(types[name]) for name in tables.sensitive},
        described.get("strengths", {}),
        is_drawn_from_all(described, publication.parameters),
        estimator == "paper",
    )


_ReadLayout: TypeAlias = Callable[[Session, str, Publication, Estimator], BucketLayout | CellLayout]

_LAYOUTS: Final[Mapping[str, _ReadLayout]] = {"buckets": _bucket_layout, "rows": cell_layout}
"""The function that reads a publication's layout, by the shape of its kind."""


def _lookup_table(session: Session, relation: RelationText, published: str) -> LookupTable:
    """Find a lookup table that the role may read, with its columns of ordinary types."""
    # Raises NotFoundError when there is no such table, or the role may not read it; the error is
    # the same.
    schema = relation.schema
    if schema in (None, published) and session.fetch(
        "SELECT FROM kanon.publications WHERE name = $1::text", relation.name
    ):
        raise refusal(
            "two publications cannot be joined: which records of both are the same person's is not"
            " published",
            hint="publish a view that joins their sources, with the person as its entity, and ask"
            " that",
            detail=f'"{relation.name}" is a publication, too',
        )
    if schema is None:
        raise refusal(
            "a lookup table is named without its schema",
            hint="write it like public.regions: no search path is used",
            detail=f'name "{relation.name}"',
        )
    if schema in (published, "kanon", "information_schema") or schema.startswith("pg_"):
        raise refusal(
            "relations in this schema cannot be lookup tables",
            hint="join your own table that describes values, like regions by zip code",
        )
    rows = session.fetch(_LOOKUP, schema, relation.name)
    if not rows:
        raise NotFoundError(
            "there is no such lookup table, or you may not read it",
            detail=f'name "{relation.name}" in schema "{schema}"',
            hint="name a table that you may SELECT from, with its schema",
        )
    if rows[0]["kind"] not in ("r", "p", "m"):
        raise refusal(
            "only a table or a materialized view can be a lookup table",
            hint="copy what the view shows into a table",
        )
    require_harmless(session, Relation(schema, relation.name), rows[0]["oid"])
    return LookupTable(
        session.identifier(schema, relation.name),
        {
            name: plain_column(session, column)
            for name, column in column_types(session, rows[0]["oid"]).items()
            if column.type_name in CATEGORIES and not column.is_others
        },
    )


def require_kept_cells(opened: OpenQuery) -> None:
    """Refuse a query on a column whose cells are all suppressed."""
    layout = opened.layout
    if not isinstance(layout, CellLayout):
        return
    names = {name for part in opened.query.evaluated for name in attributes(part)}
    for name in sorted(names):
        if not opened.has_cells(layout.cells[name], hidden=False):
            raise refusal(
                "nothing is known of a column: all of its cells are suppressed",
                hint="ask about other columns",
                detail=f'column "{name}"',
            )


def _require_unique(query: OpenQuery, lookup: Lookup) -> None:
    """Refuse a lookup table that has several rows for a value."""
    rows = query.fetch(
        f"SELECT EXISTS (SELECT FROM {lookup.relation} AS l WHERE l.{lookup.key.sql} IS NOT NULL"
        f" GROUP BY l.{lookup.key.sql} HAVING count(*) > 1) AS repeats"
    )
    if rows[0]["repeats"]:
        raise refusal(
            "the lookup table has several rows for one value of its join column",
            hint="join a table that has each value once",
            detail=f'column "{lookup.key.name}"',
        )


def _require_short(query: OpenQuery, number: int, lookup: Lookup) -> None:
    """Refuse a lookup table with texts longer than published texts may be."""
    from kanon_db.transfer.snapshot import MOST_BYTES  # what makes copies: not for a first estimate

    named = {column for part in query.query.evaluated for column in columns(part)} | {lookup.key}
    texts = sorted(
        column.name
        for column in named
        if column.lookup == number and column.type.category in ("text", "char")
    )
    if not texts:
        return
    lengths = ", ".join(f"max(octet_length(l.{query.session.identifier(t)}))" for t in texts)
    (row,) = query.fetch(f"SELECT ARRAY[{lengths}]::int4[] AS longest FROM {lookup.relation} AS l")
    for name, longest in zip(texts, row["longest"], strict=True):
        if longest is not None and longest > MOST_BYTES:
            raise refusal(
                f"a lookup table has a text of more than {MOST_BYTES:,} bytes",
                hint="join a table with shorter texts",
                detail=f'column "{name}"',
            )


_FORMS: Final = {
    "date": "write DATE '2024-01-31'",
    "timestamp": "write TIMESTAMP '2024-01-31 00:00'",
    "boolean": "write TRUE or FALSE",
    **dict.fromkeys(("smallint", "integer", "bigint"), "write a whole number, without quotes"),
}
"""What to write instead of a constant that cannot be read, by the first word of its type."""


def _require_readable_constants(opened: OpenQuery) -> None:
    """Refuse constants that their types do not allow; the server's error would quote them."""
    session = opened.session
    by_type: dict[str, list[str]] = {}
    for constant in opened.query.constants:
        if constant.text is not None and not _reads_for_certain(constant):
            by_type.setdefault(constant.type.name, []).append(constant.text)
    for type_name, texts in sorted(by_type.items()):
        try:
            with session.savepoint():
                session.fetch(f"SELECT count(c::{type_name}) FROM unnest($1::text[]) AS c", texts)
        except DatabaseError as error:
            if error.sqlstate == INSUFFICIENT_PRIVILEGE:
                raise PermissionDeniedError(
                    "the role may not use a column's type",
                    detail=f"type {type_name}",
                    hint="the owner of the type's schema can GRANT USAGE on it to kanon_analyst",
                ) from None
            if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
                raise
            raise refusal(
                f"a constant cannot be read as {type_name}",
                hint=_FORMS.get(
                    type_name.split()[0], "write it as PostgreSQL prints values of this type"
                ),
            ) from None


def _require_readable_patterns(opened: OpenQuery) -> None:
    """Refuse regular expressions that the server cannot read."""
    patterns = {
        one.text
        for part in opened.query.evaluated
        for inner in walk(part)
        for one in _regular_expressions(inner)
        if isinstance(one, Constant) and one.text is not None
    }
    if not patterns:
        return
    session = opened.session
    try:
        with session.savepoint():
            session.fetch("SELECT count('' ~ p) FROM unnest($1::text[]) AS p", sorted(patterns))
    except DatabaseError as error:
        if not error.sqlstate.startswith(DATA_EXCEPTION_CLASS):
            raise
        raise refusal(
            "a regular expression cannot be read",
            hint="close its brackets and parentheses; a character that means something else is"
            " written behind a backslash",
        ) from None


def _regular_expressions(part: Expression) -> Sequence[Expression]:
    match part:
        case Pattern(pattern=pattern) if part.is_regular:
            return [pattern]
        case Call("regexp_replace", (_, pattern, *_)):
            return [pattern]
    return []


def _reads_for_certain(constant: Constant) -> bool:
    text, type_name = constant.text or "", constant.type.name
    if type_name == "text":
        return True
    if type_name in ("integer", "bigint", "numeric"):
        return text.lstrip("-").isdecimal() and len(text) < 10 and text.isascii()
    return type_name == "boolean" and text in ("true", "false")
