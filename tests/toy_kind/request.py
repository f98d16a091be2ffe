"""What can be asked of a tally."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kanon_db.declaration import choice, parameter, whole
from kanon_db.publications.request import PublishRequest


@dataclass(frozen=True, kw_only=True)
class TallyRequest(PublishRequest):
    """Parameters of `publish_tally`."""

    k: int = parameter(whole(least=2), "Fewest people that are counted.")
    method: Literal["count", "count_down"] = parameter(
        choice("method", count="from one up", count_down="from the top"),
        "How it is counted.",
        default="count",
    )
