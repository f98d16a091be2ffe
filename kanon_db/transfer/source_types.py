"""What the types of a source's columns mean, kept with its publications.

A comparison of a published column then means what it means on the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kanon_db.session.protocol import Session
from kanon_db.transfer.columns import Relation

_TYPES = """
WITH RECURSIVE typed AS (
    SELECT a.attname, a.atttypmod AS modifier, a.attcollation, t.oid, t.typtype, t.typbasetype,
           t.typtypmod
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = to_regclass($1::text) AND a.attname = ANY ($2::text[])
    UNION ALL
    SELECT d.attname, CASE WHEN d.typtypmod < 0 THEN d.modifier ELSE d.typtypmod END,
           d.attcollation, t.oid, t.typtype, t.typbasetype, t.typtypmod
    FROM typed d JOIN pg_type t ON t.oid = d.typbasetype
    WHERE d.typtype = 'd'
)
SELECT c.attname::text AS name,
       CASE WHEN kanon.is_safe_type(c.oid) AND c.typtype <> 'e' THEN format_type(c.oid, -1) END
           AS type,
       CASE WHEN c.oid = 'bpchar'::regtype AND c.modifier > 4 THEN c.modifier - 4 END AS length,
       CASE WHEN c.typtype = 'e' THEN ARRAY(
           SELECT enumlabel::text FROM pg_enum WHERE enumtypid = c.oid ORDER BY enumsortorder
       ) END AS labels,
       CASE WHEN l.collname <> 'default' AND kanon.is_safe_collation(l.oid)
           THEN ARRAY[n.nspname::text, l.collname::text] END AS collation,
       CASE WHEN NOT kanon.is_safe_collation(c.attcollation)
           OR NOT (kanon.is_safe_type(c.oid) OR c.typtype = 'e') THEN false END AS is_ordered
FROM typed c
LEFT JOIN (pg_collation l JOIN pg_namespace n ON n.oid = l.collnamespace) ON l.oid = c.attcollation
WHERE c.typtype <> 'd'
"""


def describe_types(
    session: Session, relation: Relation, columns: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Describe what comparisons of columns depend on.

    Returns
    -------
    dict of str to dict
        For each column, of these what applies: ``type``, SQL's name of the type behind its
        domains; the ``length`` of a ``char(n)``; the ``labels`` of an enumeration, in their order;
        its ``collation``, schema and name, if that is not the database's; ``is_ordered``, false if
        its values are published as texts, or with another collation, whose order is not theirs.
    """
    rows = session.fetch(_TYPES, relation.quoted(session), list(columns))
    return {
        str(row["name"]): {
            key: list(value) if isinstance(value, list) else value
            for key, value in row.items()
            if key != "name" and value is not None
        }
        for row in rows
    }
