"""What others have made of kanon_db and of publications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kanon_db.session.psycopg_session import PsycopgSession

# A view depends by its rule. Our event trigger belongs to no schema.
_DEPENDENTS: Final = """
SELECT DISTINCT CASE WHEN r.oid IS NULL THEN pg_describe_object(d.classid, d.objid, 0)
                ELSE pg_describe_object('pg_class'::regclass, r.ev_class, 0) END AS name
FROM pg_depend AS d
LEFT JOIN pg_class AS c ON d.refclassid = 'pg_class'::regclass AND c.oid = d.refobjid
LEFT JOIN pg_proc AS p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
LEFT JOIN pg_type AS t ON d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid
JOIN pg_namespace AS n ON n.oid = coalesce(c.relnamespace, p.pronamespace, t.typnamespace)
LEFT JOIN pg_rewrite AS r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
CROSS JOIN LATERAL pg_identify_object_as_address(d.classid, d.objid, 0) AS a
WHERE n.nspname = ANY ($1::text[]) AND d.deptype = 'n'
  AND d.classid <> 'pg_event_trigger'::regclass
  AND a.object_names[1] <> ALL ($1::text[])
  AND ($2::text IS NULL OR obj_description(c.oid, 'pg_class') = $2::text)
ORDER BY 1
"""


def dependents(
    session: PsycopgSession, schemas: Sequence[str], comment: str | None = None
) -> list[str]:
    """Describe what depends on objects in these schemas, and lies outside of them.

    Parameters
    ----------
    schemas : sequence of str
    comment : str, optional
        Only what depends on relations with this comment.
    """
    return [row["name"] for row in session.fetch(_DEPENDENTS, list(schemas), comment)]
