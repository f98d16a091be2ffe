"""Reads the ledger of releases: what readers could read before, and who may read a new release.

A finding says what a check of several releases found; see ``sql/23_releases.sql``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from kanon_db.catalog.entries import run_errand
from kanon_db.catalog.names import require_plain
from kanon_db.dataclasses import dataclass
from kanon_db.errors import InvalidParameterError, NotFoundError
from kanon_db.session import Session
from kanon_db.session.protocol import fetch_one
from kanon_db.transfer.columns import fix_labels

DEFAULT_READERS: Final = ("kanon_analyst",)


def check_readers(session: Session, readers: Sequence[str] | None, schema: str) -> tuple[str, ...]:
    """Return the roles that may read a publication; refuse roles that could not reach it."""
    roles = DEFAULT_READERS if readers is None else tuple(dict.fromkeys(readers))
    for role in roles:
        require_plain("a reader", role)
        found = fetch_one(
            session,
            "SELECT quote_ident($1::text) AS role, r.oid IS NOT NULL AS is_there,"
            " has_schema_privilege(r.oid, $2::text, 'USAGE') AS reaches"
            " FROM (SELECT) AS one LEFT JOIN pg_roles AS r ON r.rolname = $1::text",
            role,
            schema,
        )
        if not found["is_there"]:
            raise NotFoundError(
                "a reader is not a role of this server",
                detail=f'role "{role}"',
                hint=f"CREATE ROLE {found['role']} IN ROLE kanon_user, and grant it to those"
                " who are to read",
            )
        if not found["reaches"]:
            raise InvalidParameterError(
                "a reader cannot use the schema of publications",
                detail=f'role "{role}" has no USAGE on schema "{schema}"',
                hint=f"GRANT kanon_user TO {found['role']}: it may then ask, and reads only what"
                " names it as a reader",
            )
    return roles


# The ledger is described in ``sql/23_releases.sql``.


@dataclass(frozen=True)
class EarlierRelease:
    """An earlier release, which a reader of the new one could read."""

    release_id: int
    name: str
    kind: str
    # ``replaced`` or ``dropped``: readers may still have a copy, but it cannot be measured.
    ended: str | None
    shared: tuple[str, ...]  # login roles that could read it, now or then
    # By which the owner of all publications knows that it told of this release. It is good for this
    # transaction, and for this role.
    ticket: str = ""

    @property
    def kept(self) -> dict[str, Any]:
        """Return the ledger's entry as plain JSON."""
        found = asdict(self)
        del found["ticket"]
        return found


def earlier_releases(
    session: Session, source_id: int, readers: Sequence[str], publication_id: int | None = None
) -> list[EarlierRelease]:
    """List the releases about the same people that readers could set against a new one.

    Members of `readers` that may log in count; a draft names itself as `publication_id`.
    """
    # Two sources may be about the same people if they share any relation that they are made of: a
    # renamed table, a view over it, and a view over that are the same source.
    return _earlier(
        session, source_id=source_id, readers=list(readers), publication_id=publication_id
    )


def earlier_releases_elsewhere(
    session: Session, label: str, readers: Sequence[str]
) -> list[EarlierRelease]:
    """List the releases of a source elsewhere that readers could set against a new one.

    Two sources elsewhere are the same if they have the same label.
    """
    return _earlier(session, label=label, readers=list(readers))


def _earlier(session: Session, **given: Any) -> list[EarlierRelease]:
    found = run_errand(session, "earlier releases", **given)
    return [
        EarlierRelease(
            one["release_id"], one["name"], one["kind"], one["ended"], tuple(one["shared"]),
            one["ticket"],
        )
        for one in found
    ]  # fmt: skip


def digest_of_relations(session: Session, relations: Sequence[str]) -> str:
    """Return a checksum of relations' rows that does not depend on their order.

    Two hashes of every row's text are added up: it tells copies and changes, and is no signature.
    """
    sums = ", ".join(f"coalesce(sum(hashtextextended(row_text, {seed})), 0)" for seed in (0, 1))
    with fix_labels(session):
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
    """Tell whether an administrator has accepted combined releases for all publishers."""
    rows = session.fetch("SELECT value FROM kanon.setting WHERE name = 'combined_releases'")
    return bool(rows) and rows[0]["value"] == "warn"


@dataclass(frozen=True)
class ReleaseFinding:
    """A finding of a check of several releases."""

    check: str
    result: str  # exact and sound results hold in every world; sound ones may miss something
    releases: str  # the names of those that were set against each other
    people: int | None  # for how many people a value exceeds its bound
    certain: int | None  # how many people's values are certain
    # The share of a value that exceeds its bound most, or comes closest to it, and the bound.
    share: float | None
    bound: float | None
    holds: bool  # whether nobody's value exceeds its bound


def not_measured(reasons: Mapping[str, Sequence[EarlierRelease]]) -> list[ReleaseFinding]:
    """Say of which releases nothing was measured, once for each reason."""
    return [
        ReleaseFinding(
            f"not measured: {why}", "not measured", names_of(releases), None, None, None, None,
            holds=False,
        )
        for why, releases in reasons.items()
    ]  # fmt: skip


def names_of(releases: Sequence[EarlierRelease]) -> str:
    """List the names of releases, each once."""
    return ", ".join(dict.fromkeys(one.name for one in releases))


_MOST_NAMED: Final = 5


def shortened(names: Sequence[str]) -> str:
    """List a few names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    listed = ", ".join(names[:_MOST_NAMED])
    return listed if more <= 0 else f"{listed} and {more} more roles"


def finding_sentences(findings: Sequence[ReleaseFinding]) -> str:
    """Say what does not hold, a sentence for each finding."""
    return " ".join(_sentence(finding) for finding in findings if not finding.holds) or (
        "No check found anybody above a bound, but not everything that readers could find out is"
        " measured."
    )


def _sentence(finding: ReleaseFinding) -> str:
    if finding.people is None:
        return f"{finding.releases}: {finding.check}."
    return (
        f"{finding.check}: {finding.people:,} people above their bound, {finding.certain:,} certain"
        f" ({finding.result})."
    )
