"""Reads and changes kanon_db's own tables: settings, registered sources, publications.

What only `kanon_owner` may change, it is asked for: see `25_errands.sql` and `26_questions.sql`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kanon_db.catalog.names import require_plain
from kanon_db.dataclasses import dataclass
from kanon_db.errors import (
    BudgetError,
    DatabaseError,
    InvalidParameterError,
    KanonError,
    NotFoundError,
    PermissionDeniedError,
    ReplacedError,
    SchemaMismatchError,
    ServerError,
    UnsupportedQueryError,
    VerificationError,
)
from kanon_db.figures import FigureRule
from kanon_db.query.expressions import RelationText, beyond_publications
from kanon_db.session.protocol import UNDEFINED_TABLE, Row, Session, fetch_one
from kanon_db.transfer.columns import (
    ColumnType,
    KeptRows,
    Relation,
    ShortenedColumns,
    ShortText,
    column_types,
    find_relation,
)

if TYPE_CHECKING:
    from kanon_db.catalog.attributes import KeepRule

# Errands and questions run as `kanon_owner`; see `25_errands.sql` and `26_questions.sql`.

OWNER: Final = "kanon_owner"
"""The role that published relations belong to, and that alone may write the catalog."""


def run_errand(session: Session, task: str, **given: Any) -> Any:
    """Have a task done with the rights of the owner of all publications, for the current role.

    What is given and returned is plain JSON; a refusal has its SQLSTATE.
    """
    row = fetch_one(
        session,
        "INSERT INTO kanon.errand (task, given) VALUES ($1::text, $2::text::jsonb)"
        " RETURNING answer::text AS answer",
        task,
        json.dumps(given, ensure_ascii=False),
    )
    return _read_answer(row["answer"], "kanon.errand")


def ask_model(session: Session, task: str, inputs: bytes | None = None, **given: Any) -> Any:
    """Ask a model (``classify`` or ``members``) that the current role may read.

    Only the owner of all publications reads the members, and answers.
    """
    row = fetch_one(
        session,
        "INSERT INTO kanon.question (task, given, inputs)"
        " VALUES ($1::text, $2::text::jsonb, $3::bytea) RETURNING answer::text AS answer",
        task,
        json.dumps(given, ensure_ascii=False),
        inputs,
    )
    answer = _read_answer(row["answer"], "kanon.question")
    if "error" in answer:
        raise _refusal(**answer["error"])
    return answer


def _read_answer(answer: str | None, view: str) -> Any:
    """Read what a view's triggers have answered; without them, nothing was done."""
    if answer is None:
        raise DatabaseError(
            f"nothing was done: the triggers of {view} are switched off",
            sqlstate="55000",
            hint="SET session_replication_role = origin, and try again",
        )
    return json.loads(answer)


def _refusal(message: str, sqlstate: str, detail: str = "", hint: str = "") -> KanonError:
    """Make the error that the server's side of a question has returned."""
    if sqlstate == BudgetError.sqlstate:
        return BudgetError(message, detail=detail, hint=hint)
    return DatabaseError(message, sqlstate=sqlstate, detail=detail, hint=hint)


_OTHERS = """
SELECT count(DISTINCT r.owner) AS n
FROM pg_roles AS u CROSS JOIN LATERAL kanon.reached($1::text::oid) AS r
JOIN pg_roles AS o ON o.oid = r.owner
WHERE u.rolname = current_user AND u.rolsuper AND NOT o.rolsuper
"""


def require_harmless(session: Session, relation: Relation, oid: str) -> None:
    """Refuse to read, as a superuser, what belongs to somebody else."""
    # Reading a table runs what its owner has attached to it (an index on an expression, a policy, a
    # view's functions) with the rights of whoever reads, even if the query is only planned. So does
    # any SELECT in PostgreSQL: for other roles, docs/howto/operation.md says so.
    (row,) = session.fetch(_OTHERS, oid)
    if row["n"]:
        raise PermissionDeniedError(
            "a superuser does not read what belongs to others",
            detail=f"{relation}, or what it is made from, belongs to other roles, whose code would"
            " run with the rights of a superuser",
            hint="SET ROLE to its owner, or to a role that has few other rights",
        )


def _key_of_rows(session: Session) -> str:
    """Return the key by which the role draws one of a person's rows that are alike.

    It does not depend on the source: whoever names or writes it anew has the same draws.
    """
    return str(run_errand(session, "seed", digest="kept rows", dry_run=False))


class Source(NamedTuple):
    """Microdata as its owner described it with `register_source`."""

    source_id: int
    relation: Relation
    quasi_identifiers: tuple[str, ...]
    sensitive: str | None
    identifiers: tuple[str, ...]
    attributes: Mapping[str, Mapping[str, Any]]
    columns: tuple[str, ...]  # all columns that the relation had when it was registered
    insensitive: tuple[str, ...] = ()  # the columns that rows are published with as they are
    # The column that says whom a record is about; None if there is one record of each person.
    entity: str | None = None
    registered_at: str = ""  # when, exactly: it changes with every registration
    registered_by: str | None = None  # the role, by its name today; None if it is gone
    fingerprint: str | None = None  # what the relation was made of then; see ``sql/05_sources.sql``
    # The column that says when a record came: later records have greater values.
    arrival: str | None = None
    also_sensitive: tuple[str, ...] = ()  # further columns to protect
    keep: str | None = None  # which record of each entity is published; None for all of them

    @property
    def keep_rule(self) -> KeepRule | None:
        """The rule by which a record of each entity is kept."""
        from kanon_db.catalog.attributes import KeepRule

        return None if self.keep is None else KeepRule.of(self.keep)

    @property
    def kept_by(self) -> str | None:
        """The column that says which record of each entity is kept."""
        rule = self.keep_rule
        if rule is None or rule.choice == "random":
            return None
        return rule.by or self.arrival

    @property
    def keeps_first(self) -> bool:
        """Whether later records never change what somebody is published with."""
        rule = self.keep_rule
        return rule is None or (rule.choice == "first" and not rule.aggregates)

    @property
    def pooled(self) -> tuple[str, ...]:
        """The sensitive columns whose values are calculated from all records of a person."""
        rule = self.keep_rule
        aggregated = {} if rule is None else {column for _, column in rule.aggregates}
        return tuple(name for name in self.all_sensitive if name in aggregated)

    @property
    def kept_in_words(self) -> str | None:
        """What each person is published with, if not with all of their records."""
        rule = self.keep_rule
        return None if rule is None else rule.described(self.kept_by)

    def with_kept(self, types: Mapping[str, ColumnType]) -> Source:
        """Return the source of which only the kept record of each entity is read."""
        rule = self.keep_rule
        if rule is None:
            return self
        from kanon_db.catalog.attributes import AGGREGATES

        _check_keep(self, rule, types)
        secret = dict.fromkeys(self.all_sensitive)
        others = (*self.quasi_identifiers, *self.insensitive, self.arrival, self.kept_by)
        open_ = dict.fromkeys(name for name in others if name not in (None, self.entity))
        kept = KeptRows(
            entity=types[str(self.entity)],
            open_columns=tuple(types[str(name)] for name in open_ if name not in secret),
            secret_columns=tuple(types[name] for name in secret),
            order=None if self.kept_by is None else types[self.kept_by],
            is_last=rule.choice == "latest",
            aggregates=tuple(
                (types[column], AGGREGATES[function][0]) for function, column in rule.aggregates
            ),
            draw_key=_key_of_rows,
        )
        return self._replace(relation=self.relation._replace(kept=kept))

    def with_shortened(self, session: Session, types: Mapping[str, ColumnType]) -> Source:
        """Return the source of which prefixes of some columns are read."""
        texts = tuple(
            ShortText(types[name], described["prefix"], described.get("large_areas"))
            for name, described in self.attributes.items()
            if "prefix" in described and name in types
        )
        if not texts:
            return self
        short = {text.column.name for text in texts}
        # What has no role need not be readable.
        rows = session.fetch(
            "SELECT name FROM unnest($2::text[]) AS name"
            " WHERE has_column_privilege(to_regclass($1::text), name, 'SELECT')",
            self.relation.quoted(session),
            [name for name in types if name not in short],
        )
        shortened = ShortenedColumns(texts, tuple(row["name"] for row in rows))
        return self._replace(relation=self.relation._replace(shortened=shortened))

    @property
    def all_sensitive(self) -> tuple[str, ...]:
        """The columns to protect."""
        return () if self.sensitive is None else (self.sensitive, *self.also_sensitive)

    @property
    def published(self) -> list[str]:
        """The columns that publications of rows show, in the order of the source."""
        shown = {*self.quasi_identifiers, *self.all_sensitive, *self.insensitive}
        return [column for column in self.columns if column in shown]

    def with_origin(self, published: Sequence[str]) -> list[str]:
        """Add the columns that say whom a record is about, and when it came."""
        names = (*published, self.entity, self.arrival)
        return [*dict.fromkeys(name for name in names if name is not None)]

    @property
    def without_role(self) -> list[str]:
        """The columns that have no role, which no publication shows."""
        roles = {*self.published, *self.identifiers, self.entity}
        return [column for column in self.columns if column not in roles]

    @property
    def coarsened(self) -> list[str]:
        """The quasi-identifiers whose values are coarsened before the search."""
        from kanon_db.catalog.attributes import COARSE  # a first estimate does not wait for it

        return [
            column
            for column in self.quasi_identifiers
            if any(key in self.attributes.get(column, {}) for key in COARSE)
        ]

    def is_categorical(self, column: str) -> bool:
        """Tell whether a column was registered as categorical, whatever its type."""
        described = self.attributes.get(column, {})
        return described.get("kind") == "categorical" or "hierarchy" in described


@dataclass(frozen=True, kw_only=True)
class Publication:
    """One publication, as the catalog describes it."""

    name: str
    kind: str
    method: str
    source: str
    parameters: Mapping[str, Any]  # what the publisher asked for, as plain JSON
    # What the estimator and the verification need to read the published relations: column names
    # and, for buckets, the range of bucket numbers for each size.
    layout: Mapping[str, Any]
    records: int
    guarantee: str
    # The figures of the guarantee, as plain JSON; see
    # :class:`~kanon_db.publications.guarantees.Guarantee`
    promise: Mapping[str, Any] = field(default_factory=dict)
    # The metrics that were measured when it was published; some need the source.
    metrics: Mapping[str, float]
    # Whether its relations are there, and belong to `kanon_owner`: others may run code.
    is_whole: bool = True

    @property
    def all_sensitive(self) -> tuple[str, ...]:
        """The columns that it protects, as they were registered."""
        first = self.layout.get("sensitive")
        return () if first is None else (str(first), *self.layout.get("also_sensitive", ()))

    @property
    def coded(self) -> frozenset[str]:
        """The columns of which there are codes: earlier versions gave none to those of many."""
        return frozenset(name for name, *_ in self.layout.get("store", {"columns": ()})["columns"])

    @property
    def left_out(self) -> int:
        """Number of records of the source without a published row."""
        return int(self.parameters.get("suppressed", 0))

    @property
    def figures(self) -> FigureRule | None:
        """The rule by which its figures are shown."""
        given = self.parameters.get("figures")
        return FigureRule.of(given) if given else None

    @property
    def kept_note(self) -> str | None:
        """Which record of each person there is, and how many are not, where one is kept."""
        kept, number = self.parameters.get("kept"), self.parameters.get("not_kept")
        if not kept or not number:
            return None
        missing = "1 record" if number == 1 else f"{number:,} records"
        return (
            f"these are kept records: each person has one, {kept}; {missing} of the same people"
            f" {'is' if number == 1 else 'are'} not published"
        )


def published_schema(session: Session) -> str:
    """Return the schema of all published relations, which `kanon install` has chosen."""
    rows = session.fetch("SELECT value FROM kanon.setting WHERE name = 'published_schema'")
    if not rows:
        raise ServerError(EMPTY_CATALOG, hint=REFILL_CATALOG)
    return str(rows[0]["value"])


EMPTY_CATALOG: Final = "kanon_db's own tables are empty, as a dump without data leaves them"
REFILL_CATALOG: Final = "restore the schema kanon with its data, or drop it, and kanon install"


def is_registered(session: Session, table: str) -> bool:
    """Tell whether a table, if it exists, is a registered source."""
    rows = session.fetch(
        "SELECT 1 WHERE to_regclass('kanon.source') IS NOT NULL AND to_regclass($1::text)"
        " IS NOT NULL AND has_column_privilege(to_regclass('kanon.source'), 'source_id', 'SELECT')",
        table,
    )
    return bool(rows) and bool(
        session.fetch(
            "SELECT 1 FROM kanon.source AS s JOIN pg_namespace AS n ON n.nspname = s.schema_name"
            " JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = s.relation_name"
            " WHERE c.oid = to_regclass($1::text)",
            table,
        )
    )


def find_source(session: Session, relation: Relation) -> Source:
    """Look up a registered source."""
    rows = session.fetch(
        "SELECT source_id, quasi_identifiers, sensitive, identifiers, attributes::text, columns,"
        " insensitive, entity, arrival, also_sensitive, keep, fingerprint,"
        " registered_at::text AS registered_at,"
        " (SELECT rolname::text FROM pg_roles WHERE oid = registered_by) AS registered_by"
        " FROM kanon.source WHERE schema_name = $1::text AND relation_name = $2::text",
        relation.schema,
        relation.name,
    )
    if not rows:
        raise NotFoundError(
            "the source is not registered",
            detail=f"relation {relation}",
            hint=f"describe it first: kanon.register_source('{relation}', quasi_identifiers =>"
            " '{...}', sensitive => '...')",
        )
    (row,) = rows
    lists = ("quasi_identifiers", "identifiers", "columns", "insensitive", "also_sensitive")
    described = {key: tuple(row[key]) for key in lists}
    attributes = json.loads(row["attributes"])
    found = Source(**{**row, **described, "relation": relation, "attributes": attributes})
    if found.keep is None and not any("prefix" in one for one in attributes.values()):
        return found
    _, oid, _ = find_relation(session, relation.quoted(session))
    types = column_types(session, oid)
    return found.with_kept(types).with_shortened(session, types)


LOST_COLUMNS: Final = (
    "rename a column back that only has another name; where it is gone for good, drop the source's"
    " publications, and register it again with the columns that it has"
)
"""What to do where a column with a role is missing: refresh and registration refuse alike."""


def _check_keep(source: Source, rule: KeepRule, types: Mapping[str, ColumnType]) -> None:
    """Refuse a rule that does not fit the other roles, or the columns' types."""
    where = f"keep of {source.relation}"
    if source.entity is None:
        raise InvalidParameterError(
            "keep needs an entity",
            detail=where,
            hint="name the column that says whom a record is about with entity => ...",
        )
    roles = (source.entity, source.arrival, *source.published)
    if missing := [name for name in roles if name is not None and name not in types]:
        raise SchemaMismatchError(
            "the source has lost columns since it was registered",
            detail=f"{source.relation} has no {', '.join(missing)}",
            hint=LOST_COLUMNS,
        )
    by = source.kept_by
    if by is None and rule.choice != "random":
        raise InvalidParameterError(
            f"{rule.choice} needs a column",
            detail=f"{where}: no column says when a record came",
            hint=f"write {rule.choice} by COLUMN, or name such a column with arrival => ...",
        )
    named = [column for _, column in rule.aggregates]
    for column in [*([] if by is None else [by]), *named]:
        if column not in types:
            from difflib import get_close_matches  # needed for a refusal only

            near = get_close_matches(column, types, n=1)
            raise NotFoundError(
                "the source has no such column",
                detail=f'column "{column}", named in {where}',
                hint=f"{f'did you mean {near[0]}? ' if near else ''}its columns are"
                f" {', '.join(types)}; write a name with blanks in double quotes",
            )
        require_plain("a column", column)
    if by in (source.entity, *source.all_sensitive):
        raise InvalidParameterError(
            "what is sensitive, or the entity, cannot say which record is kept",
            detail=f'column "{by}", named in {where}',
            hint="which record was kept would tell something of its sensitive value: take a column"
            " such as a date, or random",
        )
    for function, column in rule.aggregates:
        at = f'{function} of column "{column}", named in {where}'
        if column not in source.published or column == source.arrival:
            raise InvalidParameterError(
                "an aggregate is for a column that is published",
                detail=at,
                hint="give the column another role, or leave the aggregate out; the column of the"
                " arrival is left as it is",
            )
        is_number = types[column].is_number
        if function in ("sum", "mean", "count") and not is_number:
            raise SchemaMismatchError(
                f"{function} is for columns of numbers",
                detail=f"{at}: its type is {types[column].type_name}",
                hint="columns keep their types; max and min are for all that have an order",
            )
    for column in [*([] if by is None else [by]), *named]:
        if types[column].is_others:
            raise SchemaMismatchError(
                "a column's order is not known",
                detail=f'column "{column}", named in {where}: its type does not belong to a'
                " superuser, so its values are read as texts",
                hint="take a column of another type",
            )


_ENTRY = """
SELECT publication_id, name, kind, method, source, parameters::text AS parameters,
       layout::text AS layout, rows AS records, guarantee, promise::text AS promise,
       metrics::text AS metrics, state,
       (SELECT coalesce(max(pg_relation_size(c.oid)), 0) FROM pg_class AS c
        WHERE c.relname IN (name, name || '_qit', name || '_row') AND c.relkind IN ('r', 'm')
          AND c.relnamespace = to_regnamespace(quote_ident($2::text))) AS bytes,
       (SELECT coalesce(json_agg(a.attname), '[]')::text FROM pg_attribute AS a
        WHERE a.attrelid = to_regclass(quote_ident($2::text) || '.' || quote_ident(name))
          AND a.attnum > 0) AS columns
FROM kanon.publications WHERE name = $1::text
"""


_STATE = "SELECT state FROM kanon.publications WHERE name = $1::text"

_PLAIN: Final = ("parameters", "layout", "promise", "metrics")


def find_publication(session: Session, name: str) -> Publication:
    """Look up a publication that the current role may read, and lock it in this transaction."""
    return _lock(session, published_schema(session), name, _look_up(session, _STATE, name)["state"])


def _lock(session: Session, schema: str, name: str, state: str) -> Publication:
    """Lock a publication that there is, and look it up again."""
    # A replacement drops relations whose new ones an older snapshot does not see. So the
    # publication is locked against it (as by any SELECT), and only what is there then is read.
    is_locked = state == "whole"
    if is_locked:
        try:
            # Its relations belong to kanon_owner, so that planning a query runs nobody's code.
            session.fetch(f"SELECT FROM {session.identifier(schema, name)} LIMIT 0")
        except DatabaseError as error:
            if error.sqlstate != UNDEFINED_TABLE:
                raise
            raise NotFoundError(
                "the publication was dropped just now",
                detail=f'name "{name}"',
                hint="TABLE kanon.publications lists the ones that you may read",
            ) from None
    found = _look_up(session, _ENTRY, name, schema)
    described = {key: json.loads(found[key]) for key in _PLAIN}
    others = ("name", "kind", "method", "source", "records", "guarantee")
    publication = Publication(
        **{key: found[key] for key in others},
        **described,
        is_whole=is_locked and found["state"] == "whole",
    )
    if publication.is_whole:
        _require_sound(publication, found["bytes"], json.loads(found["columns"]))
    return publication


_OF_SOURCE: Final = """
SELECT name, kind FROM kanon.publications
WHERE state = 'whole'
  AND (source = $1::text OR ($2::text::bool AND right(source, length($3::text)) = $3::text))
ORDER BY publication_id DESC
"""
"""The publications of a relation that the caller may read, and so learns of."""

_MOST_SHOWN: Final = 6


def find_asked(
    session: Session,
    schema: str,
    relation: RelationText,
    named: str | None,
    answers: Callable[[str], bool],
) -> Publication:
    """Find the publication that a query asks: that of FROM, or one of the source that FROM names.

    Raises UnsupportedQueryError, which names the publications of a source that may be read.
    """
    # `schema`: that of all published relations. `answers`: whether publications of a kind do. Of a
    # source with no such publication, nothing is told that is not told of a relation that does not
    # exist.
    is_plain = relation.schema == schema
    state = None
    if is_plain and named in (None, relation.name):
        with suppress(NotFoundError):
            state = _look_up(session, _STATE, relation.name)["state"]
    if state is not None:
        return _lock(session, schema, relation.name, state)
    own = (f"{relation.schema}.{relation.name}", str(is_plain), f".{relation.name}")
    names = [row["name"] for row in session.fetch(_OF_SOURCE, *own) if answers(row["kind"])]
    if named is not None:
        publication = find_publication(session, named)
        if named in names:
            return publication
        raise UnsupportedQueryError(
            "the publication is not one of the relation that the query names",
            hint=f"write FROM {session.identifier(named)}",
        )
    if names:
        more = f"; there are also {', '.join(names[1:_MOST_SHOWN])}" if names[1:] else ""
        first, literal = session.identifier(names[0]), session.literal(names[0])
        raise UnsupportedQueryError(
            "the query names a source, of which only publications may be asked",
            hint=f"write FROM {first}, or pass publication => {literal}{more}",
        )
    if not is_plain:
        raise beyond_publications(schema)
    return find_publication(session, relation.name)  # which says that there is none


def _is_name(given: Any) -> bool:
    return isinstance(given, str) and 0 < len(given) <= _LONGEST_NAME


def _are_names(given: Any) -> bool:
    return isinstance(given, list) and all(map(_is_name, given))


def _are_numbers(given: Any) -> bool:
    return isinstance(given, list) and all(type(one) is int and one > 0 for one in given)


def _are_strengths(given: Any) -> bool:
    return isinstance(given, dict) and all(
        _is_name(attribute)
        and isinstance(of_columns, dict)
        and all(
            _is_name(name) and type(one) in (int, float) and 0 <= one <= 1
            for name, one in of_columns.items()
        )
        for attribute, of_columns in given.items()
    )


def _are_cells(given: Any) -> bool:
    return isinstance(given, list) and all(
        isinstance(one, dict) and _is_name(one.get("name")) and _is_name(one.get("cell"))
        for one in given
    )


def _is_store(given: Any) -> bool:
    if not isinstance(given, dict):
        return False
    names = ("column_no", "code", "chunk", "codes")
    columns, chunks = given.get("columns"), given.get("chunks", [])
    return (
        all(_is_name(given.get(name)) for name in names)
        and type(given.get("records")) is int
        and given["records"] > 0
        and isinstance(columns, list)
        and all(isinstance(one, list) and len(one) > 3 for one in columns)
        and all(_is_name(one[0]) and all(type(n) is int for n in one[1:4]) for one in columns)
        and all(type(is_so) is bool for one in columns for is_so in one[4:])
        and isinstance(chunks, list)
        and all(_are_numbers(one) and len(one) == 2 for one in chunks)
    )


_LONGEST_NAME: Final = 63
_OF_BUCKETS: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("count", "weight", "attribute", "bucket_id", "sensitive"), _is_name),
    **dict.fromkeys(("parts", "weights"), _is_name),
    **dict.fromkeys(("bytewise", "quasi_identifiers"), _are_names),
    **dict.fromkeys(("weighted", "placed_by"), _are_names),
    **dict.fromkeys(("sizes", "first_bucket_ids"), _are_numbers),
    "n_buckets": lambda given: type(given) is int and given > 0,
}
_OF_ROWS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "quasi_identifiers": _are_cells,
    **dict.fromkeys(("others", "columns"), _are_names),
}
_OPTIONAL: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("pattern", "number"), lambda given: given is None or _is_name(given)),
    "assignment": _is_name,
    "batches": lambda given: isinstance(given, list) and all(map(_are_numbers, given)),
    "also_sensitive": _are_names,
    **dict.fromkeys(("types", "shares"), lambda given: isinstance(given, dict)),
    "store": _is_store,
    "strengths": _are_strengths,
}
"""What a layout has, by name, and what that must be."""

_ADDED_TO_TABLES: Final = frozenset({"bytewise", "placed_by"})
"""What layouts of files do not have: it says by which columns records take their slots."""


def find_flaw(publication: Publication, *, in_files: bool = False) -> str | None:
    """Name what is not described as kanon_db writes it, with tables or with files; None if all is.

    Of the numbers, only the types are checked, not whether they fit together.
    """
    layout, parameters = publication.layout, publication.parameters
    if not (isinstance(layout, dict) and layout and isinstance(parameters, dict)):
        return "layout"
    wanted = _wanted(layout)
    needed = wanted.keys() - (_ADDED_TO_TABLES if in_files else ())
    for name, is_sound in {**wanted, **_OPTIONAL}.items():
        if (name in needed or name in layout) and not is_sound(layout.get(name)):
            return name
    for name in ("suppressed", "not_kept"):
        number = parameters.get(name, 0)
        if type(number) is not int or not 0 <= number < _MOST_RECORDS:
            return name
    if wanted is _OF_BUCKETS:
        has_l = type(parameters.get("l")) is int
        if not (has_l or isinstance(parameters.get("privacy"), dict)):
            return "privacy"
    elif wanted and type(parameters.get("k")) is not int:
        return "k"
    if not in_files:
        return None
    if not wanted:
        return "quasi_identifiers"
    typed = {
        name for name, one in layout.get("types", {}).items()
        if isinstance(one, dict) and _is_name(one.get("type"))
    }  # fmt: skip
    return None if _shown(publication) <= typed else "types"


def _wanted(layout: Mapping[str, Any]) -> Mapping[str, Callable[[Any], bool]]:
    """Return what a layout must have, by the form of its records; models have none."""
    if not layout.keys().isdisjoint(_OF_BUCKETS.keys() - _OF_ROWS.keys() - {"sensitive"}):
        return _OF_BUCKETS
    return _OF_ROWS if "quasi_identifiers" in layout else {}


def _shown(publication: Publication) -> set[str]:
    """Name the columns that a publication of records shows."""
    layout = publication.layout
    named = [*layout["quasi_identifiers"], *layout.get("others", ())]
    names = {one["name"] if isinstance(one, dict) else one for one in named}
    return names | {*publication.all_sensitive}


def _require_sound(publication: Publication, n_bytes: int, columns: Sequence[str]) -> None:
    """Refuse an entry that its publisher did not write with kanon_db."""
    # Who reads by it would take the memory that its figures say, whatever the relations have.
    if flaw := find_flaw(publication):
        raise _unsound(publication, flaw)
    layout, wanted = publication.layout, _wanted(publication.layout)
    if not wanted:
        return
    is_buckets, names = wanted is _OF_BUCKETS, _shown(publication)
    if not layout["quasi_identifiers"] or not names <= {*columns}:
        raise _unsound(publication, "the list of columns")
    n_rows = publication.records - publication.left_out
    if not 0 <= n_rows <= n_bytes // _PAGE * _ROWS_OF_A_PAGE:
        raise _unsound(publication, "records")
    if is_buckets:
        sizes, firsts = layout["sizes"], [*layout["first_bucket_ids"], layout["n_buckets"] + 1]
        counts = [after - before for before, after in pairwise(firsts)]
        if (
            len(sizes) != len(counts)
            or firsts[0] != 1
            or min(counts) < 1
            or any(after <= before for before, after in pairwise(sizes))
            or sum(n * size for n, size in zip(counts, sizes, strict=True)) != n_rows
        ):
            raise _unsound(publication, "sizes")
        if any(
            len(batch) != len(sizes) or max(batch) > firsts[-1]
            for batch in layout.get("batches", ())
        ):
            raise _unsound(publication, "batches")
    if is_buckets or "store" in layout:
        stored, chunks = layout.get("store", {}), layout.get("store", {}).get("chunks", [])
        coded = {one[0] for one in stored.get("columns", ())}
        if (
            not all(1 <= n_values <= n_rows for _, _, n_values, *_ in stored.get("columns", ()))
            or (coded != names if is_buckets else not coded <= names)
            or (chunks != [] if is_buckets else sum(n for n, _ in chunks) != n_rows and coded)
            or any(n_classes > n_records for n_records, n_classes in chunks)
        ):
            raise _unsound(publication, "store")


_MOST_RECORDS: Final = 2**62
_PAGE: Final = 8192
_ROWS_OF_A_PAGE: Final = 292
"""Rows without columns that a page of 8 kB holds at most."""


def _unsound(publication: Publication, what: str) -> NotFoundError:
    return NotFoundError(
        "the entry of the publication cannot be read",
        detail=f'publication "{publication.name}": {what} is not as kanon_db writes it',
        hint="its publisher can publish it again",
    )


def _look_up(session: Session, statement: str, name: str, *values: str) -> Row:
    """Read what a statement says of a publication that the current role may read."""
    rows = session.fetch(statement, name, *values)
    if not rows:
        raise NotFoundError(
            "there is no such publication, or you may not read it",
            detail=f'name "{name}"',
            hint="TABLE kanon.publications lists the ones that you may read",
        )
    if rows[0]["state"] == "replaced":
        raise ReplacedError(
            "the publication was replaced just now",
            detail=f'publication "{name}": this transaction still sees its old state',
            hint="ask again, in a new transaction",
        )
    return rows[0]


def source_of(session: Session, name: str) -> Relation:
    """Return the relation that a publication was made from, as it was named then."""
    row = fetch_one(
        session,
        "SELECT source_schema AS schema, source_relation AS name FROM kanon.publication"
        " WHERE name = $1::text",
        name,
    )
    if not row["schema"]:
        raise NotFoundError(
            "the source of the publication is not in this database",
            detail=f'publication "{name}" was made elsewhere, and loaded',
            hint="do this where it was made (kanon spark ...), or load it again",
        )
    return Relation(**row)


def require_publisher(
    session: Session, name: str, may: str, hint: str = "", *, or_superuser: bool = True
) -> None:
    """Refuse everybody but the role that published a publication, which the caller may read.

    `may` says what only this role can do.
    """
    row = fetch_one(
        session,
        "SELECT published_by AS publisher, published_by = current_user AS is_own,"
        " (SELECT kanon.is_administrator(oid) FROM pg_roles WHERE rolname = current_user)"
        " AS is_superuser"
        " FROM kanon.publications WHERE name = $1::text",
        name,
    )
    if not (row["is_own"] or (or_superuser and row["is_superuser"])):
        raise PermissionDeniedError(
            f"only the role that published a publication can {may}",
            detail=f'publication "{name}" belongs to role "{row["publisher"]}"',
            hint=hint,
        )


def record_attacks(session: Session, name: str, found: Sequence[Mapping[str, Any]]) -> None:
    """Keep with a publication what attacks on it achieved, and when they were played."""
    run_errand(session, "keep attacks", name=name, found=found)


def require_whole(publication: Publication) -> None:
    """Refuse a publication whose relations somebody has taken away or put others in place of."""
    if not publication.is_whole:
        raise changed(publication)


def require_codes(publication: Publication, names: Iterable[str]) -> None:
    """Refuse columns whose cells have no codes."""
    missing = set(names) - publication.coded
    if missing or not publication.coded:
        named = ", ".join(sorted(missing)) or "all columns"
        raise VerificationError(
            WITHOUT_CODES,
            detail=f'publication "{publication.name}": {named}',
            hint="publish again with replace => true",
        )


WITHOUT_CODES: Final = (
    "the publication was made by an earlier version, without codes of some columns"
)


def changed(publication: Publication) -> VerificationError:
    """Say that the published relations are not those that were published."""
    return VerificationError(
        "the published relations have changed since they were published",
        detail=f'publication "{publication.name}"',
        hint="kanon.verify names the check that fails; publish again with replace => true",
    )
