"""Publishing a model and asking it, in all three ways."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from kanon_db.errors import ServerError
from kanon_db.installation.install import install, uninstall
from kanon_db.models._votes import epsilon_after, epsilon_of_answers
from tests.acceptance.commands import kanon as command
from tests.attacks.models import BUDGET, GIVEN, ROW, ask, asked, create_people, publish
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    create_table,
    fetch,
    sqlstate_of,
    value,
)
from tests.migration.test_restore import restored, run
from tests.profiles import long_but


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    create_people(parties.publisher, n=400)


pytestmark = pytest.mark.usefixtures("nothing_left")
GOOD = {"members": 5, "options": '{"steps": 150}'}


@pytest.mark.long
@pytest.mark.parametrize("method", long_but(["disjoint"], ["disjoint", "all"]))
def test_it_tells_what_it_learned(parties: Parties, method: str) -> None:
    """The older ones are sick; values that it does not know are taken for others."""
    published = publish(parties.publisher, "m", method=method, **GOOD)
    assert published["records"] == 400
    assert published["metrics"]["vote_accuracy"] > 0.9
    for age, label in ((5, "no"), (20, "no"), (60, "yes"), (79, "yes"), (200, "yes"), (-9, "no")):
        for sex in ("f", "m", None, "x"):
            found = Functions(parties.analyst).call(
                "classify", "m", json.dumps({"age": age, "sex": sex})
            )
            assert found["label"] == label, (age, sex)
            assert found["agreement"] > 0.5
    assert all(holds for *_, holds in Functions(parties.analyst).verify("m"))


@pytest.mark.long
def test_all_ways_ask_the_same(parties: Parties) -> None:
    """SQL, Python and the command line, which trains in its own process."""
    publisher, analyst = (
        make_conninfo(parties.dsn, user=one.info.user)
        for one in (parties.publisher, parties.analyst)
    )
    given = {
        name: text if isinstance(text, str) else ",".join(map(str, text))
        for name, text in {**GIVEN, **GOOD}.items()
        if name != "members"
    }
    options = [word for name, text in given.items() for word in (f"--{name}", text)]
    done = command(
        "publish", "model", "data.people", "m", "--members", 5, "--input-noise", 0,
        *options, "--json", dsn=publisher,
    )  # fmt: skip
    assert done.json()["name"] == "m", done.stderr
    expected = {"label": "yes", "agreement": 1.0, "logits": None, "answers_left": None}
    assert Functions(parties.analyst).call("classify", "m", json.dumps(ROW)) == expected
    found = Package(parties.analyst).kanon.classify("m", ROW)
    assert (found.label, found.agreement) == ("yes", 1.0)
    assert command("classify", "m", json.dumps(ROW), "--json", dsn=analyst).json() == expected
    assert "yes" in command("classify", "m", json.dumps(ROW), dsn=analyst).stdout
    asked = [ROW, {**ROW, "age": 3}]
    for rows_asked in (asked, pd.DataFrame(asked, index=[7, 5])):
        frame = Package(parties.analyst).kanon.classify_all("m", rows_asked)
        assert list(frame["label"]) == ["yes", "no"]
    rows = command("classify-all", "m", json.dumps([ROW] * 3), "--json", dsn=analyst).json()
    assert [row["position"] for row in rows["rows"]] == [1, 2, 3]


@pytest.mark.long
def test_images(parties: Parties) -> None:
    """An array with a shape of height and width gets the network for images."""
    rows = []
    generator = np.random.default_rng(1)
    for i in range(80):
        pixels = generator.integers(0, 4, (6, 6))
        pixels[(i % 2) * 3 : (i % 2) * 3 + 3] += 12
        rows.append((i, "{" + ",".join(map(str, pixels.ravel())) + "}", "ab"[i % 2]))
    create_table(parties.publisher, "data.images", "id int, pixels real[], letter text", rows)
    Functions(parties.publisher).register("data.images", ["id"], "letter", insensitive=["pixels"])
    features = '{"pixels": {"shape": [6, 6], "lower": 0, "upper": 15}}'
    Functions(parties.publisher).call(
        "publish_model", "data.images", "m",
        **{**GIVEN, "label": "letter", "labels": None, "features": features, "method": "all",
           "members": 3, "options": '{"steps": 100}'},
    )  # fmt: skip
    for _, pixels, letter in rows[:6]:
        row = {"pixels": json.loads(pixels.replace("{", "[").replace("}", "]"))}
        assert Functions(parties.analyst).call("classify", "m", json.dumps(row))["label"] == letter
        nested = {"pixels": [row["pixels"][i : i + 6] for i in range(0, 36, 6)]}
        found = Functions(parties.analyst).call("classify", "m", json.dumps(nested))
        assert found["label"] == letter
    for wrong in ([], [1, 2], None, ["a"] * 36):
        call = lambda: Functions(parties.analyst).call(
            "classify", "m", json.dumps({"pixels": wrong})
        )
        assert sqlstate_of(call) == (None if wrong is None else "22023")


@pytest.mark.long
def test_several_records_of_a_person_are_in_one_part(parties: Parties) -> None:
    """The guarantee is of people, and says so."""
    rows = [(i // 7, i % 50, "yes" if i % 50 > 25 else "no") for i in range(350)]
    create_table(parties.publisher, "data.visits", "person int, age int, sick text", rows)
    Functions(parties.publisher).register("data.visits", ["age"], "sick", entity="person")
    given = {**GIVEN, "features": None, "labels": None, "budget": BUDGET}
    call = lambda **more: Functions(parties.publisher).call(
        "publish_model", "data.visits", "m", **{**given, **more}
    )
    guarantee = call()["guarantee"]
    assert "differential privacy of one person" in guarantee
    assert sqlstate_of(lambda: call(members=51, replace=True)) == "22023"
    refresh = lambda: Functions(parties.publisher).call("refresh", "m")
    assert sqlstate_of(refresh) == "22023"


def test_the_cost_is_verified_by_a_formula_of_its_own() -> None:
    """It agrees with the library that found the number of answers, and is no higher."""
    for answers, noise in ((1, 4), (13, 6), (200, 40), (5000, 200)):
        library = epsilon_after(answers, 1e-5, noise)
        assert 0.97 * library <= epsilon_of_answers(answers, 1e-5, noise) <= library * (1 + 1e-5)


@pytest.mark.long
def test_without_the_extra(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishing says what to install, before anything is read; answering needs none of it."""
    publish(parties.publisher, "m", **GOOD)
    hidden = ("jax", "jaxlib", "optax", "dp_accounting")
    real = builtins.__import__

    def hide(name: str, *arguments: Any, **given: Any) -> Any:
        if name.split(".")[0] in hidden:
            raise ImportError(name)
        return real(name, *arguments, **given)

    for name in list(sys.modules):
        if name.split(".")[0] in hidden:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", hide)
    monkeypatch.setattr("kanon_db.models.methods.find_spec", lambda _name: None)
    with pytest.raises(ServerError, match="packages that are not installed") as refused:
        Package(parties.publisher).kanon.publish_model("data.people", "n", **GIVEN)
    assert "kanon_db[models]" in refused.value.hint
    assert Package(parties.analyst).kanon.classify("m", ROW).label == "yes"


@pytest.mark.long
def test_what_was_asked_outlives_a_restore_and_the_model(
    parties: Parties, new_role: Callable[..., str], new_database: Callable[..., str]
) -> None:
    """The owner gets back what counts answers, and readers are found; the ledger keeps the rest."""
    role = new_role("kanon_analyst")
    publish(parties.publisher, "m", budget=BUDGET, readers=[role])
    dumped = run("pg_dump", f"--dbname={parties.dsn}", "--no-owner")
    name = f"kanon_restored_{role[-8:]}"
    new = restored(parties.dsn, dumped, name)
    try:
        install(new)
        with (
            psycopg.connect(new, autocommit=True) as admin,
            psycopg.connect(make_conninfo(new, user=role), autocommit=True) as reader,
        ):
            assert ask(reader, "m", 2)[0]["answers_left"] == 11
            assert asked(admin, "m") == {role: 2}
        with psycopg.connect(new, autocommit=True) as admin:
            fetch(admin, "DROP SCHEMA data CASCADE")
        uninstall(new, drop_publications=True)
        with psycopg.connect(new, autocommit=True) as admin:
            left = "SELECT count(*) FROM pg_class WHERE relkind = 'S'"
            assert value(admin, left) == 0
    finally:
        fetch(parties.admin, f"DROP DATABASE {name} WITH (FORCE)")
    with psycopg.connect(make_conninfo(parties.dsn, user=role), autocommit=True) as reader:
        ask(reader, "m", 4)
    Functions(parties.publisher).drop("m")
    ledger = "SELECT state, budgets FROM kanon.releases ORDER BY release_id DESC LIMIT 1"
    spent = {"role": role, "epsilon": 4, "delta": 1e-05, "noise": 6, "answers": 13, "asked": 4}
    assert fetch(parties.publisher, ledger) == [("dropped", [spent])]
