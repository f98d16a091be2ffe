"""Dataclasses that are not compiled behave as those of the standard library."""

from __future__ import annotations

import ast
import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, replace
from pathlib import Path
from typing import Any

import pytest

import kanon_db
from kanon_db.dataclass import dataclass

Declare = Callable[..., Any]


def declare(dataclass: Declare) -> dict[str, Any]:
    """Declare the same classes by one of the two decorators."""

    @dataclass(frozen=True)
    class Empty:
        """Has no fields."""

    @dataclass(frozen=True)
    class One:
        """Has one field."""

        value: object

    @dataclass(frozen=True)
    class Filled:
        """Has defaults, some of them made for each object, and what is neither shown nor equal."""

        name: str
        size: int = 3
        parts: list[int] = field(default_factory=list, hash=None, compare=False)
        hidden: str = field(default="x", repr=False, kw_only=True)

    @dataclass(frozen=True)
    class Longer(Filled):
        """Has a field more than its base, and completes what it was given."""

        last: float = 0.5

        def __post_init__(self) -> None:
            object.__setattr__(self, "size", self.size + 1)

    @dataclass(frozen=True, kw_only=True)
    class Named:
        """Takes names only."""

        first: int
        second: int = 2

    @dataclass(frozen=True, eq=False)
    class Itself:
        """Is equal to itself only."""

        value: int

    @dataclass(frozen=True)
    class Own:  # noqa: PLW1641  # a dataclass has one
        """Compares and shows itself."""

        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __repr__(self) -> str:
            return "own"

    return {name: item for name, item in locals().items() if name != "dataclass"}


OURS, THEIRS = declare(dataclass), declare(dataclasses.dataclass)
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Empty", (), {}), ("Empty", (1,), {}),
    ("One", (1,), {}), ("One", ((1, 2),), {}), ("One", (), {"value": 1}), ("One", (), {}),
    ("One", (1,), {"value": 2}), ("One", (1, 2), {}), ("One", (), {"worth": 1}),
    ("One", (1,), {"self": 1}),
    ("Filled", ("a",), {}), ("Filled", ("a", 4), {"hidden": "y"}), ("Filled", ("a", 3, [1]), {}),
    ("Filled", ("a", 3, [2], "z"), {}), ("Filled", (), {"size": 3, "name": "a"}),
    ("Filled", (), {"size": 3}), ("Filled", ("a", 3), {"size": 3}), ("Filled", ("a",), {"siz": 3}),
    ("Longer", ("a", 3, [], 0.25), {}), ("Longer", ("a",), {"last": 1.0}),
    ("Named", (), {"first": 1}), ("Named", (1,), {}), ("Named", (1,), {"first": 1}),
    ("Named", (), {"second": 1, "first": 2}), ("Named", (), {}),
    ("Itself", (1,), {}), ("Own", (1,), {}), ("Own", (2,), {}),
]  # fmt: skip


def make(classes: dict[str, Any]) -> list[Any]:
    """Make an object by each call; None where it is refused."""
    made = []
    for name, values, named in CALLS:
        try:
            made.append(classes[name](*values, **named))
        except TypeError:
            made.append(None)
    return made


def test_what_is_given_is_kept_or_refused() -> None:
    ours, theirs = make(OURS), make(THEIRS)
    assert theirs.count(None) == 13
    for one, other in zip(ours, theirs, strict=True):
        assert repr(one) == repr(other)
        if one is not None:
            assert vars(one) == vars(other)
            assert dataclasses.asdict(one) == dataclasses.asdict(other)


def test_what_is_equal_is_equal_and_has_one_hash() -> None:
    ours, theirs = ([*make(classes), *make(classes)] for classes in (OURS, THEIRS))
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert [one == item for item in ours] == [other == item for item in theirs]
        if CALLS[place % len(CALLS)][0] not in {"Itself", "Own"}:
            assert hash(one) == hash(other)
    own = OURS["Own"]
    assert own(1) == own(2)
    assert hash(own(1)) != hash(own(2))
    with pytest.raises(TypeError):
        hash(OURS["One"]([]))


def test_nothing_changes() -> None:
    made = OURS["Longer"]("a")
    for change in (lambda: setattr(made, "size", 1), lambda: setattr(made, "new", 1),
                   lambda: delattr(made, "size")):  # fmt: skip
        with pytest.raises(FrozenInstanceError):
            change()
    assert replace(made, last=2.0) == OURS["Longer"]("a", 4, [], 2.0)
    assert OURS["Longer"]("a").parts is not made.parts
    assert copy.deepcopy(made) == made
    assert [f.name for f in dataclasses.fields(made)] == ["name", "size", "parts", "hidden", "last"]


@dataclass(frozen=True)
class Sent:
    """Goes to another process."""

    value: int


def test_a_dataclass_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Sent(1))) == Sent(1)  # noqa: S301  # its own


def test_there_is_one_decorator() -> None:
    package = Path(kanon_db.__file__).parent
    found = [
        path.name
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if any(item.name == "dataclass" for item in node.names)
    ]
    assert found == []
