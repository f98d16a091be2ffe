"""What only a superuser can do to a publication: change it, and let it look as if it were whole."""

from __future__ import annotations

from tests.integration.parties import Connection, fetch

WHOLE = "the published relations are there, and belong to kanon_owner"


def disguise(admin: Connection, name: str, relations: list[str]) -> None:
    """Give whatever has a published relation's name its owner, its mark, and a reader."""
    ((mark,),) = fetch(
        admin,
        "SELECT kanon.mark(publication_id) FROM kanon.publication WHERE name = $1::text",
        name,
    )
    for relation in relations:
        kinds = fetch(
            admin,
            "SELECT CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW'"
            " ELSE 'TABLE' END FROM pg_class WHERE oid = to_regclass($1::text)",
            relation,
        )
        for (kind,) in kinds:
            fetch(admin, f"ALTER {kind} {relation} OWNER TO kanon_owner")
            fetch(admin, f"COMMENT ON {kind} {relation} IS '{mark}'")
            fetch(admin, f"GRANT SELECT ON {relation} TO kanon_analyst")
