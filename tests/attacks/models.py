"""A small model with a budget, for tests that attack it."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.parties import Connection, Functions, create_table, fetch, value

BUDGET = '{"epsilon": 4, "delta": 0.00001, "noise": 6}'
ANSWERS = 13
"""What this budget pays for."""

FEATURES = '{"age": {"lower": 0, "upper": 80}, "sex": {"values": ["f", "m"]}}'
ROW = {"age": 60, "sex": "f"}
ACCEPTED = '{"model_without_budget": "it is a test", "combined_releases": "it is a test"}'
GIVEN: dict[str, Any] = {
    "label": "sick",
    "features": FEATURES,
    "labels": ["no", "yes"],
    "members": 4,
    "options": '{"steps": 20}',
    "accept": ACCEPTED,
}


def create_people(publisher: Connection, table: str = "data.people", n: int = 80) -> None:
    """Create and register people, of whom the older ones are sick."""
    rows = [
        (i, f"name canary {i}", i * 7 % 80, "fm"[i % 2], "yes" if i * 7 % 80 > 40 else "no")
        for i in range(n)
    ]
    create_table(publisher, table, "id int, name text, age int, sex text, sick text", rows)
    Functions(publisher).register(table, ["age", "sex"], "sick", ["name"])


def publish(publisher: Connection, name: str, **given: Any) -> dict[str, Any]:
    """Publish a model of the people."""
    return Functions(publisher).call("publish_model", "data.people", name, **{**GIVEN, **given})


def ask(connection: Connection, name: str, n: int = 1) -> list[dict[str, Any]]:
    """Ask about as many rows."""
    return Functions(connection).rows("classify_all", name, json.dumps([ROW] * n))


def question(name: str, n: int = 1) -> str:
    """Write the question as SQL."""
    return f"SELECT * FROM kanon.classify_all('{name}', '{json.dumps([ROW] * n)}')"


def asked(admin: Connection, name: str) -> dict[str, int]:
    """How many answers each reader role has got, by its name, as the server counts them."""
    rows = fetch(
        admin,
        "SELECT b.role_name, kanon.counted(b) FROM kanon.budget AS b"
        " JOIN kanon.release AS r ON r.release_id = b.release_id"
        " JOIN kanon.publication AS p ON p.publication_id = r.publication_id"
        " WHERE p.name = $1::text",
        name,
    )
    return dict(rows)


def ask_anew(admin: Connection, name: str) -> None:
    """Let a superuser, and nobody else, give a model its whole budget again."""
    for (counter,) in fetch(
        admin,
        "SELECT kanon.counter_name(b) FROM kanon.budget AS b"
        " JOIN kanon.release AS r ON r.release_id = b.release_id"
        " JOIN kanon.publication AS p ON p.publication_id = r.publication_id"
        " WHERE p.name = $1::text",
        name,
    ):
        value(admin, "SELECT setval($1::text::regclass, 1, false)", counter)
