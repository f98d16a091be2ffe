"""Hierarchies of values: nested labels, in an order in which each label's values stay together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanon_db.algorithms.recoding.microdata import Taxonomy
from kanon_db.catalog.attributes import MOST_CHARACTERS, MOST_VALUES, Hierarchy
from kanon_db.errors import InvalidParameterError, KanonError, NotFoundError
from kanon_db.interfaces.python import with_files
from kanon_db.query.layout import check_described
from kanon_db.transfer.csv_file import read_hierarchy


@st.composite
def trees(draw: st.DrawFn) -> dict[str, list[str]]:
    """A hierarchy: each label has one parent, drawn among a few."""
    n_levels = draw(st.integers(1, 4))
    names = [f"v{i}" for i in range(draw(st.integers(1, 12)))]
    labels: dict[str, list[str]] = {name: [] for name in names}
    for level in range(n_levels):
        below = {value: own[-1] if own else value for value, own in labels.items()}
        parents = {
            one: f"{'abcd'[level]}{draw(st.integers(0, 3))}" for one in sorted(set(below.values()))
        }
        for value in names:
            labels[value].append(parents[below[value]])
    return dict(draw(st.permutations(list(labels.items()))))


@given(trees())
def test_levels_are_nested(given_tree: dict[str, list[str]]) -> None:
    tree = Hierarchy.of(given_tree)
    assert sorted(tree.values) == sorted(given_tree)
    for level, labels in enumerate(tree.levels):
        for value, label in zip(tree.values, labels, strict=True):
            assert label == given_tree[value][level]
            first, last = tree.spans[label]
            assert set(tree.values[first : last + 1]) == {
                other for other, its in given_tree.items() if its[level] == label
            }
    assert Hierarchy.of(dict(sorted(given_tree.items()))) == tree


@given(trees(), st.data())
def test_the_lowest_label_covers_the_values(
    given_tree: dict[str, list[str]], data: st.DataObject
) -> None:
    tree = Hierarchy.of(given_tree)
    taxonomy = Taxonomy.of(tree.levels)
    n = len(tree.values)
    low = data.draw(st.integers(0, n - 1))
    high = data.draw(st.integers(low, n - 1))
    (level,) = taxonomy.levels_of(np.array([low]), np.array([high])).tolist()
    (first,), (last,) = taxonomy.spans_of(np.array([low]), np.array([high]))
    assert first <= low <= high <= last
    labels = [tree.values, *tree.levels]
    assert level == len(labels) or len(set(labels[level][low : high + 1])) == 1
    assert all(len(set(its[low : high + 1])) > 1 for its in labels[:level])
    (loss,) = taxonomy.losses_of(np.array([low]), np.array([high]))
    assert 0 <= loss <= 1
    assert (loss == 0) == (first == last)
    assert (np.diff(taxonomy.positions) > 0).all()


@given(trees())
def test_what_the_catalog_keeps(given_tree: dict[str, list[str]]) -> None:
    described = Hierarchy.of(given_tree).described
    text = check_described(described)
    assert text is not None
    assert json.loads(text) == described


GOOD: dict[str, Any] = {"a": ["x", "*"], "b": ["x", "*"], "c": ["y", "*"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c": ["y"]}, "different numbers of labels"),
        ({"c": []}, "1 to 20 labels"),
        ({"c": ["y"] * 21}, "1 to 20 labels"),
        ({"c": "y"}, "must be a list"),
        ({"c": None}, "must be a list"),
        ({"c": {"y": "*"}}, "must be a list"),
        ({"c": ["y", None]}, "must be texts"),
        ({"c": ["y", 1]}, "must be texts"),
        ({"c": ["y", ["*"]]}, "must be texts"),
        ({1: ["y", "*"]}, "must be texts"),
        ({"c": ["", "*"]}, "is empty"),
        ({"c": ["y\0", "*"]}, "NUL character"),
        ({"c": ["y" * (MOST_CHARACTERS + 1), "*"]}, "1,000 characters"),
        ({"c": ["x", "other"]}, "two wider ones"),  # not nested
        ({"c": ["a", "*"]}, "different values at different levels"),  # the label is another value
        ({"a": ["c", "*"], "c": ["a", "*"]}, "different values at different levels"),  # a cycle
        ({"c": ["*", "*"]}, "different values at different levels"),
        ({"c": ["y", "x"], "a": ["x", "x"], "b": ["x", "x"]}, "different values at different"),
        ({"*": ["y", "*"]}, "different values at different levels"),
        ({"c": ["y", "any"]}, "two wider ones|stands for anything"),
    ],
)
def test_what_is_no_hierarchy(change: dict[Any, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message) as caught:
        Hierarchy.of(GOOD | change)
    assert caught.value.hint
    assert "other" not in caught.value.detail


@pytest.mark.parametrize("given_tree", [None, [], "x.csv", {}, 5])
def test_no_object(given_tree: object) -> None:
    with pytest.raises(InvalidParameterError, match="must be a JSON object"):
        Hierarchy.of(given_tree)


def test_many_values() -> None:
    tree = Hierarchy.of({str(i): [str(i // 10) + "x", "*"] for i in range(MOST_VALUES)})
    assert Taxonomy.of(tree.levels).n_values == MOST_VALUES
    with pytest.raises(InvalidParameterError, match="too many values"):
        Hierarchy.of({str(i): ["*"] for i in range(MOST_VALUES + 1)})


def test_a_label_that_repeats_its_value_stands_for_it() -> None:
    tree = Hierarchy.of({"none": ["none", "any"], "BSc": ["degree", "any"]})
    assert tree.described == {
        "values": ["BSc", "none"],
        "labels": [["degree", 0, 0], ["any", 0, 1]],
    }


@pytest.mark.parametrize(
    "described",
    [
        None, [], {}, {"values": []}, {"values": ["a"]}, {"values": "a", "labels": []},
        {"values": ["a"], "labels": [["x", 0, 1]]}, {"values": ["a"], "labels": [["x", -1, 0]]},
        {"values": ["a"], "labels": [["x", 0]]}, {"values": ["a"], "labels": [["a", 0, 0]]},
        {"values": ["a"], "labels": [["*", 0, 0]]}, {"values": ["a"], "labels": [[1, 0, 0]]},
        {"values": ["a"], "labels": [["x", True, 0]]}, {"values": ["a", "a"], "labels": []},
    ],
)  # fmt: skip
def test_what_the_catalog_should_not_have(described: object) -> None:
    assert check_described(described) is None


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
