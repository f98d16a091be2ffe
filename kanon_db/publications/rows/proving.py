"""What a proof of the search says of the rows that are published."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from kanon_db.algorithms.ground.proof import Proof
from kanon_db.algorithms.recoding import Microdata

_ROUNDING: Final = Fraction(1, 10**9)  # of a measured loss, relative


def proof_of_published(proof: Proof | None, data: Microdata, loss: float) -> Proof | None:
    """Compare a published loss with a bound that was proven for the loss that was searched for.

    Parameters
    ----------
    proof : Proof or None
        Of the search, for the same records and at least as many solutions.
    data : Microdata
        What was searched.
    loss : float
        Weighted loss of what is published, as it was measured.

    Returns
    -------
    Proof or None
        None where the bound says nothing of what is published.

    Notes
    -----
    Bins: the search compares where they begin, and a cell ends where its last bin does. So a cell
    loses no less than the search takes it to, and the bound holds.

    Hierarchies: the search compares places on an axis, where values that share only a high label
    are far apart; a label loses by how many values it stands for. Of the same values, either can
    be more, so the bound says nothing.
    """
    if proof is None or any(attribute.taxonomy is not None for attribute in data.attributes):
        return None
    published = Fraction(loss)
    bound = min(proof.lower_bound, published)
    return Proof(bound if published - bound <= _ROUNDING * published else published, bound)
