"""Two releases of rows, or of rows and buckets, for the same readers: refused, with figures."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest

from tests.integration.parties import Functions, Parties, create_table, fetch, value

RISK = "combined_releases"
REASON = json.dumps({RISK: "both teams are the same people"})
NAMES = (f"w{number}" for number in itertools.count())
REPLACED = ", if nobody was replaced"
K = 3
STRICT = {"k": K, "method": "mondrian", "refine": False}
GIVEN: dict[str, dict[str, Any]] = {"generalized": STRICT, "suppressed": {"k": 2}}


@pytest.fixture(autouse=True)
def refused_by_default(parties: Parties) -> Iterator[None]:
    fetch(parties.admin, "DELETE FROM kanon.setting WHERE name = 'combined_releases'")
    yield
    for name in Functions(parties.publisher).publications():
        Functions(parties.publisher).drop(name)


@pytest.fixture
def source(parties: Parties) -> str:
    """Everybody has an age of their own; rows show a job besides the illness."""
    return created(parties, list(range(120)))


@pytest.fixture
def crowded(parties: Parties) -> str:
    """Some have the same age, and some of these the same sex; few have the same job."""
    draw = random.Random(12)  # noqa: S311  # made-up data
    return created(parties, [draw.randrange(40) for _ in range(120)], n_jobs=30)


def created(parties: Parties, ages: Sequence[int], n_jobs: int = 3) -> str:
    name = f"data.{next(NAMES)}"
    draw = random.Random(11)  # noqa: S311  # made-up data
    rows = [
        (age, "fm"[i % 2], f"disease {draw.randrange(5)}", f"job {draw.randrange(n_jobs)}")
        for i, age in enumerate(ages)
    ]
    create_table(parties.publisher, name, "age int, sex text, sick text, job text", rows)
    Functions(parties.publisher).register(name, ["age", "sex"], "sick", insensitive=["job"])
    return name


def publish(parties: Parties, kind: str, source: str, name: str, **given: Any) -> dict[str, Any]:
    return Functions(parties.publisher).call(f"publish_{kind}", source, name, **given)


def refusal(parties: Parties, kind: str, source: str, name: str, **given: Any) -> str:
    with pytest.raises(psycopg.Error) as raised:
        publish(parties, kind, source, name, **given)
    assert raised.value.sqlstate == "KN005"
    assert RISK in str(raised.value.diag.message_primary)
    return str(raised.value.diag.message_detail)


def check(parties: Parties, source: str, draft: str) -> dict[str, dict[str, Any]]:
    """What a draft would tell together with the others, by the names of the checks."""
    kanon = Functions(parties.publisher)
    found = kanon.rows("check_release", source, draft, readers=["kanon_analyst"])
    for row in found:
        assert row["check"].endswith(REPLACED) == (row["result"] in ("exact", "sound"))
    return {row["check"].removesuffix(REPLACED): row for row in found}


Row = tuple[Any, ...]


def rows_of(parties: Parties, name: str, *, suppressed: bool = False) -> list[tuple[Row, Row]]:
    """The published rows: what tells whose they may be, and what they show besides."""
    columns = "lower(age), upper(age) - 1, sex, sick, job"
    if suppressed:
        columns = "coalesce(age, 0), coalesce(age, 10000), ARRAY[sex], sick, job"
    found = fetch(
        parties.analyst if name[0] != "d" else parties.admin,
        f"SELECT {columns} FROM published.{name}",
    )
    return [((low, high, tuple(sexes)), shown) for low, high, sexes, *shown in found]


def covers(cells: Row, age: int, sex: str) -> bool:
    low, high, sexes = cells
    return low <= age <= high and (sex in sexes or None in sexes)


def plainly(
    people: Sequence[Row], releases: Sequence[list[tuple[Row, Row]]], ks: Sequence[int]
) -> Counter[str]:
    """Look up everybody's rows in each release, and keep those that show what all of them do."""
    found: Counter[str] = Counter()
    for everywhere in zip(*(looked_up(people, rows) for rows in releases), strict=True):
        fitting = [[tuple(row) for _, row in rows] for rows in everywhere]
        common = set.intersection(*map(set, fitting))
        left = [sum(shown in common for shown in rows) for rows in fitting]
        found["few rows"] += any(n < k for n, k in zip(left, ks, strict=True))
        found["one row"] += min(left) == 1
        found["one value"] += len({sick for sick, _ in common}) == 1
    return found


def looked_up(people: Sequence[Row], rows: list[tuple[Row, Row]]) -> list[list[tuple[Row, Row]]]:
    """The rows of everybody, who is in no other class once as many fit theirs as it has rows."""
    sizes = Counter(cells for cells, _ in rows)
    fitting = [{cells for cells in sizes if covers(cells, *person)} for person in people]
    full: set[Row] = set()
    while new := {
        cells
        for cells, size in sizes.items()
        if cells not in full and sum(cells in its for its in fitting) == size
    }:
        fitting = [its & new or its for its in fitting]
        full |= new
    return [[row for row in rows if row[0] in its] for its in fitting]


@pytest.mark.pitfall(13, 30)
@pytest.mark.parametrize(
    ("first", "second"),
    [("generalized", "generalized"), ("suppressed", "suppressed"), ("generalized", "suppressed")],
)
def test_two_of_rows(parties: Parties, crowded: str, first: str, second: str) -> None:
    """Refused with how many people have too few rows, which is what looking them up tells."""
    publish(parties, first, crowded, "first", **GIVEN[first])
    again = {**GIVEN[second], "k": K + 1}
    detail = refusal(parties, second, crowded, "second", **again)
    publish(parties, second, crowded, "draft", readers=[], **again)
    found = check(parties, crowded, "draft")
    expected = plainly(
        fetch(parties.publisher, f"SELECT age, sex FROM {crowded}"),
        [
            rows_of(parties, "first", suppressed=first == "suppressed"),
            rows_of(parties, "draft", suppressed=second == "suppressed"),
        ],
        [GIVEN[first]["k"], K + 1],
    )
    rows, values = found["rows that may be somebody's"], found["values that may be somebody's"]
    assert (rows["result"], values["result"]) == ("exact", "exact")
    assert (rows["people"], rows["certain"]) == (expected["few rows"], expected["one row"])
    assert values["certain"] == values["people"] == expected["one value"]
    assert expected["few rows"] > 0
    for name in ("intersection", "forced values"):
        assert found[name]["result"] == "sound"
        assert found[name]["certain"] <= 120
    said = f"fewer than k for {rows['people']} people, a single one for {rows['certain']} (exact)"
    assert said in detail
    assert "not measured" not in detail
    publish(parties, second, crowded, "second", accept=REASON, **again)
    measured = value(
        parties.publisher,
        "SELECT measured FROM kanon.releases WHERE source = $1 AND state = 'live'"
        " ORDER BY release_id DESC LIMIT 1",
        crowded,
    )
    assert rows["people"] in [one["people"] for one in measured["findings"]]


def test_rows_beside_buckets(parties: Parties, source: str) -> None:
    """The bound of buckets is the one that is measured, whichever comes first."""
    publish(parties, "buckets", source, "b", privacy='{"l": 2}')
    assert "certain" in refusal(parties, "generalized", source, "g", **STRICT)
    publish(parties, "generalized", source, "draft", readers=[], **STRICT)
    found = check(parties, source, "draft")
    qit = dict(fetch(parties.analyst, "SELECT age, bucket_id FROM published.b_qit"))
    sat = fetch(parties.analyst, "SELECT bucket_id, sick FROM published.b_sat")
    rows = rows_of(parties, "draft")
    certain = few = 0
    for age in range(120):
        fitting = [sick for cells, (sick, _) in rows if covers(cells, age, "fm"[age % 2])]
        common = {sick for bucket, sick in sat if bucket == qit[age]} & set(fitting)
        certain += len(common) == 1
        few += sum(sick in common for sick in fitting) < K
    assert found["values that may be somebody's"]["certain"] == certain > 0
    assert found["rows that may be somebody's"]["people"] == few > 0
    assert found["values that may be somebody's"]["result"] == "exact"
    assert found["intersection"]["bound"] == 0.5
    assert found["intersection"]["result"] == "exact"
    assert found["forced values"]["certain"] >= certain
    Functions(parties.publisher).drop("draft")
    Functions(parties.publisher).drop("b")
    assert "b was dropped" not in refusal(parties, "suppressed", source, "s", k=K)


def test_people_who_came(parties: Parties, crowded: str) -> None:
    """Nothing is claimed of those who may be in a class or not; what is likely is an estimate."""
    publish(parties, "generalized", crowded, "first", **STRICT)
    publish(parties, "generalized", crowded, "before", readers=[], **{**STRICT, "k": 4})
    before = check(parties, crowded, "before")["rows that may be somebody's"]
    fetch(parties.publisher, f"INSERT INTO {crowded} VALUES (20, 'f', 'disease 0', 'job 1')")
    publish(parties, "generalized", crowded, "draft", readers=[], **{**STRICT, "k": 4})
    found = check(parties, crowded, "draft")
    (unknown,) = (row for name, row in found.items() if name.startswith("not measured"))
    assert not unknown["holds"]
    assert found["rows that may be somebody's"]["result"] == "sound"
    supposed = found["rows that may be somebody's, unless they were left out or came later"]
    assert supposed["result"] == "estimate"
    assert supposed["people"] >= found["rows that may be somebody's"]["people"]
    assert before["result"] == "exact"
    came = found["differencing: all who came, unless somebody left"]
    assert (came["result"], came["certain"], came["share"]) == ("estimate", 1, 1.0)
    assert "it is not known who" in refusal(parties, "generalized", crowded, "second", **STRICT)


def test_a_newcomer_is_found_by_differencing(parties: Parties) -> None:
    """Of whoever came between two releases, readers know the row, whatever the classes."""
    name = f"data.{next(NAMES)}"
    rows = [(i // 4, f"disease {i % 4}") for i in range(40)]
    create_table(parties.publisher, name, "age int, sick text", rows)
    Functions(parties.publisher).register(name, ["age"], "sick")
    patterns = ["."]
    publish(parties, "suppressed", name, "first", k=K, patterns=patterns)
    fetch(
        parties.publisher, f"INSERT INTO {name} SELECT 77, 'disease 9' FROM generate_series(1, 3)"
    )
    publish(parties, "suppressed", name, "draft", readers=[], k=K, patterns=patterns)
    found = check(parties, name, "draft")
    came = found["differencing: who came"]
    assert (came["certain"], came["share"]) == (3, 1.0)
    assert found["values that may be somebody's"]["certain"] == 3


def test_what_was_promised_is_measured(parties: Parties, crowded: str) -> None:
    """Of l-diverse classes, l values; of thresholds, the threshold; of neither, certainty."""
    for constraints, bound in (({"l": 3}, 1 / 3), ({"default": 0.6}, 0.6), (None, 1.0)):
        given = {} if constraints is None else {"constraints": json.dumps(constraints)}
        publish(parties, "generalized", crowded, "first", **STRICT, **given, accept=REASON)
        publish(parties, "suppressed", crowded, "draft", readers=[], k=2)
        values = check(parties, crowded, "draft")["values that may be somebody's"]
        assert values["bound"] == pytest.approx(bound)
        if bound == 1.0:
            assert values["people"] == values["certain"]
        Functions(parties.publisher).drop("first")
        Functions(parties.publisher).drop("draft")


def test_without_a_sensitive_attribute(parties: Parties) -> None:
    """Only rows are counted, and all of them are possible; it is refused all the same."""
    name = f"data.{next(NAMES)}"
    create_table(parties.publisher, name, "age int", [(i,) for i in range(30)])
    Functions(parties.publisher).register(name, ["age"], None)
    publish(parties, "generalized", name, "first", **STRICT)
    detail = refusal(parties, "generalized", name, "second", k=5, method="k_member")
    assert "No check found anybody above a bound, but not everything" in detail


def test_each_reason_is_said_once(parties: Parties, source: str) -> None:
    publish(parties, "freeform", source, "f", k=K)
    publish(parties, "freeform", source, "f", k=K, replace=True, accept=REASON)
    publish(parties, "freeform", source, "f", k=K, replace=True, accept=REASON)
    detail = refusal(parties, "generalized", source, "g", **STRICT)
    assert detail.count("it was replaced") == 1
    assert detail.count("freeform rows") == 1
    for kind in ("generalized", "suppressed"):
        assert detail.count("f: ") == 2, kind


def test_another_source_of_the_same_people(parties: Parties, source: str) -> None:
    """Where the columns are not those that were published, it is refused without figures."""
    publish(parties, "generalized", source, "first", **STRICT)
    view = f"data.{next(NAMES)}"
    fetch(parties.publisher, f"CREATE VIEW {view} AS SELECT age::bigint, sick FROM {source}")
    Functions(parties.publisher).register(view, ["age"], "sick")
    detail = refusal(parties, "generalized", view, "second", **STRICT)
    assert "first: not measured: the source's columns are not those" in detail
    publish(parties, "generalized", view, "second", accept=REASON, **STRICT)


def test_what_follows_is_allowed(parties: Parties) -> None:
    """Classes of another release that were put together need no word, if nothing else changed."""
    name = f"data.{next(NAMES)}"
    rows = [(i // 4, f"disease {i % 7}") for i in range(40)]
    create_table(parties.publisher, name, "age int, sick text", rows)
    Functions(parties.publisher).register(name, ["age"], "sick")
    publish(parties, "suppressed", name, "first", k=K, patterns=["."])
    publish(parties, "suppressed", name, "coarser", k=K, patterns=["*"])
    publish(parties, "generalized", name, "draft", readers=[], k=4, method="mondrian")
    assert check(parties, name, "draft") == {}
    kanon = Functions(parties.publisher)
    kanon.rows("grant_publication", "draft", readers=["kanon_analyst"])
    fetch(parties.publisher, f"UPDATE {name} SET sick = 'another' WHERE age = 3")
    detail = refusal(parties, "suppressed", name, "later", k=K, patterns=["*"])
    assert "first" in detail
    fetch(parties.publisher, f"DELETE FROM {name} WHERE age = 3")
    assert "first" in refusal(parties, "suppressed", name, "later", k=K, patterns=["*"])


def test_rows_in_batches(parties: Parties) -> None:
    """Rows of two batches look alike, but a copy of the first one tells them apart."""
    name = f"data.{next(NAMES)}"
    first = [(1, 20, "f", "A"), (2, 30, "f", "B"), (3, 30, "f", "C"), (4, 30, "f", "D")]
    create_table(parties.publisher, name, "id int, age int, sex text, sick text", first)
    kanon = Functions(parties.publisher)
    kanon.register(name, ["age", "sex"], "sick", arrival="id")
    publish(parties, "suppressed", name, "batched", k=4, patterns=["*."])
    fetch(
        parties.publisher,
        f"INSERT INTO {name} VALUES (5, 20, 'f', 'E'), (6, 20, 'f', 'F'), (7, 20, 'f', 'G'),"
        " (8, 30, 'f', 'H')",
    )
    assert kanon.call("refresh", "batched")["added"] == 4
    told = refusal(parties, "suppressed", name, "finer", k=4, patterns=[".."])
    assert "rows in several batches" in told
