"""Who may do what: the whole of it, as the catalogs tell it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kanon_db.operations import operations
from kanon_db.query import ranges
from kanon_db.session import SETTINGS
from kanon_db.session.psycopg_session import PsycopgSession
from tests.integration.parties import (
    Functions,
    Parties,
    create_source,
    fetch,
    parties,
    value,
)

__all__ = ["parties"]


def _signatures(*roles: str) -> set[str]:
    """Both functions of each operation that a member of the roles may call."""
    found = [
        operation for operation in operations().values() if set(roles) & set(operation.audience)
    ]
    return {f"{item.name}({item.signature})".replace(", ", ",") for item in found} | {
        f"python_{item.name}(jsonb)" for item in found
    }


RANGES = {name: one.end for name, one in ranges.RANGES.items()}
"""The types of cells that are ranges, with those of their values."""

BOTH = {
    "is_administrator(oid)", "is_safe_collation(oid)", "is_safe_schema(oid)", "is_safe_type(oid)",
    "mark(bigint)", "reached(oid)",
}  # fmt: skip
"""Read the server's catalogs, with the caller's rights."""

ESTIMATED = "anyrange,anyarray,double precision,anyarray,double precision[],double precision"
PARSED = ("surely", "possibly", "values_of", "values_of_label", "weigh_shares", "width")
CELLS = {
    *(
        f"{name}({arguments})"
        for name in ("surely", "possibly")
        for arguments in (
            "text[],text[]", "boolean,text,integer",
            *(f"{cell},{value}" for cell, value in RANGES.items()),
            *(f"{cell},{cell}" for cell in RANGES),
        )
    ),
    "values_of(text[],double precision[])", "values_of_label(text,jsonb)",
    "weigh_shares(double precision,double precision[],double precision,integer)",
    "numbers_of(anyrange,anyarray)", "parts_of(anyrange,anyarray)",
    f"numbers_of({ESTIMATED},boolean,integer)", f"parts_of({ESTIMATED},integer)",
    *(f"width({value},{value})" for value in ("numeric", RANGES["tsrange"], RANGES["tstzrange"])),
}  # fmt: skip
"""Expressions on what they are given."""

EXECUTE = {
    "publisher": _signatures("kanon_publisher") | BOTH | CELLS | {"fingerprint(oid)"},
    "analyst": _signatures("kanon_analyst") | BOTH | CELLS,
    "user": _signatures("kanon_user") | BOTH | CELLS,
    "stranger": set(),
}

OWNERS = {
    "asked", "counted", "counter_name", "members_of", "owner_budget", "owner_classify",
    "owner_close_budgets", "owner_draw", "owner_members", "owner_open_budgets", "python_vote",
    "base_names", "bases", "batch", "changes", "combined_with", "earlier_named", "earlier_releases",
    "errand_fields", "errand_rules", "fingerprint", "granted", "is_own_label", "is_own_staged",
    "is_plain", "releases_of", "require_own_description", "require_told",
    "grants", "is_administrator", "is_publisher", "is_safe_collation", "is_safe_schema",
    "is_safe_type", "kept_grants",
    "key_pads", "login_readers", "mark", "name_elsewhere", "named", "owned", "owner_analyze",
    "owner_batches", "owner_close_type", "owner_create_table", "owner_create_view", "owner_drop",
    "owner_drop_staged", "owner_earlier", "owner_end_release", "owner_enter",
    "owner_forget_entities", "owner_grant", "owner_keep_attacks", "owner_keep_entities",
    "owner_keep_waits", "record_pads", "knows_records",
    "owner_admit", "follow_renamed", "places", "renamed_sources",
    "owner_note", "owner_note_names", "owner_note_readers", "owner_open", "owner_publish",
    "owner_refresh_release", "owner_register", "owner_release", "owner_remove",
    "owner_require_alone", "owner_seed", "owner_staged", "owner_unknown", "reached", "readers",
    "relation_kind", "require_readable",
    "source_elsewhere", "weighted_join", "learned_join",
    "aside", "owner_close", "owner_drop_or_close", "owner_live_on", "owner_living", "owner_sweep",
    "owner_withdraw", "withdrawn", "withdrawn_mark", "ticket", "closed", "closed_mark",
    "owner_mark", "owner_close_all", "owner_make_way", "owner_take_away",
    "newcomers", "owner_take_back", "here", "come_home", "is_lost",
    "owner_provide_guard",
}  # fmt: skip
"""What the owner of publications does, called by the functions that have its rights."""

DEFINERS = {"answer_question", "keep_publications", "run_errand", "watch_grants"}
"""They have the owner's rights, and none can be called: two are triggers of views, the others watch
GRANT and DROP EXTENSION."""

RELATIONS = (
    "alembic_version", "base", "budget", "draw_key", "errand", "job", "job_end", "label",
    "progress", "publication", "publications", "question", "record_key", "release",
    "release_entity", "release_key", "release_reader", "release_record", "releases",
    "setting", "source", "submitter",
)  # fmt: skip
TABLES: dict[str, dict[str, set[str]]] = {
    "publisher": {
        "errand": {"SELECT", "INSERT"},
        "progress": {"SELECT"},
        "publication": {"SELECT"},
        "publications": {"SELECT"},
        "question": {"SELECT", "INSERT"},
        "releases": {"SELECT"},
        "setting": {"SELECT"},
        "source": {"SELECT"},
    },
    "analyst": {
        "progress": {"SELECT"},
        "publications": {"SELECT"},
        "question": {"SELECT", "INSERT"},
        "setting": {"SELECT"},
    },
    "stranger": {},
}
TABLES["user"] = TABLES["analyst"]
SCHEMAS = {
    "publisher": {"kanon": {"USAGE"}, "published": {"USAGE"}},
    "analyst": {"kanon": {"USAGE"}, "published": {"USAGE"}},
    "user": {"kanon": {"USAGE"}, "published": {"USAGE"}},
    "stranger": {"kanon": set(), "published": set()},
}


each_party = pytest.mark.parametrize("party", ["publisher", "analyst", "user", "stranger"])


def role(parties: Parties, party: str) -> str:
    if party == "user":  # as all are who have no other role of ours
        return "kanon_user"
    return str(getattr(parties, party).info.user)


def functions(parties: Parties) -> set[str]:
    rows = fetch(
        parties.admin,
        "SELECT p.proname || '(' || oidvectortypes(p.proargtypes) || ')' FROM pg_proc AS p"
        " WHERE p.pronamespace = 'kanon'::regnamespace",
    )
    return {name.replace(", ", ",") for (name,) in rows}


def test_every_function_is_listed(parties: Parties) -> None:
    """Those that nobody calls are triggers."""
    owners = {name for name in functions(parties) if name.split("(")[0] in OWNERS}
    others = functions(parties) - EXECUTE["publisher"] - owners
    assert others == {"name_caller()", "replace_setting()"} | {f"{name}()" for name in DEFINERS}


def test_the_owner_executes_nothing_else(parties: Parties) -> None:
    rows = fetch(
        parties.admin,
        "SELECT proname::text FROM pg_proc WHERE pronamespace = 'kanon'::regnamespace"
        " AND proname <> ALL ($1::text[])"
        " AND has_function_privilege('kanon_owner', oid, 'EXECUTE')",
        sorted(DEFINERS),
    )
    assert {name for (name,) in rows} == OWNERS


@pytest.mark.pitfall(5)
def test_nobody_can_become_the_owner(parties: Parties) -> None:
    """The owner of publications can neither log in nor do more than that, and has no members."""
    assert fetch(
        parties.admin,
        "SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolcanlogin OR rolreplication"
        " OR rolbypassrls, EXISTS (SELECT FROM pg_auth_members WHERE r.oid IN (member, roleid))"
        " FROM pg_roles AS r WHERE rolname = 'kanon_owner'",
    ) == [(False, False)]


@pytest.mark.pitfall(5)
@each_party
def test_execute(parties: Parties, party: str) -> None:
    """Each role may execute exactly the functions that are listed for it."""
    allowed = {
        function
        for function in functions(parties)
        if value(
            parties.admin,
            "SELECT has_function_privilege($1::text, $2::text, 'EXECUTE')",
            role(parties, party),
            f"kanon.{function}",
        )
    }
    assert allowed == EXECUTE[party]


@each_party
def test_tables(parties: Parties, party: str) -> None:
    rows = fetch(
        parties.admin,
        "SELECT c.relname::text, p.name FROM pg_class AS c, unnest($2::text[]) AS p (name)"
        " WHERE c.relnamespace = 'kanon'::regnamespace AND c.relkind IN ('r', 'v', 'S', 'm')"
        " AND CASE c.relkind WHEN 'S' THEN p.name IN ('SELECT', 'UPDATE')"
        "  AND has_sequence_privilege($1::text, c.oid, p.name)"
        " ELSE has_table_privilege($1::text, c.oid, p.name)"
        "  OR p.name IN ('SELECT', 'INSERT', 'UPDATE', 'REFERENCES')"
        "  AND has_any_column_privilege($1::text, c.oid, p.name) END",
        role(parties, party),
        ["SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER"],
    )
    held: dict[str, set[str]] = {}
    for relation, privilege in rows:
        held.setdefault(relation, set()).add(privilege)
    assert held == TABLES[party]


def test_every_table_is_listed(parties: Parties) -> None:
    rows = fetch(
        parties.admin,
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'kanon'::regnamespace"
        " AND relkind IN ('r', 'v', 'm') ORDER BY relname",
    )
    assert [name for (name,) in rows] == list(RELATIONS)


@each_party
def test_schemas(parties: Parties, party: str) -> None:
    held = {
        schema: {
            privilege
            for privilege in ("USAGE", "CREATE")
            if value(
                parties.admin,
                "SELECT has_schema_privilege($1::text, $2::text, $3::text)",
                role(parties, party),
                schema,
                privilege,
            )
        }
        for schema in ("kanon", "published")
    }
    assert held == SCHEMAS[party]


@pytest.mark.pitfall(5)
def test_nothing_for_public(parties: Parties) -> None:
    """Nothing of ours is anybody's by membership in PUBLIC, present or by default.

    But for what views call with the rights of any reader, which reads nothing.
    """
    rows = [(i % 9, i % 4) for i in range(60)]
    kanon = create_source(parties.publisher, "data.for_public", "age int, sick int", rows)
    kanon.publish("data.for_public", "for_public", privacy='{"l": 2}')
    kanon.drop("for_public")  # the function stays
    granted = fetch(
        parties.admin,
        "SELECT o.name FROM ("
        " SELECT proname::text, coalesce(proacl, acldefault('f', proowner)) FROM pg_proc"
        "  WHERE pronamespace IN ('kanon'::regnamespace, 'published'::regnamespace) UNION ALL"
        " SELECT relname, coalesce(relacl, acldefault('r', relowner)) FROM pg_class"
        "  WHERE relnamespace IN ('kanon'::regnamespace, 'published'::regnamespace)"
        "  AND relkind <> 'i' UNION ALL"
        " SELECT nspname, coalesce(nspacl, acldefault('n', nspowner)) FROM pg_namespace"
        "  WHERE nspname IN ('kanon', 'published')"
        ") AS o (name, acl), aclexplode(o.acl) AS a WHERE a.grantee = 0",
    )
    assert granted == [("require_visible",)]


@pytest.mark.pitfall(5)
def test_roles_have_no_power(parties: Parties) -> None:
    """No role of ours is a superuser, sees past row security, makes roles, or can log in."""
    rows = fetch(
        parties.admin,
        "SELECT rolname::text, rolsuper OR rolcreaterole OR rolcreatedb OR rolcanlogin"
        " OR rolreplication OR rolbypassrls FROM pg_roles WHERE rolname ~ '^kanon_(pub|ana|use)'"
        " ORDER BY 1",
    )
    assert rows == [(name, False) for name in ("kanon_analyst", "kanon_publisher", "kanon_user")]


def test_settings_are_the_same_inside_and_outside(parties: Parties) -> None:
    """Also where the server compiles statements: ours are not."""
    session, settings = PsycopgSession(parties.admin), SETTINGS | {"jit": "off"}
    fetch(parties.admin, "SET jit = on")
    with session.transaction():
        for name, setting in settings.items():
            assert value(parties.admin, "SELECT current_setting($1)", name) == setting
    fetch(parties.admin, "RESET jit")
    functions = fetch(
        parties.admin,
        "SELECT p.proname, array_agg(lower(split_part(setting, '=', 1)) || '='"
        "  || split_part(setting, '=', 2))"
        " FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang, unnest(p.proconfig) setting"
        " WHERE p.pronamespace = 'kanon'::regnamespace AND l.lanname = 'plpython3u' GROUP BY 1",
    )
    assert functions
    for name, configured in functions:
        assert dict(one.split("=") for one in configured) == settings, name


@pytest.mark.pitfall(2, 15)
def test_functions_are_fixed(parties: Parties) -> None:
    """Every function has a fixed search path, pg_temp last; all but two, its caller's rights."""
    rows = fetch(
        parties.admin,
        "SELECT p.proname::text, p.prosecdef, r.rolsuper, p.provolatile::text, p.proparallel::text,"
        " p.prosqlbody IS NOT NULL,"
        " (SELECT setting FROM unnest(p.proconfig) AS setting WHERE setting LIKE 'search_path=%')"
        " FROM pg_proc AS p JOIN pg_roles AS r ON r.oid = p.proowner"
        " WHERE p.pronamespace = 'kanon'::regnamespace",
    )
    for name, is_definer, is_superusers, volatility, parallel, is_parsed, path in rows:
        expected = (True, False) if name in DEFINERS else (False, True)
        assert (is_definer, is_superusers) == expected, name
        if name in PARSED:
            # Parsed when they were installed; a setting would keep them from being inlined.
            assert (volatility, parallel, is_parsed, path) == ("i", "s", True, None), name
            continue
        assert path == "search_path=pg_catalog, pg_temp", name
        # An IMMUTABLE function of data may be folded into a plan, and answer from the past.
        reads_nothing = name in (
            "mark",
            "numbers_of",
            "parts_of",
            "relation_kind",
            "weighted_join",
            "learned_join",
            "withdrawn_mark",
            "closed_mark",
        )
        assert volatility == "i" if reads_nothing else volatility in "sv", name


@pytest.mark.pitfall(10)
def test_catalog_view_is_a_barrier(parties: Parties) -> None:
    """Cheap functions of an analyst never see entries that are not theirs."""
    assert value(
        parties.admin, "SELECT reloptions FROM pg_class WHERE oid = 'kanon.publications'::regclass"
    ) == ["security_barrier=true"]


def test_readers(parties: Parties, new_role: Callable[..., str]) -> None:
    """Whoever is named reads a publication, and nobody else does, whatever the defaults are."""
    rows = [(i, i % 4) for i in range(40)]
    kanon = create_source(parties.publisher, "data.people", "age int, sick int", rows)
    kanon.publish("data.people", "people", privacy='{"l": 2}')
    one, other = new_role("kanon_analyst"), new_role("kanon_analyst")
    defaults = "ALTER DEFAULT PRIVILEGES FOR ROLE kanon_owner"
    grantees = f"PUBLIC, {other}, kanon_analyst"
    try:
        fetch(parties.admin, f"{defaults} GRANT ALL ON TABLES TO {grantees}")
        kanon.publish("data.people", "restricted", privacy='{"l": 2}', readers=[one])
        kanon.suppress("data.people", "rows", k=2, readers=[one])
        for relation, readers in {
            **{f"people{suffix}": ["kanon_analyst"] for suffix in SUFFIXES},
            **{f"restricted{suffix}": [one] for suffix in SUFFIXES},
            "rows": [one],
            "rows_row": [],
            "rows_cel": [],
        }.items():
            grants = fetch(
                parties.admin,
                "SELECT a.grantee::regrole::text, a.privilege_type FROM pg_class AS c,"
                " aclexplode(c.relacl) AS a WHERE c.oid = $1::text::regclass"
                " AND a.grantee <> c.relowner ORDER BY a.is_grantable",
                f"published.{relation}",
            )
            assert grants == [(name, "SELECT") for name in (*readers, role(parties, "publisher"))]
        assert Functions(parties.analyst).publications() == ["people"]
    finally:
        fetch(parties.admin, f"DROP OWNED BY {one}")
        fetch(parties.admin, f"{defaults} REVOKE ALL ON TABLES FROM {grantees}")


SUFFIXES = ("", "_wgt", "_qit", "_sat", "_val", "_cod")
