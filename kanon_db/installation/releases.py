"""The ledger of releases, after an upgrade or a restore."""

from __future__ import annotations

from kanon_db.session.psycopg_session import PsycopgSession


def enter_releases(session: PsycopgSession) -> list[str]:
    """Enter publications of earlier versions into the ledger, with who can read them today.

    Returns
    -------
    list of str
        What was done, for people to read.
    """
    rows = session.fetch(
        "SELECT p.name, kanon.owner_release(p, NULL, '{}') AS done FROM kanon.publication AS p"
        " WHERE NOT EXISTS (SELECT FROM kanon.release AS r"
        "  WHERE r.publication_id = p.publication_id) ORDER BY p.publication_id"
    )
    session.fetch(
        "UPDATE kanon.budget AS b SET role = u.oid FROM pg_roles AS u WHERE u.rolname = b.role_name"
    )
    session.fetch(
        "UPDATE kanon.release AS r SET publisher = g.grantee FROM kanon.publication AS p,"
        " LATERAL (SELECT * FROM kanon.granted(p) AS g WHERE g.is_publisher LIMIT 1) AS g"
        " WHERE r.publication_id = p.publication_id AND r.publisher IS NULL"
    )
    session.fetch("SELECT kanon.owner_note_readers(p) FROM kanon.publication AS p")
    return [f"{len(rows)} publications entered into the ledger of releases"] if rows else []


def find_again(session: PsycopgSession) -> None:
    """Look up the ledger's roles and relations by their names, in another database than theirs."""
    session.fetch(
        "UPDATE kanon.release_reader AS d SET role = u.oid FROM pg_roles AS u"
        " WHERE u.rolname = d.role_name"
    )
    session.fetch(
        "UPDATE kanon.release AS r SET publisher = (SELECT u.oid FROM pg_roles AS u"
        " WHERE u.rolname = r.released_by), source_oid = to_regclass(r.source),"
        " bases = ARRAY(SELECT to_regclass(n)::oid FROM unnest(r.base_names) AS n"
        "  WHERE to_regclass(n) IS NOT NULL)"
    )
