"""A kind that a test adds: how many people share their quasi-identifiers, where at least k do.

One folder, and this registration.
"""

from kanon_db.publications.registry import DeclaredKind, register_kind

from .request import TallyRequest

TALLY = DeclaredKind(
    name="tally",
    request=TallyRequest,
    help="publish how many people share their quasi-identifiers",
    details="Makes the table NAME.",
    room=f"{__name__}",
)
register_kind(TALLY)
