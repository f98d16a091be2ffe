"""A kind that a test adds: it counts people who share their quasi-identifiers, if at least k do.

It takes one folder, and this registration.
"""

from kanon_db.publications.registry import DeclaredKind, register_kind

TALLY = DeclaredKind(
    name="tally",
    request_class="TallyRequest",
    help="publish how many people share their quasi-identifiers",
    details="Creates the table NAME.",
    room=f"{__name__}",
)
register_kind(TALLY)
