"""Which estimator answers: a choice of whoever asks, ``SET kanon.estimator = 'paper'``."""

from __future__ import annotations

from typing import Final, get_args
from typing import Literal as OneOf

from kanon_db.declaration import unknown
from kanon_db.session.protocol import Session, fetch_one

Estimator = OneOf["published", "paper"]
"""By the distribution that the publication itself implies, or as the papers have it: in a bucket
every matching, and in a cell every value, is equally likely."""

NAMES: Final = get_args(Estimator)


def chosen_estimator(session: Session) -> Estimator:
    """Read the caller's setting.

    Raises
    ------
    InvalidParameterError
        When it names none.
    """
    row = fetch_one(session, "SELECT current_setting('kanon.estimator', true) AS value")
    given = row["value"] or NAMES[0]
    if given not in NAMES:
        raise unknown("estimator", given, NAMES)
    found: Estimator = given
    return found
