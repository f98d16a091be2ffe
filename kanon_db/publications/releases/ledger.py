"""The ledger: what was released before to the same readers; see ``sql/23_releases.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kanon_db.catalog.errands import run_errand
from kanon_db.session.protocol import Session, fetch_one
from kanon_db.transfer.labels import fixed_labels


@dataclass(frozen=True)
class Earlier:
    """A release that somebody could read who will read the new one, too.

    Attributes
    ----------
    release_id : int
    name, kind : str
    ended : str or None
        ``replaced`` or ``dropped``: readers may still have a copy, but it cannot be measured.
    shared : tuple of str
        Login roles that could read it, now or then.
    ticket : str
        By which the owner of all publications knows that it told of this release. It is good for
        this transaction, and for this role.
    """

    release_id: int
    name: str
    kind: str
    ended: str | None
    shared: tuple[str, ...]
    ticket: str = ""

    @property
    def kept(self) -> dict[str, Any]:
        """What the ledger keeps of it, as plain JSON."""
        found = asdict(self)
        del found["ticket"]
        return found


def earlier_releases(
    session: Session, source_id: int, readers: Sequence[str], publication_id: int | None = None
) -> list[Earlier]:
    """List the releases about the same people that readers could set against a new one.

    Two sources may be about the same people if they share any relation that they are made of: a
    renamed table, a view over it, and a view over that are the same source.

    Parameters
    ----------
    session : Session
    source_id : int
    readers : sequence of str
        Roles that will read the new release. Login roles count that are their members; neither the
        publisher nor superusers do.
    publication_id : int, optional
        The new release itself, if it is published as a draft.
    """
    return _earlier(
        session, source_id=source_id, readers=list(readers), publication_id=publication_id
    )


def earlier_releases_elsewhere(
    session: Session, label: str, readers: Sequence[str]
) -> list[Earlier]:
    """List the releases of a source elsewhere that readers could set against a new one.

    Two sources elsewhere are the same if they have the same label.
    """
    return _earlier(session, label=label, readers=list(readers))


def _earlier(session: Session, **given: Any) -> list[Earlier]:
    found = run_errand(session, "earlier releases", **given)
    return [
        Earlier(
            one["release_id"], one["name"], one["kind"], one["ended"], tuple(one["shared"]),
            one["ticket"],
        )
        for one in found
    ]  # fmt: skip


def digest(session: Session, relations: Sequence[str]) -> str:
    """Return a checksum of relations' rows that does not depend on their order.

    For each relation, two hashes of every row's text are added up. It tells copies and changes; it
    is no signature.

    Parameters
    ----------
    session : Session
    relations : sequence of str
        Quoted.
    """
    sums = ", ".join(f"coalesce(sum(hashtextextended(row_text, {seed})), 0)" for seed in (0, 1))
    with fixed_labels(session):
        found = [
            fetch_one(
                session,
                # OFFSET keeps the planner from writing each text twice. Of OFFSET 0 without quotes,
                # a call of int8(0) is left when it looks whether a plan may be parallel.
                f"SELECT count(*) || ':' || md5(concat_ws(':', {sums})) AS digest"
                f" FROM (SELECT r::text AS row_text FROM {relation} AS r OFFSET '0') AS texts",
            )["digest"]
            for relation in relations
        ]
    return " ".join(found)


def only_warns(session: Session) -> bool:
    """Whether an administrator has accepted combined releases for all publishers."""
    rows = session.fetch("SELECT value FROM kanon.setting WHERE name = 'combined_releases'")
    return bool(rows) and rows[0]["value"] == "warn"
