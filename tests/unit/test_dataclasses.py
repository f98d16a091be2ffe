"""The package's dataclasses are Python's, but compiled later."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from kanon_db.dataclasses import dataclass

PACKAGE = Path(__file__).parents[2] / "kanon_db"
DECLARED = """
@declare(frozen=True)
class Point:
    "A place."
    x: int
    y: int = 2
    tags: list[str] = dataclasses.field(default_factory=list, compare=False)

@declare(frozen=True, kw_only=True)
class Named(Point):
    name: str = dataclasses.field(default="a", repr=False)

@declare(eq=False)
class Counter:
    n: int = 0
    double: int = dataclasses.field(init=False)

    def __post_init__(self):
        self.double = 2 * self.n

class Plain(Point):
    pass
"""


def declare(decorator: Any) -> Any:
    """Make the classes with a decorator; nobody has made an object yet."""
    names: dict[str, Any] = {"declare": decorator, "dataclasses": dataclasses, "__name__": __name__}
    exec(DECLARED, names)  # noqa: S102  # the text above, with either decorator
    return type("Classes", (), names)


def frozen(point: Any) -> str:
    with pytest.raises(dataclasses.FrozenInstanceError) as error:
        point.x = 5
    return str(error.value)


SEEN: dict[str, Callable[[Any], object]] = {
    "objects": lambda of: (repr(of.Point(1)), of.Point(1, y=3).y, repr(of.Named(1, name="b"))),
    "equality": lambda of: (of.Point(1) == of.Point(1, 2, ["b"]), of.Point(1) == of.Named(1)),
    "hashes": lambda of: hash(of.Point(1, 2)) == hash(of.Point(1, 2, ["c"])),
    "identity": lambda of: (of.Counter() == of.Counter(), of.Counter(4).double),
    "fields": lambda of: [field.name for field in dataclasses.fields(of.Named)],
    "names": lambda of: (of.Named.__match_args__, of.Point.__match_args__),
    "is one": lambda of: [dataclasses.is_dataclass(one) for one in (of.Plain, of.Named, of)],
    "signature": lambda of: [inspect.signature(one) for one in (of.Point, of.Named, of.Counter)],
    "replacing": lambda of: repr(dataclasses.replace(of.Named(1, name="b"), x=3)),
    "content": lambda of: (dataclasses.asdict(of.Plain(1)), dataclasses.astuple(of.Named(1))),
    "subclass": lambda of: (repr(of.Plain(4)), of.Plain(4) == of.Plain(4)),
    "frozen": lambda of: (frozen(of.Plain(4)), frozen(of.Point(4))),
    "copies": lambda of: copy.deepcopy(of.Point(1)) == copy.copy(of.Point(1)),
    "own tags": lambda of: of.Point(1).tags is of.Point(1).tags,
}


@pytest.mark.parametrize("what", SEEN)
def test_they_are_what_pythons_are(what: str) -> None:
    seen = SEEN[what]
    assert seen(declare(dataclass)) == seen(declare(dataclasses.dataclass))


def test_what_was_pickled_is_whole_where_nobody_has_made_another() -> None:
    classes = declare(dataclass)
    one = classes.Point.__new__(classes.Point)  # as pickle makes it
    vars(one).update(x=1, y=2, tags=[])
    assert one == classes.Point(1)
    assert frozen(one)


def test_nothing_is_compiled_before() -> None:
    classes = declare(dataclass)
    assert "__init__" not in vars(classes.Point)
    classes.Named(1)
    assert "__init__" in vars(classes.Point)
    assert "__init__" not in vars(classes.Counter)


def test_first_objects_are_made_in_several_threads() -> None:
    made: list[Any] = []
    at_once = Barrier(4)

    def make(one: Any) -> None:
        at_once.wait()
        made.append(one(1, 3))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            threads = [Thread(target=make, args=(one,)) for one in [declare(dataclass).Point] * 4]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert [one.y for one in made] == [3] * 80


def test_the_package_has_no_others() -> None:
    """Else a session's first estimate would wait for each that is added."""
    others = [
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and node.module == "dataclasses"
        and "dataclass" in {name.name for name in node.names}
    ]
    assert others == ["dataclasses.py"]  # where only mypy reads it
