"""Publishing a tally."""

from __future__ import annotations

from dataclasses import dataclass

from kanon_db.publications.guarantees import Guarantee
from kanon_db.publications.kind import Kind, Written, run_method
from kanon_db.publications.results import Check, Examination
from kanon_db.session import fetch_one
from kanon_db.transfer.allowance import Needs

from . import methods


@dataclass(frozen=True, kw_only=True)
class TallyGuarantee(Guarantee):
    """Counts of at least k."""

    k: int

    @property
    def short(self):
        """Name it in a few words."""
        return f"{self.k} people a line"

    @property
    def promise(self):
        """Say what holds for everybody."""
        return f"at least {self.k} people in each line"


class Tally(Kind):
    """The kind `tally`."""

    suffixes = ("",)

    def columns(self, source, types):
        """Read only what is counted."""
        return list(source.quasi_identifiers)

    def needs(self, request, source, types, size):
        """Each record is read once."""
        return Needs(60e6, 2 * size.width * size.n_records)

    def search(self, job):
        """Choose an order."""
        return run_method(methods, job, job.snapshot)

    def write(self, job, found):
        """Count, and keep counts of at least k."""
        session = job.session
        snapshot, order = found.result
        names = ", ".join(map(session.identifier, job.source.quasi_identifiers))
        job.staging.fill_table(
            "",
            f"SELECT {names}, count(*) AS people FROM {snapshot.table}"
            f" GROUP BY {names} HAVING count(*) >= {job.request.k} ORDER BY count(*) {order}",
        )
        return Written(TallyGuarantee(k=job.request.k))

    def examine(self, session, publication, *, is_new=False):
        """Look for the smallest count."""
        table = session.identifier("published", publication.name)
        least = fetch_one(session, f"SELECT min(people) AS n FROM {table}")["n"]
        k = publication.parameters["k"]
        return Examination(
            [Check("every line counts k people", f"k = {k}", f"{least}", holds=least >= k)],
            {"least": float(least)},
        )


KIND = Tally()
