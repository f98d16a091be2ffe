"""Hostile arguments of every operation: by their declared types, and against them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from kanon_db.declaration import Operation, Parameter, parameters_of
from kanon_db.operations import operations
from tests.hostile_input.queries import LETTERS, Queries
from tests.hostile_input.tables import PUBLICATIONS, QUASI_IDENTIFIERS

NAMES: Final = (
    "new", "other", *PUBLICATIONS, "select", "a b", 'a"b', "a.b", "%s", "é", "$$", "x" * 59, "X",
    "kanon", "published", "pg_class", "ill_qit", "--", ";", "{}", "'", "new\n", "_", "0",
)  # fmt: skip
SOURCES: Final = (
    "data.people", "data.patients", "data.spare", "data.people", '"data"."people"', "people",
    "data.nothing", "published.ill", "kanon.source", "pg_catalog.pg_class", "data.regions", "16384",
    "-", "a.b.c.d", "data.people; DROP TABLE data.people", 'data."pe""ople"',
)  # fmt: skip
COLUMNS: Final = (*QUASI_IDENTIFIERS, "illness", "cost", "nothing", "ctid", "Age", 'a"b', "")
NUMBERS: Final = (
    0, 1, 2, 3, 5, 10, -1, 2**31 - 1, 2**31, 2**63, 10**22, 0.0, 0.02, 0.5, 1.0, 1.5, -0.0, 1e-300,
    1e308, float("inf"), float("nan"), "0.5", "1/3", "1/0", "1e400", "1e-400", "NaN", "-1", "x", "",
    "1" * 41, "0x1", " 1", "1_0", "\uff11", True, None,
)  # fmt: skip
TEXTS: Final = (
    "", " ", "x", "null", "true", "{}", "[]", "{", '"', "'", "\\", "\0", "a\0b", "\ud800", "\udfff",
    "é\u202e", "\u2028", "'; DROP TABLE data.people; --", "$function$", "$python$", "%s", "{0}",
    "x" * 1000, "é" * 200, "x" * 100_000, '{"l": 2, "l": 3}', "[" * 3000 + "]" * 3000, "NaN",
    '{"l": NaN}', '{"l": 1' + "0" * 5000 + "}", '{"l": 1e999999999}', "\ufeff{}", "/*", "1;2",
)  # fmt: skip


MEANT: Final[Mapping[str, list[Any]]] = {
    "source": ["data.people", "data.patients", "data.spare"],
    "relation": ["data.people", "data.patients", "published.ill"],
    "publication": ["new", "other", "ill", 'a"b'],
    "name": list(PUBLICATIONS),
    "quasi_identifiers": [list(QUASI_IDENTIFIERS), ["age", "sex"], ["zip"]],
    "sensitive": ["illness", "cost", None],
    "identifiers": [[], ["height"]],
    "insensitive": [[], ["cost"]],
    "attributes": [{"age": {"kind": "numeric", "lower": 0, "upper": 10**6}}, {}],
    "entity": [None],
    "privacy": [{"l": 2}, {"default": 0.6}, {"theta": 2, "base": 0.1, "cap": 0.7}, {"l": "3/2"}],
    "max_bucket_size": [50, 10, 3],
    "weights": [{"age": 0.5}, {"sex": 2, "zip": "1/3"}, {}],
    "constraints": [{"l": 2}, {"t": 0.5, "distance": "ordered"}, {"entropy_l": 1.5}],
    "max_suppressed": [0, 0.1, "0.05"],
    "patterns": [None, [".......", "*......", "*******"], ["*******"]],
    "rules": [None, [{"at_most": 2}], [{"never": ["age"]}, {"outliers": "suppress"}]],
    "readers": [["kanon_analyst"], ["public"], []],
    "accept": [{"uninformed_reader": "a test"}, {"left_over_records": "a test"}, {}],
    "queries": [5, 50],
    "dimensionality": [[1], [1, 2]],
    "selectivity": [[0.1], [0.5, 1.0]],
    "seed": [1],
    "time_limit": [0.3],
    "bubble": [[12, 2]],
}
"""Values that somebody could mean."""


class Odd:
    """An object of Python's that is no value."""


def containing_itself() -> list[Any]:
    """A list without an end."""
    found: list[Any] = []
    found.append(found)
    return found


class Arguments:
    """An endless supply of operations with arguments; the same seed draws the same ones."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)  # noqa: S311  # to be drawn again
        self._queries = iter(Queries(seed))
        self._operations = list(operations().values())
        self._by_name: Mapping[str, Callable[[], Any]] = {
            "source": lambda: self.one(SOURCES),
            "publication": lambda: self.one(NAMES),
            "name": lambda: self.one(NAMES),
            "query": lambda: next(self._queries).text,
            "sensitive": lambda: self.one([*COLUMNS, "illness", "illness", "cost"]),
            "entity": lambda: self.one([None, None, *COLUMNS]),
            "readers": lambda: self.names(["kanon_analyst", "kanon_publisher", "public", "nobody"]),
            "k": lambda: self.one([2, 2, 3, 3, 5, 60, 61, *NUMBERS]),
            "privacy": self.privacy,
            "constraints": self.constraints,
            "attributes": self.attributes,
            "rules": self.rules,
            "patterns": lambda: self.names(["*******", ".......", "*.*.*.*", "...", "", "é......"]),
            "accept": lambda: {
                self.one(["uninformed_reader", "left_over_records", "x", ""]): self.one(
                    ["it is a test", "", " ", "\x1b[2J", None, 3, "x" * 2000]
                )
            },
        }

    def __iter__(self) -> Iterator[tuple[Operation, dict[str, Any]]]:
        while True:
            operation = self.one(self._operations)
            declared = operation.parameters
            given = {item.name: self.meant(item) for item in declared
                     if item.is_required or self.often(0.3)}  # fmt: skip
            n_wrong = self.one([0, 0, 1, 1, 1, len(declared)])
            for item in self._draw.sample(declared, min(n_wrong, len(declared))):
                given[item.name] = self.wrong(item)
            if self.often(0.03) and given:
                del given[self.one(list(given))]
            if self.often(0.03):
                given[self.one(["unknown", "self", "", "name", "a b", "k"])] = self.anything()
            self._hurry(operation, given)
            yield operation, given

    def _hurry(self, operation: Operation, given: dict[str, Any]) -> None:
        """Let no search go on for the minute that is the default, if it has a limit at all."""
        for item in operation.parameters:
            if item.type.options is not None:
                (limit,) = (o for o in parameters_of(item.type.options) if o.name == "time_limit")
                asked = given.setdefault(item.name, {})
                is_its = not limit.methods or given.get("method") in limit.methods
                if isinstance(asked, dict) and is_its:
                    asked.setdefault("time_limit", 0.3)

    # -- draws --------------------------------------------------------------------------------

    def one(self, choices: Any) -> Any:
        return self._draw.choice(choices)

    def often(self, share: float) -> bool:
        return self._draw.random() < share

    def some(self, draw: Callable[[], Any], most: int) -> list[Any]:
        return [draw() for _ in range(self._draw.randrange(most + 1))]

    def names(self, choices: Any) -> list[Any]:
        found = self.some(lambda: self.one(choices), 3)
        return [*found, None] if self.often(0.05) else found

    def meant(self, item: Parameter) -> Any:
        """A value that somebody could mean."""
        type_ = item.type
        if item.name in MEANT:
            return self.one(MEANT[item.name])
        if item.name == "query":
            return next(self._queries).text
        if type_.options is not None:
            found = {option.name: self.meant(option) for option in parameters_of(type_.options)}
            return {name: found[name] for name in found if self.often(0.1)}
        if type_.choices:
            return self.one(list(type_.choices))
        return self.one({"boolean": [True, False]}.get(type_.sql, [2]))

    def wrong(self, item: Parameter) -> Any:
        """A value as declared or nearly, one with anything inside it, or anything."""
        if self.often(0.5):
            return self.value(item)
        return self.poisoned(self.value(item)) if self.often(0.5) else self.anything()

    def poisoned(self, value: Any) -> Any:
        """Put anything in place of a value, or of a part of it."""
        if isinstance(value, dict) and value and self.often(0.8):
            key = self.one(list(value))
            part = self.poisoned(value[key])
            return {**value, key: part} if self.often(0.8) else {**value, self.one(TEXTS): part}
        if isinstance(value, list) and value and self.often(0.8):
            at = self._draw.randrange(len(value))
            return [*value[:at], self.poisoned(value[at]), *value[at + 1 :]]
        return self.anything()

    def value(self, item: Parameter) -> Any:
        """A value as declared, or nearly."""
        type_ = item.type
        if item.name in self._by_name:
            return self._by_name[item.name]()
        if type_.options is not None:
            return self.options(type_.options)
        if type_.choices:
            return self.one(
                [*type_.choices, *type_.choices, "", "x", next(iter(type_.choices)) + " "]
            )
        match type_.sql:
            case "boolean":
                return self.one([True, False, True, False, None, "true", 1])
            case "text[]":
                return self.names(COLUMNS)
            case "integer[]" | "double precision[]":
                return self.some(lambda: self.one(NUMBERS), 3)
            case "jsonb":
                return {
                    self.one(COLUMNS): self.one(NUMBERS) for _ in range(self._draw.randrange(4))
                }
            case "text" | "regclass":
                return self.one(TEXTS)
        return self.one(NUMBERS)

    def options(self, declared: type) -> dict[str, Any]:
        items = parameters_of(declared)
        found = {item.name: self.value(item) for item in items if self.often(0.3)}
        if self.often(0.1):
            found[self.one(["time_limt", "", "x"])] = self.anything()
        if self.often(0.8) and "time_limit" in found:
            found["time_limit"] = 0.3
        return found

    def privacy(self) -> Any:
        keys = ["theta", "base", "default", "l", "null", "cap", "values", "x"]
        if self.often(0.5):
            return self.one([{"l": 2}, {"default": 0.6}, {"theta": 2, "base": 0.1, "cap": 0.7},
                             {"default": "2/3", "values": {"flu": 0.5}}, {"l": "2.5"}])  # fmt: skip
        found = {self.one(keys): self.one(NUMBERS) for _ in range(self._draw.randrange(4))}
        if self.often(0.3):
            found["values"] = {self.one(["flu", "cold", "", "nothing"]): self.one(NUMBERS)}
        return found

    def constraints(self) -> Any:
        keys = ["l", "entropy_l", "t", "distance", "default", "theta", "cap", "values", "x"]
        found = {self.one(keys): self.one(NUMBERS) for _ in range(self._draw.randrange(3))}
        return self.one(
            [{"l": 2}, {"t": 0.5, "distance": "ordered"}, {"entropy_l": 1.5}, found, found]
        )

    def attributes(self) -> Any:
        keys = ["kind", "lower", "upper", "weight", "x"]
        texts = ["numeric", "categorical", "2020-01-01", "infinity", "now"]
        return {
            self.one(COLUMNS): {
                self.one(keys): self.one([*NUMBERS, *texts]) for _ in range(self._draw.randrange(4))
            }
            for _ in range(self._draw.randrange(3))
        }

    def rules(self) -> Any:
        words = ["at_most", "never", "outliers", "at_least", "together", "x"]
        values = [*NUMBERS, ["age"], ["age", "sex"], ["nothing"], "suppress", [], [[]], {}, [None]]
        return self.some(lambda: {self.one(words): self.one(values)}, 3)

    def anything(self) -> Any:
        """Any object, of JSON or not."""
        depth = self.one([1, 3, 500, 3000])
        return self.one([
            *NUMBERS, *TEXTS, self.one(LETTERS), 10**5000, Decimal("0.5"), Decimal("sNaN"),
            Decimal("Infinity"), Decimal("1e9999999"), Fraction(1, 3), complex(1, 1), b"x", {1, 2},
            Odd(), Odd, containing_itself(), [], [None], [[]], [""], ["age", None], ["age"] * 300,
            {}, {"": 1}, {1: 2}, {None: None}, {"age": {"kind": "numeric"}}, {"l": {"l": 2}},
            nested(depth, list), nested(depth, dict), (1, 2), range(3), iter([1]), list(range(300)),
            {str(i): i for i in range(300)},
        ])  # fmt: skip


def nested(depth: int, kind: type) -> Any:
    """Lists or objects inside each other."""
    found: Any = 1
    for _ in range(depth):
        found = [found] if kind is list else {"a": found}
    return found


def as_json(value: Any) -> str:
    """A value as JSON, or as something that nearly is; Python's own objects as their names."""
    try:
        return json.dumps(value, default=repr, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "[" * 2000
