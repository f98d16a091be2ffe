"""What a publication is: written last, in one step. Without it there is no publication."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Self

from kanon_db.catalog.entries import Publication
from kanon_db.declaration.shown import plain
from kanon_db.errors import NotFoundError, VerificationError
from kanon_db.spark.files import Folder, FoundFile

MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1
_RELEASE: Final = "release-"


def release_named(token: str) -> str:
    """Name the folder of a release."""
    return f"{_RELEASE}{token}"


def is_release(name: str) -> bool:
    """Whether a folder of a target has the files of a release."""
    return name.startswith(_RELEASE)


@dataclass(frozen=True)
class Table:
    """A published table.

    Attributes
    ----------
    schema : str
        Its columns as Spark writes them, as JSON.
    files : tuple of FoundFile
    """

    schema: str
    files: tuple[FoundFile, ...]


@dataclass(frozen=True)
class Manifest:
    """A publication with its files.

    Attributes
    ----------
    publication : Publication
    release : str
        The folder with its tables, in the target.
    tables : dict of str to Table
        By their suffixes, such as ``_qit``; each is a folder of this name, without the underscore.
    published_at : str
        In UTC.
    """

    publication: Publication
    release: str
    tables: Mapping[str, Table]
    published_at: str

    def write(self, target: Folder) -> None:
        """Make it the publication of a target, in place of another one."""
        described = asdict(replace(self.publication, is_whole=True))
        del described["is_whole"]
        text = json.dumps(
            plain(
                {
                    "format": _FORMAT,
                    **described,
                    "release": self.release,
                    "published_at": self.published_at,
                    "tables": {suffix: asdict(table) for suffix, table in self.tables.items()},
                }
            ),
            indent=1,
        )
        (target / MANIFEST).put(text)

    @classmethod
    def find(cls, target: Folder) -> Self | None:
        """Read the manifest of a target; None if there is none.

        Raises
        ------
        VerificationError
            When it is not one of ours.
        """
        file = target / MANIFEST
        if not file.exists():
            return None
        try:
            found = json.loads(file.read())
            if found.pop("format") != _FORMAT:
                raise ValueError  # noqa: TRY301  # all that is amiss is said below
            release, published_at = str(found.pop("release")), str(found.pop("published_at"))
            tables = {
                str(suffix): Table(
                    str(table["schema"]),
                    tuple(FoundFile(str(f["name"]), int(f["size"])) for f in table["files"]),
                )
                for suffix, table in found.pop("tables").items()
            }
            suffixes = filter(None, tables)
            names = (file.name for table in tables.values() for file in table.files)
            _require_inside([release, *suffixes, *names])
            return cls(Publication(**found), release, tables, published_at)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise VerificationError(
                "the manifest of a publication cannot be read",
                detail=str(file),
                hint="it was changed, or written by a later kanon_db",
            ) from None

    @classmethod
    def of(cls, target: Folder) -> Self:
        """Read the manifest of a target.

        Raises
        ------
        NotFoundError
            When there is none.
        """
        found = cls.find(target)
        if found is None:
            raise NotFoundError(
                "there is no publication",
                detail=str(target),
                hint="it is there when its manifest is: check the path",
            )
        return found


def _require_inside(names: Sequence[str]) -> None:
    """Refuse names that lead out of the folder."""
    if any("/" in name or name in ("", ".", "..") for name in names):
        raise ValueError
