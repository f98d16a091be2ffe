"""The members of a model: kept, read, and asked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from kanon_db.algorithms.models import Member
from kanon_db.errors import ReplacedError
from kanon_db.session import Session


def digest_all(networks: Sequence[bytes]) -> str:
    """Return one digest of all members, in their order; `kanon.owner_members` has the same."""
    parts = b"".join(hashlib.sha256(network).digest() for network in networks)
    return hashlib.sha256(parts).hexdigest()


def read_members(session: Session, relation: str, number: int) -> Iterator[Member]:
    """Read the members of a model, one at a time.

    Parameters
    ----------
    session : Session
        Of a role that may read them: the owner of publications, or the publisher.
    relation : str
        Quoted.
    number : int
        How many there are.

    Raises
    ------
    ReplacedError
        When there are fewer, since the statement's snapshot is from before they were written.
    """
    found = 0
    for row in session.stream(1, f"SELECT network FROM {relation} ORDER BY member"):
        found += 1
        yield Member.from_bytes(row["network"])
    if found != number:
        raise ReplacedError(
            "the publication was replaced just now",
            detail="this transaction still sees its old state",
            hint="ask again, in a new transaction",
        )
