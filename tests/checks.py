"""One battery of checks for every kind of publication and every method.

Kinds are listed by their registration and methods by their declaration, so that a new one is
checked without any change here; what a kind needs to be called at all is in :data:`NEEDED`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest import mock

from psycopg.types.json import Jsonb

from kanon_db.publications.registry import KINDS
from tests.integration.parties import (
    WAYS,
    Functions,
    Package,
    Parties,
    fetch,
    forget_draws,
    quoted,
    remains,
    sqlstate_of,
    value,
)

INVALID, DUPLICATE, UNKNOWN, FORBIDDEN = "22023", "42710", "42704", "42501"
UNVERIFIED = "KN003"

NEEDED: Final[dict[str, dict[str, Any]]] = {
    "buckets": {"privacy": '{"l": 2}'},
    "model": {
        "label": "sex",
        "members": 3,
        "options": '{"steps": 5}',
        "accept": '{"model_without_budget": "it is a test"}',
    },
}
"""What a kind must be given; the others take ``k``."""

ALSO: Final[dict[str, list[dict[str, Any]]]] = {"buckets": [{"assignment": "m_invariant"}]}
"""Choices that a kind has in addition to its methods."""

ALLOWED: Final[dict[str, dict[str, Any]]] = {
    "k_concealment": {"options": '{"allow_weaker": true}'},
    "two_anonymity": {"k": 2},
}
"""What a method must be given so that it is allowed."""


@dataclass(frozen=True)
class Case:
    """One way to publish."""

    kind: str
    given: dict[str, Any] = field(hash=False)

    def __str__(self) -> str:
        return "-".join([self.kind, *map(str, self.given.values())][:3])

    @property
    def function(self) -> str:
        """The name of the SQL function."""
        return f"publish_{self.kind}"

    def publish(self, parties: Parties, name: str, **given: Any) -> dict[str, Any]:
        """Publish the battery's table."""
        return Functions(parties.publisher).call(
            self.function, "data.people", name, **self.given, **given
        )


def cases() -> Iterator[Case]:
    """List every kind with every method."""
    for kind, declared in KINDS.items():
        needed = NEEDED.get(kind, {"k": 3})
        for item in declared.operation.parameters:
            if item.name == "method":
                for method in item.type.choices:
                    yield Case(kind, {"method": method, **needed, **ALLOWED.get(method, {})})
        for given in ALSO.get(kind, []):
            yield Case(kind, {**given, **needed})


def check_published(parties: Parties, case: Case) -> None:
    """What is published is verified, described and attacked; the source stays as it is."""
    digest = "SELECT md5(string_agg(p::text, '' ORDER BY p::text)) FROM data.people AS p"
    before = value(parties.publisher, digest)
    published = case.publish(parties, "battery")
    assert value(parties.publisher, digest) == before
    look_at_verification(parties, published)
    look_at_catalog(parties, case)
    look_at_columns(parties, case)
    look_at_attacks(parties)


def look_at_verification(parties: Parties, published: dict[str, Any]) -> None:
    """Every record is published or counted, and analysts, too, see that every promise holds."""
    (n_source,) = fetch(parties.publisher, "SELECT count(*) FROM data.people")
    assert published["records"] == n_source[0]
    for connection in (parties.publisher, parties.analyst):
        checks = Functions(connection).verify("battery")
        assert checks
        assert all(holds for *_, holds in checks)
        metrics = Functions(connection).metrics("battery")
        assert metrics["records"] + metrics.get("suppressed_records", 0) == n_source[0]
    assert published["metrics"].keys() >= metrics.keys() - {"gap", "lower_bound"}
    assert published["guarantee"]


def look_at_catalog(parties: Parties, case: Case) -> None:
    """The catalog says what was asked for."""
    kind, method, parameters, rows = fetch(
        parties.analyst, "SELECT kind, method, parameters, rows FROM kanon.publications"
    )[0]
    assert kind == case.kind
    asked = case.given.get("method")
    if asked not in (None, "auto"):
        assert method == asked
    declared = KINDS[case.kind].operation.parameters
    assert parameters.keys() >= {item.name for item in declared} - {
        "source", "publication", "method", "replace", "dry_run",
    }  # fmt: skip
    assert parameters["readers"] == ["kanon_analyst"]
    assert rows == value(parties.publisher, "SELECT count(*) FROM data.people")


def look_at_columns(parties: Parties, case: Case) -> None:
    """No relation has an identifier, a column without a role, or the column of entities."""
    columns = fetch(
        parties.admin,
        "SELECT DISTINCT a.attname::text FROM pg_attribute AS a JOIN pg_class AS c"
        " ON c.oid = a.attrelid WHERE c.relnamespace = 'published'::regnamespace",
    )
    assert not {("name",), ("note",), ("person",)} & set(columns)
    shape = KINDS[case.kind].shape
    if shape == "rows":
        assert ("number",) in columns  # insensitive
    if shape == "model":
        assert not {("number",), ("age",), ("sex",), ("sick",)} & set(columns)


def look_at_attacks(parties: Parties) -> None:
    """Attacks are played with rates and bounds in [0, 1], kept, and shown to the publisher only."""
    before = remains(parties.admin)
    found = Functions(parties.publisher).rows("attack", "battery")
    assert remains(parties.admin) == before
    assert len({row["attack"] for row in found}) == len(found) > 1
    n_source = value(parties.publisher, "SELECT count(*) FROM data.people")
    for row in found:
        assert (row["rate"] is None) == (row["base_rate"] is None) == (row["people"] == 0)
        assert 0 <= row["people"] <= n_source, row
        for name in ("bound", "base_rate", "rate"):
            assert row[name] is None or 0 <= row[name] <= 1, row
    kept = "SELECT attacks FROM kanon.publications"
    assert value(parties.publisher, kept)["found"] == found
    assert value(parties.analyst, kept) is None
    for connection in (parties.analyst, parties.stranger):
        call = lambda: Functions(connection).rows("attack", "battery")
        assert sqlstate_of(call) == FORBIDDEN


def check_entities(parties: Parties, case: Case) -> None:
    """Where people have several records, k rows are of k people, or nothing is published."""
    publish = lambda: Functions(parties.publisher).call(
        case.function, "data.visits", "battery", **case.given
    )
    counts = KINDS[case.kind].load().counts_entities
    if not counts or (case.kind == "suppressed" and case.given["method"] != "greedy"):
        assert sqlstate_of(publish) == INVALID
        assert remains(parties.admin) == []
        return
    guarantee = publish()["guarantee"]
    if KINDS[case.kind].shape == "model":
        assert all(holds for *_, holds in Functions(parties.analyst).verify("battery"))
        return
    assert "as many different people" in guarantee
    person_of = dict(fetch(parties.publisher, "SELECT number, person FROM data.visits"))
    classes: dict[str, set[str]] = {}
    rows = fetch(parties.analyst, "SELECT number, to_jsonb(b)::text FROM published.battery AS b")
    for number, row in rows:
        shown = {
            key: cell for key, cell in json.loads(row).items() if key not in ("number", "sick")
        }
        classes.setdefault(json.dumps(shown), set()).add(person_of[number])
    assert min(map(len, classes.values())) >= case.given["k"]
    checks = Functions(parties.analyst).verify("battery")
    assert all(holds for *_, holds in checks)
    assert any("entities were counted" in check for check, *_ in checks)


def check_row_order_tells_nothing(parties: Parties, case: Case) -> None:
    """Two publications of the same table, drawn apart, have different orders."""
    if KINDS[case.kind].shape == "model":
        return  # it has no rows
    orders = []
    for name in ("battery", "battery_again"):
        forget_draws(parties.admin)
        case.publish(parties, name)
        relation = quoted("published", name + ("_qit" if case.kind == "buckets" else ""))
        sick = "bucket_id" if case.kind == "buckets" else "number"
        orders.append([row[0] for row in fetch(parties.analyst, f"SELECT {sick} FROM {relation}")])
    assert orders[0] != orders[1]
    assert orders[0] != sorted(orders[0])


def check_replaced(parties: Parties, case: Case) -> None:
    """A name that is taken is refused; replacing and dropping leave nothing behind."""
    case.publish(parties, "battery")
    before = remains(parties.admin)
    assert sqlstate_of(lambda: case.publish(parties, "battery")) == DUPLICATE
    assert remains(parties.admin) == before
    case.publish(parties, "battery", replace=True)
    assert remains(parties.admin) == before
    Functions(parties.publisher).drop("battery")
    assert remains(parties.admin) == []


def check_dry_run(parties: Parties, case: Case) -> None:
    """A dry run says what publishing would, and leaves no trace, also next to an older one."""
    tried = case.publish(parties, "battery", dry_run=True)
    assert remains(parties.admin) == []
    assert tried["publication_id"] is None
    published = case.publish(parties, "battery")
    assert tried["guarantee"] == published["guarantee"]
    figures = tried["metrics"].pop("figures")
    assert tried["metrics"].keys() == published["metrics"].keys()
    look_at_figures(parties, case, figures)
    before = remains(parties.admin), fetch(parties.admin, "TABLE kanon.publication")
    case.publish(parties, "battery", dry_run=True, replace=True)
    assert sqlstate_of(lambda: case.publish(parties, "battery", dry_run=True)) == DUPLICATE
    assert before == (remains(parties.admin), fetch(parties.admin, "TABLE kanon.publication"))


def look_at_figures(parties: Parties, case: Case, figures: dict[str, Any]) -> None:
    """A dry run has the rows that `attack` and `evaluate_counts` have of the publication."""
    publisher = Functions(parties.publisher)
    played = publisher.rows("attack", "battery")
    assert [row["attack"] for row in figures["attacks"]] == [row["attack"] for row in played]
    assert figures["attacks"][0].keys() == played[0].keys()
    asked = []
    if case.kind == "buckets":
        asked = publisher.rows("evaluate_counts", "battery", seed=1)
        assert figures["counts"][0].keys() == asked[0].keys()
    known = ("expected_selectivity", "n_queries", "undefined")
    same = [[[row[name] for name in known] for row in rows] for rows in (figures["counts"], asked)]
    assert same[0] == same[1]
    accepted = json.loads(case.given.get("accept", "{}"))
    assert [risk["risk"] for risk in figures["risks"]] == list(accepted)
    assert figures["not_measured"] == {}


def check_both_ways(parties: Parties, case: Case) -> None:
    """The functions of SQL and the methods of Python publish, show and measure the same."""
    found = []
    for way in WAYS.values():
        kanon = way(parties.publisher)
        tried = kanon.call(case.function, "data.people", "battery", **case.given, dry_run=True)
        published = kanon.call(case.function, "data.people", "battery", **case.given)
        rows = "SELECT md5(string_agg(b::text, ' ' ORDER BY b::text)) FROM published.battery AS b"
        found.append(
            {
                "row": [published[name] for name in ("name", "guarantee", "records")],
                "metrics of the call": [sorted(row["metrics"]) for row in (tried, published)],
                "rows": None if case.kind == "model" else value(parties.publisher, rows),
                "verify": kanon.verify("battery"),
                "metrics": kanon.metrics("battery"),
                "attack": [attack for attack, *_ in kanon.attack("battery")],
                "publications": kanon.publications(),
                "unknown": sqlstate_of(lambda: kanon.metrics("nothing")),
            }
        )
        kanon.drop("battery")
    assert [name for name in found[0] if found[0][name] != found[1][name]] == []


def check_found_for_fewer(parties: Parties, case: Case) -> None:
    """What a method finds for k - 1 is not published for k: it is verified before that."""
    # One of the others; and where it is for one k only.
    if "k" not in case.given or case.given["method"] in ("auto", "two_anonymity"):
        return
    methods = sys.modules[type(KINDS[case.kind].load()).__module__].methods
    found = getattr(methods, case.given["method"])

    def for_fewer(data: Any, request: Any, pulse: Any) -> Any:
        return found(data, replace(request, k=request.k - 1), pulse)

    # Where they are refined, classes are looked at before that.
    unrefined = {"refine": False} if case.kind == "generalized" else {}
    publish = lambda: Package(parties.publisher).call(
        case.function, "data.people", "battery", **case.given, **unrefined
    )
    with mock.patch.object(methods, case.given["method"], for_fewer):
        assert sqlstate_of(publish) == UNVERIFIED
    assert remains(parties.admin) == []


def check_one_record_short(parties: Parties, case: Case) -> None:
    """To promise one record more than the smallest class has is found out; as many, holds."""
    smallest = case.publish(parties, "battery")["metrics"].get("smallest_class")
    if smallest is None:
        return
    for k, holds in ((int(smallest), True), (int(smallest) + 1, False)):
        promised = "UPDATE kanon.publication SET parameters = jsonb_set(parameters, '{k}', $1)"
        fetch(parties.admin, promised, Jsonb(k))
        checks = Functions(parties.analyst).verify("battery")
        broken = [name.partition(":")[0] for name, *_, good in checks if not good]
        assert ("k-anonymity" in broken) == (not holds)
        assert (broken == []) == holds


def check_readers(parties: Parties, case: Case) -> None:
    """Only the readers can read a publication; nobody can read what its view is made from."""
    case.publish(parties, "battery")
    assert fetch(parties.analyst, "TABLE published.battery LIMIT 1")
    kind = KINDS[case.kind].load()
    for suffix in kind.suffixes:
        relation = f"published.battery{suffix}"
        read = lambda: fetch(parties.analyst, f"TABLE {relation} LIMIT 1")
        assert sqlstate_of(read) == (FORBIDDEN if suffix in kind.closed else None)
    case.publish(parties, "battery", readers=[], replace=True)
    assert Functions(parties.analyst).publications() == []
    assert sqlstate_of(lambda: fetch(parties.analyst, "TABLE published.battery")) == FORBIDDEN
    assert sqlstate_of(lambda: Functions(parties.analyst).verify("battery")) == UNKNOWN


def check_refused(parties: Parties, case: Case) -> None:
    """Every mistake is refused before anything is read, and leaves no trace."""
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"method": "no such method"}, INVALID),
        ({"readers": ["no such role"]}, UNKNOWN),
        ({"options": '{"tim_limit": 1}'}, INVALID),
        ({"options": '{"time_limit": 0}'}, INVALID),
        ({"options": "[]"}, INVALID),
        ({"options": '"x"'}, INVALID),
        ({"replace": None}, INVALID),
    ]
    if case.kind == "buckets":
        mistakes += [({"privacy": "{}"}, INVALID), ({"privacy": '{"l": 0}'}, INVALID)]
    elif case.kind == "model":
        mistakes += [({"label": name}, INVALID) for name in ("name", "note", "person", "x")]
        mistakes += [({"features": f'{{"{name}": {{}}}}'}, INVALID) for name in ("name", "sex")]
        mistakes += [({"members": n}, INVALID) for n in (0, 1, 1001)]
        mistakes += [({"features": text}, INVALID) for text in ("{}", "[]", '{"age": 1}')]
        mistakes += [({"budget": '{"epsilon": 1}'}, INVALID), ({"accept": "{}"}, "KN005")]
    else:
        mistakes += [({"k": 0}, INVALID), ({"k": -1}, INVALID), ({"k": 10_000}, INVALID)]
        mistakes += [({"weights": '{"number": 1}'}, INVALID), ({"weights": '{"age": 0}'}, INVALID)]
    for given, sqlstate in mistakes:
        whole = {**case.given, **given}
        for way in WAYS.values():
            publish = lambda: way(parties.publisher).call(
                case.function, "data.people", "battery", **whole
            )
            assert sqlstate_of(publish) == sqlstate, given
    case.publish(parties, "taken")
    for name in ("", "x" * 60):
        assert sqlstate_of(lambda: case.publish(parties, name)) == "42602"
    Functions(parties.publisher).drop("taken")
    assert remains(parties.admin) == []


def check_strangers(parties: Parties, case: Case) -> None:
    """Neither analysts nor strangers can publish, not even through the inner function."""
    names = ("data.people", "battery")
    for connection in (parties.analyst, parties.stranger):
        call = lambda: Functions(connection).call(case.function, *names, **case.given)
        assert sqlstate_of(call) == FORBIDDEN
        inner = f"SELECT kanon.python_{case.function}('{{}}')"
        assert sqlstate_of(lambda: fetch(connection, inner)) == FORBIDDEN
    assert remains(parties.admin) == []


def check_direct_call_leaves_nothing(parties: Parties, case: Case) -> None:
    """The inner function returns its error after undoing everything that it did."""
    case.publish(parties, "battery")
    before = remains(parties.admin)
    inner = f"SELECT kanon.python_{case.function}($1::text::jsonb)"
    # It is refused after the name was reserved and the older publication was dropped.
    given = {"source": "data.people", "publication": "battery", **case.given}
    given |= {"replace": True, "readers": ["no such role"]}
    answer = value(parties.publisher, inner, json.dumps(given))
    assert answer["error"]["sqlstate"] == UNKNOWN
    assert remains(parties.admin) == before


OF_METHODS: Final[tuple[Callable[[Parties, Case], None], ...]] = (
    check_published,
    check_entities,
    check_found_for_fewer,
    check_one_record_short,
)
"""What depends on how something is found."""

OF_KINDS: Final[tuple[Callable[[Parties, Case], None], ...]] = (
    check_row_order_tells_nothing,
    check_both_ways,
    check_replaced,
    check_dry_run,
    check_readers,
    check_refused,
    check_strangers,
    check_direct_call_leaves_nothing,
)
"""What is the pipeline's, whatever the method is."""


def checks() -> Iterator[tuple[Case, Callable[[Parties, Case], None]]]:
    """List every check of every method, and the others for one method of each kind."""
    seen: set[str] = set()
    for case in cases():
        yield from ((case, check) for check in OF_METHODS)
        if case.kind not in seen and case.given.get("method") != "auto":
            seen.add(case.kind)
            yield from ((case, check) for check in OF_KINDS)
