"""Comments on publications of earlier versions, which say how to use them."""

from __future__ import annotations

import json
from typing import Final

from kanon_db.catalog.entries import Publication
from kanon_db.publications.notes import ShownNames
from kanon_db.publications.registry import KINDS
from kanon_db.session.psycopg_session import PsycopgSession

_PUBLICATIONS: Final = """
SELECT p.publication_id::text AS id, p.name, p.kind, p.method, p.source, p.rows, p.guarantee,
       p.parameters::text AS parameters, p.layout::text AS layout
FROM kanon.publications AS p WHERE p.state = 'whole' AND p.kind = ANY ($1::text[])
ORDER BY p.publication_id
"""

_ANNOTATE: Final = """
SELECT count(kanon.owner_note(p, o.relation, $2::text::jsonb -> n.suffix))
FROM kanon.publication AS p CROSS JOIN kanon.owned(p) AS o
JOIN pg_class AS c ON c.oid = o.relation
CROSS JOIN LATERAL (SELECT substr(c.relname, length(p.name) + 1) AS suffix) AS n
WHERE p.publication_id = $1::text::int8
"""


def annotate_publications(session: PsycopgSession) -> None:
    """Say in comments how to use each publication, as this version says it."""
    for found in session.fetch(_PUBLICATIONS, list(KINDS)):
        publication = Publication(
            name=found["name"],
            kind=found["kind"],
            method=found["method"],
            source=found["source"],
            parameters=json.loads(found["parameters"]),
            layout=json.loads(found["layout"]),
            records=int(found["rows"]),
            guarantee=found["guarantee"],
            metrics={},
        )
        notes = KINDS[publication.kind].load().notes(publication, ShownNames(session))
        plain = {suffix: note.plain for suffix, note in notes.items()}
        session.fetch(_ANNOTATE, found["id"], json.dumps(plain, ensure_ascii=False))
