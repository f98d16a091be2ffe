"""Numbers and names at their limits are answered, or refused with a reason: never a defect.

Each test is named after the finding that it keeps from coming back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import psycopg
import pytest

import kanon_db
from kanon_db.errors import KanonError, ServerError
from tests.acceptance.commands import kanon as command
from tests.integration.parties import (
    Functions,
    Package,
    Parties,
    both_ways,
    create_table,
    fetch,
    holds,
    kanon,
    quoted,
    sqlstate_of,
    value,
)

__all__ = ["kanon"]

INVALID, UNSUPPORTED, READ_ONLY, DENIED, MISMATCH = "22023", "0A000", "25006", "42501", "42804"
PEOPLE = [
    (i, 20 + i % 9, ("C1", "c1", "C2", "C3")[i % 4], ("flu", "Flu", "hiv", "none")[i % 4])
    for i in range(160)
]
COLUMNS = "number int, age int, city {0}, sick {1}"
PRIVACY = '{"default": 0.6}'
QUICK = '{"time_limit": 2}'

Kanon = Functions | Package


@pytest.fixture(scope="module", autouse=True)
def people(parties: Parties) -> None:
    for table in ("data.people", "data.others"):
        create_table(parties.publisher, table, COLUMNS.format("text", "text"), PEOPLE)
    Functions(parties.publisher).register("data.people", ["age", "city"], "sick", ["number"])


@pytest.fixture
def published(kanon: Kanon) -> Kanon:
    """A publication of buckets, ``b``, and a generalized one, ``g``."""
    kanon.publish("data.people", "b", privacy=PRIVACY)
    kanon.generalize("data.people", "g", k=3, options=QUICK)
    return kanon


def counts(kanon: Kanon, query: str) -> list[tuple[Any, ...]]:
    if isinstance(kanon, Package):
        return list(kanon.kanon.count(query).itertuples(index=False, name=None))
    return fetch(kanon.connection, "SELECT * FROM kanon.estimate($1::text)", query)


@both_ways
def test_having_with_numbers_beyond_decimal(published: Kanon) -> None:
    ask = "SELECT city, COUNT(*) FROM {} GROUP BY city HAVING COUNT(*) {}"
    for name in ("b", "g"):
        for number in ("1e99999999999", "1e999999999999999999999999", "1e-99999999999", "1e131072"):
            for condition in (f"> 1 * {number}", f"< -{number}", f"BETWEEN 1 AND {number}"):
                query = ask.format(name, condition)
                assert sqlstate_of(lambda query=query: counts(published, query)) == UNSUPPORTED
        assert counts(published, ask.format(name, "> 1e131000" + " * 1e131000" * 20)) == []
        assert counts(published, ask.format(name, "> 1e400")) == []
        assert len(counts(published, ask.format(name, "< 1e400 - 1e399"))) == 4


@both_ways
def test_numeric_constants_beyond_doubles(published: Kanon) -> None:
    for name in ("b", "g"):
        ask = f"SELECT COUNT(*) FROM {name} WHERE age"
        assert published.estimate(f"{ask} < 1e400") == (160, 0, 160, 160)
        assert published.estimate(f"{ask} IN (-1e400, 1e400)") == (0, 0, 0, 0)
        too_large = f"{ask} > 1e99999999999"
        assert sqlstate_of(lambda too_large=too_large: published.estimate(too_large)) == UNSUPPORTED


@both_ways
@pytest.mark.parametrize("call", ["generalize", "freeform", "suppress"])
@pytest.mark.parametrize(
    "weight",
    ["1e400", '"1e400"', "1e13", "123456789012345678901234", '"x"', '"1/0"', "0", "-1", '"NaN"',
     "null", "true", "1" * 5000],
)  # fmt: skip
def test_weights_that_are_no_weights(kanon: Kanon, call: str, weight: str) -> None:
    publish: Callable[..., object] = getattr(kanon, call)
    weights = f'{{"age": {weight}}}'
    assert (
        sqlstate_of(lambda: publish("data.people", "p", k=3, weights=weights, dry_run=True))
        == INVALID
    )


@pytest.mark.parametrize(
    "weight",
    [pytest.param(10**6000, id="long"), float("inf"), float("nan"), Fraction(10**12), None],
)
def test_weights_of_python_that_are_no_weights(parties: Parties, weight: object) -> None:
    publish = Package(parties.publisher).kanon.publish_generalized
    call = lambda: publish("data.people", "p", k=3, weights={"age": weight}, dry_run=True)
    assert sqlstate_of(call) == INVALID


@pytest.mark.parametrize("weight", ["1e-30", "1e-12", "1e9"])
@pytest.mark.parametrize("call", ["generalize", "freeform"])
def test_smallest_and_largest_weights(parties: Parties, call: str, weight: str) -> None:
    publish: Callable[..., object] = getattr(Functions(parties.publisher), call)
    for weights in (f'{{"age": {weight}}}', f'{{"age": {weight}, "city": {weight}}}'):
        publish("data.people", "p", k=3, weights=weights, dry_run=True)


@both_ways
@pytest.mark.parametrize("l", [10**18, 10**22, 12345678901234567890123, 2**31])
def test_constraints_of_23_digits(kanon: Kanon, l: int) -> None:
    publish = lambda constraints: kanon.generalize(
        "data.people", "p", k=3, constraints=constraints, dry_run=True
    )
    assert sqlstate_of(lambda: publish(json.dumps({"l": l}))) == INVALID
    if isinstance(kanon, Package):
        for number in (l, 10**6000):
            constraints = {"l": number}
            assert sqlstate_of(lambda constraints=constraints: publish(constraints)) == INVALID
        assert sqlstate_of(lambda: publish({"entropy_l": 10**6000})) == INVALID


@both_ways
@pytest.mark.parametrize("constraints", ['{"l": null}', '{"entropy_l": null}', '{"t": null}'])
def test_constraint_of_null_is_no_constraint(kanon: Kanon, constraints: str) -> None:
    publish = lambda: kanon.generalize(
        "data.people", "p", k=3, constraints=constraints, dry_run=True
    )
    assert sqlstate_of(publish) == INVALID


def test_constraints_of_python_floats(parties: Parties) -> None:
    Package(parties.publisher).kanon.publish_generalized(
        "data.people", "p", k=3, constraints={"t": 0.5}, dry_run=True
    )


@both_ways
def test_read_only_transaction(published: Kanon) -> None:
    connection = published.connection
    fetch(connection, "SET default_transaction_read_only = on")
    try:
        writing: list[Callable[[], object]] = [
            lambda: published.publish("data.people", "p", privacy=PRIVACY),
            lambda: published.publish("data.people", "p", privacy=PRIVACY, dry_run=True),
            lambda: published.publish("data.people", "b", privacy=PRIVACY, replace=True),
            lambda: published.generalize("data.people", "p", k=3),
            lambda: published.freeform("data.people", "p", k=3),
            lambda: published.suppress("data.people", "p", k=3),
            lambda: published.register("data.others", ["age"], "sick"),
            lambda: published.evaluate("b"),
            lambda: published.attack("g"),
            lambda: published.drop("b"),
        ]
        for call in writing:
            with pytest.raises((KanonError, psycopg.Error), match="read-only") as refused:
                call()
            assert refused.value.sqlstate == READ_ONLY  # type: ignore[union-attr]
            assert "READ WRITE" in hint_of(refused.value)
        for name in ("b", "g"):
            assert all(holds for *_, holds in published.verify(name))
            assert published.metrics(name)
            assert published.estimate(f"SELECT COUNT(*) FROM {name}") == (160, 0, 160, 160)
    finally:
        fetch(connection, "RESET default_transaction_read_only")


def hint_of(error: BaseException) -> str:
    if isinstance(error, psycopg.Error):
        return error.diag.message_hint or ""
    assert isinstance(error, KanonError)
    return error.hint


@pytest.fixture
def materialized(parties: Parties) -> Iterator[None]:
    yield
    fetch(parties.publisher, "DROP MATERIALIZED VIEW IF EXISTS data.refreshed")


@pytest.mark.usefixtures("materialized")
@pytest.mark.parametrize(
    "call",
    [
        "publish_buckets('data.people', 'p', privacy => '{\"default\": 0.6}')",
        "publish_buckets('data.people', 'b', privacy => '{\"default\": 0.6}', replace => true)",
        "publish_generalized('data.people', 'p', k => 3)",
        "publish_freeform('data.people', 'p', k => 3)",
        "publish_suppressed('data.people', 'p', k => 3)",
        "evaluate_counts('b')",
        "attack('g')",
    ],
)
def test_refresh_of_a_materialized_view_that_publishes(
    parties: Parties, published: Kanon, call: str
) -> None:
    create = "CREATE MATERIALIZED VIEW data.refreshed AS SELECT * FROM kanon."
    refresh = "REFRESH MATERIALIZED VIEW data.refreshed"
    fetch(parties.publisher, f"{create}{call} WITH NO DATA")
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
        fetch(parties.publisher, refresh)
    assert "security-restricted" in str(refused.value.diag.message_primary)
    assert "REFRESH MATERIALIZED VIEW" in str(refused.value.diag.message_detail)
    assert sorted(published.publications()) == ["b", "g"]


@pytest.mark.usefixtures("materialized", "published")
@pytest.mark.parametrize(
    "call", ["verify('b')", "metrics('g')", "estimate_count('SELECT COUNT(*) FROM g')"]
)
def test_materialized_view_of_answers(parties: Parties, call: str) -> None:
    fetch(
        parties.publisher,
        f"CREATE MATERIALIZED VIEW data.refreshed AS SELECT * FROM kanon.{call}",
    )
    fetch(parties.publisher, "REFRESH MATERIALIZED VIEW data.refreshed")


@pytest.mark.parametrize("name", ["select", "bad name", 'a"b', "a.b", "%s", "Upper", "count", "é"])
@both_ways
def test_publications_with_odd_names(kanon: Kanon, name: str) -> None:
    kanon.publish("data.people", name, privacy=PRIVACY)
    assert holds(kanon.connection, name)
    ask = "SELECT COUNT(*) FROM {}"
    assert kanon.estimate(ask.format(quoted(name))) == (160, 0, 160, 160)
    if name not in ("count", "é"):  # these are names without quotes, too
        assert sqlstate_of(lambda: kanon.estimate(ask.format(name))) in (UNSUPPORTED, "42704")
    kanon.drop(name)


# -- texts that are equal, though not the same -----------------------------------------------------


@pytest.fixture(scope="module")
def citext(parties: Parties) -> None:
    if not value(
        parties.admin,
        "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'citext')",
    ):
        pytest.skip("this server has no extension citext")
    fetch(parties.admin, "CREATE EXTENSION citext SCHEMA public")
    for table, types in (("both", ("public.citext", "public.citext")),
                         ("of_city", ("public.citext", "text"))):  # fmt: skip
        create_table(parties.publisher, f"data.{table}", COLUMNS.format(*types), PEOPLE)
        Functions(parties.publisher).register(f"data.{table}", ["age", "city"], "sick", ["number"])


@pytest.mark.usefixtures("citext")
@both_ways
@pytest.mark.parametrize("call", ["publish", "suppress"])
def test_conditions_on_citext_ignore_case(kanon: Kanon, call: str) -> None:
    given: dict[str, Any] = {"privacy": PRIVACY} if call == "publish" else {"k": 3}
    getattr(kanon, call)("data.both", "p", **given)
    assert holds(kanon.connection, "p")
    for condition in ("city = 'c1'", "city = 'C1'", "city IN ('c1', 'x')", "sick = 'FLU'",
                      "city BETWEEN 'c1' AND 'C1'"):  # fmt: skip
        assert kanon.estimate(f"SELECT COUNT(*) FROM p WHERE {condition}") == (80, 0, 80, 80)


@pytest.mark.usefixtures("citext")
@both_ways
@pytest.mark.parametrize("call", ["generalize", "freeform"])
def test_sets_of_citext_are_refused(kanon: Kanon, call: str) -> None:
    for table in ("both", "of_city"):
        publish = lambda table=table: getattr(kanon, call)(f"data.{table}", "p", k=3)
        assert sqlstate_of(publish) == MISMATCH


@both_ways
@pytest.mark.parametrize("call", ["generalize", "freeform"])
def test_sets_of_numerics_with_two_texts_are_refused(
    parties: Parties, kanon: Kanon, call: str
) -> None:
    """They failed the verification, which called it a bug."""
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.numerics")
    rows = [(20 + i % 9, ("1.0", "1.00", "2")[i % 3]) for i in range(60)]
    create_table(parties.publisher, "data.numerics", "age int, code numeric", rows)
    kanon.register(
        "data.numerics", ["age", "code"], None, attributes='{"code": {"kind": "categorical"}}'
    )
    assert sqlstate_of(lambda: getattr(kanon, call)("data.numerics", "p", k=3)) == MISMATCH


@both_ways
@pytest.mark.parametrize("call", ["generalize", "freeform"])
def test_sets_of_texts_filled_with_blanks(parties: Parties, kanon: Kanon, call: str) -> None:
    """An estimate was certainly 0 where 40 is true."""
    fetch(parties.publisher, "DROP TABLE IF EXISTS data.filled")
    create_table(parties.publisher, "data.filled", COLUMNS.format("char(10)", "text"), PEOPLE)
    kanon.register("data.filled", ["age", "city"], "sick", ["number"])
    getattr(kanon, call)("data.filled", "p", k=3)
    assert holds(kanon.connection, "p")
    assert kanon.attack("p")
    _, _, lower, upper = kanon.estimate("SELECT COUNT(*) FROM p WHERE city = 'c1'")
    assert lower <= 40 <= upper


# -- passwords -------------------------------------------------------------------------------------

PART = "S3cr3tPart"
MISWRITTEN = [
    f"postgresql://user:p@{PART}@localhost/db",
    f"postgresql://user:{PART}@x@localhost/db",
    f"postgres://user:p@{PART}:99@localhost:5432/db",
    f"postgresql://user:p?x@{PART}@localhost/db",
    f"postgresql://user:p@{PART},x@localhost/db",
    f"postgresql://user:1/{PART}@localhost/db",
    f"postgresql://user:p@/{PART}@localhost/db",
    f"postgresql://user:{PART}/x@localhost/db",
    f"postgresql://user:p#{PART}@localhost:1/db",
    f"postgresql://user:p:{PART}@localhost:1/db",
    f"postgresql://user:[{PART}@localhost:1/db",
    f"postgresql://user:{PART}@[::1/db",
    f"postgresql://user:%zz{PART}@localhost/db",
    f"postgresql://user:{PART}%@localhost/db",
    f"host=localhost password=a {PART} dbname=db",
    f"host=localhost password='{PART}",
    f"host=localhost password=a {PART}=1",
    f"postgresql://user:\udcff{PART}@localhost/db",
]


@pytest.mark.parametrize("dsn", MISWRITTEN)
def test_password_with_an_unescaped_at_sign(dsn: str) -> None:
    with pytest.raises(ServerError) as refused:
        kanon_db.connect(dsn)
    # The driver's own error, which may quote anything, is not shown with ours.
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None or refused.value.__suppress_context__
    said = f"{refused.value.message} {refused.value.detail} {refused.value.hint}"
    assert PART.lower() not in said.lower()


@pytest.mark.parametrize("dsn", MISWRITTEN[:2])
def test_a_part_of_a_password_is_no_host(dsn: str) -> None:
    """It is not looked up, since name servers would see it; and the hint says what to write."""
    with pytest.raises(ServerError, match="cannot be read") as refused:
        kanon_db.connect(dsn)
    assert "%40" in refused.value.hint


@pytest.mark.parametrize("words", [["publications"], ["install"], ["doctor"], ["demo"]])
def test_password_on_the_command_line(words: list[str]) -> None:
    for dsn in (MISWRITTEN[0], MISWRITTEN[5]):
        for more in ([], ["--json"]):
            result = command(*words, *more, dsn=dsn)
            assert result.returncode == 1
            assert PART.lower() not in (result.stdout + result.stderr).lower()
            assert "Traceback" not in result.stderr


def test_password_of_a_demo_as_json(database: str) -> None:
    ours = psycopg.conninfo.make_conninfo(database, password=PART)
    result = command("demo", "--json", dsn=ours)
    assert result.returncode == 0, result.stderr
    assert PART not in result.stdout + result.stderr
