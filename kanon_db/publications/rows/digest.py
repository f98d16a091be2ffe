"""A digest of published rows: whether they are still those that were checked with the source."""

from __future__ import annotations

from kanon_db.counting.layout import RowView
from kanon_db.publications.results import Check
from kanon_db.session import Session, fetch_one
from kanon_db.transfer.labels import fixed_labels


def digest_rows(session: Session, view: RowView) -> str:
    """Return a number that depends on all rows, but not on their order.

    It is the sum of 64 bits of each row's SHA-256: a change of any row changes it, except by a
    negligible chance.
    """
    with fixed_labels(session):
        found = fetch_one(
            session,
            "SELECT coalesce(sum(('x' || left(encode(hash, 'hex'), 16))::bit(64)::int8), 0)::text"
            " AS digest FROM (SELECT sha256(convert_to(format('%s', published), 'UTF8')) AS hash"
            f" FROM {view.view} AS published) AS hashed",
        )
    return str(found["digest"])


def check_digest(session: Session, view: RowView, digest: str, promise: str) -> Check:
    """Compare the rows with their digest when they were published.

    Parameters
    ----------
    session : Session
    view : RowView
    digest : str
    promise : str
        What the check is called.
    """
    return same_digest(promise, same=digest_rows(session, view) == digest)


def same_digest(promise: str, *, same: bool) -> Check:
    """Say whether rows have the digest that they had."""
    return Check(
        promise,
        "the same digest",
        f"{'the same' if same else 'another'} digest",
        holds=same,
    )
