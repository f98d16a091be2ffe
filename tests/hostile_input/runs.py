"""Asking and calling with hostile input, as often as wanted."""

from __future__ import annotations

import math
from itertools import islice
from typing import Final

from tests.hostile_input import entries
from tests.hostile_input.arguments import Arguments, as_json
from tests.hostile_input.queries import Queries
from tests.hostile_input.tables import CANARIES, restore
from tests.hostile_input.verdict import Verdict, listening
from tests.integration.parties import Parties, fetch
from tests.server_log import ServerLog

ASKED: Final = (
    "estimate_count", "estimate_counts", "estimate", "explain_count", "rewrite_count",
)  # fmt: skip
FROM_OUTSIDE: Final = ("Python", "command line")
REFUSED: Final = {
    "0A000": "the query is outside what is answered",
    "42704": "there is no such publication or lookup table",
    "57014": "cancelled: statement_timeout",
}
"""How a query may be refused: SQLSTATEs, with what they mean."""


def ask(parties: Parties, n: int, seed: int, timeout: int, seconds: float = math.inf) -> Verdict:
    """Ask queries, each by every function that takes one, as an analyst.

    Parameters
    ----------
    n, seed : int
    timeout : int
        The `statement_timeout`, in seconds.
    seconds : float
        How long a call may take.
    """
    analyst = parties.analyst
    verdict = Verdict(frozenset(REFUSED), seconds, analyst.info.backend_pid)
    log = ServerLog(parties.admin)
    fetch(analyst, f"SET statement_timeout = '{timeout}s'")
    with listening(analyst, verdict):
        for query in islice(Queries(seed), n):
            # The driver itself refuses what the protocol cannot carry.
            text = query.text.replace("\0", "\u2400").encode(errors="replace").decode()
            for function in ASKED:
                statement = f"SELECT * FROM kanon.{function}($1::text)"
                verdict.of(function, text, lambda s=statement, t=text: fetch(analyst, s, t))
    fetch(analyst, "RESET statement_timeout")
    _read(log, verdict)
    return verdict


def call(
    parties: Parties, n: int, seed: int, timeout: int, seconds: float = math.inf
) -> tuple[Verdict, Verdict]:
    """Call operations with sets of arguments, by every way in, as a publisher.

    Parameters
    ----------
    n, seed, timeout, seconds
        As for :func:`ask`.

    Returns
    -------
    tuple of Verdict
        Of what ran in the server, and of what ran in this process.
    """
    publisher = parties.publisher
    inside = Verdict(frozenset(entries.REFUSED), seconds, publisher.info.backend_pid)
    outside = Verdict(frozenset(entries.REFUSED))
    log = ServerLog(parties.admin)
    fetch(publisher, f"SET statement_timeout = '{timeout}s'")
    with listening(publisher, inside):
        for operation, given in islice(Arguments(seed), n):
            shown = f"{operation.name}: {as_json(given)}"
            for way, calling in entries.ways_in(parties, operation, given):
                verdict = outside if way in FROM_OUTSIDE else inside
                verdict.of(way, shown, calling)
            restore(parties)
    fetch(publisher, "RESET statement_timeout")
    _read(log, inside)
    return inside, outside


def _read(log: ServerLog, verdict: Verdict) -> None:
    """Look for crashes and for data values in the server's log."""
    said = log.text()
    for sign in ("terminated by signal", "PANIC", "Traceback", *CANARIES):
        if sign in said:
            verdict.defects.append(f"the server's log has {sign!r}")
