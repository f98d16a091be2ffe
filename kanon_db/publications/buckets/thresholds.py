"""The thresholds of sensitive values, as anybody can find them from what is published."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from kanon_db.algorithms.bucketization.specification import PrivacySpecification
from kanon_db.algorithms.ground.arrays import IntArray


def published_thresholds(
    parameters: Mapping[str, Any], labels: Sequence[str | None], counts: IntArray
) -> list[Fraction]:
    """Apply a publication's specification to the values that it has, and its l, if it has one.

    Parameters
    ----------
    parameters : mapping
        As the catalog keeps them.
    labels : sequence of str or None
        The values' texts.
    counts : ndarray of int64
        How often each of them occurs, at least once.
    """
    privacy = PrivacySpecification.parse(json.dumps(parameters["privacy"]))
    least = 1 / Fraction(str(parameters.get("l", 1)))
    return [min(one, least) for one in privacy.thresholds(labels, counts).thresholds]
