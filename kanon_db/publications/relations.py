"""What the server's catalogs say about the published relations."""

from __future__ import annotations

from collections.abc import Sequence

from kanon_db.publications.results import Check
from kanon_db.session import Session, fetch_one

_RELATIONS = """
SELECT v.relkind::text IS NOT DISTINCT FROM $3::text AND (
           SELECT bool_and(coalesce(t.relkind = 'r' AND NOT t.relrowsecurity, false))
           FROM unnest($2::text[]) AS name LEFT JOIN pg_class AS t ON t.oid = to_regclass(name)
       ) AS kinds,
       (SELECT count(*) FROM pg_rewrite AS r JOIN pg_depend AS d
        ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
        WHERE r.ev_class = v.oid AND (
            d.refclassid <> 'pg_class'::regclass OR d.refobjid <> v.oid
            AND d.refobjid NOT IN (SELECT to_regclass(name) FROM unnest($2::text[]) AS name))
            AND d.refobjid <> 'kanon.require_visible'::regproc
       ) AS others
FROM (SELECT) AS one LEFT JOIN pg_class AS v ON v.oid = to_regclass($1::text)
"""


def check_relations(
    session: Session, promise: str, view: str, tables: Sequence[str], *, materialized: bool = False
) -> Check:
    """Check what the published relations are, reading only the server's catalogs.

    Parameters
    ----------
    promise : str
        What the check is called.
    view : str
        Quoted name of a view that may read nothing but the tables.
    tables : sequence of str
        Quoted names of tables that may not have row-level security.
    materialized : bool
        Whether the view is materialized.
    """
    kind = "m" if materialized else "v"
    found = fetch_one(session, _RELATIONS, view, list(tables), kind)
    return Check(
        promise,
        "0 other objects in the view",
        f"{'as' if found['kinds'] else 'not as'} published, {found['others']} other objects",
        holds=found["kinds"] and found["others"] == 0,
    )
