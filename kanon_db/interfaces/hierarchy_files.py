"""Files that attributes name: Python and the command line read them, and never the server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kanon_db.declaration.types import decoded
from kanon_db.transfer.hierarchy_file import read_hierarchy


def with_files(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put hierarchies in the place of the names of their files.

    Parameters
    ----------
    given : mapping
        What a caller passed to `register_source`.

    Returns
    -------
    mapping
        The same, unless ``attributes`` name a file.

    Raises
    ------
    NotFoundError, InvalidParameterError
    """
    attributes = decoded(given.get("attributes"), "attributes", is_exact=False)
    if not isinstance(attributes, Mapping):
        return given  # what is wrong with it is said where it is read
    named = {
        column: {**described, "hierarchy": read_hierarchy(Path(described["hierarchy"]))}
        for column, described in attributes.items()
        if isinstance(described, Mapping) and isinstance(described.get("hierarchy"), str)
    }
    return {**given, "attributes": {**attributes, **named}} if named else given
