"""Limits the memory and disk of one publication; see "Limits" in docs/howto/operation.md."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from kanon_db.errors import InfeasibleError
from kanon_db.session import Session, fetch_one

MEMORY: Final = "4 GB"
DISK: Final = "100 GB"
QUERY_MEMORY: Final = "200 MB"
"""Memory that a query may need, unless the setting ``query_memory`` says otherwise."""


class Needs(NamedTuple):
    """The most that publishing needs at a time, in bytes."""

    # In the process that computes, beside what it takes when idle, without shared buffers
    memory: float
    disk: float  # Temporary and published relations, without the server's log

    def __str__(self) -> str:
        return f"{size_text(self.memory)} of memory and {size_text(self.disk)} of disk"


class Allowance(NamedTuple):
    """The limits of one publication, in bytes, by settings that only an administrator changes."""

    memory: int  # The setting ``publish_memory``
    disk: int  # The setting ``publish_disk``

    @classmethod
    def of(cls, session: Session) -> Self:
        """Read the settings."""
        return cls(
            size_setting(session, "publish_memory", MEMORY),
            size_setting(session, "publish_disk", DISK),
        )

    def holds(self, needs: Needs) -> bool:
        """Tell whether there is as much."""
        return needs.memory <= self.memory and needs.disk <= self.disk

    def no_disk(self, what: str, hint: str) -> InfeasibleError:
        """Make the refusal of what has turned out to need more disk while it was written."""
        return InfeasibleError(
            "reading needs more room than it may have",
            detail=f"{what} takes more than publish_disk, {size_text(self.disk)}",
            hint=f"{hint}; an administrator can change the settings in kanon.setting",
        )

    def require_memory(self, n_bytes: float, what: str, hint: str) -> None:
        """Refuse to read what needs more memory; see :meth:`require`."""
        self.require(Needs(n_bytes, 0), what, hint, "reading")

    def require(self, needs: Needs, what: str, hint: str, who: str = "publishing") -> None:
        """Refuse what needs more.

        `what`: what needs it. `hint`: how to need less. `who`: in a word. Raises InfeasibleError.
        """
        if not self.holds(needs):
            raise InfeasibleError(
                f"{who} needs more room than it may have",
                detail=f"{what}: some {needs}; publish_memory is {size_text(self.memory)},"
                f" publish_disk {size_text(self.disk)}",
                hint=f"{hint}; an administrator can change the settings in kanon.setting",
            )


def size_text(n_bytes: float) -> str:
    """Return a size for people.

    Examples
    --------
    >>> size_text(120 * 2**20), size_text(4 * 2**30), size_text(2.46 * 2**30)
    ('120 MB', '4 GB', '2.5 GB')
    """
    if n_bytes < 2**30:
        return f"{n_bytes / 2**20:,.0f} MB"
    return f"{n_bytes / 2**30:,.1f}".removesuffix(".0") + " GB"


def size_setting(session: Session, name: str, default: str) -> int:
    """Return a setting in bytes, which only an administrator can change."""
    row = fetch_one(
        session,
        "SELECT pg_size_bytes(coalesce((SELECT value FROM kanon.setting WHERE name = $1::text),"
        " $2::text)) AS bytes",
        name,
        default,
    )
    return int(row["bytes"])
