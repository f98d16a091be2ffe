"""The parameters of loading a publication that was made elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kanon_db.catalog.names import PUBLICATION
from kanon_db.declaration import FLAG, NAMES, TEXT, parameter
from kanon_db.publications.risks import ACCEPTED


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """How a publication is to be loaded."""

    publication: str | None = parameter(
        PUBLICATION, "Name of the publication here; by default as it is called there.",
        default=None, metavar="NAME",
    )  # fmt: skip
    source_name: str | None = parameter(
        TEXT, "What the catalog calls the source: the same for all that is about the same people.",
        default=None,
    )  # fmt: skip
    readers: tuple[str, ...] | None = parameter(
        NAMES, "Roles that may read it; kanon_analyst by default.", default=None
    )
    accept: Mapping[str, str] = parameter(
        ACCEPTED, "Known risks that are accepted here, each with a reason.", default="{}"
    )
    replace: bool = parameter(
        FLAG, "Replace the publication if it exists, in the same transaction.", default=False
    )
