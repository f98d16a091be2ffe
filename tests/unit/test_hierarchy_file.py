"""Hierarchies in files, as ARX writes them; and what is in files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from kanon_db.errors import InvalidParameterError, KanonError, NotFoundError
from kanon_db.interfaces.python import with_files
from kanon_db.transfer.csv_file import read_hierarchy

TREE = {"BSc": ["degree", "*"], "MSc": ["degree", "*"], "": ["none, yet", "*"]}


@pytest.mark.parametrize("mark", [";", ",", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_reads(tmp_path: Path, mark: str, encoding: str) -> None:
    path = tmp_path / "tree.csv"
    lines = ["BSc;degree;*", "MSc;degree;*", "", ';"none, yet";*', ""]
    path.write_text("\r\n".join(line.replace(";", mark) for line in lines), encoding=encoding)
    assert read_hierarchy(path) == TREE


@pytest.mark.parametrize(
    ("text", "message", "detail"),
    [
        (b"", "is empty", "tree.csv"),
        (b"\n\n", "is empty", "tree.csv"),
        (b"secret\n", "no value with its labels", "line 1"),
        (b"a;x;*\nsecret;x\n", "no value with its labels", "line 2"),
        (b"a;x;*\nsecret;;*\n", "no value with its labels", "line 2"),
        (b"a;x;*\nsecret;x;y;*\n", "no value with its labels", "line 2"),
        (b"a;x;*\nsecret;x;*\na;x;*\n", "two lines", "line 3"),
        (b"a;x;*\nsecret\xe9;x;*\n", "another encoding", "line 2"),
        (b"a;x;*\nsecret\0;x;*\n", "NUL", "line 2"),
        (b'a;x;*\nsecret;"x;*\n', "cannot be read as CSV", "line 2"),
    ],
)
def test_refuses(tmp_path: Path, text: bytes, message: str, detail: str) -> None:
    path = tmp_path / "tree.csv"
    path.write_bytes(text)
    with pytest.raises(InvalidParameterError, match=message) as caught:
        read_hierarchy(path)
    assert detail in caught.value.detail
    assert caught.value.hint
    assert "secret" not in f"{caught.value.message} {caught.value.detail} {caught.value.hint}"


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_hierarchy(tmp_path / "none.csv")
    with pytest.raises(KanonError, match="cannot be read"):
        read_hierarchy(tmp_path)


def test_only_hierarchies_are_files(tmp_path: Path) -> None:
    path = tmp_path / "tree.csv"
    path.write_text("a;x\n")
    name = str(path)
    found = with_files({"source": name, "attributes": {"c": {"hierarchy": name, "weight": 2}}})
    assert found == {"source": name, "attributes": {"c": {"hierarchy": {"a": ["x"]}, "weight": 2}}}
    for attributes in (
        None,
        {},
        {"c": {"kind": name}},
        {"c": name},
        [name],
        {"c": {"hierarchy": 1}},
    ):
        given = {"source": name, "attributes": attributes}
        assert with_files(given) == given
