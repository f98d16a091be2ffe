"""The parameters of a tally."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kanon_db.declaration import choice, parameter, whole
from kanon_db.publications.publish_request import PublishRequest


@dataclass(frozen=True, kw_only=True)
class TallyRequest(PublishRequest):
    """Parameters of `publish_tally`."""

    k: int = parameter(whole(least=2), "Smallest count to publish.")
    method: Literal["count", "count_down"] = parameter(
        choice("method", count="smallest counts first", count_down="largest counts first"),
        "How it is counted.",
        default="count",
    )
