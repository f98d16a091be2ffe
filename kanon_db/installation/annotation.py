"""Comments on publications of earlier versions, which say how to use them."""

from __future__ import annotations

import json
from typing import Final

from kanon_db.catalog.entries import Publication
from kanon_db.installation.adoption import MALFORMED
from kanon_db.publications.notes import ShownNames
from kanon_db.publications.registry import KINDS
from kanon_db.session.protocol import Row
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


def annotate_publications(session: PsycopgSession) -> list[str]:
    """Say in comments how to use each publication, as this version says it.

    Publishers write what the catalog holds of their publications: whatever it is, it stops nothing.

    Returns
    -------
    list of str
        What could not be done, for people to read.
    """
    undone = []
    for found in session.fetch(_PUBLICATIONS, list(KINDS)):
        try:
            with session.savepoint():
                _annotate(session, found)
        except MALFORMED:
            undone.append(
                f'publication "{found["name"]}" is not described as this version describes them:'
                " its comments stay as they are"
            )
    return undone


def _annotate(session: PsycopgSession, found: Row) -> None:
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
