"""Where the SQL objects and migrations are: in the wheel, or beside the package in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def resource_directory(name: str) -> Path:
    """Return the folder `name` (``sql`` or ``migrations``)."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def import_paths() -> list[str]:
    """Return the folders that the server needs on its path to import the same packages as we do."""
    import numpy as np

    paths = [_PACKAGE.parent, Path(np.__file__).resolve().parents[1]]
    return list(dict.fromkeys(str(path) for path in paths))
