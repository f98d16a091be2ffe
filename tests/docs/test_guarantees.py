"""Each sentence of each guarantee is in the reference, and nothing else is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kanon_db.declaration import read_request
from kanon_db.models.kind import guarantee_of
from kanon_db.publications.buckets.methods import ValueProtection
from kanon_db.publications.freeform import kind as freeform
from kanon_db.publications.generalized import kind as generalized
from kanon_db.publications.guarantees import joint_guarantee, with_kept
from kanon_db.publications.registry import KINDS
from kanon_db.publications.suppressed import kind as suppressed

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "reference.md").read_text(
    encoding="utf-8"
)
TABLE = PAGE.split("<!-- guarantees -->")[1].split("<!-- end -->")[0]
ROWS = re.findall(r"^\| (?!---|what it says)(.+?) \| (`.+`) \|$", TABLE, re.MULTILINE)


def request(kind: str, **given: Any) -> Any:
    named = {"source": "data.people", "publication": "p", **given}
    return read_request(KINDS[kind].operation.request, named)


def guarantees() -> Iterator[str]:
    """Every kind, with everything that changes what it says."""
    quiet = cast("Any", SimpleNamespace(warn=lambda _: None))
    for assignment, certain, unbounded, attributes in product(
        ("cells", "random", "local", "m_invariant"),
        (0, 2),
        (0.0, 0.125),
        (("ill",), ("ill", "cost")),
    ):
        asked = request("buckets", privacy={"l": 3}, assignment=assignment)
        for l in (None, 3) if assignment != "m_invariant" else (3,):
            protection = ValueProtection(attributes, (), l, unbounded)
            yield protection.guarantee(asked, certain, quiet)
    exposure = {"unbounded": 1, "records": 8}
    for constraints, n, with_entities, names in product(
        (None, {"l": 2}, {"default": 0.5}), (0, 3), (False, True), (["ill"], ["ill", "3; cost"])
    ):
        asked = request("generalized", k=5, constraints=constraints)
        each = {} if constraints is None else asked.constraints.of_each(names)
        for exposures in (dict.fromkeys(each, exposure), {}):
            yield generalized.generalized_guarantee(
                asked, n, each, exposures, quiet.warn, with_entities=with_entities
            )
    for method, options in (
        ("sort_greedy", {}), ("sort_greedy", {"symmetric": True}),
        ("k_concealment", {"allow_weaker": True}),
    ):  # fmt: skip
        yield freeform.freeform_guarantee(request("freeform", k=4, method=method, options=options))
    accept = {"left_over_records": "it is a test"}
    for left_over, n, with_entities in product(("withhold", "publish"), (0, 3), (False, True)):
        asked = request("suppressed", k=4, options={"left_over": left_over}, accept=accept)
        yield suppressed.suppressed_guarantee(asked, n, with_entities=with_entities)
    for entity, is_declared, budget in product(
        (None, "id"), (True, False), (None, SimpleNamespace(epsilon=2.0, delta=1e-5, answers=70))
    ):
        job = SimpleNamespace(
            source=SimpleNamespace(entity=entity), request=SimpleNamespace(label="ill")
        )
        feature = SimpleNamespace(name="age", is_declared=is_declared)
        encoding = SimpleNamespace(features=[feature])
        labels = SimpleNamespace(is_declared=is_declared)
        yield guarantee_of(*cast("Any", (job, budget, encoding, labels)))
    kept = SimpleNamespace(kept_in_words="the latest by admission, with the greatest cost")
    yield with_kept("what correlations with other columns tell is not covered", cast("Any", kept))


def test_each_sentence_is_in_the_reference() -> None:
    known = [".+".join(map(re.escape, row.split("…"))) for row, _ in ROWS]
    told = [*guarantees()]
    told += [joint_guarantee(one, one) for one in told]
    sentences = {one for said in told for one in said.split("; ")}
    missing = [one for one in sentences if not any(re.fullmatch(row, one) for row in known)]
    assert missing == []
    unused = [row for row in known if not any(re.fullmatch(row, one) for one in sentences)]
    assert unused == []
