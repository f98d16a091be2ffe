"""What a manifest must say of a publication in files, before anything is read by it."""

from __future__ import annotations

import copy
import json
from pathlib import Path, PosixPath
from typing import Any, cast

import pytest

from kanon_db.errors import VerificationError
from kanon_db.spark._publication_folder import MANIFEST, Folder, Manifest

SHOWN: dict[str, Any] = {
    "format": 1, "name": "p", "method": "two_size", "source": "people", "records": 4,
    "guarantee": "", "promise": {}, "metrics": {}, "release": "release-1", "tables": {},
    "published_at": "2030-01-01",
}  # fmt: skip
TYPES = {"types": {"age": {"type": "integer"}, "ill": {"type": "text"}}}
BUCKETS: dict[str, Any] = {
    **SHOWN, "kind": "buckets", "parameters": {"l": 2},
    "layout": {
        **TYPES, "quasi_identifiers": ["age"], "sensitive": "ill", "weighted": [],
        "sizes": [2], "first_bucket_ids": [1], "n_buckets": 2,
        "bucket_id": "bucket_id", "count": "count", "attribute": "attribute",
        "weight": "weight", "weights": "weights", "parts": "parts",
    },
}  # fmt: skip
ROWS: dict[str, Any] = {
    **SHOWN, "kind": "generalized", "parameters": {"k": 2},
    "layout": {
        **TYPES, "quasi_identifiers": [{"name": "age", "cell": "set"}], "others": ["ill"],
        "columns": ["age", "ill"], "sensitive": "ill",
    },
}  # fmt: skip


class PlainFolder(PosixPath):
    """A folder on this machine, read without Spark."""

    def read(self) -> str:
        return self.read_text()


def find(folder: Path, manifest: dict[str, Any]) -> Manifest | None:
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return Manifest.find(cast("Folder", PlainFolder(folder)))


@pytest.mark.parametrize(
    ("whole", "needed"),
    [
        (BUCKETS, BUCKETS["layout"].keys()),
        (ROWS, ROWS["layout"].keys() - {"sensitive"}),  # rows may have none
    ],
    ids=["buckets", "rows"],
)
def test_what_a_manifest_lacks_is_named(
    whole: dict[str, Any], needed: set[str], tmp_path: Path
) -> None:
    """Otherwise, a check of the files would end in an error of Python."""
    assert find(tmp_path, whole) is not None
    for name in needed:
        manifest = copy.deepcopy(whole)
        del manifest["layout"][name]
        with pytest.raises(
            VerificationError, match="manifest of a publication cannot be read"
        ) as raised:
            find(tmp_path, manifest)
        assert raised.value.detail == f"{tmp_path / MANIFEST}: {name} is not as kanon_db writes it"
        assert "publish again" in raised.value.hint
