"""A table whose people come, leave and change, its publication, and what readers see of it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.integration.parties import (
    Functions,
    Parties,
    create_table,
    fetch,
    remains,
    value,
)

KINDS: dict[str, dict[str, Any]] = {
    "buckets": {"privacy": '{"theta": 3, "base": 0.05}', "assignment": "random"},
    "cells": {"privacy": '{"default": 0.5}'},
    "anatomy": {"privacy": '{"l": 2}', "method": "anatomy", "assignment": "random"},
    "m-invariant": {"privacy": '{"l": 2}', "assignment": "m_invariant"},
    "generalized": {"k": 4, "method": "mondrian", "refine": False},
    "diverse": {"k": 4, "method": "mondrian", "refine": False, "constraints": '{"l": 2}'},
    "left out": {"k": 4, "method": "mondrian", "refine": False, "max_suppressed": "0.05"},
    "freeform": {"k": 4, "options": '{"refine": false}'},
    "suppressed": {"k": 4},
}
"""Ways to publish, by names of their own."""

PUBLISH = {
    **dict.fromkeys(("cells", "anatomy", "m-invariant"), "buckets"),
    **dict.fromkeys(("diverse", "left out"), "generalized"),
}
NAMES = (f"grows{number}" for number in itertools.count())

Values = tuple[str | None, ...]


class Source:
    """A table that grows, and shrinks.

    Somebody new is known by when they came (`arrival`), or by who they are (`entity`). Where people
    stand alone, everybody has an age of their own, by which a reader finds them again.
    """

    def __init__(
        self,
        parties: Parties,
        n: int = 0,
        *,
        entity: str | None = "int",
        arrival: bool = False,
        alone: bool = False,
        n_values: int = 7,
    ) -> None:
        self.parties, self.name = parties, f"data.{next(NAMES)}"
        self.alone, self.n_values = alone, n_values
        self._draw = random.Random(n)  # noqa: S311  # made-up data
        self._ids = itertools.count(1000 if alone else 0)
        columns = f"id {entity or 'int'}, age int, sex text, sick text, came date"
        create_table(parties.publisher, self.name, columns, [])
        self.kanon = Functions(parties.publisher)
        self.kanon.register(
            self.name, ["age", "sex"], "sick", entity="id" if entity else None,
            arrival="came" if arrival else None,
        )  # fmt: skip
        self.add(n)

    def run(self, statement: str, *values: object) -> None:
        fetch(self.parties.publisher, statement.format(self.name), *values)

    def add(self, number: int, day: int = 0, *, ids: Sequence[Any] | None = None) -> None:
        """Add people, new ones or these, who came on a day."""
        draw = self._draw
        statement = f"COPY {self.name} FROM STDIN".encode()
        with self.parties.publisher.cursor() as cursor, cursor.copy(statement) as copy:
            for one in itertools.islice(self._ids, number) if ids is None else ids:
                age = one if self.alone else draw.randrange(18, 60)
                sick = draw.randrange(self.n_values)
                ill = f"ill {sick}" if sick or not self.alone else None
                copy.write_row([one, age, draw.choice("mf"), ill, f"2026-01-{1 + day:02}"])

    def leave(self, number: int) -> set[int]:
        """Delete some people; their ids."""
        here = [one for (one,) in fetch(self.parties.publisher, f"SELECT id FROM {self.name}")]
        gone = self._draw.sample(sorted(here), number)
        self.run("DELETE FROM {} WHERE id = ANY ($1::int[])", gone)
        return set(gone)

    def publish(self, kind: str, name: str = "grows", **given: Any) -> dict[str, Any]:
        function = f"publish_{PUBLISH.get(kind, kind)}"
        return self.kanon.call(function, self.name, name, **{**KINDS[kind], **given})

    def refresh(self, **given: Any) -> dict[str, Any]:
        return self.kanon.call("refresh", "grows", **given)

    def kept(self) -> int:
        """How many hashes the ledger has of the live publication."""
        found: int = value(
            self.parties.admin,
            "SELECT count(*) FROM kanon.release_entity AS e JOIN kanon.release AS r"
            " USING (release_id) WHERE r.name = 'grows' AND r.ended IS NULL",
        )
        return found

    def batches(self, what: str) -> list[int | None]:
        """What the ledger says of each batch."""
        found: list[int | None] = value(
            self.parties.publisher,
            "SELECT array(SELECT (b ->> $2::text)::int FROM jsonb_array_elements(batches) AS b)"
            " FROM kanon.releases WHERE source = $1::text",
            self.name,
            what,
        )
        return found

    def seen(self) -> dict[int, Values]:
        """What a reader sees: the values of everybody's bucket, by their age."""
        sat: dict[int, list[str | None]] = {}
        for bucket, sick, count in fetch(
            self.parties.analyst, "SELECT bucket_id, sick, count FROM published.grows_sat"
        ):
            assert count == 1
            sat.setdefault(bucket, []).append(sick)
        values = {bucket: tuple(sorted(of, key=str)) for bucket, of in sat.items()}
        rows = fetch(self.parties.analyst, "SELECT age, bucket_id FROM published.grows_qit")
        found = {age: values[bucket] for age, bucket in rows}
        assert len(found) == len(rows)
        return found

    def held(self) -> dict[int, str | None]:
        return dict(fetch(self.parties.publisher, f"SELECT age, sick FROM {self.name}"))

    def check_answers(self, conditions: Sequence[str], among: str = "") -> None:
        """All checks hold, and bounds contain the truth."""
        analyst = Functions(self.parties.analyst)
        assert [line for line in analyst.verify("grows") if not line[-1]] == []
        for where in conditions:
            count = f"SELECT count(*) FROM {among or self.name} WHERE {where}"
            truth = value(self.parties.publisher, count)
            asked = f"SELECT COUNT(*) FROM grows WHERE {where}"
            estimate, _, lower, upper = analyst.estimate(asked)
            assert lower <= truth <= upper
            assert lower - 1e-6 <= estimate <= upper + 1e-6


@pytest.fixture
def refused_by_default(parties: Parties) -> Iterator[None]:
    """Releases that can be set against others are refused, as where nothing is set.

    In the end all publications go, and nothing is kept of whom they were about.
    """
    fetch(parties.admin, "DELETE FROM kanon.setting WHERE name = 'combined_releases'")
    yield
    for name in Functions(parties.publisher).publications():
        Functions(parties.publisher).drop(name)
    assert remains(parties.admin) == []
    for table in ("release_entity", "release_key", "release_record"):
        assert value(parties.admin, f"SELECT count(*) FROM kanon.{table}") == 0
