"""Who takes part in a publication, and what they say to the database.

Statements here use ``$1 … $n``: names under test are full of percent signs.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from fractions import Fraction
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from kanon_db.declaration import ParameterType
from kanon_db.errors import KanonError
from kanon_db.operations import operations
from kanon_db.session.psycopg_session import PsycopgSession

Connection = psycopg.Connection[Any]


def fetch(connection: Connection, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Run one statement; its rows."""
    with psycopg.RawCursor(connection) as cursor:
        cursor.execute(statement.encode(), values or None, prepare=False)
        # Without columns, there may be rows all the same.
        has_rows = cursor.pgresult and cursor.pgresult.status == psycopg.pq.ExecStatus.TUPLES_OK
        return cursor.fetchall() if has_rows else []


def value(connection: Connection, statement: str, *values: object) -> Any:
    """Run a statement that returns one value."""
    ((found,),) = fetch(connection, statement, *values)
    return found


def forget_draws(admin: Connection) -> None:
    """Make another key, so that the same request draws anew: for tests of what is drawn."""
    fetch(
        admin,
        "UPDATE kanon.draw_key"
        " SET key = uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())",
    )


def quoted(*names: str) -> str:
    """Quote a name, or several joined by dots."""
    return sql.Identifier(*names).as_string()


@dataclass(frozen=True)
class Parties:
    """Open connections to one database with kanon installed.

    The publisher may create schemas; the stranger has no role of ours.
    """

    dsn: str
    admin: Connection
    publisher: Connection
    analyst: Connection
    stranger: Connection

    def dsn_of(self, who: str) -> str:
        """Give the connection string of one of them, by the attribute."""
        return make_conninfo(self.dsn, user=getattr(self, who).info.user)


@contextlib.contextmanager
def gathered(
    dsn: str, connect_as: Callable[[str, str], Connection], new_role: Callable[..., str]
) -> Iterator[Parties]:
    """Open a database for one of each kind."""
    with contextlib.ExitStack() as stack:
        admin = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        roles = [new_role("kanon_publisher"), new_role("kanon_analyst"), new_role()]
        database = quoted(admin.info.dbname)
        fetch(admin, f"GRANT CREATE ON DATABASE {database} TO {roles[0]}")
        sessions = [admin, *(stack.enter_context(connect_as(dsn, role)) for role in roles)]
        for session in sessions:
            session.prepare_threshold = None  # DISCARD ALL forgets what was prepared
        yield Parties(dsn, *sessions)


class Gathering:
    """Parties whom one module after the other has, as long as nothing of the last one is left.

    Each of their sessions has loaded Python, which takes a second.
    """

    def __init__(self, gather: Callable[[], contextlib.AbstractContextManager[Parties]]) -> None:
        self._gather = gather
        self._open = contextlib.ExitStack()
        self._parties: Parties | None = None
        self._before: object = None
        self._frozen: object = None
        self._publications: Sequence[str] = ()

    def parties(self, freeze: Callable[[Parties], None] | None = None) -> Parties:
        """Give parties to a database that has an empty schema, ``data``, and what is frozen."""
        parties = self._parties
        if parties is None or not (
            (freeze and self._frozen and self._is_cleared(self._frozen, self._publications))
            or self._is_cleared(self._before)
        ):
            self.close()
            self._parties = parties = self._open.enter_context(self._gather())
            self._before = state_of(parties)
        if not freeze:
            self._frozen = None
        elif not self._frozen:
            freeze(parties)
            self._publications = Functions(parties.admin).publications()
            clear(parties, self._publications)
            self._frozen = state_of(parties)
        fetch(parties.publisher, "CREATE SCHEMA data")
        return parties

    def _is_cleared(self, before: object, frozen: Sequence[str] = ()) -> bool:
        assert self._parties
        try:
            clear(self._parties, frozen)
        except psycopg.Error:
            return False
        return state_of(self._parties) == before

    def close(self) -> None:
        self._parties = self._frozen = None
        self._open.close()


FROZEN = "frozen"
"""The schema of tables that stay, with their publications, for modules that only read them."""

CLEARING = """
SELECT format('DROP EVENT TRIGGER %I', evtname) FROM pg_event_trigger
 WHERE evtfoid NOT IN (SELECT oid FROM pg_proc WHERE pronamespace = 'kanon'::regnamespace)
UNION ALL
SELECT format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace
 WHERE nspname NOT IN ('kanon', 'published', 'public', 'information_schema')
   AND nspname !~ '^pg_' AND nspname IS DISTINCT FROM $1::text
UNION ALL
SELECT 'DROP SCHEMA public CASCADE; CREATE SCHEMA public AUTHORIZATION pg_database_owner;'
 ' GRANT USAGE ON SCHEMA public TO PUBLIC'
 WHERE EXISTS (SELECT FROM pg_depend WHERE refobjid = 'public'::regnamespace)
UNION ALL
SELECT 'TRUNCATE kanon.base, kanon.label, kanon.release CASCADE'
UNION ALL
SELECT format('DELETE FROM kanon.source WHERE schema_name IS DISTINCT FROM %L', $1::text)
"""


def clear(parties: Parties, frozen: Sequence[str] = ()) -> None:
    """Drop what was published and made, and forget what sessions have set.

    Frozen publications stay, with the tables that they are of.
    """
    for connection in (parties.admin, parties.publisher, parties.analyst, parties.stranger):
        connection.autocommit = True
        connection.execute("DISCARD ALL")
    for connection in (parties.publisher, parties.admin):
        for name in Functions(connection).publications():
            if name not in frozen:
                Functions(connection).drop(name)
    for (statements,) in fetch(parties.admin, CLEARING, FROZEN if frozen else None):
        for statement in statements.split("; "):
            fetch(parties.admin, statement)
    fetch(parties.admin, "SELECT kanon.owner_sweep()")
    warn_only(parties.admin)


_STATE = """
SELECT nspname, nspowner, nspacl FROM pg_namespace AS n WHERE {made}
SELECT relname, relkind, relowner, relacl, relrowsecurity FROM pg_class, {of} relnamespace
SELECT proname, proowner, prosecdef, proacl, proconfig, md5(prosrc) FROM pg_proc, {of} pronamespace
SELECT typname, typowner FROM pg_type, {of} typnamespace
SELECT oprname FROM pg_operator, {of} oprnamespace
SELECT evtname, evtenabled FROM pg_event_trigger
SELECT extname FROM pg_extension
SELECT defaclobjtype, defaclacl FROM pg_default_acl
SELECT setrole, setconfig FROM pg_db_role_setting WHERE setrole <> 0 OR setdatabase = {here}
SELECT datacl FROM pg_database WHERE oid = {here}
SELECT rolname, rolsuper, rolcanlogin, rolbypassrls FROM pg_roles WHERE rolname ~ '^kanon_[a-z]+$'
SELECT roleid, member FROM pg_auth_members WHERE ARRAY[roleid, member] && $1::regrole[]::oid[]
SELECT name, value FROM kanon.setting
SELECT version_num FROM kanon.alembic_version
SELECT count(*) FROM kanon.draw_key
SELECT 1 FROM kanon.release UNION ALL SELECT 2 FROM kanon.budget UNION ALL SELECT 3 FROM kanon.base
SELECT name, md5(concat_ws(' ', layout, parameters, relations)) FROM kanon.publication
SELECT md5(s::text) FROM kanon.source AS s
SELECT relname, {rows} FROM pg_class, {of} relnamespace AND {has_rows}
""".format(
    made="nspname !~ '^(pg_|information_schema)'",
    of="pg_namespace AS n WHERE nspname !~ '^(pg_|information_schema)' AND n.oid =",
    rows="query_to_xml(format('SELECT count(*), max(xmin::text::int8) FROM %I.%I', nspname,"
    " relname), true, true, '')",
    has_rows=f"nspname IN ('published', '{FROZEN}') AND relkind IN ('r', 'm')",
    here="(SELECT oid FROM pg_database WHERE datname = current_database())",
)


def state_of(parties: Parties) -> object:
    """All that one module could leave to the next one."""
    names = [one.info.user for one in (parties.publisher, parties.analyst, parties.stranger)]
    return [
        sorted(map(str, fetch(parties.admin, statement, *([names] if "$1" in statement else []))))
        for statement in _STATE.strip().splitlines()
    ]


@pytest.fixture(scope="module")
def parties(gathering: Gathering) -> Parties:
    """One of each kind in a database that the module's tests share."""
    return gathering.parties()


def create_table(
    connection: Connection, table: str, columns: str, rows: Sequence[Sequence[object]]
) -> None:
    """Create a table of the given columns, as in SQL, and fill it."""
    fetch(connection, f"CREATE TABLE {table} ({columns})")
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)


def create_source(
    connection: Connection,
    table: str,
    columns: str,
    rows: Sequence[Sequence[object]],
    quasi_identifiers: Sequence[str] | None = None,
    sensitive: str | None = None,
    **roles: Any,
) -> Functions:
    """Create a table and describe it; the operations of its owner.

    If nothing else is said, the last column is the sensitive one, and all others are
    quasi-identifiers.
    """
    create_table(connection, table, columns, rows)
    if quasi_identifiers is None:
        *quasi_identifiers, sensitive = (column.split()[0] for column in columns.split(", "))
    kanon = Functions(connection)
    kanon.register(table, quasi_identifiers, sensitive, **roles)
    return kanon


def create_people(connection: Connection, table: str = "data.people") -> Functions:
    """Create and describe 300 people with an age and an illness."""
    rows = [(i % 30, f"disease {i % 5}") for i in range(300)]
    return create_source(connection, table, "age int, sick text", rows)


def holds(connection: Connection, name: str) -> bool:
    """Whether all checks of a publication hold."""
    return not failed_checks(connection, name)


def failed_checks(connection: Connection, name: str) -> list[str]:
    """Name the checks of a publication that do not hold."""
    return [check for check, *_, good in Functions(connection).verify(name) if not good]


@contextlib.contextmanager
def hearing(connection: Connection) -> Iterator[list[str]]:
    """Collect what the server says meanwhile: notices and warnings."""
    heard: list[str] = []
    listen = lambda notice: heard.append(str(notice.message_primary))
    connection.add_notice_handler(listen)
    try:
        yield heard
    finally:
        connection.remove_notice_handler(listen)


def register_and_hear(
    connection: Connection,
    source: str,
    quasi_identifiers: Sequence[str],
    sensitive: str,
    **given: Any,
) -> list[str]:
    """Register a source; the warnings of its columns that have a role."""
    with hearing(connection) as heard:
        Functions(connection).register(source, quasi_identifiers, sensitive, **given)
    return [text for text in heard if not text.startswith("columns without a role ")]


WHOLE = "the published relations are there, and belong to kanon_owner"


def warn_only(admin: Connection) -> None:
    """Accept for all publishers that releases can be set against each other."""
    fetch(
        admin,
        "INSERT INTO kanon.setting (name, value) VALUES ('combined_releases', 'warn')"
        " ON CONFLICT DO NOTHING",
    )


def make_whole(admin: Connection, name: str, relations: Sequence[str]) -> None:
    """Let relations that a superuser made or changed pass for those of a publication.

    They get its owner, its mark, and a reader.
    """
    mark = value(
        admin,
        "SELECT kanon.mark(publication_id) FROM kanon.publication WHERE name = $1::text",
        name,
    )
    for relation in relations:
        kinds = fetch(
            admin,
            "SELECT kanon.relation_kind(relkind) FROM pg_class WHERE oid = to_regclass($1::text)",
            relation,
        )
        for (kind,) in kinds:
            fetch(admin, f"ALTER {kind} {relation} OWNER TO kanon_owner")
            fetch(admin, f"COMMENT ON {kind} {relation} IS '{mark}'")
            fetch(admin, f"GRANT SELECT ON {relation} TO kanon_analyst, kanon_publisher")


def keep_cells_with_rows(admin: Connection, name: str) -> None:
    """Let rows have their cells themselves, as those that came from elsewhere or in batches."""
    view, rows, cells = (f"published.{name}{suffix}" for suffix in ("", "_row", "_cel"))
    fetch(admin, f"CREATE TABLE published.kept AS TABLE {view}")
    fetch(admin, f"DROP MATERIALIZED VIEW {view}")
    fetch(admin, f"DROP TABLE {rows}, {cells}")
    fetch(admin, f"ALTER TABLE published.kept RENAME TO {name}_row")
    fetch(admin, f"CREATE MATERIALIZED VIEW {view} AS SELECT * FROM {rows}")
    fetch(
        admin,
        "UPDATE kanon.publication SET layout = layout - 'number', relations ="
        " array_remove(relations, $1::text) WHERE name = $2::text",
        f"{name}_cel",
        name,
    )
    make_whole(admin, name, [view, rows])


def enter_by_hand(
    admin: Connection,
    name: str,
    kind: str,
    layout: dict[str, Any],
    records: int,
    suffixes: Sequence[str] = ("",),
) -> None:
    """Enter relations that a superuser made as a publication."""
    relations = [name + suffix for suffix in suffixes]
    fetch(
        admin,
        "INSERT INTO kanon.publication (name, kind, method, source_schema, source_relation,"
        " parameters, layout, records, guarantee, metrics, relations, published_by) VALUES"
        " ($1::text, $2::text, 'two_size', 'data', 'people', '{\"l\": 2, \"k\": 2}',"
        " $3::text::jsonb, $4::int8, '',"
        " '{}', $5::text[], current_user)",
        name,
        kind,
        json.dumps(layout),
        records,
        relations,
    )
    make_whole(admin, name, [f"published.{relation}" for relation in relations])


# Qualified, since some callers have look-alikes of these types on their search path.


def _cast(type_: ParameterType) -> str:
    """The cast of a bound value to a parameter's type; a text array or a text comes as it is."""
    name = _QUALIFIED.get(type_.sql.removesuffix("[]"), type_.sql.removesuffix("[]"))
    array = "[]" if type_.sql.endswith("[]") else ""
    through_text = "pg_catalog.text::" if type_.sql in ("jsonb", "numeric", "regclass") else ""
    return f"::{through_text}pg_catalog.{name}{array}"


_QUALIFIED = {
    "integer": "int4", "bigint": "int8", "boolean": "bool", "double precision": "float8",
}  # fmt: skip


KINDS: dict[str, dict[str, Any]] = {
    "buckets": {"privacy": '{"l": 2}'},
    "generalized": {"k": 3, "method": "mondrian", "refine": False},
    "freeform": {"k": 3, "options": '{"refine": false}'},
    "suppressed": {"k": 3},
}
"""How each kind but models is published quickly."""


class _Operations:
    """The operations of a connection's role, in one of the ways to call them."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def call(self, function: str, *texts: str, **given: Any) -> dict[str, Any]:
        """Call what returns one row."""
        raise NotImplementedError

    def register(
        self,
        source: str,
        quasi_identifiers: Sequence[str | None] | None,
        sensitive: str | None,
        identifiers: Sequence[str | None] = (),
        attributes: str | None = None,
        insensitive: Sequence[str | None] = (),
        entity: str | None = None,
        arrival: str | None = None,
        also_sensitive: Sequence[str | None] = (),
        keep: str | None = None,
    ) -> int:
        return self._register(
            source,
            quasi_identifiers=None if quasi_identifiers is None else list(quasi_identifiers),
            sensitive=sensitive,
            identifiers=list(identifiers),
            attributes=attributes,
            insensitive=list(insensitive),
            entity=entity,
            arrival=arrival,
            also_sensitive=list(also_sensitive),
            keep=keep,
        )

    def _register(self, source: str, **given: Any) -> int:
        raise NotImplementedError

    def publish(self, source: str, name: str, *, privacy: str, **options: Any) -> dict[str, Any]:
        return self.call("publish_buckets", source, name, privacy=privacy, **options)

    def suppress(self, source: str, name: str, *, k: int, **options: Any) -> dict[str, Any]:
        return self.call("publish_suppressed", source, name, k=k, **options)

    def generalize(self, source: str, name: str, *, k: int, **options: Any) -> dict[str, Any]:
        return self.call("publish_generalized", source, name, k=k, **options)

    def freeform(self, source: str, name: str, *, k: int, **options: Any) -> dict[str, Any]:
        return self.call("publish_freeform", source, name, k=k, **options)

    def of_kind(self, kind: str, source: str, name: str, **given: Any) -> dict[str, Any]:
        """Publish as :data:`KINDS` says, but for what is given."""
        return self.call(f"publish_{kind}", source, name, **{**KINDS[kind], **given})


class Functions(_Operations):
    """The operations as SQL functions."""

    def _register(self, source: str, **given: Any) -> int:
        (found,) = self.call("register_source", source, **given).values()
        return int(found)

    def call(self, function: str, *texts: str, **given: Any) -> dict[str, Any]:
        """Call a function that returns one row."""
        (row,) = self.rows(function, *texts, **given)
        return row

    def patterns(self, source: str, **options: object) -> list[dict[str, Any]]:
        return self.rows("suppression_patterns", source, **options)

    def rows(self, function: str, *texts: str, **given: object) -> list[dict[str, Any]]:
        """Call a function, its first parameters by position, the others by name."""
        declared = operations()[function].parameters
        types = {item.name: item.type for item in declared}
        casts = [_cast(item.type) for item, _ in zip(declared, texts, strict=False)]
        casts += [_cast(types[name]) for name in given]
        names = ["" for _ in texts] + [f"{name} => " for name in given]
        arguments = [
            f"{name}${i}{cast}"
            for i, (name, cast) in enumerate(zip(names, casts, strict=True), start=1)
        ]
        with psycopg.RawCursor(self.connection, row_factory=psycopg.rows.dict_row) as cursor:
            cursor.execute(
                f"SELECT * FROM kanon.{function}({', '.join(arguments)})".encode(),
                [*texts, *given.values()],
            )
            return cursor.fetchall()

    def verify(self, name: str) -> list[tuple[str, str, str, bool]]:
        return [tuple(row.values()) for row in self.rows("verify", name)]  # type: ignore[misc]

    def evaluate(self, name: str, **options: object) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.rows("evaluate_counts", name, **options)]

    def attack(self, name: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in self.rows("attack", name)]

    def metrics(self, name: str) -> dict[str, float]:
        return {row["metric"]: row["value"] for row in self.rows("metrics", name)}

    def publications(self) -> list[str]:
        return [
            name
            for (name,) in fetch(
                self.connection, "SELECT name FROM kanon.publications ORDER BY publication_id"
            )
        ]

    def estimate(self, query: str) -> tuple[float, float, int, int]:
        estimate, error, lower, upper, _, _ = self.call("estimate_count", query).values()
        return estimate, error, lower, upper

    def rewrite(self, query: str) -> str:
        (found,) = self.call("rewrite_count", query).values()
        return str(found)

    def drop(self, name: str) -> None:
        self.rows("drop_publication", name)


class Package(_Operations):
    """The operations of the Python interface."""

    def __init__(self, connection: Connection) -> None:
        from kanon_db.interfaces.python import Kanon

        super().__init__(connection)
        self.kanon = Kanon(PsycopgSession(connection))

    def _register(self, source: str, **given: Any) -> int:
        return self.kanon.register_source(source, **given)

    def call(self, function: str, *texts: str, **given: Any) -> dict[str, Any]:
        """Call a method that returns one row."""
        return asdict(getattr(self.kanon, function)(*texts, **given))

    def patterns(self, source: str, **options: Any) -> list[dict[str, Any]]:
        found = self.kanon.suppression_patterns(source, **options)
        return [{str(key): value for key, value in row.items()} for row in found.to_dict("records")]

    def verify(self, name: str) -> list[tuple[str, str, str, bool]]:
        return list(self.kanon.verify(name).itertuples(index=False, name=None))

    def evaluate(self, name: str, **options: Any) -> list[tuple[Any, ...]]:
        found = self.kanon.evaluate_counts(name, **options)
        return list(found.astype(object).where(found.notna(), None).itertuples(False, None))

    def attack(self, name: str) -> list[tuple[Any, ...]]:
        return list(self.kanon.attack(name).itertuples(index=False, name=None))

    def metrics(self, name: str) -> dict[str, float]:
        return dict(self.kanon.metrics(name).itertuples(index=False, name=None))

    def publications(self) -> list[str]:
        return list(self.kanon.publications()["name"])

    def estimate(self, query: str) -> tuple[float, float, int, int]:
        found = self.kanon.estimate_count(query)
        return astuple(found)[:4]

    def rewrite(self, query: str) -> str:
        return self.kanon.rewrite_count(query)

    def drop(self, name: str) -> None:
        self.kanon.drop_publication(name)


WAYS: dict[str, Callable[[Connection], Functions | Package]] = {
    "sql": Functions,
    "python": Package,
}
"""Both ways to the same operations."""


@pytest.fixture
def kanon(parties: Parties) -> Iterator[Package]:
    """The publisher's operations; what a test published is dropped after it, without remains."""
    yield Package(parties.publisher)
    drop_all(parties)


@pytest.fixture
def nothing_left(parties: Parties) -> Iterator[None]:
    """What a test published is dropped after it, without remains."""
    yield
    drop_all(parties)


def drop_all(parties: Parties) -> None:
    """Drop all that the publisher has published, which leaves nothing."""
    kanon = Functions(parties.publisher)
    for name in kanon.publications():
        kanon.drop(name)
    assert remains(parties.admin) == []


def sqlstate_of(call: Callable[[], object]) -> str | None:
    """Return the SQLSTATE of the error that a call raises, either way; None if it raises none."""
    try:
        call()
    except (KanonError, psycopg.Error) as error:
        return error.sqlstate
    return None


def refused_in_savepoint(connection: Connection, call: Callable[[], object]) -> str | None:
    """Return the SQLSTATE of a call's error, after which the transaction goes on."""

    def run() -> None:
        with connection.transaction():
            call()

    return sqlstate_of(run)


def remains(connection: Connection) -> list[str]:
    """Everything that publishing makes, by name: for telling that nothing is left.

    The catalog's entries, the relations in the schema of publications, temporary relations. An
    index keeps the name that it had while its table was staged, whose digits are drawn.
    """
    return [
        name
        for (name,) in fetch(
            connection,
            "SELECT 'entry ' || name FROM kanon.publication UNION ALL"
            " SELECT n.nspname || '.' || CASE c.relkind WHEN 'i' THEN"
            " regexp_replace(c.relname, '^kanon_[0-9a-f]{32}', 'index') ELSE c.relname END"
            " FROM pg_catalog.pg_class c"
            " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = 'published' OR n.nspname LIKE 'pg\\_temp\\_%' ORDER BY 1",
        )
    ]


CATALOGS = (
    "pg_class", "pg_attribute", "pg_type", "pg_depend", "pg_shdepend", "pg_proc", "pg_description",
    "pg_namespace", "pg_rewrite", "pg_constraint", "pg_index", "pg_init_privs",
    "pg_default_acl", "kanon.publication", "kanon.source", "kanon.setting",
)  # fmt: skip
"""What publishing could leave a trace in."""


def everything(admin: Connection) -> dict[str, list[tuple[Any, ...]]]:
    """What all catalogs and kanon_db's own tables have, and what sequences have given."""
    own = fetch(
        admin,
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_class AS c"
        " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE n.nspname IN ('kanon', 'published') AND c.relkind IN ('r', 'S', 'm') ORDER BY 1",
    )
    tables = [*CATALOGS, *(name for (name,) in own)]
    found = {
        name: fetch(
            admin,
            "SELECT md5(string_agg(x, '|' ORDER BY x))"
            f" FROM (SELECT row(t.*)::text FROM {name} AS t) AS s (x)",
        )
        for name in tables
    }
    # Other columns of this change by themselves.
    found["pg_class"] = fetch(
        admin, "SELECT oid, relname, relowner, relacl::text, reltype FROM pg_class ORDER BY 1"
    )
    return found


def columns_of(connection: Connection, relation: str) -> list[str]:
    """Name the columns of a relation, in order."""
    return [
        name
        for (name,) in fetch(
            connection,
            "SELECT attname::text FROM pg_catalog.pg_attribute"
            " WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped"
            " ORDER BY attnum",
            relation,
        )
    ]


def check_published(
    connection: Connection,
    source: str,
    name: str,
    quasi_identifiers: Sequence[str],
    sensitive: str,
    bound: Callable[[Fraction], Fraction],
) -> None:
    """Compare a publication with its source, by SQL that shares nothing with the package.

    Parameters
    ----------
    bound : callable
        The largest share of a bucket that a sensitive value may have, from its share of the table.
    """
    qit, sat = (quoted("published", name + suffix) for suffix in ("_qit", "_sat"))
    *names, bucket_id = columns_of(connection, qit)
    sat_bucket_id, sat_sensitive, count = columns_of(connection, sat)
    assert names == list(quasi_identifiers)
    assert sat_sensitive == sensitive
    assert sat_bucket_id == bucket_id
    b, c, s = quoted(bucket_id), quoted(count), quoted(sensitive)
    columns = ", ".join(map(quoted, quasi_identifiers))
    pairs = {
        "quasi-identifiers": (f"SELECT {columns} FROM {source}", f"SELECT {columns} FROM {qit}"),
        "sensitive values": (
            f"SELECT {s}, count(*) FROM {source} GROUP BY {s}",
            f"SELECT {s}, sum({c})::int8 FROM {sat} GROUP BY {s}",
        ),
        "bucket sizes": (
            f"SELECT {b}, count(*) FROM {qit} GROUP BY {b}",
            f"SELECT {b}, sum({c})::int8 FROM {sat} GROUP BY {b}",
        ),
    }
    for what, (one, other) in pairs.items():
        for left, right in ((one, other), (other, one)):
            n = value(connection, f"SELECT count(*) FROM ({left} EXCEPT ALL {right}) AS missing")
            assert n == 0, f"{what}: {n} rows differ"
    shares = fetch(
        connection,
        f"SELECT DISTINCT {c}, sum({c}) OVER (PARTITION BY {b}), sum({c}) OVER (PARTITION BY {s}),"
        f" sum({c}) OVER () FROM {sat}",
    )
    for occurrences, size, records, total in shares:
        share = Fraction(int(occurrences), int(size))
        assert share <= bound(Fraction(int(records), int(total)))
